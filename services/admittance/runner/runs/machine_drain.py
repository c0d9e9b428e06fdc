"""Drains the machine of a runner after a failed prolog or epilog, until an admin ends the drain,
and notes for runs when the drain of an admin empties the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

import structlog

from admittance.events.stored.machines import MachineFailure
from admittance.runner.host.port import HostMachine, RunFiles, RunnerFiles
from admittance.runtime.clock import Clock

log = structlog.get_logger(service="runner")


async def _nothing() -> None:
    """Announces nothing."""


class MachineDrain:
    """``failure``: why this runner drains its machine; None: it does not. ``announce``: a function
    that announces the failure, or that there is none any more."""

    def __init__(self, folder: RunnerFiles, machine: HostMachine, clock: Clock) -> None:
        self._folder = folder
        self._machine = machine
        self._clock = clock
        self._deadline: datetime | None = None
        self._ended_at: datetime | None = None
        self.failure = folder.failure()
        self.announce: Callable[[], Awaitable[None]] = _nothing

    def set_deadline(self, deadline: datetime | None, runs: Iterable[RunFiles]) -> list[RunFiles]:
        """Sets when an admin wants the machine to be empty, and notes it for the runs that warn
        their pods; returns these."""
        self._deadline = deadline
        return [run for run in runs if self.note(run)]

    def note(self, run: RunFiles) -> bool:
        """Notes for a run when the machine must be empty. Returns whether the run warns its pods of
        it."""
        if not run.identity.warns:
            return False
        ends = None
        if self._deadline is not None:
            left = (self._deadline - self._clock()).total_seconds()
            ends = self._machine.boot_seconds() + left
        try:
            run.note_drain(ends)
        except OSError as error:
            log.warning("drain_not_noted", run=run.identity.key, error=error.strerror)
            return False
        return True

    async def begin(self, reason: str, message: str) -> None:
        """Drains the machine: from now on nothing is started here. The first failure stays."""
        if self.failure is None:
            at = self._clock().replace(microsecond=0)
            if self._ended_at is not None:
                at = max(at, self._ended_at + timedelta(seconds=1))
            self.failure = MachineFailure(at=at, reason=reason, message=message)
            log.error("machine_drained", reason=reason, message=message)
            try:
                await asyncio.to_thread(self._folder.note_failure, self.failure)
            except OSError as error:
                log.warning("drain_not_kept", error=error.strerror)
        await self.announce()

    async def end(self, at: datetime) -> None:
        """Forgets the failure: an admin has ended the drain at this time."""
        self.failure, self._ended_at = None, at
        await asyncio.to_thread(self._folder.note_failure, None)
        log.info("machine_undrained")
        await self.announce()
