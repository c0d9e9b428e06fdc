"""``admit events``: the story from the log, and on as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from admittance.cli import output
from admittance.cli.errors import AnswerIsNo
from admittance.cli.link import Link, link
from admittance.cli.options import Call, Output
from admittance.cli.spans import stamp
from admittance.cli.story import Told, told
from admittance.events.names import token
from admittance.events.requests import Events, EventsReply, LogEntry

PAGE: Final = 500
GATHER_SECONDS: Final = 0.05
"""Facts come in bursts: one question for all that come within this time."""
AGAIN_SECONDS: Final = 5.0
"""Asked this often also without a ring, which a broken connection may have swallowed."""


async def events(
    call: Call,
    *,
    workload: str | None,
    follow: bool,
    since: datetime | None,
    all_namespaces: bool,
) -> None:
    """Prints what happened, oldest first, a line each; with follow until it is interrupted. Raises
    the answer that there is no such workload, where none ever was."""
    namespace = None if all_namespaces else call.namespace
    async with link(call) as bus:
        shown = 0
        async for entry in _entries(bus, namespace, workload, since, follow=follow):
            _show(call, entry)
            shown += 1
    if shown:
        return
    where = f" in namespace {namespace}" if namespace else ""
    if workload and since is None:
        raise AnswerIsNo(f"no events of workload {workload}{where}")
    if call.output not in (Output.JSON, Output.YAML):
        output.note(f"no events{f' of workload {workload}' if workload else ''}{where}")


async def recent(bus: Link, namespace: str, workload: str, count: int) -> list[Told]:
    """The last so many events of one workload, oldest first."""
    entries = [entry async for entry in _entries(bus, namespace, workload, None, follow=False)]
    return [told(entry) for entry in entries[-count:]]


async def _entries(
    bus: Link, namespace: str | None, workload: str | None, since: datetime | None, *, follow: bool
) -> AsyncIterator[LogEntry]:
    after = 0
    ring = asyncio.Event()
    if follow:
        await _ring_on_facts(bus, namespace, workload, ring)
    while True:
        query = Events(workload=workload or "", after=after, since=since, limit=PAGE)
        try:
            reply = await bus.ask("events", query, EventsReply, namespace=namespace)
        except AnswerIsNo as error:
            if not follow or not after:
                raise
            # Whoever follows wants to go on following; the log keeps what is missed meanwhile.
            output.warn(str(error))
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        if reply.error:
            raise AnswerIsNo(reply.error)
        for entry in reply.entries:
            after = max(after, entry.sequence)
            yield entry
        if reply.entries and not reply.complete:
            continue
        if not follow:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_SECONDS):
                await ring.wait()
        await asyncio.sleep(GATHER_SECONDS)
        ring.clear()


async def _ring_on_facts(
    bus: Link, namespace: str | None, workload: str | None, ring: asyncio.Event
) -> None:
    """Sets ring whenever something happens. The fact itself is read from the log afterwards: it
    has the sequence there, and nothing is lost or doubled between what was and what comes."""
    where = "*" if namespace is None else token(namespace)
    whose = "*" if workload is None else token(workload)

    async def on_message(_message: Any) -> None:
        ring.set()

    for subject in (
        f"admit.workload.*.{where}.{whose}",
        f"admit.check.*.*.{where}.{whose}",
        f"admit.provisioning.*.*.{where}.{whose}",
    ):
        await bus.bus.nc.subscribe(subject, cb=on_message)


def _show(call: Call, entry: LogEntry) -> None:
    match call.output:
        case Output.JSON:
            output.show_json_line(entry)
        case Output.YAML:
            output.say("---")
            output.show_yaml(entry)
        case Output.NAME:
            output.say(entry.subject)
        case Output.TABLE | Output.WIDE:
            line = told(entry)
            if output.is_terminal():
                _show_rich(line, numbered=call.output is Output.WIDE)
            else:
                output.say(output.clean(line.line(numbered=call.output is Output.WIDE)))
    output.flush()


def _show_rich(line: Told, *, numbered: bool) -> None:
    from rich.text import Text

    why = ": ".join(part for part in (line.reason, line.message) if part)
    output.console().print(
        Text.assemble(
            (f"{line.sequence:>8}  " if numbered else "", "dim"),
            (f"{stamp(line.time)}  ", "dim"),
            (f"{line.what:<16}  ", _COLOURS.get(line.what, "")),
            (f"{line.whose}  ", "bold"),
            output.clean(why),
        )
    )


_COLOURS: Final = {
    "admitted": output.GOOD,
    "quota reserved": output.BUSY,
    "started": output.GOOD,
    "pods ready": output.GOOD,
    "finished": output.GOOD,
    "evicted": output.WAITS,
    "preempted": output.WAITS,
    "pending": output.WAITS,
    "rejected": output.BAD,
    "dead letter": output.BAD,
}
