"""Finds the faults of one verdict, in its form and compared with its request. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from admittance.conformance.faults import (
    Fault,
    ParsedMessage,
    delay_faults,
    missing,
    object_of,
    quoted,
    update_faults,
    wrong_names,
    wrong_subject,
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
    found = object_of(data)
    if isinstance(found, Fault):
        return ParsedMessage(None, (found,))
    faults = missing(found, FIELDS)
    state = found.get("state")
    # The faults of state and delay can be found even if other fields have wrong types.
    known = [*_state(state), *delay_faults(found.get("requeueAfterSeconds"), state, "Retry")]
    try:
        verdict = msgspec.json.decode(data, type=CheckReported)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        unreadable = [Fault("json", f"sent {quoted(data)}: {error}")]
        return ParsedMessage(None, (*(faults or unreadable), *known))
    expected = None if request is None else verdict_subject(request)
    faults += [*known, *wrong_subject(subject, expected)]
    if request is not None:
        faults += _names(verdict, request)
        faults += update_faults(
            verdict.pod_set_updates, request.pod_sets, verdict.state, needed="Ready"
        )
    return ParsedMessage(verdict, tuple(faults))


def _state(state: Any) -> list[Fault]:
    if state in CHECK_STATES or state is None:
        return []
    known = ", ".join(CHECK_STATES)
    return [Fault("state", f"sent the state {state!r}; the states are {known}")]


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
