"""The request-reply endpoints of the active workload-controller: manifests, stored objects,
histories of workloads, and whether a fact is applied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from admittance.api.kinds import kind_named
from admittance.control.manifest_changes import (
    cautions,
    marked,
    objections,
    planned_writes,
    proposal,
    users,
)
from admittance.events.codec import encode
from admittance.events.names import plain, token
from admittance.events.reader import BROKEN, Unreadable
from admittance.events.reading_requests import ObjectEntry, Objects, ObjectsReply
from admittance.events.requests import (
    Apply,
    ApplyReply,
    Delete,
    DeleteReply,
    Events,
    EventsReply,
    LogEntry,
    Settled,
    SettledReply,
)
from admittance.events.subjects import ALL_NAMESPACES, CAPACITY, DEADLETTER, object_key
from admittance.events.system import DeadLetter
from admittance.provisioning.records import read_record
from admittance.runtime import clock
from admittance.runtime.bus import bucket, history, micro
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage, read_messages
from admittance.runtime.errors import Refused, StaleRevision
from admittance.workload_controller.check_heartbeats import HeartbeatListener
from admittance.workload_controller.manifest_writer import ManifestWriter

SERVICE: Final = "workload-controller"
WORKLOADS_MAX: Final = 200
"""The most workload names in one request for events; a parent and its variants are fewer."""

log = structlog.get_logger()


class Endpoints:
    """Serves the endpoints of one leader of the workload-controller. Manifests are written under
    the writer's lock, between two batches.
    """

    def __init__(
        self,
        bus: Bus,
        instance: str,
        manifests: ManifestWriter,
        heartbeats: HeartbeatListener,
        settled: Callable[[int], Awaitable[SettledReply]],
    ) -> None:
        self._bus = bus
        self._instance = instance
        self._manifests = manifests
        self._heartbeats = heartbeats
        self._wait_settled = settled
        self._service: micro.Serving | None = None

    async def start(self) -> None:
        """Starts to answer requests to the endpoints."""
        self._service = await micro.serve(
            self._bus,
            SERVICE,
            self._instance,
            {
                "admit.api.apply": self._apply,
                "admit.api.apply.*": self._apply,
                "admit.api.delete": self._delete,
                "admit.api.delete.*": self._delete,
                "admit.api.settled": self._settled,
                "admit.api.settled.*": self._settled,
                "admit.api.objects": self._objects,
                "admit.api.objects.*": self._objects,
                "admit.api.events": self._events,
                "admit.api.events.*": self._events,
            },
        )

    async def stop(self) -> None:
        """Stops answering requests."""
        if self._service is not None:
            await self._service.stop()
            self._service = None

    # Manifests. ---------------------------------------------------------------------

    async def _apply(self, data: bytes, subject: str) -> ApplyReply:
        request = msgspec.json.decode(data, type=Apply)
        proposed = proposal(enumerate(request.objects, 1), _namespace(subject))
        if proposed.problems:
            return ApplyReply(error=proposed.problems[0], problems=tuple(proposed.problems))
        await self._manifests.caught_up.wait()
        async with self._manifests.lock:
            objects = self._manifests.controller.objects
            planned = self._heartbeats.known(
                planned_writes(objects, proposed.manifests, now=clock.now())
            )
            limits = self._manifests.controller.queues.limits
            problems = objections(objects, planned, limits)
            if problems:
                return ApplyReply(error=problems[0], problems=tuple(problems))
            try:
                results = await self._manifests.write(planned)
            except StaleRevision:
                return ApplyReply(error="an object changed at the same moment: apply again")
        return ApplyReply(
            results=tuple(
                replace(told, warnings=(*warnings, *cautions(one, limits, objects)))
                for told, warnings, one in zip(results, proposed.warnings, planned, strict=True)
            )
        )

    async def _delete(self, data: bytes, subject: str) -> DeleteReply:
        request = msgspec.json.decode(data, type=Delete)
        namespace = _namespace(subject)
        if namespace and namespace != request.namespace:
            raise ValueError(
                f"the subject names namespace {namespace}, the request {request.namespace}"
            )
        if request.kind.lower() in REQUEST_KINDS:
            reply = await delete_request(self._bus, request.namespace, request.name, clock.now())
            if reply.outcome != "absent":
                return reply
        kind = kind_named(request.kind)
        prefix = kind.token if kind is not None else request.kind.lower()
        key = object_key(prefix, request.namespace, request.name)
        await self._manifests.caught_up.wait()
        async with self._manifests.lock:
            kept = self._manifests.controller.objects.get(key)
            if kept is None:
                return DeleteReply(outcome="absent")
            needed = users(
                self._manifests.controller.objects,
                self._manifests.controller.workloads,
                prefix,
                request.name,
            )
            if needed:
                sentence = f"still in use by {', '.join(needed[:5])}"
                if key not in self._manifests.controller.objects.terminating:
                    await self._manifests.write([marked(key, kept, clock.now())])
                return DeleteReply(outcome="deferred", error=sentence)
            await self._manifests.remove(key, kept)
        return DeleteReply(outcome="deleted")

    async def _objects(self, data: bytes, subject: str) -> ObjectsReply:
        request = msgspec.json.decode(data, type=Objects)
        kind = token(plain(request.kind))
        if kind.startswith("_"):
            raise ValueError(f"{request.kind} is not a kind")
        _, _, _, *within = subject.split(".")
        namespace = ["*" if ns == ALL_NAMESPACES else token(plain(ns)) for ns in within]
        pattern = ".".join([kind, *namespace, "*"])
        limit = max(1, min(request.limit, OBJECTS_MAX))
        page = await bucket.read_page(self._bus, pattern, after=request.after, limit=limit)
        fitting = objects_reply(page)
        complete = len(page) < limit and fitting.last == page[-1].revision if page else True
        return replace(fitting, last=0) if complete else fitting

    # The log. -----------------------------------------------------------------------

    async def _settled(self, data: bytes, subject: str) -> SettledReply:
        request = msgspec.json.decode(data, type=Settled)
        reply = await self._wait_settled(request.sequence)
        namespace = _namespace(subject)
        if not namespace or (reply.outcome == "applied" and not reply.message):
            return reply
        # The reply describes the fact, so a request about another namespace gets no description.
        fact = await history.message_at(self._bus, request.sequence)
        is_own = fact is not None and token(namespace) in fact.subject.split(".")[-2:-1]
        return reply if is_own else SettledReply()

    async def _events(self, data: bytes, subject: str) -> EventsReply:
        request = msgspec.json.decode(data, type=Events)
        namespace = _namespace(subject)
        every = dict.fromkeys((request.workload, *request.also)) if request.workload else {}
        names = [token(name) for name in every]
        if len(names) > WORKLOADS_MAX:
            return EventsReply(error=f"{len(names)} workloads; at most {WORKLOADS_MAX} at once")
        filters = filters_of(token(namespace) if namespace else "", names)
        read = filters if filters == EVERYTHING else [*filters, f"{DEADLETTER}>"]
        limit = max(1, min(request.limit, 500))
        found: list[StoredMessage] = []
        after, more = request.after, True
        while more and not found:
            try:
                page = await read_messages(
                    self._bus, read, after=after, since=request.since, limit=limit
                )
            except Refused as error:
                return EventsReply(error=str(error))
            more = len(page) == limit
            after = page[-1].sequence if page else after
            found = [one for one in page if is_under(filters, one)]
        entries = first_fitting([_entry(one) for one in found])
        complete = len(entries) == len(found) and not more
        return EventsReply(entries=tuple(entries), complete=complete)


ABOUT_WORKLOADS: Final = (
    "admit.workload.*",
    "admit.check.*.*",
    "admit.provisioning.*.*",
    "admit.timer.due.*",
)
"""Subject prefixes of facts about workloads, before namespace and name. Subjects of other kinds end
in the same way, so a wildcard would match these too.
"""


EVERYTHING: Final = ["admit.>"]
ANSWER_MAX: Final = 900_000
"""The most bytes of the entries in one answer."""


OBJECTS_MAX: Final = 500
"""The most objects in one reply."""


def objects_reply(entries: Sequence[bucket.Entry]) -> ObjectsReply:
    """The reply with the first entries, as many as fit. ``last``: the revision of its last
    entry, deleted ones included.
    """
    size, last = 0, 0
    found: list[ObjectEntry] = []
    for entry in entries:
        one = _object_entry(entry)
        size += len(one.key) + 100 + (len(one.value) if one.value is not msgspec.UNSET else 0)
        if size > ANSWER_MAX and last:
            break
        last = entry.revision
        if entry.value is not None:
            found.append(one)
    return ObjectsReply(objects=tuple(found), last=last)


def _object_entry(entry: bucket.Entry) -> ObjectEntry:
    one = ObjectEntry(key=entry.key, revision=entry.revision)
    if entry.value is None or len(entry.value) > ANSWER_MAX - 1000:
        return one
    try:
        value = msgspec.json.decode(entry.value, type=msgspec.Raw)
    except BROKEN:
        return one
    return replace(one, value=value)


def _entry(one: StoredMessage) -> LogEntry:
    data = _as_json(one.data)
    if len(data) + len(one.subject) > ANSWER_MAX:
        data = msgspec.Raw(msgspec.json.encode(f"{len(one.data):,} bytes, too long to be shown"))
    return LogEntry(sequence=one.sequence, time=one.time, subject=one.subject, data=data)


def first_fitting(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Returns the first entries, as many as fit into one answer; at least one if there are any."""
    size = 0
    for count, one in enumerate(entries):
        size += len(one.data) + len(one.subject) + 100
        if count and size > ANSWER_MAX:
            return list(entries[:count])
    return list(entries)


