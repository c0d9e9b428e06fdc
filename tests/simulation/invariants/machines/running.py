"""What runs on the machines, by the processes themselves: no device is used twice, no machine has
more than its cpu, no pod runs twice at a time. docs/spec/lifecycle.md#2.9, #2.10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set

from admittance.runner.host.records import Spec
from admittance.workload.stored import StoredWorkload
from simulation.environment.machine_specs import MachineSpec
from simulation.invariants.seen import Seen
from simulation.transcript import Broken


class Running:
    """The runs that have processes now. ``abandoned``: keys of runs that did not stop in time, and
    are not waited for any more."""

    def __init__(self, seen: Mapping[str, Seen], abandoned: Set[str]) -> None:
        self._seen = seen
        self._abandoned = abandoned
        self._on: dict[str, dict[str, Spec]] = defaultdict(dict)
        """By runner, the live runs by their keys."""
        self._of: dict[str, dict[str, Spec]] = defaultdict(dict)
        """By uid of the workload, the live runs by their keys."""

    def started(self, spec: Spec, runner: str, machine: MachineSpec) -> None:
        """Checks a run whose processes start on the machine of the runner."""
        seen = self._seen.get(f"workload.{spec.namespace}.{spec.name}")
        workload = seen.workload if seen is not None else None
        if workload is not None and workload.metadata.uid == spec.uid:
            self._as_placed(spec, runner, workload)
        for key, other in self._of[spec.uid].items():
            is_part = other.revision == spec.revision and 0 < other.part != spec.part > 0
            if not is_part and key not in self._abandoned:
                raise Broken(f"{spec.key} starts while {key} runs (2.10)")
        here = self._on[runner]
        taken = {unit: key for key, other in here.items() for unit in other.units}
        for unit in spec.units:
            if unit in taken:
                raise Broken(f"{unit} of {runner} is used by {taken[unit]} and by {spec.key}")
        here[spec.key] = self._of[spec.uid][spec.key] = spec
        placed = [other for other in here.values() if other.placed]
        cpu = sum(other.requests.get("cpu", 0) for other in placed)
        if machine.cpu and cpu > machine.cpu * 1000:
            keys = ", ".join(sorted(other.key for other in placed))
            raise Broken(f"{runner} has {machine.cpu} cpu, and {cpu}m run on it: {keys}")

    def ended(self, key: str) -> None:
        """The last process of the run has ended."""
        for runs in (*self._on.values(), *self._of.values()):
            runs.pop(key, None)

    def _as_placed(self, spec: Spec, runner: str, workload: StoredWorkload) -> None:
        """A run of the present admission starts where its workload is placed, with the devices that
        the placement names."""
        status = workload.status
        if status.admitted_revision not in (0, spec.revision) or status.admission is None:
            return
        if not status.placement:
            return
        runners = list(dict.fromkeys(part.id for part in status.placement))
        if runner not in runners:
            raise Broken(f"{spec.key} starts on {runner}, and is placed on {runners} (2.9)")
        part = runners.index(runner) + 1 if len(runners) > 1 else 0
        if spec.part != part or not spec.placed:
            raise Broken(f"{spec.key} starts as part {spec.part}, and {runner} has part {part}")
        units = {
            f"{resource}={unit}"
            for place in status.placement
            if place.id == runner
            for resource, ids in place.devices.items()
            for unit in ids
        }
        if units != set(spec.units):
            raise Broken(f"{spec.key} gets {spec.units}, and is assigned {sorted(units)} (2.9)")
