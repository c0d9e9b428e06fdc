"""Durations as Kubernetes and Go write them: ``60s``, ``1h30m``, ``1.5h``, ``250ms``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_UNITS: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|µs|ms|s|m|h)", re.ASCII)


class BadDuration(ValueError):
    """What was written is no duration."""


def seconds(text: str) -> Fraction:
    """How long text is, in seconds, exact. Raises BadDuration."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return Fraction(0)
    total, at = Fraction(0), 0
    while at < len(rest) <= 100:
        part = _PART.match(rest, at)
        if part is None:
            break
        number = part.group(1)
        total += Fraction(f"0{number}" if number[0] == "." else number) * _UNITS[part.group(2)]
        at = part.end()
    if not rest or at != len(rest):
        raise BadDuration(f"{text[:40]!r} is no duration like 60s or 1h30m")
    return -total if negative else total
