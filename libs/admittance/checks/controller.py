"""`AdmissionCheckController`, the class with which you write a check, and its service."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import structlog

from admittance.checks.judge import Judge
from admittance.checks.judgements import JudgementKey
from admittance.checks.request import (
    BadParameters,
    Reference,
    Request,
    bare_request_of,
    is_too_late,
    parameters_of,
    request_of,
)
from admittance.checks.spans import span_of_call
from admittance.checks.verdicts import Later, Pending, Ready, Rejected, Retry, Verdict
from admittance.events import reasons
from admittance.events.base import (
    HEADER_MSG_ID,
    HEADER_SCHEMA,
    HEADER_TRACE,
    SCHEMA_VERSION,
    clipped_message,
)
from admittance.events.codec import encode
from admittance.events.facts import CheckReported, CheckRequested, CheckWithdrawn
from admittance.events.names import token
from admittance.events.subjects import ALIVE_CHECK, check_durable, subject_of
from admittance.events.system import EVERY_CALL_FAILS, CheckActive, CheckAlive
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry import tracing
from admittance.sdk.program import GRACE_SECONDS, ChangeSignal, Program, heartbeat_message
from admittance.sdk.requests import IncomingMessage, RequestSource
from admittance.sdk.threads import from_thread
from admittance.sdk.worker import Worker, secret

F = TypeVar("F", bound=Callable[..., Any])
log = structlog.get_logger()


class AdmissionCheckController(Program):
    """Controls the AdmissionChecks with the ``controllerName`` ``name``.

    ``parameters``: the msgspec Struct into which ``request.parameters`` is decoded; without one,
    ``request.parameters`` is a dict. ``concurrency``: the judgements that one process makes at
    once; by default 100, or 16 for a plain function, which runs in a thread. ``grace_seconds``: how
    long judgements under way may take to finish when the process ends.
    """

    kind: ClassVar[str] = "check"
    needed_login: ClassVar[str] = "admit auth add check NAME --controller"
    log_field: ClassVar[str] = "controller"
    default_concurrency: ClassVar[int] = 100

    def __init__(
        self,
        name: str,
        *,
        parameters: type[Any] | None = None,
        concurrency: int | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        super().__init__(
            name, parameters=parameters, concurrency=concurrency, grace_seconds=grace_seconds
        )
        self.activity = CheckActivity(self.changes)

    # Methods for the author of a check. ----------------------------------------------

    def check(self, function: F) -> F:
        """Decorates the function that judges: the function takes a `Request` and returns a
        verdict.
        """
        self.main = self._only(function, self.main, "check")
        return function

    def withdrawn(self, function: F) -> F:
        """Decorates the function that frees what was booked for a withdrawn request.

        For each withdrawn request the function is called at least once, perhaps by two replicas,
        and perhaps in a process that never received the request: freeing twice must be harmless.
        """
        self.release = self._only(function, self.release, "withdrawn function")
        return function

    def inactive(self, message: str, *, reason: str = "NotReady", check: str = "") -> None:
        """Makes ``check`` (empty: all checks) inactive: its queues reserve no quota until `active`
        is called. Any thread may call `inactive`."""
        self.activity.put(check, CheckActive(active=False, reason=reason, message=message))

    def active(self, check: str = "") -> None:
        """Makes the AdmissionCheck active again, after `inactive`."""
        self.activity.put(check, CheckActive())

    async def report(self, about: Request | Reference, verdict: Verdict) -> bool:
        """Publishes a verdict on an earlier request, identified by its ``request.reference``.

        Returns False if, as far as this process knows, the verdict no longer counts. Raises
        RuntimeError if the controller is not running.
        """
        if isinstance(about, Request) and is_too_late(about, verdict):
            return False
        return await self._report(about, verdict)

    def report_from_thread(self, about: Request | Reference, verdict: Verdict) -> bool:
        """Does the same as `report`, for callers outside the event loop: a plain function or a
        thread of your own.
        """
        return from_thread(self.report(about, verdict), self._loop)

    async def judge(self, request: Request) -> Verdict | None:
        """Calls the check's function once, without a bus; for tests and for the service. Returns
        the function's verdict, or None if the function uses `report` instead (`Later`).

        Converts a dict of parameters to the controller's Struct. Raises BadParameters, what the
        check's function raises, and TypeError if the function returns anything else than a verdict.
        """
        if self.main is None:
            raise RuntimeError(self._without_main())
        shape = self.shape
        if shape is not None and not isinstance(request.parameters, shape):
            encoded = msgspec.json.encode(request.parameters)
            request.parameters = parameters_of(encoded, shape)
        with span_of_call(request, self.name) as span:
            answer = await self.threads.outcome(self.main, request)
            if span is not None and isinstance(answer, Pending | Ready | Retry | Rejected):
                span.set_attribute("admittance.outcome", answer.state)
        if isinstance(answer, Later):
            request.later = True
            return None
        if answer is None or isinstance(answer, Pending | Ready | Retry | Rejected):
            return answer
        raise TypeError(
            f"the check's function answered {answer!r}: return Pending, Ready, Retry or Rejected"
        )

    # Methods for the service. --------------------------------------------------------

    @property
    def program(self) -> str:
        """File and name of the check's function, for the heartbeat: equal for all replicas."""
        function = self.main
        if function is None:
            return ""
        try:
            file = Path(inspect.getsourcefile(function) or "").name
        except TypeError:
            file = ""
        return f"{file}:{getattr(function, '__qualname__', type(function).__name__)}"

    @property
    def why_inactive(self) -> str:
        """Why the controller can judge no request; empty if it can."""
        return self.activity.why_inactive

    async def _work(self, bus: Bus, settings: Settings, stop: asyncio.Event) -> None:
        await CheckService(self, bus, settings).run(stop)

    def _without_main(self) -> str:
        return f"{self.name} has no check: decorate a function with @….check"


