"""Finds entries of the log and the buckets that cannot be read and that services set aside.

Each search reads all entries with the readers of the services, so no service has to run.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from admittance.doctor.finding import Finding, note, ok, wrong
from admittance.events import subjects
from admittance.events.names import plain
from admittance.events.reader import BROKEN, Reader, SetAside, Unreadable, number, reason_of
from admittance.events.stored.formats import (
    read_announcement,
    read_commits,
    read_held_claim,
    read_usage,
)
from admittance.events.stored.machines import OF_RUNNERS
from admittance.events.system import Epoch, ObjectApplied
from admittance.forecast.widening import decode_errors
from admittance.placement.machines.known_runners import KnownRunners
from admittance.providers.builtin import installation_key
from admittance.providers.status_store import read_status
from admittance.provisioning.pool_bookings import read_booking
from admittance.provisioning.records import read_record
from admittance.runtime.bus.bucket import Entry, get_directly
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.checkpoints import all_checkpoints
from admittance.runtime.bus.durables import foreign_reason, list_consumers
from admittance.runtime.bus.history import StoredMessage, last_of_each
from admittance.runtime.bus.messages import SECRET_KEY
from admittance.runtime.bus.outside_reads import read_directly
from admittance.runtime.bus.streams import NO_STREAM
from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.leader.barriers import read_echo
from admittance.workload.bucket_reader import names_of, read_manifest, read_whole

SET_ASIDE_MAX: Final = 50
"""The greatest number of unreadable entries that get a line of their own in the table."""
AT_ONCE: Final = 100
"""The greatest number of requests to the server at the same time."""
PROBE: Final = "_admittance.probe"
"""The key of a probe write, in every bucket for a moment; not an unreadable entry."""
INSTALLATIONS: Final = frozenset(map(installation_key, ("docker", "kubernetes")))
_applied = Reader(ObjectApplied)
_epoch = Reader(Epoch)


async def set_aside_findings(bus: Bus, readers: Container[str], *, every: bool) -> list[Finding]:
    """A finding for each unreadable entry of the log and the buckets. An unreadable workload or
    manifest is reported as an error, any other unreadable entry as a note. ``readers``: the
    services with leaders that create consumers of the log. ``every``: a finding for all unreadable
    entries, not only for the first `SET_ASIDE_MAX`.
    """
    try:
        entries, hidden = await set_aside(bus, await list_consumers(bus, subjects.STREAM), readers)
    except (BusRefused, BusUnavailable) as error:
        if isinstance(error, BusRefused) and error.code == NO_STREAM:
            return []  # `stream_findings` reports the missing stream.
        return [wrong("set aside", f"not looked for: {error}", "try again")]
    only = f"; {hidden:,} entries, which only services may read, were not looked at"
    if not entries:
        return [ok("set aside", "none: all entries can be read" + (only if hidden else ""))]
    lines = []
    for entry in entries if every else entries[:SET_ASIDE_MAX]:
        where = f"{entry.stream} {entry.place}" + (f" ({entry.sequence})" if entry.sequence else "")
        make = wrong if entry.stream == f"KV_{subjects.BUCKET}" else note
        lines.append(make("set aside", f"{where}: {entry.reason}", remedy(entry)))
    if not every and len(entries) > SET_ASIDE_MAX:
        lines.append(note("set aside", f"{len(entries) - SET_ASIDE_MAX:,} more: see `-o json`"))
    return lines


async def set_aside(
    bus: Bus, consumers: Sequence[Mapping[str, Any]], readers: Container[str]
) -> tuple[list[SetAside], int]:
    """All unreadable entries, and the number of entries that this login may not read. The order:
    consumers of the log, entries of buckets, messages of streams. Raises BusRefused or
    BusUnavailable if the server refuses a request or does not answer.
    """
    unreadable: list[SetAside] = []
    hidden = 0
    log = await lease_store.end_of_log(bus)
    for name, judge in (
        (subjects.BUCKET, _judge_value(log)),
        (subjects.CLAIMS, judge_claim),
        (subjects.PROVIDERS, judge_of_providers),
    ):
        entries, more = await _entries(bus, name)
        unreadable += [
            SetAside(f"KV_{name}", entry.key, entry.revision, reason)
            for entry in entries
            if entry.key != PROBE and (reason := _reason(judge, entry))
        ]
        hidden += more
    unreadable += await _of_log(bus)
    unreadable += (await all_checkpoints(bus))[1]
    unreadable += await _of_commits(bus)
    of_consumers = _of_consumers(consumers, readers, await lease_store.end_of_log(bus))
    return [*of_consumers, *unreadable], hidden


# Buckets. -------------------------------------------------------------------------------


async def _entries(bus: Bus, name: str) -> tuple[list[Entry], int]:
    """The entries of a bucket that this login may read, and the number of other entries."""
    try:
        return await read_directly(bus, ">", bucket=name), 0
    except AccessDenied:
        pass
    # The login of a person may not read the whole bucket, but may read the keys of objects one by
    # one.
    keys = await _keys(bus, name)
    readable: list[Entry] = []
    hidden = 0
    for start in range(0, len(keys), AT_ONCE):
        part = keys[start : start + AT_ONCE]
        answers = await asyncio.gather(
            *(get_directly(bus, key, bucket=name) for key in part), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, AccessDenied):
                hidden += 1
            elif isinstance(answer, BaseException):
                raise answer
            elif answer is not None and answer.value is not None:
                readable.append(answer)
    return readable, hidden


async def _keys(bus: Bus, name: str) -> list[str]:
    prefix = f"$KV.{name}."
    keys: list[str] = []
    while True:
        request = {"subjects_filter": f"{prefix}>", "offset": len(keys)}
        info = await bus.api(f"STREAM.INFO.KV_{name}", request)
        page = info["state"].get("subjects") or {}
        keys += [subject.removeprefix(prefix) for subject in page]
        if not page or len(keys) >= info.get("total", 0):
            return sorted(keys)


def _reason(judge: Callable[[Entry], None], entry: Entry) -> str:
    """Why the entry is unreadable; empty if it is readable."""
    try:
        judge(entry)
    except BROKEN as error:
        return reason_of(error)
    return ""


def _judge_value(end: int) -> Callable[[Entry], None]:
    def judge(entry: Entry) -> None:
        value = entry.value or b""
        match entry.key.split(".")[0]:
            case "workload":
                names_of(entry.key)
                fact = read_whole(entry.key, value).status.log.fact
                # The log may have grown since its end was read, so a fact a little after the end is
                # possible.
                if fact > max(end, entry.revision) + 1_000_000:
                    raise Unreadable(f"status.log.fact: {fact} is after the end of the log, {end}")
            case "barrier":
                read_echo(entry.key, value)
            case subjects.USAGE:
                names_of(entry.key)
                read_usage(value)
            case subjects.CAPACITY:
                read_record(entry.key, value)
            case "_admittance" if entry.key == subjects.GUARD_KEY:
                if number(value) is None:
                    raise Unreadable("the entry does not hold the number of an epoch")
            case "_admittance" if entry.key in (SECRET_KEY, subjects.RESTORED):
                pass
            case _:
                names_of(entry.key)
                read_manifest(entry.key, value)

    return judge


def judge_claim(entry: Entry) -> None:
    """Raises one of `BROKEN` if runners cannot read this entry of the claims bucket."""
    if entry.key == SECRET_KEY:
        return
    if entry.key == subjects.FORECAST_ERRORS:
        decode_errors(entry.value or b"")
        return
    if entry.key.startswith("_alive."):
        lease_store.instance_of(entry)
        return
    if entry.key.startswith(f"{subjects.ANNOUNCED_RUNNERS}."):
        read_announcement(entry.value)
        return
    first, _, runner = entry.key.partition(".")
    if first in OF_RUNNERS:
        KnownRunners().said(first, plain(runner), entry.value)
        return
    namespace, _, rest = entry.key.partition(".")
    name, _, written = rest.partition(".")
    revision, _, part = written.partition("-")
    if number(revision) is None or (part and number(part) is None):
        raise Unreadable("this is not the key of a claim")
    plain(namespace), plain(name)
    read_held_claim(entry.value or b"")


def judge_of_providers(entry: Entry) -> None:
    """Raises one of `BROKEN` if providers cannot read this entry of the providers' bucket."""
    value = entry.value or b""
    if entry.key == "_pool_led":
        return
    if entry.key in INSTALLATIONS:
        value.decode()
        return
    if entry.key.startswith("_pool."):
        read_booking(entry.key, value)
    else:
        read_status(value)


