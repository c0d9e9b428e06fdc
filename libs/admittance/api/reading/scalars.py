"""Scalars of YAML that were written without quotes: what each is to be, the schema says later.

Apart from the reader of YAML, which takes long to import: objects from the bus need none.
"""

from __future__ import annotations

import re
from typing import Any, Final

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})


class Plain(str):
    """A scalar that was written without quotes."""

    __slots__ = ()


def resolve(value: Any) -> Any:
    """value with its plain scalars read as YAML 1.2 does: null, true, numbers, else strings."""
    if isinstance(value, Plain):
        return scalar(value)
    if isinstance(value, dict):
        return {key: resolve(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item) for item in value]
    return value


def scalar(text: Plain) -> Any:
    """What text is where nothing says what it should be."""
    if text in _NULLS:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if len(text) <= 18 and _INT.fullmatch(text):
        return int(text)
    if len(text) <= 40 and _FLOAT.fullmatch(text) and not text.lstrip("+-").startswith("00"):
        return float(text) if not _leading_zero(text) else str(text)
    return str(text)


def _leading_zero(text: str) -> bool:
    bare = text.lstrip("+-")
    return len(bare) > 1 and bare[0] == "0" and bare[1].isdigit()
