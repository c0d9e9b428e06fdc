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
from admittance.runtime.errors import AdmittanceError, Refused, passes
from admittance.runtime.tasks import go_on
from admittance.sdk.requests import Hearing

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


class Deliveries:
    """Unacknowledged deliveries of requests, or of cancellations, by the request's id. The same one
    may have been delivered several times."""

    def __init__(self, hearing: Hearing) -> None:
        self._hearing = hearing
        self._replies: dict[str, list[str]] = {}

    def take(self, request_id: str, reply: str) -> bool:
        """It came. True: it is the first one about that request."""
        replies = self._replies.setdefault(request_id, [])
        replies.append(reply)
        return len(replies) == 1

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._replies

    def ids(self) -> list[str]:
        """What they are about."""
        return list(self._replies)

    def done(self, request_id: str) -> None:
        """It is dealt with: they are acknowledged."""
        for reply in self._replies.pop(request_id, ()):
            self._hearing.done(reply)

    def again(self, request_id: str, delay_seconds: float = 0.0) -> None:
        """Somebody is to deal with it later."""
        for reply in self._replies.pop(request_id, ()):
            self._hearing.again(reply, delay_seconds)

    def let_wait(self, request_id: str) -> None:
        """It rests for a while, so others may come beside it."""
        for reply in self._replies.get(request_id, ()):
            self._hearing.let_wait(reply)

    def hand_back(self) -> None:
        """Another replica is to have all of them."""
        for replies in self._replies.values():
            for reply in replies:
                self._hearing.again(reply)
