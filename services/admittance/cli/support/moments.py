"""The moment of ``--at``."""

from __future__ import annotations

from admittance.cli.support import output
from admittance.cli.support.options import Call, Output
from admittance.client.requests import then
from admittance.client.requests.link import Link
from admittance.client.requests.then import At
from admittance.events.requests.past import Moment


async def located(call: Call, bus: Link, at: At) -> Moment:
    """The moment. With a table, a line says which one it is, and whether its answers take
    longer."""
    moment = await then.moment(bus, at, call.namespace)
    if call.output not in (Output.TABLE, Output.WIDE):
        return moment
    output.note(f"as of {moment.time:%Y-%m-%dT%H:%M:%SZ}, after fact {moment.sequence} of the log")
    if moment.facts:
        output.note(
            f"the history of the bucket begins later: made from {moment.facts:,} messages of the "
            "log, which takes longer"
        )
    return moment
