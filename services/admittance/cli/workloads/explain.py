"""``admit explain``: prints why a workload waits, flavor by flavor, and what would unblock the
workload."""

from __future__ import annotations

from admittance.cli.commands.arguments import workload_command
from admittance.cli.commands.declare import ALL
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.client import requests


@workload_command(ALL, without=[Output.NAME])
async def explain(call: Call, name: str) -> None:
    """Explain why a workload waits, for each flavor and check, and what would unblock it."""
    from admittance.cli.show import explanations
    from admittance.runtime import clock

    async with link(call) as bus:
        answer = await requests.explanation.explanation(bus, name)
        waits = await explanations.capacity_waits(bus, answer, clock.now())
    if output.show_value(explanations.value_of(call, name, answer, waits), call.output):
        return
    if call.output is Output.WIDE:
        output.cut_nothing()
    explanations.show(answer, waits)
