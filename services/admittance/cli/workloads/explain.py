"""``admit explain``: prints why a workload waits, flavor by flavor, and what would unblock the
workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admittance.cli.commands.arguments import workload_command
from admittance.cli.commands.declare import ALL, option
from admittance.cli.support import output, times
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.client import requests

if TYPE_CHECKING:
    from admittance.client.requests.then import At


@workload_command(ALL, without=[Output.NAME])
@option("--at MOMENT", "As of then: a sequence of the log, 10m ago as 10m, or a time.")
async def explain(call: Call, name: str, at: str | None) -> None:
    """Explain why a workload waits, for each flavor and check, and what would unblock it."""
    from admittance.cli.show import explanations
    from admittance.runtime import clock

    if at is not None:
        await _explain_then(call, name, times.past_moment(at, "--at", clock.now()))
        return
    async with link(call) as bus:
        answer = await requests.explanation.explanation(bus, name)
        waits = await explanations.capacity_waits(bus, answer, clock.now())
    if output.show_value(explanations.value_of(call, name, answer, waits), call.output):
        return
    if call.output is Output.WIDE:
        output.cut_nothing()
    explanations.show(answer, waits)


async def _explain_then(call: Call, name: str, at: At) -> None:
    """Explains why the workload waited at a moment of the past."""
    from admittance.cli.show import explanations
    from admittance.cli.support.moments import located

    async with link(call) as bus:
        moment = await located(call, bus, at)
        answer = await requests.then.explanation_then(bus, name, call.namespace, moment.sequence)
    if output.show_value(explanations.value_of(call, name, answer, ()), call.output):
        return
    if call.output is Output.WIDE:
        output.cut_nothing()
    explanations.show(answer, (), moment.time)
