"""The faults of a single message of a program. Pure.

Each fault names the case that it belongs to and is a sentence for the program's author.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from admittance.events.shapes import PodSetUpdate

DELAY_MAX: Final = 7 * 86_400
SHOWN: Final = 120
"""Characters of a message that a sentence quotes."""


T = TypeVar("T")


class Fault(NamedTuple):
    """``case``: the one that fails by it."""

    case: str
    sentence: str


class Looked(NamedTuple, Generic[T]):
    """What was found in a message: what it tells, if it does, and everything wrong with it."""

    told: T | None
    faults: tuple[Fault, ...]


def object_of(data: bytes) -> dict[str, Any] | Fault:
    """The JSON object in a message, or why there is none."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Fault("json", f"said {quoted(data)}, which is no JSON: {error}")
    if not isinstance(found, dict):
        return Fault("json", f"said {quoted(data)}, which is no JSON object")
    return found


def missing(found: Mapping[str, Any], wanted: Iterable[str]) -> list[Fault]:
    """Fields that were left out."""
    absent = [field for field in wanted if field not in found]
    if not absent:
        return []
    return [Fault("json", f"left out {', '.join(absent)}: {quoted(msgspec.json.encode(found))}")]


def mistaken(pairs: Iterable[tuple[str, Any, Any]]) -> list[Fault]:
    """Names that are others than asked: of each its field, what was said, what was asked."""
    return [
        Fault("names", f"said {field} {said!r}; it was asked about {wanted!r}")
        for field, said, wanted in pairs
        if said != wanted
    ]


def bad_delay(delay: Any) -> str | None:
    """What is wrong with a delay in seconds, a sentence; None: nothing, or there is none."""
    if delay is None:
        return None
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        return f"asked for a delay of {delay!r}: whole seconds are wanted"
    if not math.isfinite(delay) or delay != int(delay):
        return f"asked for a delay of {delay!r} s: whole seconds are wanted"
    if delay < 0:
        return f"asked for a delay of {delay} s, which is negative"
    if delay > DELAY_MAX:
        return f"asked for a delay of {delay} s; more than seven days are cut"
    return None


def bad_updates(updates: Iterable[PodSetUpdate], known: Collection[str]) -> list[Fault]:
    """Pod sets that are added to and that the workload does not have."""
    return [
        Fault("updates", f"adds to the pod set {one.name!r}; the workload has {', '.join(known)}")
        for one in updates
        if one.name not in known
    ]


def heartbeat_faults(subject: str, data: bytes, kind: type[msgspec.Struct]) -> tuple[Fault, ...]:
    """What is wrong with a heartbeat. An empty one is fine."""
    if not data:
        return ()
    try:
        msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (Fault("heartbeat", f"said {quoted(data)} on {subject}: {error}"),)
    return ()


def quoted(data: bytes) -> str:
    """Bytes of a message, short and harmless enough for a sentence."""
    text = data.decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else " " for c in text)
    return f"{shown[:SHOWN]}…" if len(shown) > SHOWN else shown
