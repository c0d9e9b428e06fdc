"""Mechanisms of leases and of failed prologs, each taken out as in `mutations`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from admittance.events.stored.machines import MachineFailure
from admittance.runner.runs.machine_drain import MachineDrain
from admittance.workload import due_times
from admittance.workload.stored import StoredWorkload, head
from simulation.hunting.mutations import Mutation, Patch
from simulation.plots.catalog import held


def _since_submission(workload: StoredWorkload) -> datetime | None:
    """A renewal does not lengthen the lease."""
    seconds, since = head(workload).lease_duration_seconds, workload.metadata.creation_timestamp
    return since + timedelta(seconds=seconds) if seconds is not None and since else None


async def _note_only(self: MachineDrain, reason: str, message: str) -> None:
    """Notes the failure, and goes on."""
    at = self._clock().replace(microsecond=0)
    self._folder.note_failure(MachineFailure(at=at, reason=reason, message=message))


HOLD_MUTATIONS: Final = {
    "a program that dies would keep its quota": Mutation(
        (Patch(due_times, "lease_end", lambda *_: None),), held, "holds quota at|does not run", 0
    ),
    "a lease that is renewed would end": Mutation(
        (Patch(due_times, "lease_end", _since_submission),), held, "lost its lease", 0
    ),
    "a runner with a failed prolog would take further jobs": Mutation(
        (Patch(MachineDrain, "begin", _note_only),), held, "where a prolog has failed", 1
    ),
}
"""By what would happen without the mechanism."""
