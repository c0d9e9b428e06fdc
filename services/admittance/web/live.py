"""The live stream: it carries sequences of the log, and pages ask again for what they show.

A message of the bus says only that there are facts; the sequence of the newest is read from the
log. All pages of a person share one follower, which asks at most ten times a second, and neither
asks nor receives anything while pages rest after their last answers. Pages get an event after that
rest.

Workloads of other namespaces change the numbers that a person sees, and their facts are hidden from
that person. So the follower subscribes to changed domains, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from admittance.client import Client
from admittance.client.errors import ClientError, Closed
from admittance.runtime import clock
from admittance.runtime.tasks import set_within
from admittance.web.rests import Rests

PAUSE_SECONDS: Final = 0.1
"""Time between two readings of the log, and between two events of a stream."""
AGAIN_SECONDS: Final = 2.0
"""Time between two attempts to follow the log, if it cannot be read."""
KNOWN_SECONDS: Final = 1.0
"""How long the first event waits for the newest sequence."""

log = structlog.get_logger()


class Follower:
    """Follows the log for one person, while at least one stream is open. ``sequence``: of the last
    fact that was seen; 0: none was. ``ended``: set when the session is over."""

    def __init__(self, client: Client, ended: asyncio.Event, rests: Rests) -> None:
        self.sequence = 0
        self._changes = 0  # how often the quota or the queues of a domain changed
        self.listeners = 0
        self._client = client
        self._ended = ended
        self._rests = rests
        self._changed = asyncio.Event()
        self._unknown: set[str | None] = set()
        """The namespaces of which no sequence has been read yet; None: all namespaces."""
        self._known = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def moment(self) -> tuple[int, int]:
        """Changes with each change that the streams say."""
        return self.sequence, self._changes

    async def events(self, last: int) -> AsyncIterator[dict[str, str]]:
        """The events of one stream. ``last``: the sequence that the browser has seen. The first
        event comes as soon as the newest sequence is known, so that a page that was away asks
        again."""
        self.listeners += 1
        if not self._tasks:
            self._start()
        try:
            await set_within(self._known, KNOWN_SECONDS)
            seen, changes = max(last, self.sequence), self._changes
            yield {"event": "changed", "id": str(seen), "data": str(seen)}
            while not self._ended.is_set():
                await self._until_after(seen, changes)
                await self.rest()
                if self.sequence > seen or self._changes > changes:
                    seen, changes = max(seen, self.sequence), self._changes
                    yield {"event": "changed", "id": str(seen), "data": str(seen)}
                    await asyncio.sleep(PAUSE_SECONDS)
            yield {"event": "ended", "data": "signed out"}
        finally:
            self.listeners -= 1
            if not self.listeners:
                self.stop()

    def stop(self) -> None:
        """Ends the reading of the log. Awaits nothing, since a stream ends by a cancellation."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._changed.set()

    async def _until_after(self, seen: int, changes: int) -> None:
        while self.sequence <= seen and self._changes <= changes and not self._ended.is_set():
            self._changed.clear()
            await self._changed.wait()

    async def rest(self) -> None:
        """Waits for the end of the rest of the pages, or of the session."""
        while not self._ended.is_set() and (left := self._rests.left(clock.monotonic())):
            await set_within(self._ended, left)

    def _start(self) -> None:
        spaces = self._client.login.namespaces or (None,)
        self._unknown = set(spaces)
        self._known.clear()
        for namespace in spaces:
            self._again_and_again(partial(self._follow, namespace), "follow-log")
        self._again_and_again(self._count_changes, "follow-domains")

    def _again_and_again(self, read: Callable[[], Awaitable[None]], name: str) -> None:
        """Begins a task that reads until the session ends."""

        async def follow() -> None:
            while not self._ended.is_set():
                try:
                    await read()
                except Closed:
                    return
                except ClientError as error:
                    log.info("page_not_followed", reason=str(error))
                    await asyncio.sleep(AGAIN_SECONDS)

        self._tasks.append(asyncio.create_task(follow(), name=name))

    async def _count_changes(self) -> None:
        async with self._client.quota_changes() as changes:
            async for _ in changes:
                self._changes += 1
                self._changed.set()

    async def _follow(self, namespace: str | None) -> None:
        """Notes the sequence of the newest fact of a namespace; None: of all namespaces."""
        newest = self._client.newest_sequences(
            after=self.sequence, namespace=namespace, all_namespaces=namespace is None
        )
        async for sequence in newest:
            self._unknown.discard(namespace)
            if not self._unknown:
                self._known.set()
            self.sequence = max(self.sequence, sequence)
            self._changed.set()
            await asyncio.sleep(PAUSE_SECONDS)
            await self.rest()
