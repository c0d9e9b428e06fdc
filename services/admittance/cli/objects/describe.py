"""``admit describe``: prints one object with its status and latest events."""

from __future__ import annotations

from admittance.cli.commands.arguments import KIND_HELP, optional_name
from admittance.cli.commands.arguments import kinds as kind_words
from admittance.cli.commands.declare import argument, command
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.client import kinds, requests
from admittance.client.errors import BadInput


@command()
@argument("KIND", KIND_HELP, complete=kind_words)
@optional_name
async def describe(call: Call, kind: str, name: str | None) -> None:
    """Show one object in detail: its spec, status and latest events.

    Tables are cut to the width of the terminal; -o wide shows all.
    """
    from admittance.cli.show import descriptions

    if call.output not in (Output.TABLE, Output.WIDE):
        raise BadInput(f"describe has no -o {call.output}; use `admit get`")
    known, wanted = kinds.target(kind, name)
    if wanted is None:
        raise BadInput(f"which {known.singular}? the name is missing")
    if call.output is Output.WIDE:
        output.cut_nothing()
    async with link(call) as bus:
        if known is kinds.COHORT:
            await descriptions.show_cohort(bus, wanted)
            return
        stored = await requests.objects.find(bus, known, wanted)
        if known is kinds.WORKLOAD:
            await descriptions.show_workload(bus, stored)
        elif known is kinds.REQUEST and (record := requests.capacity.record_of(stored)) is not None:
            await descriptions.show_request(bus, record)
        elif known is kinds.RUNNER:
            from admittance.cli.show.capacity import machine_details

            await machine_details.describe(bus, stored)
        else:
            await descriptions.show_object(bus, known, stored)
