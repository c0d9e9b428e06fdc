"""``admit get``: lists, single objects and pending workloads; with ``-w`` one line per object, then
one line per change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Final

from admittance.cli.commands.arguments import (
    KIND_HELP,
    all_namespaces,
    kinds_and_pending,
    optional_name,
    phases,
    queues,
)
from admittance.cli.commands.declare import argument, command, option
from admittance.cli.support import output, times
from admittance.cli.support.link import IN_COMMANDS, link
from admittance.cli.support.options import Call, Output
from admittance.client import kinds, requests
from admittance.client.errors import BadInput

if TYPE_CHECKING:
    from admittance.client.requests.link import Link
    from admittance.client.requests.selection import Selection

PENDING: Final = "pending"
TABLES: Final = (Output.TABLE, Output.WIDE)


@command()
@argument("KIND", KIND_HELP, complete=kinds_and_pending)
@optional_name
@option(
    "--queue -q QUEUE",
    "Only workloads of this LocalQueue or ClusterQueue.",
    complete=queues,
)
@option("--selector -l LABELS", "KEY=VALUE, KEY!=VALUE, KEY or !KEY.", many=True)
@option(
    "--state PHASE",
    "Only workloads in this phase, or Succeeded or Failed.",
    many=True,
    complete=phases,
)
@option("--since TIME", "Only objects created since: 10m, 2h, or a time.")
@option(
    "--sort-by KEY",
    "name, namespace, created; of workloads also queue, priority, state, started, duration. -KEY "
    "reverses the order.",
)
@option("--elements", "List the elements of arrays one by one, too; -l and -o json do so as well.")
@option("--limit N", "At most N rows. Default: all; pending: 1000", kind=int, least=1)
@option("--at MOMENT", "As of then: a sequence of the log, 10m ago as 10m, or a time.")
@all_namespaces
@option("--watch -w", "Print one line per change until interrupted.")
async def get(
    call: Call,
    kind: str,
    name: str | None,
    queue: str | None,
    selector: Sequence[str],
    state: Sequence[str],
    since: str | None,
    sort_by: str | None,
    limit: int | None,
    elements: bool,
    at: str | None,
    all_namespaces: bool,
    watch: bool,
) -> None:
    """Show all objects of a kind, or the named object; `get pending` shows pending workloads in
    order. With --at, the named object or `get pending` as they were.

    An array is one row, with its elements by result and state. Workloads are listed running first,
    then waiting, then finished; the newest first. Tables are cut to the width of the terminal; -o
    wide shows all.
    """
    from admittance.runtime import clock

    narrowing = {
        "-q/--queue": queue,
        "-l/--selector": selector or None,
        "--state": state or None,
        "--since": since,
        "--sort-by": sort_by,
        "--limit": limit,
    }
    typed = [option for option, value in narrowing.items() if value is not None]
    is_pending = kind.lower() == PENDING
    if is_pending and name is not None:
        raise BadInput(f'get pending takes no name ("{name}"); use -q QUEUE')
    if is_pending and watch:
        raise BadInput("get pending cannot be watched; watch workloads instead")
    known, wanted = (kinds.WORKLOAD, None) if is_pending else kinds.target(kind, name)
    if queue is not None and known is not kinds.WORKLOAD:
        raise BadInput("-q/--queue goes with workloads and pending only")
    if typed and (wanted is not None or watch):
        raise BadInput(f"{typed[0]} works on lists only" + (", and not with -w" if watch else ""))
    within = None if all_namespaces else call.namespace
    if at is not None:
        if watch or elements or not (is_pending or wanted is not None):
            raise BadInput("--at goes with the name of an object, or with pending, and not with -w")
        if beside := [each for each in typed if each not in ("-q/--queue", "--limit")]:
            raise BadInput(f"--at goes without {beside[0]}")
        moment = times.past_moment(at, "--at", clock.now())
        from admittance.cli.objects import get_then

        if wanted is None:
            await get_then.show_pending(call, queue, limit, moment, all_namespaces=all_namespaces)
        else:
            await get_then.show_object(call, known, wanted, moment)
        return
    if watch:
        await _watch(call, known, wanted, within)
        return
    chosen = selection(
        known,
        labels=selector,
        states=state,
        since=since,
        sort_by=sort_by,
        limit=limit,
        now=clock.now(),
    )
    if is_pending:
        await _show_pending(call, queue, chosen, all_namespaces=all_namespaces)
        return
    chosen = chosen._replace(elements=elements or bool(selector) or call.output not in TABLES)
    async with link(call) as bus:
        if wanted is not None:
            await _show_one(call, bus, known, wanted, all_namespaces=all_namespaces)
        else:
            await _show_list(call, bus, known, chosen, queue, within)


def selection(
    kind: kinds.ObjectKind,
    *,
    labels: Sequence[str],
    states: Sequence[str],
    since: str | None,
    sort_by: str | None,
    limit: int | None,
    now: datetime,
) -> Selection:
    """The filters of the options. Raises BadInput."""
    return requests.selection.selection(
        kind,
        labels=labels,
        states=states,
        since=None if since is None else times.moment_of(since, "--since", now),
        sort_by=sort_by,
        limit=limit,
        spelled=IN_COMMANDS,
    )


async def _show_one(
    call: Call, bus: Link, kind: kinds.ObjectKind, name: str, *, all_namespaces: bool
) -> None:
    from admittance.cli.show import lists

    objects = [await requests.objects.find(bus, kind, name)]
    counters = await lists.live_counters(bus, kind, objects)
    reasons = await lists.waiting_reasons(call, bus, kind, objects, call.namespace)
    if kind is kinds.WORKLOAD and call.output in TABLES:
        objects += await lists.variants_of(bus, objects[0])
    objects = await lists.with_live(bus, kind, objects)
    lists.show(
        call, kind, objects, counters, single=True, all_namespaces=all_namespaces, reasons=reasons
    )


async def _show_list(
    call: Call,
    bus: Link,
    kind: kinds.ObjectKind,
    chosen: Selection,
    queue: str | None,
    within: str | None,
) -> None:
    """Prints the chosen objects. ``queue``: only workloads of this queue, a LocalQueue of the
    namespace or a ClusterQueue."""
    from admittance.cli.show import lists
    from admittance.runtime import clock

    if queue is not None:
        queues = await requests.questions.queues_named(bus, queue, within)
        chosen = chosen._replace(queues=queues)
    everything = await lists.find_all(bus, kind, within)
    chosen_objects, more = requests.selection.select(kind, everything, chosen, clock.now())
    counters = await lists.live_counters(bus, kind, chosen_objects)
    reasons = await lists.waiting_reasons(call, bus, kind, chosen_objects, within)
    chosen_objects = await lists.with_live(bus, kind, chosen_objects)
    lists.show(
        call,
        kind,
        chosen_objects,
        counters,
        single=False,
        all_namespaces=within is None,
        reasons=reasons,
        filtered=bool(everything),
    )
    if more:
        output.note(f"{more} more; --limit shows more")


async def _show_pending(
    call: Call, queue: str | None, chosen: Selection, *, all_namespaces: bool
) -> None:
    """Prints the chosen pending workloads in order. ``queue``: a LocalQueue of the namespace, or a
    ClusterQueue."""
    from admittance.cli.show import pending

    limit = chosen.limit or requests.questions.PENDING_ROWS
    chosen = chosen._replace(limit=None)
    namespace = None if all_namespaces and queue is None else call.namespace
    async with link(call) as bus:
        query, namespace = await requests.questions.pending_query(bus, queue, namespace)
        waiting = await pending.pending(bus, call, query, namespace, chosen, limit)
    pending.show(call, waiting, namespace)


async def _watch(
    call: Call, kind: kinds.ObjectKind, wanted: str | None, within: str | None
) -> None:
    """Prints objects and their changes until interrupted."""
    from admittance.cli.show import lists

    async with link(call) as bus:
        if wanted:
            await requests.objects.find(bus, kind, wanted)
        widths: list[int] = []
        async with aclosing(requests.objects.changes(bus, kind, wanted, within)) as batches:
            async for batch in batches:
                written = (entry for entry in batch if entry.value is not None)
                changed = lists.readable(
                    kind, [requests.objects.object_of(entry) for entry in written]
                )
                counters = await lists.live_counters(bus, kind, changed)
                changed = await lists.with_live(bus, kind, changed)
                lists.show_deletions(kind, batch, shown=bool(widths))
                lists.show_changes(
                    call, kind, changed, counters, widths, all_namespaces=within is None
                )
                output.flush()
