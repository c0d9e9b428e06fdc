"""The endpoints of the workload-controller that write no object: stored objects, histories of
workloads, and the consumers of runners and of the telemetry service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from admittance.events.names import plain, token
from admittance.events.reader import BROKEN
from admittance.events.requests.history import Events, EventsReply, LogEntry, SettledReply
from admittance.events.requests.reading import ObjectEntry, Objects, ObjectsReply
from admittance.events.subjects import (
    ALL_NAMESPACES,
    BUCKET,
    DEADLETTER,
    USER_FACTS,
    WORKLOAD_FACTS,
    namespace_of_request,
)
from admittance.events.system import DeadLetter
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage, last, read_in_order
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.nats import micro
from admittance.runtime.telemetry.tracing import extract
from admittance.workload_controller.endpoints.outside_consumers import OutsideConsumers

LAG_SECONDS: Final = 2.0
"""Seconds that a request for a list of objects waits for a replica that lags."""

WORKLOADS_MAX: Final = 200
"""The most workload names in one request for events; every family has fewer workloads."""


EVENTS_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of facts that a reply with events is made from."""
PAGES_MAX: Final = 20
"""The most pages that one request for events reads; a page may have only dead letters of others."""
HISTORIES_MAX: Final = 16
"""The most requests for events that read the log at the same time: each takes at most the memory of
nine pages."""
HISTORIES_EACH: Final = 4
"""The most of them that ask for one namespace."""


OutcomeOf: TypeAlias = Callable[[int], SettledReply | None]
"""A function that returns the outcome of the fact at a sequence of the log; None if the fact was
applied, or if the leader does not remember the outcome."""


FamilyOf: TypeAlias = Callable[[str, str], Iterable[str]]
"""A function that returns the names of all workloads in a workload's family, from the workload's
namespace and name; empty for a workload without family."""


CompactedUntil: TypeAlias = Callable[[], datetime | None]
"""A function that returns the time until which facts about workloads were removed from the log to
keep it small; None if none were."""


def reading_endpoints(
    bus: Bus,
    outcome: OutcomeOf = lambda _sequence: None,
    family: FamilyOf = lambda _namespace, _name: (),
    compacted_until: CompactedUntil = lambda: None,
) -> Mapping[str, micro.Handler]:
    """The handler of each subject, for all endpoints of this module."""
    objects = partial(_objects, bus)
    turns = micro.Turns(HISTORIES_MAX, HISTORIES_EACH)
    events = partial(_events, bus, outcome, family, compacted_until, turns)
    return {
        **OutsideConsumers(bus).endpoints(),
        "admit.api.objects": objects,
        "admit.api.objects.*": objects,
        "admit.api.events": events,
        "admit.api.events.*": events,
    }


async def _objects(bus: Bus, data: bytes, subject: str) -> ObjectsReply | micro.Parts:
    request = msgspec.json.decode(data, type=Objects)
    kind = token(plain(request.kind))
    if kind.startswith("_"):
        raise ValueError(f"{request.kind} is not a kind of object")
    _, _, _, *within = subject.split(".")
    namespace = ["*" if ns == ALL_NAMESPACES else token(plain(ns)) for ns in within]
    pattern = ".".join([kind, *namespace, "*"])
    most = OBJECTS_IN_PARTS_MAX if request.in_parts else OBJECTS_MAX
    limit = max(1, min(request.limit, most))
    page, complete = await _current_page(bus, pattern, request.after, limit)
    if not request.in_parts:
        fitting = objects_reply(page)
        complete = complete and (not page or fitting.last == page[-1].revision)
        return replace(fitting, last=0) if complete else fitting
    last = 0 if complete else page[-1].revision
    parts: list[ObjectsReply] = []
    while page or not parts:
        part = objects_reply(page)
        page = [entry for entry in page if entry.revision > part.last]
        parts.append(part)
    return micro.Parts(tuple([replace(part, last=last, parts=len(parts)) for part in parts]))