def filters_of(namespace: str, names: Sequence[str]) -> list[str]:
    """The subjects of a history, from namespace and names as tokens. With names, only these
    workloads; otherwise everything in the namespace, or everything if the namespace is "".
    """
    if names:
        where = namespace or "*"
        return [f"{about}.{where}.{name}" for name in names for about in ABOUT_WORKLOADS]
    if namespace:
        return [f"admit.*.*.{namespace}.*", f"admit.*.*.*.{namespace}.*"]
    return EVERYTHING


def is_under(filters: Sequence[str], one: StoredMessage) -> bool:
    """Whether a message matches the filters. A dead letter counts as the message that it holds."""
    if filters == EVERYTHING or not one.subject.startswith(DEADLETTER):
        return True
    try:
        parts = msgspec.json.decode(one.data, type=DeadLetter).subject.split(".")
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


def _namespace(subject: str) -> str:
    """The namespace that ``admit.api.<what>.<ns>`` names; "" for ``admit.api.<what>``."""
    parts = subject.split(".")
    return plain(parts[3]) if len(parts) > 3 else ""


REQUEST_KINDS: Final = frozenset({CAPACITY, f"{CAPACITY}.autoscaling.x-k8s.io"})
"""The accepted spellings of the kind of a provisioning request, in lower case."""


