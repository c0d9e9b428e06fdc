"""The machine of a stored Runner, as placement and the workload-controller count it. Pure."""

from __future__ import annotations

from msgspec.structs import asdict

from admittance.api.fields.units import amount
from admittance.api.runners import Runner
from admittance.events.system import RunnerStarts
from admittance.placement.machines.machine import Device, Machine


def machine_of(runner: Runner) -> Machine | None:
    """The machine of a runner, as if the runner were alive; None: it has announced none. Raises
    `admittance.api.fields.units.BadQuantity`."""
    status = runner.status
    if status is None or not status.id:
        return None
    users, drain = status.users, runner.spec.drain
    return Machine(
        name=runner.metadata.name,
        id=status.id,
        capacity={name: amount(name, written) for name, written in status.capacity.items()},
        devices=tuple(
            Device(device.resource, device.id, device.index, device.slices)
            for device in status.devices
        ),
        labels=runner.metadata.labels,
        taints=runner.spec.taints,
        unschedulable=runner.spec.unschedulable,
        draining=drain is not None,
        evict_at=drain.deadline if drain is not None else None,
        message=drain.reason if drain is not None else "",
        starts=None if users is None else RunnerStarts(**asdict(users)),
        executors=status.executors,
        folders=status.folders,
        host=host_of(status.boot_id, status.mount_namespace),
    )


def host_of(boot_id: str, mount_namespace: str) -> str:
    """The same for all programs that see the same files; "": not known."""
    return f"{boot_id}/{mount_namespace}" if boot_id and mount_namespace else ""
