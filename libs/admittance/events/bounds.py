"""How much an answer may say: of a check, or of a provider of capacity. What is more fits into no
object beside what others say, and then on no bus."""

from __future__ import annotations

from typing import Any, Final

import msgspec

MESSAGE_MAX: Final = 32_768
"""Characters of a message; more is kept nowhere."""
WHOLE_MAX: Final = 131_072
"""Bytes of JSON that all details have together, and all updates of pod sets."""


DEEP_MAX: Final = 16
"""Levels of what has no shape of its own. Whoever writes again what he has read, or reads it where
more functions have called one another, cannot go as deep as whoever read it first."""


def too_deep(what: str, value: Any) -> str:
    """What is wrong with lists within lists, a sentence about ``what``; "": nothing."""
    return f"{what}: more than {DEEP_MAX} levels deep" if _is_deep(value, DEEP_MAX) else ""


def _is_deep(value: Any, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple):
        return False
    return left < 0 or any(_is_deep(one, left - 1) for one in inner)


def too_long(what: str, value: Any) -> str:
    """What is wrong with so much, a sentence about ``what``; "": nothing."""
    size = len(msgspec.json.encode(value))
    if size <= WHOLE_MAX:
        return ""
    return f"{what}: {size:,} bytes of JSON in all, {WHOLE_MAX:,} are allowed"
