"""Which revision of the bucket belongs to a sequence of the log, or to a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from admittance.events import subjects
from admittance.events.reader import BROKEN, Unreadable
from admittance.events.requests.past import Moment
from admittance.events.stored.checkpoints import Commits, Committed
from admittance.events.stored.formats import read_commits
from admittance.events.system import ObjectApplied
from admittance.replay.past_inputs import is_read
from admittance.runtime import clock
from admittance.runtime.bus.bucket_history import read_state, revision_of
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import (
    StoredMessage,
    batched_direct_get,
    place_of,
    read_messages,
)

RECORDS: Final = 50
"""How many records of commits after a fact are read until one has it."""
EVERYTHING: Final = ("admit.>",)
_applied = msgspec.json.Decoder(ObjectApplied)


class NoMoment(ValueError):
    """There is no picture of that moment; the text says why, in one line."""


async def moment_of(bus: Bus, at: int | datetime) -> Moment:
    """The moment after the fact with the sequence ``at``, or at that time. ``revision`` is the
    newest revision that was written then; None: the commit is not recorded yet. Raises NoMoment,
    BusRefused or BusUnavailable."""
    state = (await bus.api(f"STREAM.INFO.{subjects.STREAM}"))["state"]
    last = int(state["last_seq"])
    if isinstance(at, datetime):
        return await _at_time(bus, at, last)
    if at > last:
        raise NoMoment(f"the log ends at sequence {last}")
    oldest = await _oldest(bus)
    if oldest is None or at < oldest.sequence:
        raise _before(oldest)
    [message] = await read_messages(bus, EVERYTHING, after=at - 1, limit=1)
    return await _moment(bus, at, message)


async def _at_time(bus: Bus, at: datetime, last: int) -> Moment:
    if at.tzinfo is None:
        raise NoMoment("a time needs its zone, such as 2026-11-27T14:00:00Z")
    if at > clock.now() + timedelta(seconds=1):
        raise NoMoment(f"{at:%Y-%m-%dT%H:%M:%SZ} is in the future")
    oldest = await _oldest(bus)
    if oldest is None or at < oldest.time:
        raise _before(oldest)
    later = await read_messages(bus, EVERYTHING, since=at, limit=1)
    sequence = later[0].sequence - 1 if later and later[0].time > at else last
    if later and later[0].time == at:
        sequence = later[0].sequence
    page = await read_messages(bus, EVERYTHING, after=max(0, sequence - 1), limit=1)
    moment = await _moment(bus, sequence, page[0] if page else oldest)
    return msgspec.structs.replace(moment, time=at)


async def _oldest(bus: Bus) -> StoredMessage | None:
    messages = await read_messages(bus, EVERYTHING, limit=1)
    return messages[0] if messages else None


def _before(oldest: StoredMessage | None) -> NoMoment:
    if oldest is None:
        return NoMoment("the log is empty")
    return NoMoment(
        f"the log begins at sequence {oldest.sequence}, {oldest.time:%Y-%m-%dT%H:%M:%SZ}: "
        "nothing is known before"
    )


async def _moment(bus: Bus, sequence: int, message: StoredMessage) -> Moment:
    folded = message.sequence == sequence and is_read(message.subject)
    recorded, stored = await asyncio.gather(
        _revision(bus, sequence, message.time, folded=folded), _stored_before(bus, message.time)
    )
    if recorded is None:
        return Moment(sequence=sequence, time=message.time)
    # The journal has no manifests: what was in the bucket before the fact counts, too.
    revision = max(recorded, stored)
    if message.sequence == sequence and message.subject.startswith(subjects.OBJECTS):
        # A message that cannot be read as a change of an object changes no revision.
        with suppress(*BROKEN):
            revision = max(revision, _applied.decode(message.data).revision)
    return Moment(sequence=sequence, time=message.time, revision=revision)


async def _revision(bus: Bus, sequence: int, time: datetime, *, folded: bool) -> int | None:
    """The newest revision of a workload after the fact; None: its commit is not recorded yet.
    ``folded``: the workload-controller folds this fact, so that the first commit that reaches it
    counts; else the commits before it do."""
    records = await read_messages(
        bus, [subjects.COMMITS], since=time, limit=RECORDS, stream=subjects.CHECKPOINTS
    )
    newest = await _newest_before(bus, records[0].sequence if records else 0)
    for message in records:
        record = _read(message.data)
        for commit in record.commits if record is not None else ():
            if commit.through > sequence and not folded:
                return newest
            newest = max(newest, newest_of(commit))
            if commit.through >= sequence and folded:
                return newest
    return None if folded else newest


async def _stored_before(bus: Bus, time: datetime) -> int:
    """The newest revision that the history had at the time; 0: there is none, as the history begins
    later, or no history."""
    state = await read_state(bus)
    if state is None:
        return 0
    later = await read_messages(bus, [">"], since=time, limit=1, stream=subjects.HISTORY)
    if not later:
        return state.reached
    return revision_of(later[0].headers) - 1 if later[0].sequence > state.first else 0


async def _newest_before(bus: Bus, sequence: int) -> int:
    """The newest revision in the record of commits before that message, 0: in the last one; 0 if
    there is none."""
    request: dict[str, object] = {"multi_last": [subjects.COMMITS], "batch": 1}
    if sequence:
        request["up_to_seq"] = sequence - 1
    if sequence == 1:
        return 0
    for data, headers in await batched_direct_get(bus, subjects.CHECKPOINTS, request):
        record = _read(data)
        if record is not None and (not sequence or place_of(headers)[0] < sequence):
            return record.newest
    return 0


def newest_of(commit: Committed) -> int:
    """The newest revision that a commit wrote or found; 0: none."""
    pairs = zip(commit.runs[::2], commit.runs[1::2], strict=True)
    written = (first + count - 1 for first, count in pairs)
    return max((*written, *(found.revision for found in commit.adopted)), default=0)


def _read(data: bytes) -> Commits | None:
    try:
        return read_commits(data)
    except Unreadable:
        return None  # No leader wrote this record.
