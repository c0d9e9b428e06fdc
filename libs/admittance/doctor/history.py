"""Checks of `admit doctor`: domains and their epochs, checkpoints, dead letters."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from admittance.doctor.finding import Finding, note, ok
from admittance.events import subjects
from admittance.events.names import BadToken, plain
from admittance.events.reader import BROKEN
from admittance.events.system import DeadLetter, Epoch
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.checkpoints import checkpoints
from admittance.runtime.bus.history import last_by_direct_get, last_of_each
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.telemetry.findings import size_of

LETTERS: Final = (
    "look at the reason, correct the publisher, and publish the message again: "
    "docs/operations.md#too-many-dead-letters"
)


async def domain_findings(bus: Bus) -> list[Finding]:
    """A finding for each domain, with the owner of the domain according to the domain's last epoch
    on the log.
    """
    try:
        info = await bus.api(
            f"STREAM.INFO.{subjects.STREAM}", {"subjects_filter": f"{subjects.EPOCH}>"}
        )
    except (BusRefused, BusUnavailable):
        return []

    async def line(subject: str) -> Finding:
        domain = subject.removeprefix(subjects.EPOCH)
        with suppress(BadToken):
            domain = plain(domain)
        owner = "?"
        sequence = 0
        with suppress(BusRefused, BusUnavailable, *BROKEN):
            message = await last_by_direct_get(bus, subject)
            if message is not None:
                sequence = message.sequence
                owner = msgspec.json.decode(message.data, type=Epoch).owner
        return ok(f"domain {domain}", f"led by {owner} since epoch {sequence}")

    names = sorted(info["state"].get("subjects") or {})
    return list(await asyncio.gather(*(line(subject) for subject in names)))


async def checkpoint_findings(bus: Bus) -> list[Finding]:
    """The finding about the checkpoints from which past decisions can be repeated."""
    try:
        made = await checkpoints(bus)
    except (BusRefused, BusUnavailable):
        return []
    if not made:
        return [ok("checkpoints", "none yet")]
    newest = made[-1]
    text = f"{len(made)}, the newest of {newest.time:%Y-%m-%d %H:%M} UTC"
    return [ok("checkpoints", f"{text}, {size_of(newest.size)}, {newest.rows:,} rows")]


async def dead_letter_findings(bus: Bus) -> list[Finding]:
    """How many dead letters there are of each service, and the newest of each."""
    try:
        info = await bus.api(
            f"STREAM.INFO.{subjects.STREAM}", {"subjects_filter": f"{subjects.DEADLETTER}>"}
        )
    except (BusRefused, BusUnavailable):
        return []
    counts = info["state"].get("subjects") or {}
    if not counts:
        return [ok("dead letters", "none")]
    each = ", ".join(f"{n:,} of {s.removeprefix(subjects.DEADLETTER)}" for s, n in counts.items())
    lines = [note("dead letters", f"{each}: see `admit events -A`")]
    with suppress(BusRefused, BusUnavailable):
        for newest in await last_of_each(bus, list(counts)):
            with suppress(*BROKEN):
                letter = msgspec.json.decode(newest.data, type=DeadLetter)
                text = f"on {letter.subject}: {letter.reason}"
                service = newest.subject.removeprefix(subjects.DEADLETTER)
                lines.append(note(f"newest of {service}", text[:300], LETTERS))
    return lines
