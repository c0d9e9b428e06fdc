"""The admissions that a runner has read on the log, so that it need not ask for the log again at an
eviction: a hundred runners that ask at once wait for the workload-controller longer than they may.
"""

from __future__ import annotations

from typing import Final

from admittance.events.facts import Admitted, Evicted
from admittance.runner.plans.devices import runners_to_run

WORKLOADS_MAX: Final = 10_000
"""The most workloads of which admissions are kept, the newest."""
ADMISSIONS_MAX: Final = 20
"""The most admissions of one workload that are kept, the newest."""


class AdmissionsRead:
    """Pure. The facts are taken in the order of the log."""

    def __init__(self) -> None:
        self._runners: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {}
        """For each workload the runners of each admission, by the revision of the admission."""

    def admitted(self, fact: Admitted) -> None:
        """Keeps an admission until its eviction is read."""
        workload = fact.namespace, fact.name
        kept = self._runners.pop(workload, {})
        self._runners[workload] = kept
        kept[fact.revision] = runners_to_run(fact.pod_sets)
        if len(kept) > ADMISSIONS_MAX:
            del kept[min(kept)]
        if len(self._runners) > WORKLOADS_MAX:
            del self._runners[next(iter(self._runners))]

    def ended_by(self, fact: Evicted) -> tuple[int, tuple[str, ...]] | None:
        """The revision and the runners of the last admission before the eviction, None if it was
        not read. Drops all admissions before the eviction."""
        workload = fact.namespace, fact.name
        kept = self._runners.pop(workload, {})
        later = {revision: kept[revision] for revision in kept if revision >= fact.revision}
        if later:
            self._runners[workload] = later
        before = max((revision for revision in kept if revision < fact.revision), default=0)
        return (before, kept[before]) if before else None
