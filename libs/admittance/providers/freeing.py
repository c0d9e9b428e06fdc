"""What was obtained for a request is freed once that is taken back.

The cancellation is written down first, then what is under way is cancelled, then the function that
frees is called, until it returns. Whoever obtains something for a request that was taken back
meanwhile finds that written, and frees it, too; and so does whoever hears of the request again,
since who heard of it before may have died with something in its hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import structlog

from admittance.events.provisioning import ProvisioningCancelled, ProvisioningFact
from admittance.providers.request import Cancellation
from admittance.providers.store import Said, Store
from admittance.providers.working import Deliveries
from admittance.runtime.errors import AdmittanceError, Refused, passes
from admittance.runtime.tasks import go_on

if TYPE_CHECKING:
    from admittance.providers.provider import Provider

PAUSE_MIN: Final = 1.0
PAUSE_MAX: Final = 60.0
AGAIN_SECONDS: Final = 5.0
AWAY_PAUSE_MIN: Final = 0.1
AWAY_PAUSE_MAX: Final = 5.0
"""Seconds between two tries while the bus is away."""

log = structlog.get_logger()


class Freeing:
    """``requests``, ``cancellations``: their deliveries, acknowledged when it is freed.
    ``stop_work``: ends what is under way for a request."""

    def __init__(
        self,
        provider: Provider,
        store: Store,
        *,
        requests: Deliveries,
        cancellations: Deliveries,
        stop_work: Callable[[str], Awaitable[None]],
    ) -> None:
        self._provider = provider
        self._store = store
        self._requests = requests
        self._cancellations = cancellations
        self._stop_work = stop_work
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """What is being freed."""
        return list(self._running)

    def cancelled(self, fact: ProvisioningCancelled, reply: str) -> None:
        """A request was taken back; where that is heard twice, it is freed once."""
        if self._cancellations.take(fact.id, reply):
            self._start(fact.id, self._free(fact))

    def begin_to_dispose(self, request: dict[str, Any]) -> None:
        """`dispose`, beside what else is done."""
        self._start(request["id"], self.dispose(request))

    async def dispose(self, request: dict[str, Any]) -> None:
        """Frees what may have been obtained for a request that was taken back. Its delivery is
        acknowledged only then: who dies in between leaves it to the next one."""
        await self._call(Cancellation(**request, reason="it was taken back meanwhile"))
        self._requests.done(request["id"])

    async def _free(self, fact: ProvisioningCancelled) -> None:
        told = about(fact)
        await self._note(told)
        await self._stop_work(fact.id)
        await self._call(Cancellation(**told, reason=fact.reason))
        self._requests.done(fact.id)
        self._cancellations.done(fact.id)

    async def _note(self, request: dict[str, Any]) -> None:
        """Writes down that it was taken back, however long the bus is away."""
        pause = AWAY_PAUSE_MIN
        while True:
            go_on()
            try:
                await self._store.cancel(request)
                return
            except AdmittanceError as error:
                if isinstance(error, Refused) and not passes(error):
                    log.error("not_noted", id=request["id"], reason=str(error))
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, AWAY_PAUSE_MAX)

    async def _call(self, cancellation: Cancellation) -> None:
        pause = PAUSE_MIN
        while True:
            go_on()
            try:
                await self._provider.free(cancellation)
                return
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                log.exception("not_freed", id=cancellation.id, reason=why, again_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)

    def _start(self, request_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=request_id)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # A bug of ours: held, it would never come again.
            log.error("freeing_failed", id=task.get_name(), exc_info=task.exception())
            self._cancellations.again(task.get_name(), AGAIN_SECONDS)


def about(fact: ProvisioningFact | Said) -> dict[str, Any]:
    """Which request that is, and whose."""
    return {"id": fact.id, "namespace": fact.namespace, "name": fact.name, "uid": fact.uid}
