"""``admit trace``: prints the spans of a workload as a tree, made from the log alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from admittance.cli.commands.arguments import workload_command
from admittance.cli.commands.declare import ALL
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.client import kinds, requests
from admittance.client.arguments.times import stamp
from admittance.client.errors import RequestFailed

if TYPE_CHECKING:
    from admittance.cli.show.span_tree import Placed

BAR_WIDTHS: Final = (12, 40)
"""The least and the greatest width of the bars in the table of spans, in characters."""
NUMBERS: Final = 26
"""How many characters of a line the table of spans needs for its columns of numbers and for the
gaps between columns.
"""


@workload_command(ALL, without=[Output.NAME])
async def trace(call: Call, name: str) -> None:
    """Show a workload's time in the queue, checks, admissions, runs and evictions as a tree.

    The tree is made from the log: the spans are those that the telemetry service exports. -o wide
    cuts nothing and adds the ids of spans; -o json prints the spans.
    """
    from admittance.cli.show.span_tree import tree_of

    async with link(call) as bus:
        variants = requests.history.VariantNames(bus, call.namespace, name)
        history = requests.history.history_of(bus, call.namespace, name, variants)
        entries = [entry async for entry in history]
        key = kinds.WORKLOAD.object_key(call.namespace, name)
        known = await requests.objects.lookup(bus, key)
    spans = requests.traces.newest_trace(entries, call.namespace, name)
    where = f"workload {name} in namespace {call.namespace}"
    if not spans and known is not None:
        raise RequestFailed(
            f"the log has no facts about {where} any more; `admit describe` shows it"
        )
    if not spans:
        raise RequestFailed(f"no {where}, and no facts about it on the log")
    placed = tree_of(spans)
    root = placed[0].span
    if root.attributes.get("admittance.cut"):
        output.warn(f"the log begins after the submission of {name}: the trace is not whole")
    value = {"traceId": root.trace_id, "spans": [place.span for place in placed]}
    if output.show_value(value, call.output):
        return
    _show(call, placed)


def _show(call: Call, placed: Sequence[Placed]) -> None:
    from admittance.cli.show.span_tree import trace_table
    from admittance.runtime import clock

    root = placed[0].span
    least, most = BAR_WIDTHS
    wide = call.output is Output.WIDE
    width = most
    if output.is_terminal() and not wide:
        # Bars get half of the space that the other columns leave, because a table that is too wide
        # is cut at its widest column first.
        names = max(len(place.mark) + len(place.span.name) for place in placed)
        width = max(least, min((output.terminal_width() - NUMBERS - names) // 2, most))
    about = f"{root.attributes['admittance.namespace']}/{root.attributes['admittance.workload']}"
    output.say(f"trace {root.trace_id} of {about}, from {stamp(root.start)}")
    output.show_table(trace_table(placed, clock.now(), width), wide=wide)