async def _current_page(
    bus: Bus, pattern: str, after: int, limit: int
) -> tuple[list[bucket.Entry], bool]:
    """Reads a page of the bucket's entries that match the pattern; returns the page, and whether it
    is the last one. Any replica of the bucket answers, so the last page is read again until it has
    the newest matching entry of the bucket's leader. Raises BusUnavailable if the replicas lag."""
    deadline = clock.monotonic() + LAG_SECONDS
    while True:
        newest = await last(bus, f"$KV.{BUCKET}.{pattern}", stream=f"KV_{BUCKET}")
        page = await bucket.read_page(
            bus, pattern, after=after, limit=limit, bytes_max=OBJECTS_BYTES
        )
        size = sum(len(entry.value or b"") for entry in page)
        # A large page may not be complete: the server may have ended the page because of its size,
        # in which headers count, too.
        complete = len(page) < limit and size < OBJECTS_BYTES // 4
        end = page[-1].revision if page else after
        if not complete or newest is None or end >= newest.sequence:
            return page, complete
        if clock.monotonic() > deadline:
            raise BusUnavailable(f"the replicas of bucket {BUCKET} lag: ask again")
        await asyncio.sleep(bucket.LAG_PAUSE_SECONDS)


async def _events(
    bus: Bus,
    outcome: OutcomeOf,
    family: FamilyOf,
    compacted_until: CompactedUntil,
    turns: micro.Turns,
    data: bytes,
    subject: str,
) -> EventsReply:
    request = msgspec.json.decode(data, type=Events)
    namespace = namespace_of_request(subject)
    every = dict.fromkeys((request.workload, *request.also)) if request.workload else {}
    if request.workload and request.family:
        every |= dict.fromkeys(family(namespace, request.workload))
    names = [token(name) for name in every]
    if len(names) > WORKLOADS_MAX:
        return EventsReply(error=f"{len(names)} workloads; at most {WORKLOADS_MAX} at once")
    if unknown := [key for key in request.only if key not in WORKLOAD_FACTS]:
        return EventsReply(error=f'no fact about workloads is named "{unknown[0]}"')
    filters = filters_of(token(namespace) if namespace else "", names, request.only)
    read = filters if filters == EVERYTHING or request.only else [*filters, f"{DEADLETTER}>"]
    limit = max(1, min(request.limit, 500))
    messages: list[StoredMessage] = []
    after, whole = request.after, False
    async with turns.of(namespace):
        for _ in range(PAGES_MAX):
            try:
                page, whole = await read_in_order(
                    bus,
                    read,
                    after=after,
                    since=request.since,
                    limit=limit,
                    bytes_max=max(EVENTS_BYTES, 4 * bus.nc.max_payload),
                )
            except BusRefused as error:
                return EventsReply(error=str(error))
            after = page[-1].sequence if page else after
            messages = [message for message in page if is_under(filters, message)]
            if messages or whole:
                break
    entries = first_fitting([_entry(message, outcome(message.sequence)) for message in messages])
    if len(entries) < len(messages):
        after, whole = entries[-1].sequence, False
    return EventsReply(
        entries=tuple(entries), complete=whole, after=after, compacted_until=compacted_until()
    )


ABOUT_WORKLOADS: Final = (
    "admit.workload.*",
    "admit.check.*.*",
    "admit.provisioning.*.*",
    "admit.timer.due.*",
    f"{USER_FACTS}*.*",
)
"""The parts before namespace and name of the subjects of facts about workloads. Subjects of other
facts also end in a namespace and a name, so one wildcard for all prefixes would match these facts,
too.
"""


EVERYTHING: Final = ["admit.>"]
ANSWER_MAX: Final = 900_000
"""The most bytes of all entries in one reply message."""
SAID_MAX: Final = 1000
"""The most characters of a fact's outcome message in a reply."""


OBJECTS_MAX: Final = 500
"""The most objects in a reply of one message."""
OBJECTS_IN_PARTS_MAX: Final = 2_500
"""The most objects in a reply of several messages. The workload-controller handles no facts while
it makes a reply: about 10 ms for this many objects of 1 kB (measured)."""
OBJECTS_BYTES: Final = 8 * 1024 * 1024
"""The bytes of objects after which the server ends a page."""


