"""The facts that a session has read, so that a page that is shown again asks for later ones only.

Each session has its own, and asks each time: nats-server decides anew what it may read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from admittance.client import Client
from admittance.client.errors import NotAllowed, NotFound
from admittance.events.requests.history import LogEntry
from admittance.runtime import clock

SETTLED_AFTER: Final = timedelta(seconds=10)
"""Younger facts are asked for again, since their outcome may not be known yet."""
BYTES_MAX: Final = 1 << 20
"""The most bytes that a session keeps, about 1,000 facts."""
ENTRY_BYTES: Final = 500
"""The bytes of a fact in memory beside its data."""


class KeptFacts:
    """The facts of the workloads that one session has shown last."""

    def __init__(self, client: Client, bytes_max: int = BYTES_MAX) -> None:
        self._client = client
        self._bytes_max = bytes_max
        self._kept: dict[tuple[str, str], list[LogEntry]] = {}
        """The oldest first: a workload that is shown again moves to the end."""

    async def of(self, namespace: str, name: str) -> list[LogEntry]:
        """The facts of the workload and its variants; [] if there are none, or the user may not
        read them. Raises ClientError."""
        known = self._kept.pop((namespace, name), [])
        try:
            entries = await self._later(namespace, name, known) or await self._after(
                namespace, name, 0
            )
        except (NotAllowed, NotFound):
            return []
        settled_until = clock.now() - SETTLED_AFTER
        settled = [each for each in entries if each.time < settled_until]
        if settled:
            self._keep((namespace, name), settled)
        return entries

    async def _later(
        self, namespace: str, name: str, known: Sequence[LogEntry]
    ) -> list[LogEntry] | None:
        """The known facts and the later ones; None: all have to be read."""
        if not known:
            return None
        last = known[-1]
        found = await self._after(namespace, name, last.sequence - 1)
        # Another log, or facts of a variant that was not known, which has earlier facts, too.
        if not found or (found[0].sequence, found[0].time) != (last.sequence, last.time):
            return None
        if not {_about(each) for each in found} <= {_about(each) for each in known}:
            return None
        return [*known, *found[1:]]

    async def _after(self, namespace: str, name: str, sequence: int) -> list[LogEntry]:
        events = self._client.events(name, namespace=namespace, after=sequence)
        return [entry async for entry in events]

    def _keep(self, key: tuple[str, str], entries: list[LogEntry]) -> None:
        self._kept[key] = entries
        size = sum(map(_size, self._kept.values()))
        while size > self._bytes_max:
            first = next(iter(self._kept))
            size -= _size(self._kept.pop(first))


def _about(entry: LogEntry) -> str:
    return entry.subject.rpartition(".")[2]


def _size(entries: Sequence[LogEntry]) -> int:
    return sum(len(bytes(each.data)) + ENTRY_BYTES for each in entries)
