"""Families, checks and preemption in cores with a clock, with machines on which jobs are placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from admittance.api.checks import MACHINES_CHECK, MACHINES_CONTROLLER, PREEMPTS_AFTER_CHECK
from admittance.control.commit import Message
from admittance.events import facts
from admittance.events.placement import placement_error
from admittance.placement.decisions import PlacementDecisions
from admittance.placement.machines.machine import Machine
from admittance.placement.search.request import NO_DEMANDS, Demands, pod_requests
from admittance.placement.verdicts import PlacementTimes, PlacementVerdict
from admittance.scheduling.state.config import Config
from admittance.workload.bucket_reader import names_of
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules, FlavorParts
from support.cores.families.family_cores import FamilyCores
from support.machines import Run


class View:
    """What the placement reads beside workloads: the workload-controller's catalog."""

    def __init__(self, cores: PlacedCores) -> None:
        self._cores = cores

    def check(self, name: str) -> CheckRules | None:
        return self._cores.controller.queues.check(name)

    def flavor(self, name: str) -> FlavorParts:
        return self._cores.controller.queues.flavor(name)

    def demands(self, workload: StoredWorkload) -> Demands:
        return NO_DEMANDS


class PlacedCores(FamilyCores):
    """The check `machines` covers the flavors in ``covered``. The core of the placement reads what
    is stored, and the workload-controller reads its verdicts.

    ``verdicts``: all verdicts so far. ``runs``: for each machine the open runs of its jobs, as its
    runner reports them. A job runs from its admission until `stop` or `end_run`."""

    def __init__(
        self,
        *machines: Machine,
        times: PlacementTimes | None = None,
        covered: tuple[str, ...] = ("default",),
        config: Config | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.times = times
        self.machines = {machine.id: machine for machine in machines}
        self.verdicts: list[PlacementVerdict] = []
        self.runs: dict[str, dict[tuple[str, int], Run]] = {}
        super().__init__(config, limits)
        self.check(
            MACHINES_CHECK,
            MACHINES_CONTROLLER,
            preemptionPolicy=PREEMPTS_AFTER_CHECK,
            onFlavors=list(covered),
        )

    # Machines. ------------------------------------------------------------------------------

    def change_machine(self, name: str, **fields: Any) -> None:
        """The machine changes, and what follows from it at once."""
        machine = replace(self.machines[f"id-{name}"], **fields)
        self.machines[machine.id] = machine
        self.placement.set_machine(machine)
        self.go()

    def end_run(self, name: str) -> None:
        """The last process of the job has ended; its runner says so to the placement."""
        for machine_id, runs in self.runs.items():
            left = {of: run for of, run in runs.items() if of[0] != name}
            if len(left) < len(runs):
                self.runs[machine_id] = left
                self.placement.set_runs(machine_id, left.values())

    def on_machines(self, name: str) -> dict[str, int]:
        """The number of the workload's pods on each machine, by its placement."""
        pods: Counter[str] = Counter()
        for part in self.stored(name).status.placement:
            pods[part.runner] += part.count
        return dict(pods)

    def said(self, name: str) -> list[tuple[str, str]]:
        """State and message of the verdicts on a workload so far."""
        return [(v.state, v.message) for v in self.verdicts if v.name == name]

    # The cores. -----------------------------------------------------------------------------

    def _start_cores(self) -> None:
        super()._start_cores()
        self.placement = PlacementDecisions(View(self), self.times)
        for machine in self.machines.values():
            self.placement.set_machine(machine)
        for machine_id, runs in self.runs.items():
            self.placement.set_runs(machine_id, runs.values())

    def _workload_changed(self, key: str, workload: StoredWorkload | None, revision: int) -> None:
        super()._workload_changed(key, workload, revision)
        self.placement.apply_workload(*names_of(key), workload, revision)

    def step(self) -> None:
        super().step()
        for verdict in self.placement.decide(self.now):
            self.verdicts.append(verdict)
            self.apply_facts(verdict.fact(None))

    def wakes(self) -> Iterator[datetime]:
        yield from super().wakes()
        due = self.placement.next_due
        if due is not None:
            yield due

    # Jobs. ----------------------------------------------------------------------------------

    def reads(self, message: Message) -> None:
        said = len(self.published)
        super().reads(message)
        for fact in self.published[said:]:
            if isinstance(fact, facts.Admitted):
                self._start(fact)

    def _start(self, fact: facts.Admitted) -> None:
        """The runners start their parts; a device of another open run is a fault."""
        workload = self.stored(fact.name)
        parts = [part for pod_set in fact.pod_sets for part in pod_set.parts]
        counts = {pod_set.name: pod_set.count for pod_set in fact.pod_sets}
        if not parts:
            return
        assert placement_error(parts, counts) == ""
        requests = pod_requests(workload)
        for part in parts:
            runs = self.runs.setdefault(part.id, {})
            of = fact.name, fact.revision
            before = runs.get(of, Run(fact.namespace, *of, {}, {}))
            amounts = Counter(before.requests)
            devices = dict(before.devices)
            for resource, amount in requests[part.pod_set]:
                amounts[resource] += amount * part.count
            for resource, units in part.devices.items():
                devices[resource] = (*devices.get(resource, ()), *units)
            runs[of] = Run(fact.namespace, *of, dict(amounts), devices)
            self._check_machine(part.id)
            self.placement.set_runs(part.id, runs.values())

    def _check_machine(self, machine_id: str) -> None:
        machine, runs = self.machines[machine_id], self.runs[machine_id].values()
        units = [unit for run in runs for ids in run.devices.values() for unit in ids]
        assert len(set(units)) == len(units), f"a device of {machine.name} is used twice: {runs}"
        for resource in ("cpu", "memory"):
            used = sum(run.requests.get(resource, 0) for run in runs)
            assert used <= machine.capacity[resource], f"{machine.name} is over its {resource}"

    def stop(self, name: str) -> None:
        self.end_run(name)
        super().stop(name)

    def done(self, name: str) -> None:
        self.end_run(name)
        super().done(name)
