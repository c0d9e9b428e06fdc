"""What the machines of a story have: cpu, devices and labels, as their runners announce them."""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.events.stored.machines import Device, RunnerInventory
from admittance.placement.machines.machine import HOSTNAME
from admittance.runner.inventory.machine_inventory import AnnouncedRunner

GPU: Final = "nvidia.com/gpu"
POOL: Final = "pool"
"""The label with the pool of a machine."""


class MachineSpec(NamedTuple):
    """``cpu``: in whole cores; 0: the machine announces no room. ``gpus``: the number of devices,
    each of which ``slices`` jobs may share. ``lost``: the numbers of devices that have vanished."""

    cpu: int = 0
    gpus: int = 0
    pool: str = ""
    slices: int = 1
    lost: frozenset[int] = frozenset()

    def inventory(self, name: str, runner: AnnouncedRunner) -> RunnerInventory:
        """What the runner announces of the machine ``name``."""
        devices = tuple(
            Device(resource=GPU, index=number, id=f"GPU-{name}-{number}", slices=self.slices)
            for number in range(self.gpus)
            if number not in self.lost
        )
        capacity = {"cpu": self.cpu * 1000} if self.cpu else {}
        if self.gpus:
            capacity[GPU] = len(devices) * self.slices
        labels = {HOSTNAME: name, **({POOL: self.pool} if self.pool else {})}
        return RunnerInventory(
            id=runner.id,
            name=runner.name,
            host=name,
            capacity=capacity,
            devices=devices,
            labels=labels if self.cpu else {},
            executors=(runner.executor,),
            starts=runner.starts,
            messages=runner.messages,
        )

    def units(self) -> int:
        """The number of jobs with one unit of a device that run at the same time."""
        return self.gpus * self.slices


NO_ROOM: Final = MachineSpec()
"""The machine of a story in which nothing is placed."""
