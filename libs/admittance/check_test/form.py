"""What one message of a check controller has wrong, by itself. Pure.

Each fault names the case that it belongs to and is a sentence for the controller's author.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from admittance.events.facts import CheckReported
from admittance.events.names import token
from admittance.events.system import CheckAlive

STATES: Final = ("Pending", "Ready", "Retry", "Rejected")
REASONS: Final = ("", "PreemptionRequired")
DELAY_MAX: Final = 7 * 86_400
SHOWN: Final = 120
"""Characters of somebody's bytes that a sentence quotes."""


class Asked(NamedTuple):
    """What a controller was asked: ``check`` about ``namespace/name``, in ``cycle``. ``pod_sets``:
    those that the workload has."""

    controller: str
    namespace: str
    name: str
    uid: str
    check: str
    cycle: int
    pod_sets: tuple[str, ...] = ("main",)


class Fault(NamedTuple):
    """``case``: the one that fails by it."""

    case: str
    sentence: str


class Looked(NamedTuple):
    """What was found in a message: the verdict, if it is one, and everything wrong with it."""

    verdict: CheckReported | None
    faults: tuple[Fault, ...]


def subject_for(asked: Asked) -> str:
    """Where its verdict belongs."""
    tail = f"{token(asked.namespace)}.{token(asked.name)}"
    return f"admit.check.reported.{token(asked.controller)}.{tail}"


def look(subject: str, data: bytes, asked: Asked | None) -> Looked:
    """What a message says, that was said about asked; None: nobody asked for what it is about."""
    faults: list[Fault] = []
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Looked(None, (Fault("json", f"said {quoted(data)}, which is no JSON: {error}"),))
    if not isinstance(found, dict):
        return Looked(None, (Fault("json", f"said {quoted(data)}, which is no JSON object"),))
    faults += _missing(found)
    try:
        verdict = msgspec.json.decode(data, type=CheckReported)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if not faults:
            faults.append(Fault("json", f"said {quoted(data)}: {error}"))
        # What is wrong with a state or a cycle of another type is worth its own words.
        return Looked(None, (*faults, *_state(found.get("state")), *_delay(found)))
    faults += _state(verdict.state)
    faults += _delay(found)
    if asked is None:
        faults.append(Fault("names", f"spoke about what it was not asked, on {subject}"))
        return Looked(verdict, tuple(faults))
    if subject != subject_for(asked):
        faults.append(Fault("subject", f"spoke on {subject}, and not on {subject_for(asked)}"))
    faults += _names(verdict, asked)
    faults += _updates(verdict, asked)
    return Looked(verdict, tuple(faults))


def _missing(found: Mapping[str, Any]) -> list[Fault]:
    wanted = ("namespace", "name", "check", "cycle", "state")
    missing = [field for field in wanted if field not in found]
    if not missing:
        return []
    return [Fault("json", f"left out {', '.join(missing)}: {quoted(msgspec.json.encode(found))}")]


def _state(state: Any) -> list[Fault]:
    if state in STATES or state is None:
        return []
    known = ", ".join(STATES)
    return [Fault("state", f"said the state {state!r}; there are {known}")]


def _delay(found: Mapping[str, Any]) -> list[Fault]:
    delay = found.get("requeueAfterSeconds")
    if delay is None:
        return []
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        return [Fault("delay", f"asked for a delay of {delay!r}: whole seconds are wanted")]
    if not math.isfinite(delay) or delay != int(delay):
        return [Fault("delay", f"asked for a delay of {delay!r} s: whole seconds are wanted")]
    if delay < 0:
        return [Fault("delay", f"asked for a delay of {delay} s, which is negative")]
    if delay > DELAY_MAX:
        return [Fault("delay", f"asked for a delay of {delay} s; more than seven days are cut")]
    if found.get("state") != "Retry":
        why = f"asked for a delay with {found.get('state')!r}: only a Retry has one"
        return [Fault("delay", why)]
    return []


def _names(verdict: CheckReported, asked: Asked) -> list[Fault]:
    faults: list[Fault] = []
    for field, said, wanted in (
        ("namespace", verdict.namespace, asked.namespace),
        ("name", verdict.name, asked.name),
        ("check", verdict.check, asked.check),
        ("cycle", verdict.cycle, asked.cycle),
        ("uid", verdict.uid or asked.uid, asked.uid),
        ("controller", verdict.controller or asked.controller, asked.controller),
    ):
        if said != wanted:
            faults.append(Fault("names", f"said {field} {said!r}; it was asked about {wanted!r}"))
    if verdict.reason not in REASONS and verdict.state == "Pending":
        faults.append(
            Fault("json", f"gave the reason {verdict.reason!r}; only PreemptionRequired means much")
        )
    return faults


def _updates(verdict: CheckReported, asked: Asked) -> list[Fault]:
    faults: list[Fault] = []
    if verdict.pod_set_updates and verdict.state != "Ready":
        faults.append(Fault("updates", f"sent podSetUpdates with {verdict.state}: they are lost"))
    for update in verdict.pod_set_updates:
        if update.name not in asked.pod_sets:
            known = ", ".join(asked.pod_sets)
            faults.append(
                Fault("updates", f"adds to the pod set {update.name!r}; the workload has {known}")
            )
    return faults


def heartbeat_faults(subject: str, data: bytes) -> tuple[Fault, ...]:
    """What is wrong with a heartbeat. An empty one is fine."""
    if not data:
        return ()
    try:
        msgspec.json.decode(data, type=CheckAlive)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return (Fault("heartbeat", f"said {quoted(data)} on {subject}: {error}"),)
    return ()


def quoted(data: bytes) -> str:
    """Somebody's bytes, short and harmless enough for a sentence."""
    text = data.decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else " " for c in text)
    return f"{shown[:SHOWN]}…" if len(shown) > SHOWN else shown
