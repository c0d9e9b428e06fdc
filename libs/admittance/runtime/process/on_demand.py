"""A service of which the process runs only while there are questions (`WithUp.ON_DEMAND`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg

from admittance.backoff import Backoff
from admittance.events.requests.base import Reply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.service import Service
from admittance.runtime.process.service_child import ChildEnded
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.supervise import ServiceTask
from admittance.runtime.tasks import cancel_and_wait

IDLE_SECONDS: Final = 1800.0
"""The process ends so long after the last request."""
PAUSE_MIN: Final = 1.0
PAUSE_MAX: Final = 60.0
"""The pauses before a process is started again that has ended by itself."""
CALM_SECONDS: Final = 300.0
"""After a process that lasted so long the first pause is short again."""

log = structlog.get_logger()


class _OnDemand:
    """Sees the requests to a service, and runs its process. Until that process is ready, requests
    are answered here, so that none of them waits for nothing."""

    def __init__(
        self,
        service: Service,
        run: Callable[[], Awaitable[None]],
        ready: Callable[[Bus], Awaitable[None]],
    ) -> None:
        self._service = service
        self._run = run
        self._ready = ready
        self._asked_at = 0.0
        self._asked = asyncio.Event()
        self._is_ready = False
        self._last: tuple[str, bytes] | None = None

    async def serve(self, bus: Bus) -> None:
        """Works until cancelled."""
        for subject in self._service.requests:
            await bus.nc.subscribe(subject, cb=self._on_request)
        pauses = Backoff(PAUSE_MIN, PAUSE_MAX)
        while True:
            await self._asked.wait()
            began, pause = clock.monotonic(), 0.0
            try:
                await self._while_asked(bus)
            except ChildEnded as error:
                log.warning("service_process_ended", service=self._service.name, reason=str(error))
                if clock.monotonic() - began > CALM_SECONDS:
                    pauses.reset()
                pause = pauses.next()
            await asyncio.sleep(pause)

    async def _on_request(self, message: Msg) -> None:
        self._asked_at = clock.monotonic()
        self._asked.set()
        if not self._is_ready and message.reply:
            self._last = message.subject, message.data
            name = self._service.name
            error = f"the process of {name} starts, because of this request: ask again soon"
            with suppress(nats.errors.Error):
                await message.respond(msgspec.json.encode(Reply(error=error)))

    async def _while_asked(self, bus: Bus) -> None:
        child = asyncio.ensure_future(self._run())
        serving = asyncio.ensure_future(self._until_ready(bus))
        try:
            while (left := self._asked_at + IDLE_SECONDS - clock.monotonic()) > 0:
                working = [task for task in (child, serving) if not task.done()]
                await asyncio.wait(working, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for task in (child, serving):
                    if task.done():
                        task.result()
            log.info("service_process_unasked", service=self._service.name)
        finally:
            # A later request starts the process again, also one that comes while this one ends.
            self._asked.clear()
            self._is_ready = False
            for task in (serving, child):
                with suppress(Exception):
                    await cancel_and_wait(task)

    async def _until_ready(self, bus: Bus) -> None:
        await self._ready(bus)
        self._is_ready = True
        if self._last is not None:
            # The process gets the request for which it was started, and prepares for the next one.
            # Nothing waits for the answer any more.
            await bus.nc.publish(*self._last)


def on_demand_task(
    service: Service,
    settings: Settings,
    run: Callable[[], Awaitable[None]],
    ready: Callable[[Bus], Awaitable[None]],
) -> ServiceTask:
    """The task that `supervise` runs for a service on demand. ``run``: calls `run_child`;
    ``ready``: returns once the service in that process is ready."""

    async def once(serves: asyncio.Event) -> None:
        bus = await Bus.connect(
            settings.url, name=f"admit-{settings.service}", access=settings.connection
        )
        try:
            serves.set()
            await _OnDemand(service, run, ready).serve(bus)
        finally:
            await bus.close()

    return ServiceTask(settings.service, once)
