"""The data folders of other runners. Such a folder may have the result of a job whose runner has
ended. With its own folder, a runner announces which jobs it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from admittance.events.reader import Unreadable
from admittance.events.stored.formats import read_announcement
from admittance.events.subjects import ANNOUNCED_RUNNERS, CLAIMS
from admittance.events.system import RunnerAnnouncement, RunnerStarts
from admittance.folders import FolderSight
from admittance.runner.host.port import HostMachine, OtherRun, RunnerFiles
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, put_message
from admittance.runtime.bus.bus import Bus

KNOWN_SECONDS: Final = 2 * 86_400.0
"""Seconds for which the announced folder of another runner is remembered."""
SHIM_END_SECONDS: Final = 60.0
"""Most seconds to wait for the end of a shim after the claim of its run has expired: twice the
usual grace period.
"""
LOOK_SECONDS: Final = 0.2

log = structlog.get_logger(service="runner")


class OtherFolders:
    """The data folders that other runners have announced."""

    def __init__(self, bus: Bus, machine: HostMachine, folder: RunnerFiles) -> None:
        self._bus = bus
        self._machine = machine
        self._folder = folder
        self.starts: RunnerStarts | None = None
        """Which jobs this runner starts, for its announcement; None: all jobs."""
        self.folders: FolderSight | None = None
        """Which folders the processes of this runner see; None: it starts none."""
        self.consumer = ""
        """The name of this runner from which the name of its consumer follows."""
        self._roots: dict[str, str] = {}
        self.loaded = asyncio.Event()
        """The event that is set when this runner knows all folders that other runners announced
        before this runner's start."""

    async def announce(self) -> None:
        """Writes the path of this runner's folder to the bucket, for other runners, and which jobs
        this runner starts, for the workload-controller. Raises BusUnavailable.
        """
        value = msgspec.json.encode(
            RunnerAnnouncement(
                root=str(self._folder.root),
                starts=self.starts,
                consumer=self.consumer,
                folders=self.folders,
                at=clock.now(),
                placement=True,
            )
        )
        key = f"{ANNOUNCED_RUNNERS}.{self._folder.runner}"
        await self._bus.publish(
            put_message(key, value, expected=None, ttl_seconds=KNOWN_SECONDS, bucket=CLAIMS)
        )

    async def find(self, key: str) -> OtherRun | None:
        """Returns the run with the key ``key`` from a readable folder of another runner; None if no
        such folder has the run. Waits until this runner knows the announced folders.
        """
        await self.loaded.wait()
        roots = dict(self._roots)
        return await asyncio.to_thread(self._machine.find_run, roots, key)

    def learn(self, entries: Sequence[Entry]) -> None:
        """Learns the paths of other runners' folders from entries of the bucket of claims."""
        for entry in entries:
            prefix, _, runner = entry.key.partition(".")
            if prefix != ANNOUNCED_RUNNERS or runner == self._folder.runner:
                continue
            if entry.value is None:
                self._roots.pop(runner, None)
                continue
            with suppress(Unreadable):
                self._roots[runner] = read_announcement(entry.value).root


async def wait_for_shim(run: OtherRun) -> None:
    """Waits until the run's shim has ended, at most SHIM_END_SECONDS. A healthy shim ends before
    the claim of its run expires; a shim that hangs does not.
    """
    for _ in range(int(SHIM_END_SECONDS / LOOK_SECONDS)):
        run.folder.read_journal()
        if run.folder.journal.end is not None or not run.folder.shim_lives():
            break
        await asyncio.sleep(LOOK_SECONDS)
    else:
        log.warning("shim_outlives_its_claim", run=run.folder.identity.key)
    run.folder.read_journal()
