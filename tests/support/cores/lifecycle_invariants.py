"""The invariants of a workload's life, looked at in every revision: those of the simulation."""

from __future__ import annotations

from datetime import datetime

from admittance.workload.stored import VARIANT, StoredWorkload, head
from simulation.invariants.lifecycle import AdmittedSeconds, Stopped, broken


class Watch:
    """Looks at every revision of every workload; raises AssertionError where one is broken."""

    def __init__(self, stopped: Stopped | None = None) -> None:
        self.revisions = 0
        self._stopped = stopped
        self._known: dict[str, StoredWorkload] = {}
        self._seconds: dict[str, AdmittedSeconds] = {}

    def saw(self, key: str, workload: StoredWorkload | None, now: datetime) -> None:
        """Checks and records a new version of the workload; None: it was deleted."""
        self.revisions += 1
        old = self._known.pop(key, None)
        faults = broken(old, workload, now, self._stopped)
        if workload is not None:
            self._known[key] = workload
            uid = workload.metadata.uid
            if head(workload).role != VARIANT:  # There its parent's time counts.
                faults += self._seconds.setdefault(uid, AdmittedSeconds()).saw(workload)
        assert not faults, f"{key}: {'; '.join(faults)}\n{old}\n{workload}"
