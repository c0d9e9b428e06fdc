"""The runs that have ended and are kept for their output."""

from __future__ import annotations

from collections.abc import Iterable

from admittance.runner.decide import Run
from admittance.runner.host.port import RunFiles


class ClosedRuns(dict[str, RunFiles]):
    """Closed runs by key, and also by their workload."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[tuple[str, str], set[str]] = {}

    def __setitem__(self, key: str, run: RunFiles) -> None:
        super().__setitem__(key, run)
        self._of.setdefault((run.identity.namespace, run.identity.name), set()).add(key)

    def drop(self, key: str) -> RunFiles | None:
        """Removes the run with the key ``key`` from the closed runs and returns the run; returns
        None if no such run is closed."""
        run = self.pop(key, None)
        if run is not None:
            which = run.identity.namespace, run.identity.name
            keys = self._of.get(which, set())
            keys.discard(key)
            if not keys:
                self._of.pop(which, None)
        return run

    def of(self, namespace: str, name: str) -> list[RunFiles]:
        """The closed runs of a workload."""
        return [self[key] for key in self._of.get((namespace, name), ())]


def earlier_result(run: Run, runs: Iterable[RunFiles]) -> RunFiles | None:
    """Returns a run of an earlier admission of the same workload with a result that came too
    late to count. The work of such a run is done, so the job does not start again. One part of
    a job says nothing about the others. ``runs``: those of the workload."""
    if run.part:
        return None
    for files in runs:
        if files.identity.part or files.identity.revision >= run.revision:
            continue
        if files.identity.uid != run.uid:
            continue
        files.read_journal()
        if files.journal.is_result:
            return files
    return None
