"""Amounts, times and states in the words of the page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from admittance.workload.phase import Phase

GPU: Final = "nvidia.com/gpu"
UNITS: Final = {GPU: "GPUs"}
"""How resources are called beside a number; a resource that is not here has its own name."""
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

STATES: Final = {
    Phase.PENDING: "pending",
    Phase.QUOTA_RESERVED: "reserved",
    Phase.ADMITTED: "admitted",
    Phase.RUNNING: "running",
    Phase.EVICTING: "evicting",
    Phase.BACKOFF: "backoff",
    Phase.FINISHED: "finished",
    Phase.REJECTED: "rejected",
    Phase.DEACTIVATED: "off",
}
"""The class of each phase, which chooses its glyph and its colour."""


class Word(msgspec.Struct, frozen=True):
    """A word with a state: a glyph and a colour stand beside it."""

    text: str
    state: str


class Link(msgspec.Struct, frozen=True):
    """A word that leads to another page."""

    text: str
    href: str


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a list of facts: a name and a text, or a link; ``code``: a setting, behind it."""

    name: str
    text: str = ""
    link: Link | None = None
    code: str = ""


def state(phase: str) -> Word:
    """The word of a phase."""
    try:
        return Word(phase, STATES[Phase(phase)])
    except ValueError:
        return Word(phase or "Unknown", "pending")


def unit(resource: str) -> str:
    """What stands after an amount of the resource."""
    return UNITS.get(resource, resource)


def number(resource: str, amount: int) -> str:
    """An amount in accounting units without its unit: cpu with up to three decimals, memory with a
    binary suffix and one decimal. An amount above 0 is never written as 0."""
    if resource == "cpu":
        return _commas(f"{amount / 1000:.3f}".rstrip("0").rstrip("."))
    if resource in ("memory", "ephemeral-storage"):
        value, step = float(amount), 0
        while abs(value) >= 1024 and step < len(_BINARY) - 1:
            value /= 1024
            step += 1
        return f"{value:.1f}".removesuffix(".0") + _BINARY[step]
    return _commas(str(amount))


def amount(resource: str, much: int) -> str:
    """An amount with its unit, such as ``16 GPUs`` or ``2.5 cpu``."""
    word = "GPU" if resource == GPU and much == 1 else unit(resource)
    return f"{number(resource, much)} {word}"


def _commas(text: str) -> str:
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}{point}{rest}" if len(whole.lstrip("-")) > 4 else text


def took(seconds: float) -> str:
    """A duration by its two largest units: ``2 h 29 min``, ``14 min 41 s``, ``42 s``."""
    left = max(0, round(seconds))
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for place, (name, size) in enumerate(units):
        if left >= size or size == 1:
            parts = [f"{left // size} {name}"]
            if place + 1 < len(units):
                smaller, small = units[place + 1]
                if rest := left % size // small:
                    parts.append(f"{rest} {smaller}")
            return " ".join(parts)
    return "0 s"


def between(start: datetime, end: datetime) -> str:
    """The time from one moment to another."""
    return took((end - start) / timedelta(seconds=1))


def clock_time(moment: datetime, now: datetime, *, seconds: bool = True) -> str:
    """A time of day in UTC; of another day than ``now`` with its date."""
    at, today = moment.astimezone(UTC), now.astimezone(UTC).date()
    text = at.strftime("%H:%M:%S" if seconds else "%H:%M")
    return text if at.date() == today else f"{at:%Y-%m-%d} {text}"
