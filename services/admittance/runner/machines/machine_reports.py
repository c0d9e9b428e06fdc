"""What a runner says about its machine, in the bucket of claims: its inventory, its open runs, and
that it is alive.

The key that says that a runner is alive is also the claim of its name. A runner with another data
folder that finds the key held starts nothing, and says so, until the key expires or is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from admittance.events.reader import Unreadable
from admittance.events.stored.machines import (
    ALIVE_RUNNERS,
    INVENTORIES,
    OPEN_RUNS,
    REFUSED_RUNNERS,
    OpenRun,
    OpenRuns,
    RunnerAlive,
    RunnerInventory,
    RunnerRefused,
    key_of_runner,
    read_alive_runner,
)
from admittance.events.subjects import CLAIMS
from admittance.runtime.bus.bucket import Entry, delete_message, get_directly, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AccessDenied, StaleRevision

KNOWN_SECONDS: Final = 2 * 86_400.0
"""Seconds for which the last inventory and the last list of runs are kept."""
ALIVE_SECONDS: Final = 45.0
"""Most seconds after which a runner that says nothing counts as dead."""
TAKE_SECONDS_MAX: Final = 5.0
"""Most seconds between two attempts to take a name that another runner has."""
MARKER_SECONDS: Final = 3600.0

log = structlog.get_logger(service="runner")


class MachineReports:
    """Writes what one runner says about its machine. ``inventory``: what the runner has, with its
    name and the id of its data folder. ``ttl``: seconds after which other runners may take its
    claims.

    A login without the permission, such as one of an earlier version, announces no machine: its
    runner works as before, and is not listed.
    """

    def __init__(self, bus: Bus, inventory: RunnerInventory, ttl: float) -> None:
        self._bus = bus
        self._name = inventory.name
        self.ttl = min(ttl, ALIVE_SECONDS)
        self._alive = RunnerAlive(id=inventory.id, host=inventory.host)
        self._held: int | None = None
        """The revision of this runner's last claim of its name; None: it does not have the name."""
        self._said_refused = False
        self.allowed = True
        """Whether the permissions of the runner's user let it announce its machine."""

    @property
    def has_name(self) -> bool:
        """Whether this runner may start jobs: no other runner has its name."""
        return self._held is not None or not self.allowed

    async def take_name(self) -> bool:
        """Takes the runner's name, or renews the claim of it; returns whether this runner has the
        name now. Raises BusUnavailable or BusRefused if the bus does not answer."""
        if not self.allowed:
            return True
        try:
            holder = await self._take()
        except AccessDenied as error:
            self.allowed = False
            log.warning("machine_not_announced", runner=self._name, reason=str(error))
            return True
        if holder is None:
            if self._said_refused:
                self._said_refused = False
                log.info("runner_has_its_name", runner=self._name)
                await self._delete(REFUSED_RUNNERS)
            return True
        self._held = None
        if not self._said_refused:
            self._said_refused = True
            log.error(
                "runner_refused",
                runner=self._name,
                reason=f"the runner with the data folder {holder.id} on host "
                f"{holder.host or 'unknown'} has this name; this one starts nothing: give it a "
                "user of its own, or an ADMIT_RUNNER",
            )
        refused = RunnerRefused(id=self._alive.id, host=self._alive.host)
        await self._put(REFUSED_RUNNERS, refused, self.ttl)
        return False

    async def wait_for_name(self) -> None:
        """Waits until this runner has its name. Raises BusUnavailable or BusRefused."""
        while True:
            if await self.take_name():
                return
            await asyncio.sleep(min(TAKE_SECONDS_MAX, self.ttl / 6))

    async def announce(self, inventory: RunnerInventory) -> None:
        """Writes the inventory, unless another runner has the name. A login without the permission
        is tried again: its permissions may have been renewed. Raises BusUnavailable or
        BusRefused."""
        if not self.allowed:
            self.allowed = True
            await self.take_name()
        if self._held is not None:
            await self._put(INVENTORIES, inventory, KNOWN_SECONDS)

    async def report(self, runs: Iterable[OpenRun]) -> None:
        """Writes the list of all runs that may have processes, unless another runner has the name.
        Raises BusUnavailable or BusRefused."""
        if self._held is not None:
            said = OpenRuns(id=self._alive.id, runs=tuple(runs))
            await self._put(OPEN_RUNS, said, KNOWN_SECONDS)

    async def begin_to_leave(self) -> None:
        """Says that the runner starts nothing more; it keeps its name until `leave`. Raises
        BusUnavailable or BusRefused."""
        self._alive = msgspec.structs.replace(self._alive, leaving=True)
        if self._held is not None:
            await self.take_name()

    async def leave(self) -> None:
        """Gives the name back, so that a runner with another data folder need not wait. Raises
        BusUnavailable or BusRefused."""
        if self._held is not None:
            self._held = None
            await self._delete(ALIVE_RUNNERS)

    async def _take(self) -> RunnerAlive | None:
        """Takes or renews the claim; returns the runner that has the name instead."""
        expected = self._held or 0
        while True:
            try:
                self._held = await self._put(ALIVE_RUNNERS, self._alive, self.ttl, expected)
            except StaleRevision:
                entry = await get_directly(
                    self._bus, self._key(ALIVE_RUNNERS), bucket=CLAIMS, at_least=expected + 1
                )
                holder = _holder(entry)
                if holder is not None and holder.id != self._alive.id:
                    return holder
                expected = entry.revision if entry is not None else 0
                continue
            return None

    async def _put(
        self, first: str, said: msgspec.Struct, ttl: float, expected: int | None = None
    ) -> int:
        return await self._bus.publish(
            put_message(
                self._key(first),
                msgspec.json.encode(said),
                expected=expected,
                ttl_seconds=ttl,
                bucket=CLAIMS,
            )
        )

    async def _delete(self, first: str) -> None:
        await self._bus.publish(
            delete_message(
                self._key(first), expected=None, ttl_seconds=MARKER_SECONDS, bucket=CLAIMS
            )
        )

    def _key(self, first: str) -> str:
        return key_of_runner(first, self._name)


def _holder(entry: Entry | None) -> RunnerAlive | None:
    """The runner that has the name; None: the name is free, or no runner wrote the value."""
    if entry is None or entry.value is None:
        return None
    try:
        return read_alive_runner(entry.value)
    except Unreadable:
        return None
