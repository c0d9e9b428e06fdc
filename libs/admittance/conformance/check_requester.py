"""Sends requests to a check controller, as the workload-controller does, and finds the faults of
each verdict: a wrong form, or fields that do not fit the verdict's request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import ceil
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.fields.units import BadDuration, seconds
from admittance.conformance.requester import (
    Fault,
    ParsedMessage,
    ProgramKind,
    ReceivedMessage,
    Requester,
    delay_faults,
    missing,
    object_of,
    quoted,
    update_faults,
    workload_in,
    wrong_names,
    wrong_subject,
)
from admittance.events import reasons
from admittance.events.facts import CheckReported
from admittance.events.names import token
from admittance.events.shapes import CHECK_STATES
from admittance.events.subjects import ALIVE_CHECK
from admittance.events.system import CheckAlive
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import check_durables

REASONS: Final = (reasons.PREEMPTION_REQUIRED, "BookQuotaRequired", "BookCapacity")
"""The reasons that have an effect, with Pending only: one reason in its three spellings."""
FIELDS: Final = ("namespace", "name", "check", "cycle", "state")


class CheckRequestKey(NamedTuple):
    """Identifies a check request that the conformance test sent. ``pod_sets``: the names of the pod
    sets of the request's workload.
    """

    controller: str
    namespace: str
    name: str
    uid: str
    check: str
    cycle: int
    pod_sets: tuple[str, ...] = ("main",)


def verdict_subject(request: CheckRequestKey) -> str:
    """The subject on which a check controller must publish verdicts about the request."""
    tail = f"{token(request.namespace)}.{token(request.name)}"
    return f"admit.check.reported.{token(request.controller)}.{tail}"


def parse_verdict(
    subject: str, data: bytes, request: CheckRequestKey | None
) -> ParsedMessage[CheckReported]:
    """Returns the decoded verdict in a message, and the faults of the message. ``request``: the
    request that the message answers; None if unknown.
    """
    content = object_of(data)
    if isinstance(content, Fault):
        return ParsedMessage(None, (content,))
    faults = missing(content, FIELDS)
    state = content.get("state")
    # A wrong state or delay in a verdict is reported even if other fields of the verdict have wrong
    # types.
    delay = _in_seconds(content.get("requeueAfterSeconds"))
    known = [*_state(state), *delay_faults(delay, state, "Retry")]
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


def _in_seconds(delay: Any) -> Any:
    """The delay as a number, if it is a duration like 8m0s; else the delay as it is."""
    if not isinstance(delay, str):
        return delay
    with suppress(BadDuration):
        return ceil(seconds(delay))
    return delay


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
    if verdict.reason in REASONS and verdict.state != "Pending":
        why = f"sent the reason {verdict.reason} with {verdict.state}: only Pending can have it"
        faults.append(Fault("json", why))
    elif verdict.reason and verdict.reason not in REASONS and verdict.state == "Pending":
        why = f"sent the reason {verdict.reason!r}; only PreemptionRequired has an effect"
        faults.append(Fault("json", why))
    return faults


FIRST_CYCLE: Final = 7
"""The cycle in the test's first request: not 1, so that the test detects a check controller that
always reports cycle 1.
"""


CheckAnswer = ReceivedMessage[CheckRequestKey, CheckReported]
KIND: Final = ProgramKind(
    "check-test", check_durables, "admit.check.reported.>", ALIVE_CHECK, CheckAlive
)


class CheckRequester(Requester[CheckRequestKey, CheckReported]):
    """Sends check requests to one check controller and records the messages that the controller
    sends.
    """

    def __init__(self, bus: Bus, controller: str, check: str, parameters: Any) -> None:
        super().__init__(bus, KIND, controller)
        self.check = check
        self.parameters = parameters
        self._sent: dict[tuple[str, int], CheckRequestKey] = {}
        self._newest: dict[str, CheckRequestKey] = {}
        self._withdrawn: set[CheckRequestKey] = set()

    async def withdraw_all(self) -> None:
        left = [request for request in self._sent.values() if request not in self._withdrawn]
        await self.withdraw(left, reasons.DELETED)

    # Requests. ----------------------------------------------------------------------------

    async def send(
        self, *names: str, cycle: int = FIRST_CYCLE, more: Mapping[str, Any] | None = None
    ) -> list[CheckRequestKey]:
        """Sends one check request for each workload name in ``names``. ``more``: fields that are
        added to each request, or replace the request's own.
        """
        keys = [
            CheckRequestKey(self.program, self.namespace, name, f"uid-{name}", self.check, cycle)
            for name in names
        ]
        for key in keys:
            self._sent[key.name, key.cycle] = key
            self._newest[key.name] = key
        requests = [(key, {**self._request(key), **(more or {})}) for key in keys]
        await self._publish("requested", requests)
        return keys

    async def withdraw(self, requests: Iterable[CheckRequestKey], reason: str) -> None:
        """Withdraws requests."""
        taken = list(requests)
        if reason != reasons.ADMISSION_CHECK:
            self._withdrawn.update(taken)
        await self._publish(
            "withdrawn",
            [(request, {**self._common(request), "reason": reason}) for request in taken],
        )

    def _common(self, request: CheckRequestKey) -> dict[str, Any]:
        return {
            "namespace": request.namespace,
            "name": request.name,
            "uid": request.uid,
            "time": clock.now(),
            "controller": request.controller,
            "check": request.check,
            "cycle": request.cycle,
        }

    def _request(self, request: CheckRequestKey) -> dict[str, Any]:
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        assignment = {
            "name": "main",
            "flavors": {"cpu": "default"},
            "resourceUsage": {"cpu": "1"},
            "count": 1,
        }
        return {
            **self._common(request),
            "retryCount": 0,
            "revision": 1,
            "parameters": self.parameters,
            "admission": {"clusterQueue": "check-test", "podSetAssignments": [assignment]},
            "workload": {
                "metadata": {"labels": {"admittance/check-test": "true"}},
                "spec": {
                    "queueName": "check-test",
                    "podSets": [{"name": "main", "count": 1, "template": template}],
                },
            },
        }

    async def _publish(
        self, what: str, messages: list[tuple[CheckRequestKey, dict[str, Any]]]
    ) -> None:
        await self.publish(
            (
                f"admit.check.{what}.{token(request.controller)}."
                f"{token(request.namespace)}.{token(request.name)}",
                msgspec.json.encode(payload),
            )
            for request, payload in messages
        )

    # Answers. -----------------------------------------------------------------------------

    def states(self, *requests: CheckRequestKey) -> list[str]:
        """The states in the verdicts that the controller sent for these requests, in the order
        received.
        """
        return [
            answer.content.state
            for answer in self.answers_to(*requests)
            if answer.content is not None
        ]

    def _parse(
        self, subject: str, data: bytes, request: CheckRequestKey | None
    ) -> ParsedMessage[CheckReported]:
        return parse_verdict(subject, data, request)

    def _request_of(self, subject: str, data: bytes) -> CheckRequestKey | None:
        """Finds the request that a verdict message answers, by the workload in the message's
        subject, else by the workload's name in the message. If the test sent no request with the
        message's cycle, returns the newest request for the workload.
        """
        name, cycle = workload_in(subject), 0
        with suppress(msgspec.DecodeError, AttributeError, UnicodeDecodeError):
            content = msgspec.json.decode(data)
            name = name if name in self._newest else str(content.get("name"))
            cycle = content.get("cycle", 0)
        if isinstance(cycle, int) and (name, cycle) in self._sent:
            return self._sent[name, cycle]
        return self._newest.get(name)
