"""The admissions that a runner has read on the log, so that it need not ask for the log again at an
eviction: a hundred runners that ask at once wait for the workload-controller longer than they may.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.events.facts import Admitted, Evicted
from admittance.runner.plans.devices import runners_to_run

WORKLOADS_MAX: Final = 10_000
"""The most workloads of which admissions are kept, the newest."""
ADMISSIONS_MAX: Final = 20
"""The most admissions of one workload that are kept, the newest."""


class AdmissionRead(NamedTuple):
    """One admission of a workload: its revision, and the ids of the runners that it was assigned
    to. ``held``: a program holds the quota itself, and no runner starts a job."""

    revision: int
    runners: tuple[str, ...]
    held: bool = False


def admission_in(fact: Admitted) -> AdmissionRead:
    """The admission that the fact tells of."""
    return AdmissionRead(fact.revision, runners_to_run(fact.pod_sets), fact.held)


class AdmissionsRead:
    """Pure. The facts are taken in the order of the log."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], dict[int, AdmissionRead]] = {}
        """For each workload its admissions, by their revisions."""

    def admitted(self, fact: Admitted) -> None:
        """Keeps an admission until its eviction is read."""
        workload = fact.namespace, fact.name
        kept = self._read.pop(workload, {})
        self._read[workload] = kept
        kept[fact.revision] = admission_in(fact)
        if len(kept) > ADMISSIONS_MAX:
            del kept[min(kept)]
        if len(self._read) > WORKLOADS_MAX:
            del self._read[next(iter(self._read))]

    def ended_by(self, fact: Evicted) -> AdmissionRead | None:
        """The last admission before the eviction, None if it was not read. Drops all admissions
        before the eviction."""
        workload = fact.namespace, fact.name
        kept = self._read.pop(workload, {})
        later = {revision: kept[revision] for revision in kept if revision >= fact.revision}
        if later:
            self._read[workload] = later
        before = max((revision for revision in kept if revision < fact.revision), default=0)
        return kept[before] if before else None
