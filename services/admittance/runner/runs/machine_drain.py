"""Drains the machine of a runner after a failed prolog or epilog, until an admin ends the drain,
and notes for runs when the drain of an admin empties their machine, or that of another part of the
same job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

import structlog

from admittance.api.meta import Condition
from admittance.events.stored.machines import MachineFailure
from admittance.placement.machines.failed_hooks import condition_of, is_undrained
from admittance.runner.host.port import HostMachine, RunFiles, RunnerFiles
from admittance.runner.runs.claims import Claim, ClaimState
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
        self._elsewhere: dict[str, dict[str, datetime]] = {}
        """For each job in parts the deadlines of the machines of other parts, by their claims."""
        self._knows_others = False
        self._applied_at: datetime | None = None
        """The time of the last failure, or of the end of its drain, in the runner's object."""
        self._changing = asyncio.Lock()
        """The lock that is held until a change of ``failure`` is announced."""
        self.failure = folder.failure()
        self.announce: Callable[[], Awaitable[None]] = _nothing

    def set_deadline(self, deadline: datetime | None, runs: Iterable[RunFiles]) -> list[RunFiles]:
        """Sets when an admin wants the machine to be empty, and notes it for the runs that warn
        their pods; returns these."""
        self._deadline = deadline
        return [run for run in runs if self.note(run)]

    def set_elsewhere(self, key: str, claim: Claim) -> bool:
        """Sets when the machine of another part of a job must be empty, by the claim of this part;
        returns whether this has changed."""
        job, is_held = _job_of(key), claim.state is ClaimState.HELD
        if is_held and claim.runner == self._folder.runner:
            return False
        before = self._elsewhere.get(job, {}).get(key)
        ends = claim.held.ends if claim.held.ends_known or not is_held else before
        if ends is not None:
            self._elsewhere.setdefault(job, {})[key] = ends
        elif before is not None:
            del self._elsewhere[job][key]
            if not self._elsewhere[job]:
                del self._elsewhere[job]
        return ends != before

    def note_part(self, key: str, runs: Iterable[RunFiles]) -> list[RunFiles]:
        """Notes the deadlines for the runs of the job to which the part with the claim at this key
        belongs; returns those that warn their pods."""
        job = _job_of(key)
        return [run for run in runs if _job_of(run.identity.key) == job and self.note(run)]

    def others_known(self, runs: Iterable[RunFiles]) -> list[RunFiles]:
        """Says that the claims of all other parts are read; returns the runs that warn their
        pods."""
        self._knows_others = True
        return [run for run in runs if run.identity.part and self.note(run)]

    def note(self, run: RunFiles) -> bool:
        """Notes for a run when its machine, or that of another part of its job, must be empty.
        Returns whether the run warns its pods of it."""
        if not run.identity.warns or (run.identity.part and not self._knows_others):
            return False
        known = [] if self._deadline is None else [self._deadline]
        if run.identity.part:
            known += self._elsewhere.get(_job_of(run.identity.key), {}).values()
        ends = None
        if known:
            left = (min(known) - self._clock()).total_seconds()
            ends = self._machine.boot_seconds() + left
        try:
            run.note_drain(ends)
        except OSError as error:
            log.warning("drain_not_noted", run=run.identity.key, error=error.strerror)
            return False
        return True

    async def begin(self, reason: str, message: str) -> None:
        """Drains the machine: from now on nothing is started here. The first failure stays."""
        async with self._changing:
            if self.failure is None:
                at = self._clock().replace(microsecond=0)
                if self._applied_at is not None:
                    at = max(at, self._applied_at + timedelta(seconds=1))
                self.failure = MachineFailure(at=at, reason=reason, message=message)
                log.error("machine_drained", reason=reason, message=message)
                try:
                    await asyncio.to_thread(self._folder.note_failure, self.failure)
                except OSError as error:
                    log.warning("drain_not_kept", error=error.strerror)
            await self.announce()

    def has_ended(self, conditions: tuple[Condition, ...]) -> bool:
        """Whether an admin has ended the drain, by the conditions of the runner's object. The next
        failure is later than they are, whatever the clock of the machine says."""
        known = condition_of(conditions)
        if known is not None:
            self._applied_at = known.last_transition_time
        return self.failure is not None and is_undrained(self.failure, conditions) is not None

    async def end(self) -> None:
        """Forgets the failure: an admin has ended the drain."""
        async with self._changing:
            self.failure = None
            await asyncio.to_thread(self._folder.note_failure, None)
            log.info("machine_undrained")
            await self.announce()

    async def announced(self) -> None:
        """Waits until placement can know whether the machine is drained: a job that is given back
        before that is placed here again."""
        async with self._changing:
            pass


def _job_of(key: str) -> str:
    """What the keys of all parts of one job have in common."""
    return key.rpartition("-")[0]
