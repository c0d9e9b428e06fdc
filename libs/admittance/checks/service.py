"""A controller as a process: connected, heard, judged, told; and ended without losing anything.

The order of an end: nothing new is asked for; what is on its way or was not begun is handed back;
what is under way may end within its grace; verdicts reach the log, then their deliveries are
acknowledged. A ``kill -9`` at any point leaves deliveries unacknowledged: they come again.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from admittance.checks import wire
from admittance.checks.alive import beat
from admittance.checks.judging import Judging
from admittance.checks.memory import Identity
from admittance.checks.request import BadParameters, Reference, Request, pointless
from admittance.checks.verdicts import Verdict
from admittance.events.codec import Undecodable, decode
from admittance.events.facts import CheckRequested, CheckWithdrawn
from admittance.events.names import token
from admittance.events.subjects import check_durable
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from admittance.sdk import process
from admittance.sdk.outbox import Outbox
from admittance.sdk.requests import Asked, Heard, Hearing

if TYPE_CHECKING:
    from admittance.checks.controller import AdmissionCheckController

AGAIN_SECONDS: Final = 5.0

log = structlog.get_logger()


class Service:
    """One running replica of a controller."""

    def __init__(self, controller: AdmissionCheckController, bus: Bus, settings: Settings) -> None:
        self._controller = controller
        self._instance = settings.instance
        self._secret = process.secret(settings)
        self._beat_seconds = settings.beat_seconds
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(bus)
        asked = Asked(
            check_durable(controller.name),
            f"admit.check.withdrawn.{token(controller.name)}.*.*",
            "no AdmissionCheck names this controller yet, or Admittance is down",
        )
        self._hearing = Hearing(bus, asked, self._on_heard, room=max(4, 2 * controller.concurrency))
        self._judging = Judging(
            self._hearing,
            judge=self._judge,
            say=self.say,
            freed=controller.free if controller.has_withdrawn else None,
            concurrency=controller.concurrency,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Judges until stop is set."""
        controller = self._controller
        controller.speaks_by(self.say_about)
        await process.at_work(
            self._start(),
            (
                self._outbox.run(),
                self._hearing.keep(),
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
            failed=self._hearing.failed,
            end=self._leave,
        )

    async def _start(self) -> None:
        await self._hearing.start()
        log.info("check_controller_started", controller=self._controller.name)

    async def _leave(self) -> None:
        with suppress(TimeoutError):
            # In a task of its own: the end is not cancelled because we were.
            await asyncio.wait_for(self._end(), self._controller.grace_seconds + 10.0)
        self._controller.speaks_by(None)

    async def _end(self) -> None:
        stopping = asyncio.create_task(self._judging.stop(self._controller.grace_seconds))
        await asyncio.sleep(0)  # what comes from here on is handed back
        await self._hearing.drain()
        await stopping
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._outbox.emptied()
        await asyncio.sleep(0)  # who waited for the log acknowledges
        await self._hearing.stop()
        log.info("check_controller_ended", handed_back=self._hearing.held)

    # Saying. ------------------------------------------------------------------------------

    async def say(self, request: Request, verdict: Verdict) -> bool:
        """Puts a verdict on the log; False when it would come too late to count."""
        if pointless(request, verdict):
            return False
        request.said += 1
        # Of each asking on its own: the same may be said again of other parameters.
        await self._put(request.reference, verdict, (request.revision << 20) + request.said)
        return True

    async def say_about(self, about: Request | Reference, verdict: Verdict) -> bool:
        """The same, also about a request that this process never saw."""
        if isinstance(about, Request):
            return await self.say(about, verdict)
        # Of what was said before this process knows nothing, so it is never taken for a repeat.
        await self._put(about, verdict, secrets.randbits(62))
        return True

    async def _put(self, about: Reference, verdict: Verdict, ordinal: int) -> None:
        message = wire.message_of(
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

    # Hearing. -----------------------------------------------------------------------------

    def _on_heard(self, heard: Heard) -> None:
        try:
            fact = decode(heard.subject, heard.data)
            if isinstance(fact, CheckRequested):
                self._on_requested(fact, heard)
            elif isinstance(fact, CheckWithdrawn):
                identity = Identity(*wire.same_as(fact))
                self._judging.withdrawn(identity, fact.reason, heard.reply)
        except (Undecodable, msgspec.MsgspecError) as error:
            log.error("not_understood", subject=heard.subject, reason=str(error))
            self._hearing.never(heard.reply)
        except Exception:
            # A bug, perhaps of this version alone: it is not to be held for ever.
            log.exception("not_taken", subject=heard.subject)
            self._hearing.again(heard.reply, AGAIN_SECONDS)

    def _on_requested(self, fact: CheckRequested, heard: Heard) -> None:
        identity = Identity(*wire.same_as(fact))
        shape = self._controller.shape
        try:
            request = wire.request_of(fact, heard.headers, shape)
        except BadParameters as error:
            request = wire.bare_request_of(fact, heard.headers)
            request.attach(self, self._loop)
            self._controller.activity.bad_parameters(fact.check, str(error))
            self._judging.bad_parameters(identity, request, heard.reply, str(error))
            return
        request.attach(self, self._loop)
        self._controller.activity.good_parameters(fact.check)
        self._judging.good_parameters(
            fact.check,
            lambda: wire.request_of(fact, heard.headers, shape).parameters,
            bytes(fact.parameters),
        )
        self._judging.requested(identity, request, heard.reply)

    async def _judge(self, request: Request) -> Verdict | None:
        structlog.contextvars.bind_contextvars(
            workload=f"{request.namespace}/{request.name}",
            check=request.check,
            cycle=request.cycle,
        )
        return await self._controller.judge(request)


async def serve(
    controller: AdmissionCheckController,
    *,
    url: str | None,
    creds: str | None,
    stop: asyncio.Event,
    settings: Settings | None = None,
) -> None:
    """Connects, however long that takes, and judges until stop is set."""
    if not controller.has_check:
        raise RuntimeError(f"{controller.name} has no check: decorate a function with @….check")

    async def work(bus: Bus, settings: Settings) -> None:
        await Service(controller, bus, settings).run(stop)

    await process.serve(_peer(controller), work, stop=stop, url=url, creds=creds, settings=settings)


def run(controller: AdmissionCheckController, *, url: str | None, creds: str | None) -> None:
    """`serve` as a whole process, with its logs and signals."""

    async def serving(stop: asyncio.Event, settings: Settings) -> None:
        await serve(controller, url=url, creds=creds, stop=stop, settings=settings)

    process.run(_peer(controller), serving, url=url)


def _peer(controller: AdmissionCheckController) -> process.Peer:
    return process.Peer("check", controller.name, "controller")
