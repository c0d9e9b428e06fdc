"""``admit events``: prints the facts of the log in words, with --follow also new facts as they
come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from admittance.cli.commands.arguments import all_namespaces, follow, queues, workload_words
from admittance.cli.commands.declare import command, option
from admittance.cli.support import output, times
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.client import kinds, requests
from admittance.client.arguments.times import stamp
from admittance.client.errors import BadInput, RequestFailed, sentence

if TYPE_CHECKING:
    from admittance.client.requests.workloads.history import RemovedEvents
    from admittance.client.wording.facts import EventLine, FactEffects
    from admittance.events.requests.history import EventsReply, LogEntry


def _types(_ctx: click.Context, _start: str) -> Sequence[str]:
    from admittance.events.fact_types import FACT_TYPES

    return [*FACT_TYPES]


@command()
@workload_words("[workload]", "[NAME]")
@option("--workload NAME", "Only events of this workload, as workload NAME.")
@option(
    "--queue -q QUEUE", "Only of workloads of this LocalQueue or ClusterQueue.", complete=queues
)
@option("--types TYPE,...", "Only of these types, such as admitted,finished.", complete=_types)
@option("--tail N", "Only the newest N events.", kind=int, least=1)
@follow
@option("--since TIME", "Only events since: 10m, 2h, or 2026-02-07T00:10:00Z.")
@option("--until TIME", "Only events before: the same forms.")
@option("--at MOMENT", "Only events up to then: a sequence of the log, or the same forms.")
@all_namespaces
async def events(
    call: Call,
    kind: str | None,
    name: str | None,
    workload: str | None,
    queue: str | None,
    types: str | None,
    tail: int | None,
    follow: bool,
    since: str | None,
    until: str | None,
    at: str | None,
    all_namespaces: bool,
) -> None:
    """Show events from the log, oldest first: of one workload, or of all.

    -o wide adds the sequence on the log; -o json prints one line of JSON per event.
    """
    from admittance.client.wording.facts import FactEffects
    from admittance.runtime import clock

    if kind is not None:
        if workload is not None:
            raise BadInput("the workload is given twice: leave out --workload")
        workload = kinds.workload_target(kind, name)
    if follow and (until is not None or at is not None):
        raise BadInput(f"{'--at' if until is None else '--until'} does not go with --follow")
    if until is not None and at is not None:
        raise BadInput("--at does not go with --until")
    now = clock.now()
    moment = None if since is None else times.moment_of(since, "--since", now)
    end = None if until is None else times.moment_of(until, "--until", now)
    then = None if at is None else times.past_moment(at, "--at", now)
    narrowed = requests.facts.narrowing(types or (), queue, end, then, spelled="--types")
    namespace = None if all_namespaces else call.namespace
    after = 0
    async with link(call) as bus:
        shown = 0
        effects = FactEffects()
        removed = requests.history.RemovedEvents()
        variants = None
        if workload and not all_namespaces:
            variants = requests.history.VariantNames(bus, call.namespace, workload)
        also = variants.names if variants is not None else requests.history.no_names
        if tail is not None:
            pages = requests.facts.newest_pages(
                *(bus, namespace, workload),
                since=moment,
                narrowed=narrowed,
                also=await also(),
            )
            async with aclosing(pages):
                newest = await _newest(call, pages, tail, removed)
            for entry in newest.entries:
                _show(call, entry, variants.tags if variants is not None else {}, effects)
            shown, after = len(newest.entries), newest.after
        if tail is None or follow:
            entries = requests.history.facts_about(
                bus,
                namespace,
                workload,
                since=moment,
                after=after,
                narrowed=narrowed,
                follow=follow,
                also=also,
                on_away=lambda error: output.warn(str(error)),
                on_removed=removed.note,
            )
            async for entry in entries:
                if not shown and workload and removed.are_before(entry):
                    output.note(f"events {removed.text()}")
                _show(call, entry, variants.tags if variants is not None else {}, effects)
                shown += 1
        whole = moment is None and narrowed == requests.facts.ALL_FACTS
        if not shown and workload and whole and not all_namespaces:
            key = kinds.WORKLOAD.object_key(call.namespace, workload)
            exists = await requests.objects.lookup(bus, key) is not None
            if exists and removed.until is not None:
                output.note(f"the events of workload {workload} {removed.text()}")
                return
            if not exists and removed.until is None:
                raise await requests.objects.not_found(
                    bus, kinds.WORKLOAD, workload, call.namespace
                )
    if shown:
        return
    where = f" in namespace {namespace}" if namespace else ""
    if workload and whole and removed.until is not None:
        raise RequestFailed(
            f"no events of workload {workload}{where} are left; those {removed.text()}"
        )
    if workload and whole:
        raise RequestFailed(f"no events of workload {workload}{where}")
    if call.output not in (Output.JSON, Output.YAML):
        output.note(f"no events{f' of workload {workload}' if workload else ''}{where}")


async def _newest(
    call: Call, pages: AsyncIterator[EventsReply], many: int, removed: RemovedEvents
) -> EventsReply:
    """The newest events that the output shows, the oldest first; ``after``: the sequence up to
    which the log was read."""
    from admittance.events.requests.history import EventsReply

    entries: list[LogEntry] = []
    end = None
    async for page in pages:
        if page.compacted_until is not None:
            removed.note(page.compacted_until)
        end = page.after if end is None else end
        entries += [entry for entry in page.entries if _is_shown(call, entry)]
        if len(entries) >= many:
            break
    return EventsReply(entries=tuple(reversed(entries[:many])), after=end or 0)


def _is_shown(call: Call, entry: LogEntry) -> bool:
    from admittance.client.wording.facts import is_bookkeeping

    return call.output is not Output.TABLE or not is_bookkeeping(entry)


def _show(call: Call, entry: LogEntry, tags: Mapping[str, str], effects: FactEffects) -> None:
    from admittance.client.wording.facts import line_of

    match call.output:
        case Output.JSON:
            output.show_json_line(entry)
        case Output.YAML:
            output.say("---")
            output.show_yaml(entry)
        case Output.NAME:
            output.say(entry.subject)
        case Output.TABLE | Output.WIDE:
            if not _is_shown(call, entry):
                return
            line = line_of(entry, tags, effects)
            if output.is_terminal():
                output.say(_coloured(line, numbered=call.output is Output.WIDE))
            else:
                output.say(output.clean(line.line(numbered=call.output is Output.WIDE)))
    output.flush()


def _coloured(line: EventLine, *, numbered: bool) -> str:
    from admittance.cli.show.event_colours import COLOURS

    number = output.styled(f"{line.sequence:>8}  ", output.DIM) if numbered else ""
    time = output.styled(f"{stamp(line.time)}  ", output.DIM)
    what = output.styled(f"{line.what:<16}  ", COLOURS.get(line.what, ""))
    why = output.clean(sentence(line.reason, line.message))
    return f"{number}{time}{what}{output.styled(f'{line.subject}  ', output.BOLD)}{why}"
