"""Answers requests of people: checks their facts, and publishes the facts on the log with the name
of the user.

A person publishes a fact on ``admit.user.<user>.<verb>.<ns>.<name>`` as if a stream had this
subject; a person with the role owner on ``admit.owner.…``. The border between the accounts renames
the subject to ``admit.api.user.…`` or ``admit.api.owner.…``, and the answer has the form of an
acknowledgement of JetStream. On the log, the fact of an owner has the header `HEADER_RIGHTS`. A
client that gets no answer sends the fact again with the same message id; the log then has the fact
once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from admittance.api.configuration import UserLimits
from admittance.api.workload import Kept
from admittance.control.commit import Message
from admittance.control.controller import Controller
from admittance.control.user_requests.flow_control import (
    CONFLICT,
    WRONG,
    FlowControl,
    FlowRefusal,
    UserRequest,
)
from admittance.control.user_requests.people import not_owned
from admittance.control.user_requests.runner_rules import AnnouncedRunners
from admittance.events import facts, reasons
from admittance.events.base import HEADER_MSG_ID, Fact
from admittance.events.codec import Undecodable, decode
from admittance.events.reader import REASON_MAX
from admittance.events.subjects import (
    APPROVAL_CONTROLLER,
    OWNER,
    OWNER_REQUESTS,
    STREAM,
    USER_FACTS,
    USER_REQUESTS,
    user_of,
)
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable, Busy
from admittance.runtime.nats.connection import Subscription
from admittance.runtime.nats.protocol import frame, parse_headers, text_of
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.tracing import extract
from admittance.workload_controller.commit_writer import outgoing_of
from admittance.workload_controller.workload_metrics import WorkloadMetrics

FACTS: Final = {f"{USER_REQUESTS}*.*.*.*": "", f"{OWNER_REQUESTS}*.*.*.*": OWNER}
"""The subjects of requests with facts, and for each subject the rights of the persons that may
publish there: see `HEADER_RIGHTS`."""
GROUP: Final = "workload-controller"
REPLIES_MAX: Final = 4
"""The most reply subjects of one request that get the answer: a client that repeats a request names
a new reply subject each time, and the newest ones count."""
ANSWERED_MAX: Final = 20_000
"""The most requests whose facts are on the log and that are remembered, so that a repeated request
gets its answer immediately."""
ANSWERED_SECONDS: Final = 60.0
"""Seconds for which a stored request is remembered: shorter than the log remembers message ids."""
UID_GIVEN: Final = (
    "the submission has a uid: leave it out, since every workload gets a uid of its own, and use a "
    "Nats-Msg-Id to submit again"
)
log = structlog.get_logger()


class _Spec(Kept, frozen=True, kw_only=True):
    queue_name: str = ""


class _Manifest(Kept, frozen=True, kw_only=True):
    spec: _Spec = _Spec()


_manifest = msgspec.json.Decoder(_Manifest)
_encode = msgspec.json.Encoder().encode


class UserRequests:
    """Receives the facts of people for one leader of the workload-controller. ``metrics``: None if
    metrics are off."""

    def __init__(
        self,
        bus: Bus,
        controller: Controller,
        limits: UserLimits,
        metrics: WorkloadMetrics | None,
        runners: AnnouncedRunners,
    ) -> None:
        self._bus = bus
        self._runners = runners
        self._controller = controller
        self._flow = FlowControl(limits, controller.workloads.pending)
        self._metrics = metrics
        self._open: dict[str, tuple[Message, list[str]]] = {}
        """The message for the log and the reply subjects of each request that has no answer yet, by
        message id."""
        self._stored: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """The sequence on the log and the time of the newest stored requests, by message id."""
        self._answers: list[bytes] = []
        self._wake = asyncio.Event()
        self._subscriptions: list[Subscription] = []
        self._throttle = LogThrottle()

    async def start(self) -> None:
        """Begins to receive requests of people."""
        for subject, rights in FACTS.items():
            callback = partial(self._on_request, rights)
            self._subscriptions.append(await self._bus.nc.listen(subject, callback, queue=GROUP))

    async def stop(self) -> None:
        """Stops receiving requests of people. A client whose request got no answer sends the
        request again, to the next leader."""
        while self._subscriptions:
            await self._bus.nc.unlisten(self._subscriptions.pop())

    def applied(self, through: int) -> None:
        """Records that the leader has applied every fact up to the sequence ``through``, which
        makes room for further facts of people."""
        self._flow.applied(through)
        self._wake.set()

    async def run(self) -> None:
        """Publishes the facts of people, the namespaces in turn, and answers the requests, until
        cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._answer()
            while taken := self._flow.take():
                messages = [outgoing_of(self._open[one.id][0]) for one in taken]
                outcomes = await self._bus.publish_each(messages)
                for request, outcome in zip(taken, outcomes, strict=True):
                    self._end(request, outcome)
                await self._answer()

    def _on_request(
        self, rights: str, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        self._wake.set()
        replies = list(filter(None, [text_of(reply)]))
        tail = text_of(subject).removeprefix(OWNER_REQUESTS if rights else USER_REQUESTS)
        named = f"{USER_FACTS}{tail}"
        given = parse_headers(headers)
        tokens = named.split(".")
        user, verb = tokens[2], tokens[3]
        identity = self._identity(user, given.get(HEADER_MSG_ID, ""))
        known = self._open.get(identity)
        if known is not None:
            # The client has sent the same request again before it got an answer.
            known[1][:] = [*known[1][1 - REPLIES_MAX :], *replies]
            return
        sequence, at = self._stored.get(identity, (0, 0.0))
        if sequence and clock.monotonic() - at < ANSWERED_SECONDS:
            # The fact is on the log already: the answer was lost, or it crossed with the repeated
            # request.
            self._say(replies, {"stream": STREAM, "seq": sequence, "duplicate": True})
            return
        fact = self._permitted(named, data, rights)
        refusal = fact if isinstance(fact, FlowRefusal) else None
        if isinstance(fact, Fact):
            request = _request(identity, user, verb, fact, len(data))
            refusal = self._flow.arrive(request, clock.monotonic())
        if refusal is not None:
            self._refuse(replies, refusal, named)
            return
        self._open[identity] = Message(named, data, identity, extract(given), rights), replies

    def _permitted(self, subject: str, data: bytes, rights: str) -> Fact | FlowRefusal:
        """The fact of a request, or why the person may not publish it."""
        try:
            fact = decode(subject, data)
        except Undecodable as error:
            return FlowRefusal(WRONG, "Undecodable", str(error))
        person = user_of(subject)
        if isinstance(fact, facts.Submitted) and fact.uid:
            # With the uid of an earlier workload, verdicts and capacity of that workload would
            # count for this one.
            return FlowRefusal(WRONG, reasons.UID_GIVEN, UID_GIVEN)
        if rights and (why := not_owned(person, fact, self._controller.workloads.get)):
            # The fact is judged again when it is applied: until then the name may get another
            # owner.
            return FlowRefusal(CONFLICT, reasons.NOT_OWNER, why)
        if isinstance(fact, facts.Submitted):
            unstarted = self._runners.refusal(person, fact.namespace, fact.workload)
            if unstarted:
                return FlowRefusal(CONFLICT, reasons.NO_RUNNER, str(unstarted))
        if isinstance(fact, facts.Verdict) and (why := self._unfit(fact)):
            return FlowRefusal(CONFLICT, reasons.NO_APPROVAL, why)
        return fact

    def _identity(self, user: str, given: str) -> str:
        """The message id of a request's fact on the log. ``user``: the user as a token; ``given``:
        the message id that the client sent. The id depends on the user and a secret, so a user can
        neither use nor guess an id of another program."""
        what = f"user-id/{user}/{given}" if given else f"user/{user}/{chance.token_hex(12)}"
        return self._controller.message_builder.identity(what)

    def _unfit(self, fact: facts.Verdict) -> str:
        """Why people may not give the verdict ``fact`` on its AdmissionCheck; "" if they may."""
        check = self._controller.objects.check(fact.check)
        if check is None:
            return f'AdmissionCheck "{fact.check}" does not exist'
        controller = check.spec.controller_name
        if controller != APPROVAL_CONTROLLER:
            return (
                f'AdmissionCheck "{fact.check}" is judged by {controller}; people judge checks of '
                f"{APPROVAL_CONTROLLER}"
            )
        return ""

    # Answers. -----------------------------------------------------------------------

    def _end(self, request: UserRequest, outcome: int | BusRefused | BusUnavailable) -> None:
        message, replies = self._open.pop(request.id)
        if isinstance(outcome, int):
            self._flow.stored(request, outcome)
            self._stored[request.id] = outcome, clock.monotonic()
            if len(self._stored) > ANSWERED_MAX:
                self._stored.popitem(last=False)
            self._say(replies, {"stream": STREAM, "seq": outcome})
            return
        self._flow.dropped(request)
        if isinstance(outcome, BusRefused) and not isinstance(outcome, Busy):
            log.error("user_fact_refused", subject=message.subject, error=str(outcome))
            self._say(replies, _error(500, outcome.description, outcome.code))
        elif self._throttle.due(clock.monotonic()):
            # The log may have the fact, so the request gets no answer: then the client sends it
            # again.
            log.warning("user_fact_unknown", subject=message.subject, error=str(outcome))

    def _refuse(self, replies: list[str], refusal: FlowRefusal, subject: str) -> None:
        if self._metrics is not None:
            self._metrics.refused_requests.add((refusal.reason,))
        if self._throttle.due(clock.monotonic()):
            log.info("user_request_refused", subject=subject, reason=refusal.reason)
        self._say(replies, _error(refusal.code, refusal.description))

    def _say(self, replies: list[str], answer: dict[str, Any]) -> None:
        data = _encode(answer)
        self._answers += [frame(reply, "", data, None) for reply in replies]

    async def _answer(self) -> None:
        answers, self._answers = self._answers, []
        if answers:
            await self._bus.nc.send(b"".join(answers))


def _request(identity: str, user: str, verb: str, fact: Fact, size: int) -> UserRequest:
    if not isinstance(fact, facts.Submitted):
        return UserRequest(identity, user, verb, fact.namespace, size)
    try:
        queue = _manifest.decode(fact.workload).spec.queue_name
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        queue = ""  # an invalid manifest is refused when the workload-controller applies the fact
    length = len(fact.workload)
    return UserRequest(identity, user, verb, fact.namespace, size, queue, length)


def _error(code: int, description: str, err_code: int = 0) -> dict[str, Any]:
    error = {"code": code, "err_code": err_code or code, "description": description[:REASON_MAX]}
    return {"error": error}
