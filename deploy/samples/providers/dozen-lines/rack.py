"""A rack of machines as a provider of capacity. Each file in the folder RACK is a machine: empty,
or with the id of the request that has it."""

import os
from pathlib import Path

from admittance.providers import Failed, Provider, Provisioned

rack = Provider("rack.example.com")
machines = sorted(filter(Path.is_file, Path(os.environ.get("RACK", "/tmp/rack")).iterdir()))


@rack.requested
async def book(request):
    holders = {machine.read_text(): machine for machine in machines}
    machine = holders.get(request.id) or holders.get("")
    if machine is None:
        return Failed("every machine is taken", retry_after=60)
    machine.write_text(request.id)
    return Provisioned(f"on {machine.name}", {"machine": machine.name})


@rack.cancelled
async def free(cancellation):
    for machine in machines:
        if machine.read_text() == cancellation.id:
            machine.write_text("")


rack.run()
