"""Providers that do right until they are killed, each as a process of its own:
``python -m integration.provisioning.providers.forgetful_rack HOW CLASS FOLDER``. Each file in the
folder is a machine: empty, or with the id of the request that has it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from admittance.providers import Cancellation, Failed, Provider, Provisioned, Request, Status
from admittance.runtime.bus.bus import Bus
from integration.provisioning.providers.stray_providers import StrayProvider


def greedy(provider: Provider, folder: Path) -> None:
    """Takes a free machine, and does not look whether the request has one already."""
    machines = sorted(folder.iterdir())

    @provider.requested
    async def book(request: Request) -> Status:
        machine = next((machine for machine in machines if not machine.read_text()), None)
        if machine is None:
            return Failed("every machine is taken", retry_after=60)
        machine.write_text(request.id)
        await asyncio.sleep(0.3)  # it boots
        return Provisioned("here it is")

    @provider.cancelled
    async def free(cancellation: Cancellation) -> None:
        for machine in machines:
            if machine.read_text() == cancellation.id:
                machine.write_text("")


def forgetful(provider: Provider, folder: Path) -> None:
    """Keeps its bookings only in memory."""
    free_machines = sorted(path.name for path in folder.iterdir())
    booked: dict[str, str] = {}

    @provider.requested
    async def book(request: Request) -> Status:
        if request.id not in booked:
            if not free_machines:
                return Failed("every machine is taken", retry_after=60)
            booked[request.id] = free_machines.pop(0)
        return Provisioned("here it is", {"machine": booked[request.id]})

    @provider.cancelled
    async def free(cancellation: Cancellation) -> None:
        if cancellation.id in booked:
            free_machines.append(booked.pop(cancellation.id))


class Bare(StrayProvider):
    """The same with nothing but a client of the bus, and for one request."""

    size = 1


async def bare() -> None:
    await Bare(await Bus.connect(os.environ["ADMIT_NATS_URL"], name="stray")).run()


if __name__ == "__main__":
    _, how, name, rack = sys.argv
    if how == "bare":
        asyncio.run(bare())
    else:
        provider = Provider(name)
        {"greedy": greedy, "forgetful": forgetful}[how](provider, Path(rack))
        provider.run()
