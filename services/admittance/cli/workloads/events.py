"""``admit events``: prints the facts of the log in words, with --follow also new facts as they
come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from admittance.cli.commands.arguments import all_namespaces, follow
from admittance.cli.commands.declare import command, option
from admittance.cli.support import output, times
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.client import kinds, requests
from admittance.client.arguments.times import stamp
from admittance.client.errors import RequestFailed, sentence

if TYPE_CHECKING:
    from admittance.client.wording.facts import EventLine, FactEffects
    from admittance.events.requests.history import LogEntry


@command()
@option("--workload NAME", "Only events of this workload.")
@follow
@option("--since TIME", "Only events since: 10m, 2h, or 2026-02-07T00:10:00Z.")
@all_namespaces
async def events(
    call: Call, workload: str | None, follow: bool, since: str | None, all_namespaces: bool
) -> None:
    """Show events from the log, oldest first.

    -o wide adds the sequence on the log; -o json prints one line of JSON per event.
    """
    from admittance.client.wording.facts import FactEffects
    from admittance.runtime import clock

    moment = None if since is None else times.moment_of(since, "--since", clock.now())
    namespace = None if all_namespaces else call.namespace
    async with link(call) as bus:
        shown = 0
        effects = FactEffects()
        removed = requests.history.RemovedEvents()
        variants = None
        if workload and not all_namespaces:
            variants = requests.history.VariantNames(bus, call.namespace, workload)
        entries = requests.history.facts_about(
            bus,
            namespace,
            workload,
            since=moment,
            follow=follow,
            also=variants.names if variants is not None else requests.history.no_names,
            on_away=lambda error: output.warn(str(error)),
            on_removed=removed.note,
        )
        async for entry in entries:
            if not shown and workload and removed.are_before(entry):
                output.note(f"events {removed.text()}")
            _show(call, entry, variants.tags if variants is not None else {}, effects)
            shown += 1
        if not shown and workload and moment is None and not all_namespaces:
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
    if workload and moment is None and removed.until is not None:
        raise RequestFailed(
            f"no events of workload {workload}{where} are left; those {removed.text()}"
        )
    if workload and moment is None:
        raise RequestFailed(f"no events of workload {workload}{where}")
    if call.output not in (Output.JSON, Output.YAML):
        output.note(f"no events{f' of workload {workload}' if workload else ''}{where}")


def _show(call: Call, entry: LogEntry, tags: Mapping[str, str], effects: FactEffects) -> None:
    from admittance.client.wording.facts import is_bookkeeping, line_of

    match call.output:
        case Output.JSON:
            output.show_json_line(entry)
        case Output.YAML:
            output.say("---")
            output.show_yaml(entry)
        case Output.NAME:
            output.say(entry.subject)
        case Output.TABLE | Output.WIDE:
            if call.output is Output.TABLE and is_bookkeeping(entry):
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
