"""``admit get -w``: prints one line per object, then one line per change."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from admittance.cli import get
from admittance.cli.show import tables
from admittance.cli.show.objects import Found
from admittance.cli.support import kinds, output
from admittance.cli.support.errors import BadInput
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import Table
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.bus.outside_reads import KeyFollower

READ_AGAIN_SECONDS: Final = 30.0
"""Seconds between two readings of all objects, which are needed because the watch gets no message
when an object expires.
"""


async def watch_objects(call: Call, typed: str, name: str | None, *, all_namespaces: bool) -> None:
    """Prints objects and their changes until interrupted."""
    kind, wanted = kinds.target(typed, name)
    namespace = None if all_namespaces else call.namespace
    patterns = kind.keys(call.namespace, wanted) if wanted else kind.patterns(namespace)
    async with link(call) as bus:
        if wanted:
            await get.find(bus, kind, wanted)

        async def read() -> list[Entry]:
            if wanted:
                each = [await bus.get(key) for key in patterns]
                return [entry for entry in each if entry is not None]
            return [entry for pattern in patterns for entry in await bus.read_all(pattern)]

        reading = bus.reading_again(read)
        follower = KeyFollower(bus.bus, patterns, reading, again_seconds=READ_AGAIN_SECONDS)
        widths: list[int] = []
        async with aclosing(follower.batches()) as batches:
            async for batch in batches:
                found = [Found(e.key, e.value, e.revision) for e in batch if e.value is not None]
                found = get.readable(kind, found)
                counters = await get.live_counters(bus, kind, found)
                found = await get.with_bookings(bus, kind, found)
                _show_deletions(kind, batch, shown=bool(widths))
                _show(call, kind, found, counters, widths, all_namespaces=all_namespaces)
                output.flush()


def _show_deletions(kind: kinds.Kind, batch: list[Entry], *, shown: bool) -> None:
    """Prints the deletions of a batch, except those before the first printed line."""
    for entry in batch:
        if entry.value is None and shown:
            output.note(f"{kind.qualified}/{Found(entry.key, b'', entry.revision).name} deleted")


def _show(
    call: Call,
    kind: kinds.Kind,
    found: list[Found],
    counters: tables.Counters,
    widths: list[int],
    *,
    all_namespaces: bool,
) -> None:
    match call.output:
        case Output.JSON:
            for one in found:
                output.show_json_line(get.shown(kind, one, counters))
        case Output.YAML:
            raise BadInput("-w goes with a table, -o wide, -o name or -o json")
        case Output.NAME:
            for one in found:
                output.say(f"{kind.qualified}/{one.name}")
        case Output.TABLE | Output.WIDE:
            table = tables.table(kind, found, clock.now(), counters, all_namespaces=all_namespaces)
            shown = table.narrowed(call.output is Output.WIDE)
            first = not widths
            output.widen(widths, shown)
            lines = output.aligned(Table(shown.columns, shown.rows), widths)
            for number, line in enumerate(lines):
                if number or first:
                    output.say(output.clean(line))
