"""What one message of a check controller has wrong, by itself. Pure.

Each fault names the case that it belongs to and is a sentence for the controller's author.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from admittance.conformance.faults import (
    Fault,
    Looked,
    bad_delay,
    bad_updates,
    missing,
    mistaken,
    object_of,
    quoted,
)
from admittance.events.facts import CheckReported
from admittance.events.names import token
from admittance.events.shapes import CHECK_STATES

REASONS: Final = ("", "PreemptionRequired")
FIELDS: Final = ("namespace", "name", "check", "cycle", "state")


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


def subject_for(asked: Asked) -> str:
    """Where its verdict belongs."""
    tail = f"{token(asked.namespace)}.{token(asked.name)}"
    return f"admit.check.reported.{token(asked.controller)}.{tail}"


def look(subject: str, data: bytes, asked: Asked | None) -> Looked[CheckReported]:
    """The content of a message about ``asked``; None if it is about no request of the test."""
    faults: list[Fault] = []
    found = object_of(data)
    if isinstance(found, Fault):
        return Looked(None, (found,))
    faults += missing(found, FIELDS)
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


def _state(state: Any) -> list[Fault]:
    if state in CHECK_STATES or state is None:
        return []
    known = ", ".join(CHECK_STATES)
    return [Fault("state", f"said the state {state!r}; there are {known}")]


def _delay(found: Mapping[str, Any]) -> list[Fault]:
    delay = found.get("requeueAfterSeconds")
    if delay is None:
        return []
    why = bad_delay(delay)
    if why is None and found.get("state") != "Retry":
        why = f"asked for a delay with {found.get('state')!r}: only a Retry has one"
    return [Fault("delay", why)] if why is not None else []


def _names(verdict: CheckReported, asked: Asked) -> list[Fault]:
    faults = mistaken(
        (
            ("namespace", verdict.namespace, asked.namespace),
            ("name", verdict.name, asked.name),
            ("check", verdict.check, asked.check),
            ("cycle", verdict.cycle, asked.cycle),
            ("uid", verdict.uid or asked.uid, asked.uid),
            ("controller", verdict.controller or asked.controller, asked.controller),
        )
    )
    if verdict.reason not in REASONS and verdict.state == "Pending":
        faults.append(
            Fault("json", f"gave the reason {verdict.reason!r}; only PreemptionRequired means much")
        )
    return faults


def _updates(verdict: CheckReported, asked: Asked) -> list[Fault]:
    faults: list[Fault] = []
    if verdict.pod_set_updates and verdict.state != "Ready":
        faults.append(Fault("updates", f"sent podSetUpdates with {verdict.state}: they are lost"))
    return faults + bad_updates(verdict.pod_set_updates, asked.pod_sets)
