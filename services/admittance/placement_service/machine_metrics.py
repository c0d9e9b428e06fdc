"""Metrics about machines, what runs on them, and the workloads that are placed there.

A series has the name of a runner, a resource and a device, or a fixed word: the number of series
grows with the machines, and not with the workloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.api.fields.units import amount
from admittance.api.runners import Runner
from admittance.events.reasons import PREEMPTION_REQUIRED
from admittance.placement.decisions import PlacementDecisions
from admittance.placement.machines.known_runners import KnownRunners
from admittance.placement.search.shortage import Why
from admittance.placement.tally import NOTHING, PlacementTally
from admittance.placement.verdicts import PlacementVerdict
from admittance.runtime.telemetry.metrics import Counter, Definition, Histogram, Metric, gauge

READY: Final = gauge("runner_ready", "1 if the runner of the machine is alive, else 0", ("runner",))
CAPACITY: Final = gauge(
    "runner_capacity", "What the machine has, cpu in cores", ("runner", "resource")
)
IN_USE: Final = gauge(
    "runner_in_use",
    "What the jobs that run on the machine have asked for and programs hold, cpu in cores",
    ("runner", "resource"),
)
ALLOCATED: Final = gauge(
    "runner_allocated",
    "What placed workloads and jobs that still run hold of the machine, cpu in cores; only while "
    "an AdmissionCheck is answered",
    ("runner", "resource"),
)
DEVICE_JOBS: Final = gauge(
    "runner_device_jobs",
    "How many jobs that run on the machine, or programs that hold quota, were assigned the device, "
    "or a part of it",
    ("runner", "resource", "device"),
)
DEVICE_ALLOCATED: Final = gauge(
    "runner_device_allocated",
    "How many parts of the device placed workloads and jobs that still run hold; a device that is "
    "not shared has one part",
    ("runner", "resource", "device"),
)
RUNNERS: Final = gauge(
    "runners",
    "Number of runners, each in one state: lost (not alive), draining, cordoned or ready",
    ("state",),
)
WAITING: Final = gauge(
    "placement_waiting_workloads",
    "Workloads with reserved quota that lack a machine, by the reason; PreemptionRequired: the "
    "workloads to be preempted have not stopped yet",
    ("reason",),
)
MACHINE_GAUGES: Final = (
    READY,
    CAPACITY,
    IN_USE,
    ALLOCATED,
    DEVICE_JOBS,
    DEVICE_ALLOCATED,
    RUNNERS,
    WAITING,
)
STATES: Final = ("ready", "cordoned", "draining", "lost")
VERDICTS: Final = ("Pending", "Ready", "Retry")

Values = dict[str, dict[tuple[str, ...], float]]


class PlacementMetrics:
    """What one process has counted, over all times in which it led."""

    def __init__(self) -> None:
        self._waits = Histogram(
            "placement_wait_time_seconds",
            "Time of workloads from their reserved quota, or from the last change of another "
            "check, until they are placed",
            (),
        )
        self._shortages = Counter(
            "placement_shortages",
            "How often a workload began to lack a machine, by reason",
            ("reason",),
            start=[(why,) for why in Why],
        )
        self._verdicts = Counter(
            "placement_verdicts",
            "Verdicts of placement by state; Retry also moves the job of a machine that is lost "
            "or drained",
            ("state",),
            start=[(state,) for state in VERDICTS],
        )
        self.metrics: tuple[Metric, ...] = (self._waits, self._shortages, self._verdicts)

    def count(self, tally: PlacementTally, verdicts: Iterable[PlacementVerdict]) -> None:
        """Adds what happened since the last call."""
        for seconds in tally.waits:
            self._waits.observe((), seconds)
        for why, times in tally.shortages.items():
            self._shortages.add((why,), times)
        for verdict in verdicts:
            self._verdicts.add((verdict.state,))


def all_definitions() -> list[Definition]:
    """The definitions of all metrics of placement."""
    counted = PlacementMetrics().metrics
    return [*MACHINE_GAUGES, *(each for metric in counted for each in metric.definitions)]


def values_of(runners: KnownRunners, decisions: PlacementDecisions | None = None) -> Values:
    """The values of all gauges, by name and labels. ``decisions`` None: nothing is placed."""
    values: Values = {definition.name: {} for definition in MACHINE_GAUGES}
    values[RUNNERS.name] = {(state,): 0 for state in STATES}
    for name, stored in sorted(runners.objects.items()):
        if stored.object is not None and stored.object.status is not None:
            _add_machine(values, name, stored.object, runners, decisions)
    waiting: dict[tuple[str, ...], float] = {(why,): 0 for why in (*Why, PREEMPTION_REQUIRED)}
    if decisions is not None:
        for shortage in decisions.shortages().values():
            waiting[(shortage.why,)] += 1
        waiting[(PREEMPTION_REQUIRED,)] = decisions.waiting_for_victims()
    values[WAITING.name] = waiting
    return values


def _add_machine(
    values: Values,
    name: str,
    runner: Runner,
    runners: KnownRunners,
    decisions: PlacementDecisions | None,
) -> None:
    status = runner.status
    assert status is not None, "the caller has looked"
    values[READY.name][(name,)] = float(runners.is_ready(name))
    values[RUNNERS.name][(_state(runner, runners.is_ready(name)),)] += 1
    state = runners.state(name, with_runs=True)
    allocated = decisions.allocated(status.id) if decisions is not None else NOTHING
    for resource, quantity in status.capacity.items():
        labels = name, resource
        values[CAPACITY.name][labels] = _shown(resource, amount(resource, quantity))
        values[IN_USE.name][labels] = _shown(resource, state.in_use.get(resource, 0))
        if resource in allocated.amounts:
            values[ALLOCATED.name][labels] = _shown(resource, allocated.amounts[resource])
    jobs = values[DEVICE_JOBS.name]
    for device in status.devices:
        jobs[(name, device.resource, device.id)] = 0
    for run in state.runs:
        for resource, units in run.devices.items():
            # A part of a shared device is named <id>::<number>.
            for device_id in {unit.partition("::")[0] for unit in units}:
                of_device = (name, resource, device_id)
                jobs[of_device] = jobs.get(of_device, 0) + 1
    for (resource, device_id), held in allocated.units.items():
        values[DEVICE_ALLOCATED.name][(name, resource, device_id)] = held


def _state(runner: Runner, is_ready: bool) -> str:
    if not is_ready:
        return "lost"
    if runner.spec.drain is not None:
        return "draining"
    return "cordoned" if runner.spec.unschedulable else "ready"


def _shown(resource: str, units: int) -> float:
    return units / 1000 if resource == "cpu" else float(units)
