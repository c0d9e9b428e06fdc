"""One pod of a run while it runs. The shim imports this module, so the module imports little."""

from __future__ import annotations

from admittance.runner.jobs.job_policy import NEVER, PodSetProgress

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from typing import Any


class Pod:
    """One pod of a run: the init containers of the pod run in order, then all its other containers
    at once.

    ``code``: the exit code with which the pod failed; 0: it has not failed. ``containers``: the
    container of each running process. ``restarts``: containers that start again, with their times;
    ``restart_code``: the exit code with which the last of them failed.
    ``scratch``: the name of the pod's scratch folder; a new pod after a failure starts with an
    empty one.
    """

    def __init__(self, pod_set: PodSetProgress, index: int, now: float) -> None:
        self.set = pod_set
        self.index = index
        self.name = f"{pod_set.spec['name']}-{index}"
        self.slot = pod_set.take_slot()
        again = pod_set.earlier_pods.get(index, 0)
        self.scratch = f"{self.name}.{again}" if again else self.name
        self.earlier_scratch = (
            (f"{self.name}.{again - 1}" if again > 1 else self.name) if again else ""
        )
        self.inits = list(pod_set.spec["init"])
        self.running: set[int] = set()
        self.containers: dict[int, dict[str, Any]] = {}
        self.probes: dict[int, list[str]] = {}
        self.kills: dict[int, list[str]] = {}
        self.ooms: dict[int, list[str]] = {}
        self.restarts: list[tuple[float, dict[str, Any]]] = []
        self.restart_code = 0
        self.told_to_stop = False
        self.main_started = False
        self.ended = False
        self.code = 0
        self.kill_at = NEVER
        self.end_by: float = now + (pod_set.policy.get("podDeadline") or NEVER)

    @property
    def volumes(self) -> list[dict[str, Any]]:
        """The plans of the pod's volumes."""
        return self.set.spec.get("volumes") or []

    @property
    def files(self) -> dict[str, Any]:
        """What the pod brings and leaves; empty: nothing."""
        return self.set.spec.get("files") or {}

    def variables(self, mark: str, container: str) -> dict[str, str]:
        """The variables that a container of the pod gets from the shim. ``mark``: that of the
        run."""
        return {
            **self.set.spec["env"],
            "JOB_COMPLETION_INDEX": str(self.index),
            "ADMITTANCE_POD_INDEX": str(self.index),
            "ADMITTANCE_POD": self.name,
            "ADMITTANCE_ATTEMPT": str(self.set.failures.get(self.index, 0)),
            "ADMITTANCE_RUN": mark,
            "ADMITTANCE_CONTAINER": container,
        }

    @property
    def unset(self) -> list[str]:
        """Variables that no container of the pod has."""
        return self.set.spec.get("unset") or []

    def devices(self) -> dict[str, str]:
        """The variables that say which devices the pod has. The job cannot replace them."""
        spec = self.set.spec
        slot: dict[str, str] = spec["slots"][self.slot] if self.slot >= 0 else {}
        return {**(spec.get("devices") or {}), **slot}

    def denied(self, files: list[list[int]]) -> list[list[int]]:
        """The device files that the pod may not open. ``files``: those from which the machine keeps
        jobs, each by its major and minor number."""
        own = self.set.spec.get("ownFiles") or [[]]
        mine = own[max(self.slot, 0)]
        return [file for file in files if file not in mine]

    def next_time(self) -> float:
        """When the shim must look at the pod if none of its processes ends before."""
        return min((self.kill_at, self.end_by, *(due for due, _ in self.restarts)))

    def give_up(self) -> None:
        """Makes the pod one that nothing starts again and that no deadline ends, since the run
        ends: a pod with a container that was to start again has failed."""
        self.end_by = NEVER
        if self.restarts:
            self.code = self.code or self.restart_code
            self.restarts.clear()

    def take_restart(self, now: float) -> dict[str, Any] | None:
        """Removes a container that starts again now; None: there is none."""
        for entry in self.restarts:
            if entry[0] <= now:
                self.restarts.remove(entry)
                return entry[1]
        return None