class CheckService(Worker[AdmissionCheckController]):
    """One running replica of a check controller."""

    def __init__(self, controller: AdmissionCheckController, bus: Bus, settings: Settings) -> None:
        source = RequestSource(
            check_durable(controller.name),
            f"admit.check.withdrawn.{token(controller.name)}.*.*",
            "no AdmissionCheck names this controller yet, or Admittance is down",
        )
        super().__init__(controller, bus, settings, source, log_name="check_controller")
        self._controller = controller
        self._secret = secret(settings)
        self._loop = asyncio.get_running_loop()
        self._judging = Judge(
            self._consumer,
            judge=self._judge,
            publish=self.publish,
            release=controller.free if controller.release is not None else None,
            concurrency=controller.concurrency,
        )

    def _heartbeat(self) -> tuple[str, bytes]:
        alive = self._controller.activity.beat(self._settings.instance, self._controller.program)
        return f"{ALIVE_CHECK}{token(self._controller.name)}", encode(alive)

    async def _finish(self, grace_seconds: float) -> None:
        await self._judging.stop(grace_seconds)

    # Requests and withdrawals. ----------------------------------------------------------

    def _on_fact(self, fact: object, message: IncomingMessage) -> None:
        if isinstance(fact, CheckRequested):
            self._on_requested(fact, message)
        elif isinstance(fact, CheckWithdrawn):
            self._judging.withdrawn(JudgementKey.of(fact), fact.reason, message.reply)

    def _on_requested(self, fact: CheckRequested, message: IncomingMessage) -> None:
        self._controller.metrics.requested()
        identity = JudgementKey.of(fact)
        shape = self._controller.shape
        try:
            request = request_of(fact, message.headers, shape)
        except BadParameters as error:
            request = bare_request_of(fact, message.headers)
            request.attach(self.publish, self._loop)
            self._controller.activity.bad_parameters(fact.check, str(error))
            self._judging.bad_parameters(identity, request, message.reply, str(error))
            return
        request.attach(self.publish, self._loop)
        self._controller.activity.good_parameters(fact.check)
        self._judging.good_parameters(
            fact.check,
            lambda: request_of(fact, message.headers, shape).parameters,
            bytes(fact.parameters),
        )
        self._judging.requested(identity, request, message.reply)

    async def _judge(self, request: Request) -> Verdict | None:
        structlog.contextvars.bind_contextvars(
            workload=f"{request.namespace}/{request.name}",
            check=request.check,
            cycle=request.cycle,
        )
        try:
            verdict = await self._controller.judge(request)
        except Exception as error:
            self._controller.metrics.failed()
            self._controller.activity.failed(request.check, error)
            raise
        if verdict is None and not (request.published or request.later):
            # The judge raises the TypeError: a function that returns nothing gives no verdict.
            self._controller.activity.failed(request.check, TypeError())
        else:
            self._controller.activity.succeeded(request.check)
        return verdict

    # Verdicts. ----------------------------------------------------------------------------

    async def publish(self, request: Request, verdict: Verdict) -> bool:
        """Publishes a verdict. Returns False if the verdict comes too late to count."""
        if is_too_late(request, verdict):
            return False
        request.published += 1
        # The ordinal in the hash for the message's id contains the workload's revision, because a
        # request with new parameters may get the same verdict again.
        ordinal = (request.revision << 20) + request.published
        await self._put(request.reference, verdict, ordinal, span=request.span)
        final = not isinstance(verdict, Pending)
        self._controller.metrics.answered(verdict.state, request.since if final else None)
        if final:
            request.since = None
        return True

    async def report(self, about: Request | Reference, answer: Verdict) -> bool:
        """Publishes a verdict about a workload, also for a request that this process never
        received. Returns False if the verdict comes too late to count."""
        if isinstance(about, Request):
            return await self.publish(about, answer)
        # The verdicts before a restart are unknown to this process, so a random ordinal keeps the
        # new verdict from being taken for a duplicate of one of them.
        await self._put(about, answer, chance.bits(62))
        self._controller.metrics.answered(answer.state)
        return True

    async def _put(
        self, about: Reference, verdict: Verdict, ordinal: int, *, span: str = ""
    ) -> None:
        message = message_of(
            self._controller.name,
            about,
            verdict,
            ordinal=ordinal,
            secret=self._secret,
            span=span,
        )
        await asyncio.shield(self._outbox.put(message))
        log.info(
            "check_judged",
            workload=f"{about.namespace}/{about.name}",
            check=about.check,
            cycle=about.cycle,
            state=verdict.state,
            message=verdict.message,
        )


