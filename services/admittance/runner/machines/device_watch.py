"""Looks from time to time whether the machine has the devices that its runner has announced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from msgspec.structs import replace

from admittance.events.stored.machines import RunnerInventory
from admittance.runner import decide
from admittance.runner.host.port import Executor
from admittance.runner.machines.own_machine import OwnMachine
from admittance.runner.plans.devices import device_of
from admittance.runner.runs.run_manager import RunManager

LOOK_SECONDS: Final = 300.0
"""Seconds between two looks: each asks NVML, which a child process does."""
CONFIRM_SECONDS: Final = 10.0
"""Seconds until a second look says whether a missing device is lost."""

log = structlog.get_logger(service="runner")


def with_devices(executor: Executor, inventory: RunnerInventory) -> RunnerInventory:
    """Makes the devices of the inventory those that the executor gives to jobs; returns the
    inventory with what is not sure about them."""
    said = executor.take_devices(inventory.id, inventory.devices)
    return replace(inventory, messages=(*inventory.messages, *said))


class DeviceWatch:
    """``look``: a function that reads what the machine has now; it may block."""

    def __init__(
        self, manager: RunManager, own: OwnMachine, look: Callable[[], RunnerInventory]
    ) -> None:
        self._manager = manager
        self._own = own
        self._look = look
        self._missing: set[tuple[str, str]] = set()
        """The announced devices that were missing at the last look."""

    async def run(self) -> None:
        """Looks again and again, until cancelled."""
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = CONFIRM_SECONDS if await self.look() else LOOK_SECONDS

    async def look(self) -> bool:
        """Announces what has changed, and gives back the jobs of devices that are lost. Returns
        whether some are missing for the first time: then nothing has changed yet."""
        now = await asyncio.to_thread(self._look)
        said = self._own.inventory
        here = {(device.resource, device.id) for device in now.devices}
        missing = {(device.resource, device.id) for device in said.devices} - here
        is_new = not missing <= self._missing
        self._missing = missing
        if is_new:
            return True
        executor = self._manager.executor
        now = await asyncio.to_thread(with_devices, executor, now)
        if (now.devices, now.messages) == (said.devices, said.messages):
            return False
        log.warning("devices_changed", devices=len(now.devices), messages=now.messages)
        self._own.inventory = replace(
            self._own.inventory,
            devices=now.devices,
            capacity=now.capacity,
            messages=now.messages,
        )
        # First of all: placement must not assign the lost devices to the jobs again.
        await self._own.announce(self._own.inventory.starts)
        self._give_back(missing)
        return False

    def _give_back(self, lost: set[tuple[str, str]]) -> None:
        for key, files in list(self._manager.folders.items()):
            for unit in files.identity.units:
                resource, _, name = unit.partition("=")
                if (resource, device_of(name)) in lost and not self._manager.runs[key].leaving:
                    why = f"the device {device_of(name)} of {resource} is lost"
                    self._manager.handle(key, decide.ShutDown(why))
