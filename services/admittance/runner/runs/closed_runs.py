"""The runs that have ended and are kept for their output."""

from __future__ import annotations

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