def message_of(
    controller: str,
    about: Reference,
    verdict: Verdict,
    *,
    ordinal: int,
    secret: bytes,
    span: str = "",
) -> Outgoing:
    """The message that carries the verdict of the check controller.

    The message's id is a hash of the verdict, the cycle and ``ordinal``: a request that is judged
    twice after a crash, with the same outcome, is answered once. ``secret`` keys the hash:
    otherwise a foreign message with a guessed id would suppress the verdict. ``span``: the
    traceparent of the span in which the check gave the verdict; "": there was no span. The verdict
    has no time, so that the same verdict has the same bytes under the same id.
    """
    said = CheckReported(
        namespace=about.namespace,
        name=about.name,
        uid=about.uid,
        controller=controller,
        check=about.check,
        cycle=about.cycle,
        state=verdict.state,
        message=clipped_message(verdict.message),
        reason=verdict.reason if isinstance(verdict, Pending) else "",
        requeue_after_seconds=verdict.seconds() if isinstance(verdict, Retry) else None,
        pod_set_updates=verdict.updates() if isinstance(verdict, Ready) else (),
    )
    data = encode(said)
    digest = hashlib.blake2b(key=secret[:64], digest_size=16)
    digest.update(b"%d/" % ordinal)
    digest.update(data)
    headers = {HEADER_MSG_ID: digest.hexdigest(), HEADER_SCHEMA: SCHEMA_VERSION}
    if span:
        headers[HEADER_TRACE] = span
    else:
        tracing.inject(headers, about.traceparent)
    return Outgoing(subject_of(said), data, headers)


