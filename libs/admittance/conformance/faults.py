"""Checks a single message of the tested program. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from admittance.events.shapes import PodSetUpdate

DELAY_MAX: Final = 7 * 86_400
SHOWN: Final = 120
"""How many characters of a message a sentence quotes."""


T = TypeVar("T")


class Fault(NamedTuple):
    """A fault of a message. ``case``: the name of the test case that fails. ``sentence``: the
    description for the program's author.
    """

    case: str
    sentence: str


class ParsedMessage(NamedTuple, Generic[T]):
    """The content of a message, if it can be read, and its faults."""

    content: T | None
    faults: tuple[Fault, ...]


def object_of(data: bytes) -> dict[str, Any] | Fault:
    """The JSON object in a message, or the fault if the message holds no JSON object."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Fault("json", f"sent {quoted(data)}, which is not JSON: {error}")
    if not isinstance(found, dict):
        return Fault("json", f"sent {quoted(data)}, which is not a JSON object")
    return found


def missing(found: Mapping[str, Any], wanted: Iterable[str]) -> list[Fault]:
    """The fault of a message that leaves out wanted fields."""
    absent = [field for field in wanted if field not in found]
    if not absent:
        return []
    return [Fault("json", f"left out {', '.join(absent)}: {quoted(msgspec.json.encode(found))}")]


def wrong_names(pairs: Iterable[tuple[str, Any, Any]]) -> list[Fault]:
    """The faults of a message whose names differ from those in the request. ``pairs``: field, name
    in the message, name in the request.
    """
    return [
        Fault("names", f"sent {field} {said!r}; the request has {wanted!r}")
        for field, said, wanted in pairs
        if said != wanted
    ]


def bad_delay(delay: Any) -> str | None:
    """What is wrong with a delay in seconds; None if it is valid or missing."""
    if delay is None:
        return None
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        return f"asked for a delay of {delay!r}: it must be whole seconds"
    if not math.isfinite(delay) or delay != int(delay):
        return f"asked for a delay of {delay!r} s: it must be whole seconds"
    if delay < 0:
        return f"asked for a delay of {delay} s, which is negative"
    if delay > DELAY_MAX:
        return f"asked for a delay of {delay} s; the maximum is seven days"
    return None


def delay_faults(delay: Any, state: Any, needed: str) -> list[Fault]:
    """The fault of a delay. ``state``: the state that the message reports. ``needed``: the only
    state that can have a delay.
    """
    why = bad_delay(delay)
    if why is None and delay is not None and state != needed:
        why = f"asked for a delay with {state!r}: only {needed} can have one"
    return [Fault("delay", why)] if why is not None else []


def update_faults(
    updates: Collection[PodSetUpdate], known: Collection[str], state: str, needed: str
) -> list[Fault]:
    """The faults of pod set updates. ``known``: the pod sets of the workload. ``state``: the state
    that the message reports. ``needed``: the only state in which updates have an effect.
    """
    faults = []
    if updates and state != needed:
        faults.append(Fault("updates", f"sent podSetUpdates with {state}: they are ignored"))
    return faults + [
        Fault("updates", f"updates the pod set {one.name!r}; the workload has {', '.join(known)}")
        for one in updates
        if one.name not in known
    ]


def wrong_subject(subject: str, expected: str | None) -> list[Fault]:
    """The fault of a message on another subject than expected; None if the test sent no request
    that the message answers.
    """
    if expected is None:
        return [Fault("names", f"answered a request that was not sent, on {subject}")]
    if subject != expected:
        return [Fault("subject", f"published on {subject} instead of {expected}")]
    return []


def heartbeat_faults(subject: str, data: bytes, kind: type[msgspec.Struct]) -> tuple[Fault, ...]:
    """The faults of a message on a heartbeat subject. An empty heartbeat is valid."""
    if not data:
        return ()
    try:
        msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (Fault("heartbeat", f"sent {quoted(data)} on {subject}: {error}"),)
    return ()


def quoted(data: bytes) -> str:
    """Quotes the bytes of a message for a sentence: printable, and cut to `SHOWN` characters."""
    text = data.decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else " " for c in text)
    return f"{shown[:SHOWN]}…" if len(shown) > SHOWN else shown