# Streams. -------------------------------------------------------------------------------


async def _of_log(bus: Bus) -> list[SetAside]:
    """Unreadable messages among the last message about each manifest and each domain, which
    services read when they start.
    """
    bucket = await bus.api(f"STREAM.INFO.KV_{subjects.BUCKET}")
    newest = int(bucket["state"]["last_seq"])
    names: list[str] = []
    for pattern in ("admit.object.>", f"{subjects.EPOCH}>"):
        info = await bus.api(f"STREAM.INFO.{subjects.STREAM}", {"subjects_filter": pattern})
        names += info["state"].get("subjects") or {}
    entries = []
    for message in await last_of_each(bus, names):
        try:
            _judge_message(message, newest)
        except BROKEN as error:
            entries.append(
                SetAside(subjects.STREAM, message.subject, message.sequence, reason_of(error))
            )
    return entries


def _judge_message(message: StoredMessage, newest: int) -> None:
    if message.subject.startswith(subjects.EPOCH):
        domain = plain(message.subject.removeprefix(subjects.EPOCH))
        if _epoch(message.data).domain != domain:
            raise Unreadable(
                f"the payload names another domain than the subject: {_epoch(message.data).domain}"
            )
    elif not 0 <= (revision := _applied(message.data).revision) <= newest:
        raise Unreadable(f"revision {revision} is after the end of the bucket, {newest}")


