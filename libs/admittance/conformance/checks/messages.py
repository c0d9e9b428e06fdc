"""Finds the faults of one verdict, in its form and compared with its request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from admittance.conformance.faults import (
    Fault,
    ParsedMessage,
    bad_delay,
    bad_updates,
    missing,
    object_of,
    quoted,
    wrong_names,
)
from admittance.events.facts import CheckReported
from admittance.events.names import token
from admittance.events.shapes import CHECK_STATES

REASONS: Final = ("", "PreemptionRequired")
FIELDS: Final = ("namespace", "name", "check", "cycle", "state")


class CheckRequestKey(NamedTuple):
    """Identifies a request that the test sent. ``pod_sets``: the names of the workload's pod
    sets.
    """

    controller: str
    namespace: str
    name: str
    uid: str
    check: str
    cycle: int
    pod_sets: tuple[str, ...] = ("main",)


def verdict_subject(request: CheckRequestKey) -> str:
    """The subject on which verdicts about the request are published."""
    tail = f"{token(request.namespace)}.{token(request.name)}"
    return f"admit.check.reported.{token(request.controller)}.{tail}"


def parse_verdict(
    subject: str, data: bytes, request: CheckRequestKey | None
) -> ParsedMessage[CheckReported]:
    """The content of a verdict message, and its faults. ``request``: the request that the message
    answers; None if unknown.
    """
    faults: list[Fault] = []
    found = object_of(data)
    if isinstance(found, Fault):
        return ParsedMessage(None, (found,))
    faults += missing(found, FIELDS)
    try:
        verdict = msgspec.json.decode(data, type=CheckReported)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if not faults:
            faults.append(Fault("json", f"sent {quoted(data)}: {error}"))
        # The faults of state and delay can be found even if other fields have wrong types.
        return ParsedMessage(None, (*faults, *_state(found.get("state")), *_delay(found)))
    faults += _state(verdict.state)
    faults += _delay(found)
    if request is None:
        faults.append(Fault("names", f"answered a request that was not sent, on {subject}"))
        return ParsedMessage(verdict, tuple(faults))
    if subject != verdict_subject(request):
        faults.append(
            Fault("subject", f"published on {subject} instead of {verdict_subject(request)}")
        )
    faults += _names(verdict, request)
    faults += _updates(verdict, request)
    return ParsedMessage(verdict, tuple(faults))


def _state(state: Any) -> list[Fault]:
    if state in CHECK_STATES or state is None:
        return []
    known = ", ".join(CHECK_STATES)
    return [Fault("state", f"sent the state {state!r}; the states are {known}")]


def _delay(found: Mapping[str, Any]) -> list[Fault]:
    delay = found.get("requeueAfterSeconds")
    if delay is None:
        return []
    why = bad_delay(delay)
    if why is None and found.get("state") != "Retry":
        why = f"asked for a delay with {found.get('state')!r}: only a Retry can have one"
    return [Fault("delay", why)] if why is not None else []


def _names(verdict: CheckReported, request: CheckRequestKey) -> list[Fault]:
    faults = wrong_names(
        (
            ("namespace", verdict.namespace, request.namespace),
            ("name", verdict.name, request.name),
            ("check", verdict.check, request.check),
            ("cycle", verdict.cycle, request.cycle),
            ("uid", verdict.uid or request.uid, request.uid),
            ("controller", verdict.controller or request.controller, request.controller),
        )
    )
    if verdict.reason not in REASONS and verdict.state == "Pending":
        faults.append(
            Fault(
                "json", f"sent the reason {verdict.reason!r}; only PreemptionRequired has an effect"
            )
        )
    return faults


def _updates(verdict: CheckReported, request: CheckRequestKey) -> list[Fault]:
    faults: list[Fault] = []
    if verdict.pod_set_updates and verdict.state != "Ready":
        faults.append(
            Fault("updates", f"sent podSetUpdates with {verdict.state}: they are ignored")
        )
    return faults + bad_updates(verdict.pod_set_updates, request.pod_sets)
