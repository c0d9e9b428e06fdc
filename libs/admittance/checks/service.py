"""A check controller as a process: connects, hears requests, publishes verdicts, ends in order.

To end, it (1) stops pulling, (2) hands back deliveries that are on their way or not begun, (3) lets
judgements under way finish within the grace period, (4) waits until their verdicts are on the log,
then acknowledges their deliveries. After a ``kill -9`` at any point the deliveries are not
acknowledged, so the server redelivers them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
import structlog

from admittance.checks.activity import Activity, beat
from admittance.checks.judge import Judge
from admittance.checks.judgements import Identity
from admittance.checks.request import (
    BadParameters,
    Reference,
    Request,
    Withdrawal,
    Workload,
    is_too_late,
    parameters_of,
)
from admittance.checks.verdicts import Pending, Ready, Retry, Verdict
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION
from admittance.events.codec import Undecodable, decode, encode
from admittance.events.facts import CheckReported, CheckRequested, CheckWithdrawn
from admittance.events.names import token
from admittance.events.subjects import check_durable, subject_of
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry import tracing
from admittance.sdk import process
from admittance.sdk.limits import clipped
from admittance.sdk.outbox import Outbox
from admittance.sdk.requests import IncomingMessage, RequestConsumer, RequestSource

AGAIN_SECONDS: Final = 5.0
"""Delay of a redelivery after a bug ended the work on it."""

log = structlog.get_logger()


class CheckController(Protocol):
    """The part of an `AdmissionCheckController` that its service uses.
    `AdmissionCheckController.run` starts the service, so the service must not import it."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> type[Any] | None: ...

    @property
    def grace_seconds(self) -> float: ...

    @property
    def activity(self) -> Activity: ...

    @property
    def has_check(self) -> bool: ...

    @property
    def has_withdrawn(self) -> bool: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def program(self) -> str: ...

    async def judge(self, request: Request) -> Verdict | None: ...

    async def free(self, withdrawal: Withdrawal) -> None: ...

    def report_through(
        self, report: Callable[[Request | Reference, Verdict], Any] | None
    ) -> None: ...