async def _of_commits(bus: Bus) -> list[SetAside]:
    try:
        messages = await last_of_each(bus, [subjects.COMMITS], stream=subjects.CHECKPOINTS)
    except (BusRefused, BusUnavailable):
        return []
    for message in messages:
        try:
            read_commits(message.data)
        except Unreadable as error:
            return [SetAside(subjects.CHECKPOINTS, message.subject, message.sequence, str(error))]
    return []


def _of_consumers(
    consumers: Sequence[Mapping[str, Any]], readers: Container[str], end: int
) -> list[SetAside]:
    entries = []
    for info in consumers:
        stem, _, turn = info["name"].rpartition("-")
        stem, _, generation = stem.rpartition("-")
        made = number(generation)
        if made is None or number(turn) is None or stem not in readers:
            continue
        floor = max(info["ack_floor"]["stream_seq"], info["config"].get("opt_start_seq", 1) - 1)
        if why := foreign_reason(info["config"], made, floor, end):
            entries.append(SetAside(subjects.STREAM, info["name"], 0, why))
    return entries


def remedy(entry: SetAside) -> str:
    """How to remove the unreadable entry."""
    if entry.reason.startswith("a consumer"):
        return f"`nats consumer rm {entry.stream} {entry.place}`"
    if not entry.stream.startswith("KV_"):
        return "the next message on that subject replaces it"
    bucket = entry.stream.removeprefix("KV_")
    if bucket != subjects.BUCKET:
        service = "with the login of a service that writes this bucket"
        return f"`nats kv del {bucket} {shlex.quote(entry.place)}`, {service}"
    command = f"`admit delete --stored {shlex.quote(entry.place)}`"
    if entry.place.startswith("workload."):
        uncounted = "services that start from now on do not count its quota"
        return f"{uncounted}: {command}, and submit it again"
    return command
