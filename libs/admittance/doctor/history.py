"""Checks of `admit doctor`: domains and their epochs, checkpoints, the history of the bucket, dead
letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec

from admittance.client.health_report import DeadLetterRow, LeaderRow
from admittance.doctor.finding import Finding, note, ok
from admittance.events import subjects
from admittance.events.names import BadToken, plain
from admittance.events.reader import BROKEN
from admittance.events.system import DeadLetter, Epoch
from admittance.runtime import clock
from admittance.runtime.bus.bucket_history import HistoryState, read_state
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.checkpoints import checkpoints
from admittance.runtime.bus.history import (
    LAST_BYTES,
    PAGE,
    StoredMessage,
    last_by_direct_get,
    last_of_each,
    read_in_order,
)
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.telemetry.findings import size_of

RECENT: Final = timedelta(days=1)
SHOWN_BYTES: Final = 4096
"""How much of a message a dead letter is shown with."""
UNKEPT: Final = (
    "nothing if ADMIT_HISTORY_DAYS is 0; else the log of the workload-controller says with "
    "`history_not_kept` why the server refuses it"
)
BEHIND: Final = "wait; if it does not catch up, look at the load of the server"
AGAIN: Final = (
    f"After `nats stream rm {subjects.HISTORY}` the next workload-controller begins it anew"
)
LAG_MAX: Final = 1_000
LETTERS: Final = (
    "look at the reason, correct the publisher, and publish the message again: "
    "docs/operations.md#too-many-dead-letters"
)


async def domain_findings(bus: Bus) -> list[Finding]:
    """A finding for each domain, with the owner of the domain according to the domain's last epoch
    on the log.
    """
    try:
        counts = await _counts(bus, subjects.EPOCH)
    except (BusRefused, BusUnavailable):
        return []

    async def line(domain: str) -> Finding:
        with suppress(BusRefused, BusUnavailable):
            if (leader := await _leader(bus, domain)) is not None:
                text = f"led by {leader.owner} since epoch {leader.epoch}"
                return ok(f"domain {leader.domain}", text)
        return ok(f"domain {_plain(domain)}", "led by ? since epoch 0")

    return list(await asyncio.gather(*(line(domain) for domain in sorted(counts))))


async def leaders(bus: Bus) -> list[LeaderRow]:
    """The leader of each domain, according to the domain's last epoch. Raises BusUnavailable and
    BusRefused."""
    counts = await _counts(bus, subjects.EPOCH)
    read = await asyncio.gather(*(_leader(bus, domain) for domain in sorted(counts)))
    return [leader for leader in read if leader is not None]


async def _leader(bus: Bus, domain: str) -> LeaderRow | None:
    """``domain``: as in subjects. None: the epoch is gone meanwhile."""
    message = await last_by_direct_get(bus, f"{subjects.EPOCH}{domain}")
    if message is None:
        return None
    owner = "?"
    with suppress(*BROKEN):
        owner = msgspec.json.decode(message.data, type=Epoch).owner
    return LeaderRow(domain=_plain(domain), owner=owner, epoch=message.sequence, since=message.time)


def _plain(domain: str) -> str:
    try:
        return plain(domain)
    except BadToken:
        return domain


async def _counts(bus: Bus, prefix: str) -> dict[str, int]:
    """How many messages of the log have a subject of this prefix, by the rest of the subject.
    Raises BusUnavailable and BusRefused."""
    info = await bus.api(f"STREAM.INFO.{subjects.STREAM}", {"subjects_filter": f"{prefix}>"})
    counts = info["state"].get("subjects") or {}
    return {subject.removeprefix(prefix): count for subject, count in counts.items()}


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


async def bucket_history_findings(bus: Bus) -> list[Finding]:
    """The finding about the revisions of the bucket that pictures of the past are read from."""
    try:
        state = await read_state(bus)
    except (BusRefused, BusUnavailable):
        return []
    return [bucket_history_finding(state)]


def bucket_history_finding(state: HistoryState | None) -> Finding:
    """The finding about the history of the bucket; None: there is no such stream."""
    what = "history"
    if state is None:
        return note(what, "none: the past is made from the log again, which takes longer", UNKEPT)
    if state.begins is None:
        return note(what, f"{state.lag:,} revisions behind, so it has not begun", BEHIND)
    text = f"{state.reached - state.begins:,} revisions of the bucket since {state.begins:,}"
    if state.missing:
        lacks = f"of which it lacks {state.missing:,}: it was behind when they were replaced"
        todo = f"nothing: what they say is made from the log. {AGAIN}"
        return note(what, f"{text}, {lacks}", todo)
    if state.lag > LAG_MAX:
        return note(what, f"{text}, and {state.lag:,} behind", BEHIND)
    return ok(what, text)


async def dead_letter_findings(bus: Bus) -> list[Finding]:
    """How many dead letters there are of each service, and the newest of each."""
    try:
        counts = await dead_letter_counts(bus)
    except (BusRefused, BusUnavailable):
        return []
    if not counts:
        return [ok("dead letters", "none")]
    each = ", ".join(f"{count:,} of {service}" for service, count in counts.items())
    lines = [note("dead letters", f"{each}: see `admit events -A`")]
    with suppress(BusRefused, BusUnavailable):
        for letter in await _newest_of_each(bus, counts):
            text = f"on {letter.subject}: {letter.reason}"
            newest = note(f"newest of {letter.service}", text[:300], LETTERS)
            lines.append(msgspec.structs.replace(newest, since=letter.time))
    return lines


async def dead_letter_counts(bus: Bus) -> dict[str, int]:
    """How many dead letters the log has, by service. Raises BusUnavailable and BusRefused."""
    return await _counts(bus, subjects.DEADLETTER)


async def newest_dead_letters(
    bus: Bus, counts: Mapping[str, int], most: int
) -> list[DeadLetterRow]:
    """The newest dead letters, the newest first. ``counts``: of each service. Those of a log with
    many are of the last day, and the newest of each service. Raises BusUnavailable and
    BusRefused."""
    newest: dict[int, DeadLetterRow] = {}
    if counts:
        newest = {letter.sequence: letter for letter in await _newest_of_each(bus, counts)}
    since = None if sum(counts.values()) <= PAGE else clock.now() - RECENT
    after, whole = 0, not counts
    while not whole:
        found, whole = await read_in_order(
            bus,
            [f"{subjects.DEADLETTER}>"],
            after=after,
            since=since,
            limit=PAGE,
            bytes_max=LAST_BYTES,
        )
        after = found[-1].sequence if found else after
        newest |= {each.sequence: each for each in map(_letter, found) if each is not None}
        newest = dict(sorted(newest.items())[-most:])
    return [newest[sequence] for sequence in sorted(newest, reverse=True)]


async def _newest_of_each(bus: Bus, services: Iterable[str]) -> list[DeadLetterRow]:
    names = [f"{subjects.DEADLETTER}{service}" for service in services]
    read = map(_letter, await last_of_each(bus, names))
    return [letter for letter in read if letter is not None]


def _letter(message: StoredMessage) -> DeadLetterRow | None:
    """The row of a dead letter; None: the message is none."""
    try:
        letter = msgspec.json.decode(message.data, type=DeadLetter)
    except BROKEN:
        return None
    data = letter.data64 or (letter.data or "").encode()
    return DeadLetterRow(
        sequence=message.sequence,
        time=message.time,
        service=message.subject.removeprefix(subjects.DEADLETTER),
        subject=letter.subject,
        reason=letter.reason,
        of=letter.sequence,
        data=data[:SHOWN_BYTES],
        is_cut=letter.truncated or len(data) > SHOWN_BYTES,
    )
