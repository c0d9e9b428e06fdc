"""The stored consumption of LocalQueues and users: each LocalQueue has one key in the bucket,
``_usage.<namespace>.<name>``, and so has each user of a ClusterQueue that orders by the usage of
users (`equivalence.user_key` instead of namespace and name).

The leader of the domain writes the key a second after a change of the consumption, and in every
sampling interval in which a workload of the LocalQueue or user runs. The next leader continues from
the stored consumption. Each write names the revision that it replaces, so a former leader cannot
overwrite a value of its successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from admittance.events.names import token
from admittance.events.shapes import ConsumedUsage
from admittance.events.stored.formats import read_usage
from admittance.events.subjects import USAGE
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, delete_message, put_message
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.scheduling.state.equivalence import Key
from admittance.workload.bucket_reader import names_of

PAUSE_SECONDS: Final = 1.0
"""Seconds before a failed write of consumption is repeated."""
log = structlog.get_logger()

Record = tuple[Key, ConsumedUsage | None]


class UsageKeys:
    """Writes the consumption of LocalQueues to their keys, one batch after the other, because each
    write names the revision that it replaces. If the consumption of a LocalQueue changes several
    times during a write, only the newest value is written afterwards."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._revisions: dict[Key, int] = {}
        self._waiting: dict[Key, ConsumedUsage | None] = {}
        self._writing: asyncio.Task[None] | None = None

    def read(self, entry: Entry) -> Record:
        """Returns the LocalQueue and its consumption from an entry of the bucket; the consumption
        is None if the entry is a deletion. Raises Unreadable for an invalid entry."""
        key = names_of(entry.key)
        self._revisions[key] = max(entry.revision, self._revisions.get(key, 0))
        if entry.value is None:
            return key, None
        return key, read_usage(entry.value)

    def write(self, records: Iterable[Record]) -> None:
        """Writes the records of consumption to the bucket as soon as possible."""
        self._waiting.update(records)
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write(), name="usages")

    async def settled(self, timeout: float) -> None:
        """Waits until the bucket has all records passed to `write`, at most ``timeout`` seconds."""
        if self._writing is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._writing, timeout)

    async def _write(self) -> None:
        throttle = LogThrottle()
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            try:
                outcomes = await self._bus.publish_all(
                    [self._message(key, record) for key, record in batch.items()]
                )
            except BusUnavailable as error:
                if throttle.due(clock.monotonic()):
                    log.warning("usage_not_written", error=str(error), keys=len(batch))
                self._waiting = {**batch, **self._waiting}
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            for key, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, BusRefused):
                    # Another leader has written the key of the LocalQueue; the value that this
                    # leader wrote arrives through the bucket.
                    log.info(
                        "usage_refused", namespace=key[0], local_queue=key[1], error=str(outcome)
                    )
                else:
                    self._revisions[key] = max(outcome, self._revisions.get(key, 0))

    def _message(self, key: Key, record: ConsumedUsage | None) -> Outgoing:
        at = f"{USAGE}.{token(key[0])}.{token(key[1])}"
        expected = self._revisions.get(key, 0)
        if record is None:
            return delete_message(at, expected=expected)
        return put_message(at, msgspec.json.encode(record), expected=expected)
