"""How much an answer may say: of a check, or of a provider of capacity. What is more fits into no
object beside what others say, and then on no bus."""

from __future__ import annotations

from typing import Any, Final

import msgspec

MESSAGE_MAX: Final = 32_768
"""Characters of a message; more is kept nowhere."""
WHOLE_MAX: Final = 131_072
"""Bytes of JSON that all details have together, and all updates of pod sets."""


def too_long(what: str, value: Any) -> str:
    """What is wrong with so much, a sentence about ``what``; "": nothing."""
    size = len(msgspec.json.encode(value))
    if size <= WHOLE_MAX:
        return ""
    return f"{what}: {size:,} bytes of JSON in all, {WHOLE_MAX:,} are allowed"
