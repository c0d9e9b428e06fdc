"""Metrics about machines: what they have, and what runs on them."""

from __future__ import annotations

from typing import Final

from admittance.api.fields.units import amount
from admittance.placement.machines.known_runners import KnownRunners
from admittance.runtime.telemetry.metrics import gauge

READY: Final = gauge("runner_ready", "1 if the runner of the machine is alive, else 0", ("runner",))
CAPACITY: Final = gauge(
    "runner_capacity", "What the machine has, cpu in cores", ("runner", "resource")
)
IN_USE: Final = gauge(
    "runner_in_use",
    "What the jobs that run on the machine have asked for, cpu in cores",
    ("runner", "resource"),
)
DEVICE_JOBS: Final = gauge(
    "runner_device_jobs",
    "How many jobs that run on the machine were assigned the device, or a part of it",
    ("runner", "resource", "device"),
)
MACHINES: Final = (READY, CAPACITY, IN_USE, DEVICE_JOBS)

Values = dict[str, dict[tuple[str, ...], float]]


def values_of(runners: KnownRunners) -> Values:
    """The values of all metrics, by name and labels."""
    ready: dict[tuple[str, ...], float] = {}
    capacity: dict[tuple[str, ...], float] = {}
    in_use: dict[tuple[str, ...], float] = {}
    jobs: dict[tuple[str, ...], float] = {}
    for name, stored in sorted(runners.objects.items()):
        if stored.object is None or stored.object.status is None:
            continue
        ready[(name,)] = float(runners.is_ready(name))
        state = runners.state(name, with_runs=True)
        used = state.in_use
        for resource, quantity in stored.object.status.capacity.items():
            capacity[(name, resource)] = _shown(resource, amount(resource, quantity))
            in_use[(name, resource)] = _shown(resource, used.get(resource, 0))
        for device in stored.object.status.devices:
            jobs[(name, device.resource, device.id)] = 0
        for run in state.runs:
            for resource, units in run.devices.items():
                # A part of a shared device is named <id>::<number>.
                for device_id in {unit.partition("::")[0] for unit in units}:
                    labels = (name, resource, device_id)
                    jobs[labels] = jobs.get(labels, 0) + 1
    return {
        READY.name: ready,
        CAPACITY.name: capacity,
        IN_USE.name: in_use,
        DEVICE_JOBS.name: jobs,
    }


def _shown(resource: str, units: int) -> float:
    return units / 1000 if resource == "cpu" else float(units)