def objects_reply(entries: Sequence[bucket.Entry]) -> ObjectsReply:
    """The reply with the first of the entries, as many as fit into one message. ``last`` in the
    reply: the revision of the last entry that it covers, also if this entry is a deletion.
    """
    size, last = 0, 0
    objects: list[ObjectEntry] = []
    for entry in entries:
        one = _object_entry(entry)
        size += len(one.key) + 100 + (len(one.value) if one.value is not msgspec.UNSET else 0)
        if size > ANSWER_MAX and last:
            break
        last = entry.revision
        if entry.value is not None:
            objects.append(one)
    return ObjectsReply(objects=tuple(objects), last=last)


_checked = msgspec.json.Decoder(msgspec.Raw).decode
"""A function that returns the given bytes unchanged. Raises one of BROKEN if the bytes are not
JSON."""


def _object_entry(entry: bucket.Entry) -> ObjectEntry:
    if entry.value is None or len(entry.value) > ANSWER_MAX - 1000:
        return ObjectEntry(key=entry.key, revision=entry.revision)
    try:
        value = _checked(entry.value)
    except BROKEN:
        return ObjectEntry(key=entry.key, revision=entry.revision)
    return ObjectEntry(key=entry.key, revision=entry.revision, value=value)


def _entry(message: StoredMessage, outcome: SettledReply | None) -> LogEntry:
    data = _as_json(message.data)
    if len(data) + len(message.subject) > ANSWER_MAX:
        data = msgspec.Raw(
            msgspec.json.encode(f"{len(message.data):,} bytes, too long to be shown")
        )
    entry = LogEntry(
        sequence=message.sequence,
        time=message.time,
        subject=message.subject,
        data=data,
        trace=extract(message.headers),
    )
    if outcome is None:
        return entry
    return replace(
        entry, outcome=outcome.outcome, reason=outcome.reason, message=outcome.message[:SAID_MAX]
    )


def first_fitting(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Returns the first of the entries, as many as fit into one reply message; at least one if
    ``entries`` is not empty."""
    size = 0
    for count, entry in enumerate(entries):
        size += len(entry.data) + len(entry.subject) + len(entry.message.encode()) + 200
        if count and size > ANSWER_MAX:
            return list(entries[:count])
    return list(entries)


def filters_of(namespace: str, names: Sequence[str], only: Sequence[str] = ()) -> list[str]:
    """The subject filters of a history. ``names``: the history has only facts about these
    workloads; empty: all facts of the namespace, or all facts of the log if ``namespace`` is "".
    Namespace and names are given as tokens. ``only``: only facts about workloads with these tokens.
    """
    if only:
        where = namespace or "*"
        kinds = dict.fromkeys(only)
        return [f"admit.workload.{key}.{where}.{name}" for name in names or "*" for key in kinds]
    if names:
        where = namespace or "*"
        return [f"{about}.{where}.{name}" for name in names for about in ABOUT_WORKLOADS]
    if namespace:
        return [f"admit.*.*.{namespace}.*", f"admit.*.*.*.{namespace}.*"]
    return EVERYTHING


def is_under(filters: Sequence[str], message: StoredMessage) -> bool:
    """Whether a message of the log matches the filters. A dead letter matches if the message inside
    it does."""
    if filters == EVERYTHING or not message.subject.startswith(DEADLETTER):
        return True
    try:
        parts = msgspec.json.decode(message.data, type=DeadLetter).subject.split(".")
    except BROKEN:
        return False
    patterns = (pattern.split(".") for pattern in filters)
    return any(
        len(pattern) == len(parts)
        and all(p in ("*", part) for p, part in zip(pattern, parts, strict=True))
        for pattern in patterns
    )


def _as_json(data: bytes) -> msgspec.Raw:
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(data.decode("utf-8", "replace")))
    return msgspec.Raw(data)