class CheckService:
    """One running replica of a controller."""

    def __init__(self, controller: CheckController, bus: Bus, settings: Settings) -> None:
        self._controller = controller
        self._instance = settings.instance
        self._secret = process.secret(settings)
        self._beat_seconds = settings.beat_seconds
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(bus)
        source = RequestSource(
            check_durable(controller.name),
            f"admit.check.withdrawn.{token(controller.name)}.*.*",
            "no AdmissionCheck names this controller yet, or Admittance is down",
        )
        self._consumer = RequestConsumer(
            bus, source, self._on_message, room=max(4, 2 * controller.concurrency)
        )
        self._judging = Judge(
            self._consumer,
            judge=self._judge,
            say=self.say,
            freed=controller.free if controller.has_withdrawn else None,
            concurrency=controller.concurrency,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Judges until stop is set."""
        controller = self._controller
        controller.report_through(self.say_about)
        await process.run_until_stopped(
            self._start(),
            (
                self._outbox.run(),
                self._consumer.keep(),
                beat(
                    self._bus,
                    controller.name,
                    controller.activity,
                    instance=self._instance,
                    program=controller.program,
                    seconds=self._beat_seconds,
                ),
            ),
            stop=stop,
            failed=self._consumer.failed,
            end=self._leave,
        )

    async def _start(self) -> None:
        await self._consumer.start()
        log.info("check_controller_started", controller=self._controller.name)

    async def _leave(self) -> None:
        with suppress(TimeoutError):
            # wait_for runs it as a task, so that our cancellation does not cancel it.
            await asyncio.wait_for(self._end(), self._controller.grace_seconds + 10.0)
        self._controller.report_through(None)

    async def _end(self) -> None:
        stopping = asyncio.create_task(self._judging.stop(self._controller.grace_seconds))
        await asyncio.sleep(0)  # deliveries that arrive from here on are handed back
        await self._consumer.drain()
        await stopping
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._outbox.emptied()
        await asyncio.sleep(0)  # tasks that waited for the log acknowledge their deliveries
        await self._consumer.stop()
        log.info("check_controller_ended", handed_back=self._consumer.held)

    # Verdicts. ------------------------------------------------------------------------------

    async def say(self, request: Request, verdict: Verdict) -> bool:
        """Publishes a verdict. False if it comes too late to count."""
        if is_too_late(request, verdict):
            return False
        request.said += 1
        # The revision tells a request with new parameters, which may get the same verdict again.
        await self._put(request.reference, verdict, (request.revision << 20) + request.said)
        return True

    async def say_about(self, about: Request | Reference, verdict: Verdict) -> bool:
        """`say`, also for a request that this process never received."""
        if isinstance(about, Request):
            return await self.say(about, verdict)
        # Earlier verdicts are unknown here: a random ordinal is never taken for a duplicate.
        await self._put(about, verdict, chance.bits(62))
        return True

    async def _put(self, about: Reference, verdict: Verdict, ordinal: int) -> None:
        message = message_of(
            self._controller.name,
            about,
            verdict,
            ordinal=ordinal,
            secret=self._secret,
            now=clock.now(),
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

    # Deliveries. -----------------------------------------------------------------------------

    def _on_message(self, message: IncomingMessage) -> None:
        try:
            fact = decode(message.subject, message.data)
            if isinstance(fact, CheckRequested):
                self._on_requested(fact, message)
            elif isinstance(fact, CheckWithdrawn):
                identity = Identity(*same_as(fact))
                self._judging.withdrawn(identity, fact.reason, message.reply)
        except (Undecodable, msgspec.MsgspecError) as error:
            log.error("not_understood", subject=message.subject, reason=str(error))
            self._consumer.never(message.reply)
        except Exception:
            # A bug, perhaps only of this version: another replica may handle the delivery.
            log.exception("not_taken", subject=message.subject)
            self._consumer.again(message.reply, AGAIN_SECONDS)

    def _on_requested(self, fact: CheckRequested, message: IncomingMessage) -> None:
        identity = Identity(*same_as(fact))
        shape = self._controller.shape
        try:
            request = request_of(fact, message.headers, shape)
        except BadParameters as error:
            request = bare_request_of(fact, message.headers)
            request.attach(self, self._loop)
            self._controller.activity.bad_parameters(fact.check, str(error))
            self._judging.bad_parameters(identity, request, message.reply, str(error))
            return
        request.attach(self, self._loop)
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
        return await self._controller.judge(request)


async def serve(
    controller: CheckController,
    *,
    url: str | None,
    creds: str | None,
    stop: asyncio.Event,
    settings: Settings | None = None,
) -> None:
    """Connects, with retries, and judges until stop is set."""
    if not controller.has_check:
        raise RuntimeError(f"{controller.name} has no check: decorate a function with @….check")

    async def work(bus: Bus, settings: Settings) -> None:
        await CheckService(controller, bus, settings).run(stop)

    await process.serve(
        _program(controller), work, stop=stop, url=url, creds=creds, settings=settings
    )


def run(controller: CheckController, *, url: str | None, creds: str | None) -> None:
    """Runs `serve` as a process of its own, with logs and signals."""

    async def serving(stop: asyncio.Event, settings: Settings) -> None:
        await serve(controller, url=url, creds=creds, stop=stop, settings=settings)

    process.run(_program(controller), serving, url=url)


def _program(controller: CheckController) -> process.Program:
    return process.Program("check", controller.name, "controller")


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Shown(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_shown = msgspec.json.Decoder(_Shown)


def request_of(
    fact: CheckRequested, headers: Mapping[str, str], shape: type[Any] | None
) -> Request:
    """The request that the check gets. Raises BadParameters; `bare_request_of` does not."""
    request = bare_request_of(fact, headers)
    request.parameters = parameters_of(bytes(fact.parameters), shape)
    return request


def bare_request_of(fact: CheckRequested, headers: Mapping[str, str]) -> Request:
    """`request_of` without the parameters."""
    raw = bytes(fact.workload)
    shown = _shown.decode(raw) if raw != b"null" else _Shown()
    request = Request(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        check=fact.check,
        cycle=fact.cycle,
        retry_count=fact.retry_count,
        admission=fact.admission,
        workload=Workload(bytes(shown.spec), shown.metadata.labels),
        traceparent=tracing.extract(headers),
    )
    request.raw = bytes(fact.parameters)
    request.revision = fact.revision
    return request


def same_as(fact: CheckRequested | CheckWithdrawn) -> tuple[str, str, str, str, int]:
    """The fields of `Identity`: equal for all facts about one judgement."""
    return (fact.uid, fact.namespace, fact.name, fact.check, fact.cycle)


def message_of(
    controller: str,
    about: Reference,
    verdict: Verdict,
    *,
    ordinal: int,
    secret: bytes,
    now: datetime,
) -> Outgoing:
    """The message that carries the verdict.

    Its id is a hash of the verdict, the cycle and ``ordinal``: a request that is judged twice after
    a crash, with the same outcome, is answered once. ``secret`` keys the hash: a foreign message
    with a guessed id would suppress ours.
    """
    fact = CheckReported(
        namespace=about.namespace,
        name=about.name,
        uid=about.uid,
        controller=controller,
        check=about.check,
        cycle=about.cycle,
        state=verdict.state,
        message=clipped(verdict.message),
        reason=verdict.reason if isinstance(verdict, Pending) else "",
        requeue_after_seconds=verdict.seconds() if isinstance(verdict, Retry) else None,
        pod_set_updates=verdict.updates() if isinstance(verdict, Ready) else (),
    )
    # Hashed without the time, which differs when the verdict is repeated.
    digest = hashlib.blake2b(key=secret[:64], digest_size=16)
    digest.update(b"%d/" % ordinal)
    digest.update(encode(fact))
    headers = {HEADER_MSG_ID: digest.hexdigest(), HEADER_SCHEMA: SCHEMA_VERSION}
    tracing.inject(headers, about.traceparent)
    said = msgspec.structs.replace(fact, time=now)
    return Outgoing(subject_of(said), encode(said), headers)
