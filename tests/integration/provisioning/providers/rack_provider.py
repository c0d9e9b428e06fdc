"""A provider with the helper as a process of its own: ``python rack_provider.py CLASS FOLDER``.
Each file in the folder is a machine: empty, or with the id of the request that has it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from admittance.providers import Cancellation, Failed, Provider, Provisioned, Request, Status


class Parameters(msgspec.Struct):
    size: int = 1


rack = Provider(sys.argv[1], parameters=Parameters)
machines = sorted(Path(sys.argv[2]).iterdir())


@rack.requested
async def book(request: Request) -> Status:
    holders = {machine.read_text(): machine for machine in machines}
    machine = holders.get(request.id) or holders.get("")
    if machine is None:
        return Failed("every machine is taken", retry_after=60)
    machine.write_text(request.id)
    return Provisioned(f"on {machine.name}", {"machine": machine.name})


@rack.cancelled
async def free(cancellation: Cancellation) -> None:
    for machine in machines:
        if machine.read_text() == cancellation.id:
            machine.write_text("")


rack.run()