FAILURES_MAX: Final = 3
"""After so many failed calls in a row for one check, the heartbeat says that every call fails."""
BAD_SECONDS: Final = 60.0
"""How long wrong parameters make an AdmissionCheck inactive. An inactive check gets no requests, so
only a request after this time can show that the parameters were corrected.
"""


class CheckActivity:
    """Keeps whether the controller, and each of its AdmissionChecks, can judge requests. Any thread
    may call the methods of this class.
    """

    def __init__(self, changes: ChangeSignal) -> None:
        self._changes = changes
        self._lock = threading.Lock()
        self._whole = CheckActive()
        self._checks: dict[str, CheckActive] = {}
        self._bad: dict[str, tuple[float, CheckActive]] = {}
        self._failures: dict[str, int] = {}
        """How many calls of the check's function in a row have raised an error, by check."""
        self._failing: dict[str, CheckActive] = {}

    def put(self, check: str, state: CheckActive) -> None:
        """Sets one AdmissionCheck, or all (``check`` empty), to the state that the author of the
        controller chose: active or inactive.
        """
        short = msgspec.structs.replace(state, message=heartbeat_message(state.message))
        with self._lock:
            if not check:
                self._whole = short
            elif state.active:
                self._checks.pop(check, None)
            else:
                self._checks[check] = short
        self._changes.send()

    def bad_parameters(self, check: str, message: str) -> None:
        """Records a request with wrong parameters."""
        why = heartbeat_message(message)
        state = CheckActive(active=False, reason=reasons.BAD_PARAMETERS_REF, message=why)
        with self._lock:
            known = self._bad.get(check)
            self._bad[check] = (clock.monotonic(), state)
        if known is None or known[1] != state:
            self._changes.send()

    def good_parameters(self, check: str) -> None:
        """Records a request with valid parameters."""
        with self._lock:
            known = self._bad.pop(check, None)
        if known is not None:
            self._changes.send()

    def failed(self, check: str, error: Exception) -> None:
        """Records that a call of the check's function raised an error. The heartbeat names only the
        type of the error, because the text of an error may contain secrets."""
        with self._lock:
            failures = self._failures[check] = self._failures.get(check, 0) + 1
            if failures < FAILURES_MAX:
                return
            message = f"{EVERY_CALL_FAILS} ({type(error).__name__}): see the log of the controller"
            state = CheckActive(message=heartbeat_message(message))
            changed = self._failing.get(check) != state
            self._failing[check] = state
        if changed:
            self._changes.send()

    def succeeded(self, check: str) -> None:
        """Records that a call of the check's function returned."""
        with self._lock:
            self._failures.pop(check, None)
            changed = self._failing.pop(check, None) is not None
        if changed:
            self._changes.send()

    @property
    def why_inactive(self) -> str:
        """Why the author made all AdmissionChecks inactive; empty if they are active."""
        with self._lock:
            whole = self._whole
        return "" if whole.active else f"inactive: {whole.message or whole.reason}"

    def beat(self, instance: str, program: str) -> CheckAlive:
        """The current heartbeat."""
        now = clock.monotonic()
        with self._lock:
            self._bad = {k: bad for k, bad in self._bad.items() if now - bad[0] < BAD_SECONDS}
            whole = self._whole
            failing = self._failing if whole.active else {}
            checks = failing | {check: bad[1] for check, bad in self._bad.items()} | self._checks
        return CheckAlive(
            time=clock.now(),
            instance=instance,
            program=program,
            active=whole.active,
            reason=whole.reason,
            message=whole.message,
            checks=checks,
        )