DELETE_ATTEMPTS: Final = 10
"""The most attempts to delete a request, since the provisioning check writes the same records."""


DEFERRED: Final = "provisioning-check takes it back first"


async def delete_request(bus: Bus, namespace: str, name: str, now: datetime) -> DeleteReply:
    """Marks the provisioning request of that name for deletion. Raises Unavailable or Refused if
    that fails.
    """
    key = object_key(CAPACITY, namespace, name)
    for _ in range(DELETE_ATTEMPTS):
        entry = await bucket.get(bus, key)
        if entry is None or entry.value is None:
            return DeleteReply(outcome="absent")
        try:
            record = read_record(key, entry.value)
        except Unreadable:
            # Another program wrote the request record, so the record is deleted at once.
            message, outcome = bucket.delete_message(key, expected=entry.revision), "deleted"
        else:
            if record.metadata.deletion_timestamp is not None:
                return DeleteReply(outcome="deferred", error=DEFERRED)
            meta = replace(record.metadata, deletion_timestamp=now)
            going = replace(record, metadata=meta)
            message = bucket.put_message(key, encode(going), expected=entry.revision)
            outcome = "deferred"
        try:
            await bus.publish(message)
        except StaleRevision:
            continue
        log.info("request_deleted", namespace=namespace, name=name)
        return DeleteReply(outcome=outcome, error=DEFERRED if outcome == "deferred" else "")
    return DeleteReply(error="it changes all the time: delete again")
