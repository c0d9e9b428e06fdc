"""The endpoints of the workload-controller that write no object: stored objects, histories of
workloads (`events_endpoint`), and the consumers of runners and of the telemetry service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.events.names import plain, token
from admittance.events.reader import BROKEN
from admittance.events.requests.reading import ObjectEntry, Objects, ObjectsReply
from admittance.events.subjects import (
    ALL_NAMESPACES,
    BUCKET,
)
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import last
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats import micro
from admittance.workload_controller.endpoints.events_endpoint import (
    ANSWER_MAX,
    CompactedUntil,
    EventsEndpoint,
    FamilyOf,
    OutcomeOf,
)
from admittance.workload_controller.endpoints.outside_consumers import OutsideConsumers

LAG_SECONDS: Final = 2.0
"""Seconds that a request for a list of objects waits for a replica that lags."""


def reading_endpoints(
    bus: Bus,
    outcome: OutcomeOf = lambda _sequence: None,
    family: FamilyOf = lambda _namespace, _name: (),
    compacted_until: CompactedUntil = lambda: None,
) -> Mapping[str, micro.Handler]:
    """The handler of each subject, for all endpoints of this module."""
    objects = partial(_objects, bus)
    events = EventsEndpoint(bus, outcome, family, compacted_until).answer
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
    pattern = ".".join([kind, *namespace, token(request.name) if request.name else "*"])
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
