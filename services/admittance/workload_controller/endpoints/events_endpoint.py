"""The endpoint with the history of workloads: facts of the log, the oldest or the newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from admittance.events.fact_types import DEAD_LETTER, FACT_TYPES, OBJECTS
from admittance.events.names import token
from admittance.events.reader import BROKEN
from admittance.events.requests.history import Events, EventsReply, LogEntry, SettledReply
from admittance.events.subjects import DEADLETTER, USER_FACTS, WORKLOAD_FACTS, namespace_of_request
from admittance.events.system import DeadLetter
from admittance.runtime.bus.backward import (
    EVERYTHING,
    end_of_log,
    matches,
    read_backward,
    sequence_at,
)
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage, read_in_order
from admittance.runtime.errors import BusRefused
from admittance.runtime.nats import micro
from admittance.runtime.telemetry.tracing import extract
from admittance.workload_controller.endpoints.queue_filter import Choice, QueueFilter

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
applied, or if the leader no longer has the outcome."""

FamilyOf: TypeAlias = Callable[[str, str], Iterable[str]]
"""A function that returns the names of all workloads in a workload's family, from the workload's
namespace and name; empty for a workload without family."""

CompactedUntil: TypeAlias = Callable[[], datetime | None]
"""A function that returns the time until which facts about workloads were removed from the log to
keep it small; None if none were."""


class EventsEndpoint:
    """Answers requests for events. ``outcome``, ``family``, ``compacted_until``: see the types."""

    def __init__(
        self, bus: Bus, outcome: OutcomeOf, family: FamilyOf, compacted_until: CompactedUntil
    ) -> None:
        self._bus = bus
        self._outcome = outcome
        self._family = family
        self._compacted_until = compacted_until
        self._turns = micro.Turns(HISTORIES_MAX, HISTORIES_EACH)

    async def answer(self, data: bytes, subject: str) -> EventsReply:
        """The reply to a request."""
        request = msgspec.json.decode(data, type=Events)
        namespace = namespace_of_request(subject)
        every = dict.fromkeys((request.workload, *request.also)) if request.workload else {}
        if request.workload and request.family:
            every |= dict.fromkeys(self._family(namespace, request.workload))
        names = [token(name) for name in every]
        if len(names) > WORKLOADS_MAX:
            return EventsReply(error=f"{len(names)} workloads; at most {WORKLOADS_MAX} at once")
        if error := type_error(request):
            return EventsReply(error=error)
        where = token(namespace) if namespace else ""
        async with self._turns.of(namespace):
            try:
                return await self._read(request, where, names)
            except BusRefused as error:
                return EventsReply(error=str(error))

    async def _read(self, request: Events, namespace: str, names: Sequence[str]) -> EventsReply:
        filters = filters_of(namespace, names, request.only, request.types)
        queue = None
        if request.queue:
            queue = await QueueFilter.of(self._bus, namespace or "*", request.queue)
        read, under = _with_dead_letters(request, namespace, filters, names)

        async def chosen(page: Sequence[StoredMessage]) -> list[StoredMessage]:
            known = [message for message in page if is_under(under, message)]
            return known if queue is None else await queue.chosen(known)

        reader = _Reader(self._bus, read, chosen, max(1, min(request.limit, 500)))
        if request.newest_first:
            page = await reader.newest_first(request)
        else:
            page = await reader.in_order(request)
        made = [_entry(message, self._outcome(message.sequence)) for message in page.messages]
        entries = first_fitting(made)
        if len(entries) < len(made):
            last = entries[-1].sequence
            if request.newest_first:
                page = page._replace(whole=False, before=last)
            else:
                page = page._replace(whole=False, after=last)
        return EventsReply(
            entries=tuple(entries),
            complete=page.whole,
            after=page.after,
            before=page.before,
            applied=tuple(name for name in NARROWING if getattr(request, name)),
            compacted_until=self._compacted_until(),
        )


NARROWING: Final = ("newest_first", "before", "until", "types", "queue")
"""The fields of a request that earlier versions of this service do not have."""


class _Page(NamedTuple):
    """Messages of the log, and the fields of the reply."""

    messages: list[StoredMessage]
    whole: bool
    after: int
    before: int = 0


class _Reader:
    """Reads pages of the log. ``chosen``: the messages of a page that the request asks for."""

    def __init__(self, bus: Bus, filters: Sequence[str], chosen: Choice, limit: int) -> None:
        self._bus = bus
        self._filters = filters
        self._chosen = chosen
        self._limit = limit
        self._bytes_max = max(EVENTS_BYTES, 4 * bus.nc.max_payload)

    async def in_order(self, request: Events) -> _Page:
        """The first messages after those that the request has."""
        end = await self._end(request)
        after = request.after
        for _ in range(PAGES_MAX):
            page, whole = await read_in_order(
                self._bus,
                self._filters,
                after=after,
                since=request.since,
                limit=self._limit,
                bytes_max=self._bytes_max,
            )
            if end is not None and page and page[-1].sequence >= end:
                page, whole = [message for message in page if message.sequence < end], True
            after = page[-1].sequence if page else after
            messages = await self._chosen(page)
            if messages or whole:
                return _Page(messages, whole, after)
        return _Page([], whole=False, after=after)

    async def newest_first(self, request: Events) -> _Page:
        """The newest messages before those that the request has."""
        newest = end = await self._end(request) or await end_of_log(self._bus)
        after = request.after
        if request.since is not None:
            first = await sequence_at(self._bus, request.since)
            after = end if first is None else max(after, first - 1)
        messages: list[StoredMessage] = []
        size = 0
        for _ in range(PAGES_MAX):
            if end <= after + 1 or len(messages) >= self._limit or size >= self._bytes_max:
                break
            page, end = await read_backward(
                self._bus,
                self._filters,
                before=end,
                after=after,
                limit=self._limit,
                bytes_max=self._bytes_max,
            )
            size += sum(len(message.data) for message in page)
            messages += await self._chosen(page)
        if len(messages) > self._limit:
            messages = messages[: self._limit]
            end = messages[-1].sequence
        return _Page(messages, end <= after + 1, newest - 1, end)

    async def _end(self, request: Events) -> int | None:
        """The sequence before which the request asks for messages; None: up to the newest one."""
        end = request.before or None
        if request.until is not None:
            past = await sequence_at(self._bus, request.until)
            end = past if end is None else end if past is None else min(end, past)
        return end


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


ANSWER_MAX: Final = 900_000
"""The most bytes of all entries in one reply message."""
SAID_MAX: Final = 1000
"""The most characters of a fact's outcome message in a reply."""


def type_error(request: Events) -> str:
    """What is wrong with the types that the request asks for; "": nothing is."""
    if unknown := [key for key in request.only if key not in WORKLOAD_FACTS]:
        return f'no fact about workloads is named "{unknown[0]}"'
    if unknown := [key for key in request.types if key not in FACT_TYPES]:
        return f'no fact has the type "{unknown[0]}"'
    if request.only and request.types:
        return "only and types both name facts: give one"
    if request.workload and {*request.types} & {*OBJECTS}:
        return f"facts of the types {' and '.join(OBJECTS)} are about no workload"
    return ""


def filters_of(
    namespace: str, names: Sequence[str], only: Sequence[str] = (), types: Sequence[str] = ()
) -> list[str]:
    """The subject filters of a history. ``names``: the history has only facts about these
    workloads; empty: all facts of the namespace, or all facts of the log if ``namespace`` is "".
    Namespace and names are given as tokens. ``only``: only facts about workloads with these tokens.
    ``types``: only facts of these `FACT_TYPES`.
    """
    where = namespace or "*"
    starts: Iterable[str] = ()
    if only:
        starts = [f"admit.workload.{key}" for key in dict.fromkeys(only)]
    elif types:
        starts = [start for key in dict.fromkeys(types) for start in FACT_TYPES[key]]
    elif names:
        starts = ABOUT_WORKLOADS
    elif namespace:
        return [f"admit.*.*.{namespace}.*", f"admit.*.*.*.{namespace}.*"]
    else:
        return [*EVERYTHING]
    return [f"{start}.{where}.{name}" for name in names or "*" for start in starts]


def _with_dead_letters(
    request: Events, namespace: str, filters: list[str], names: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The filters with which the log is read, and those that a dead letter matches by the message
    inside it."""
    letters = f"{DEADLETTER}>"
    if request.types:
        if DEAD_LETTER not in request.types:
            return filters, filters
        return [*filters, letters], filters_of(namespace, names)
    if filters == [*EVERYTHING] or request.only:
        return filters, filters
    return [*filters, letters], filters


def is_under(filters: Sequence[str], message: StoredMessage) -> bool:
    """Whether a message of the log matches the filters. A dead letter matches if the message inside
    it does."""
    if filters == [*EVERYTHING] or not message.subject.startswith(DEADLETTER):
        return True
    try:
        about = msgspec.json.decode(message.data, type=DeadLetter).subject
    except BROKEN:
        return False
    return matches((pattern.split(".") for pattern in filters), about)


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


def _as_json(data: bytes) -> msgspec.Raw:
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(data.decode("utf-8", "replace")))
    return msgspec.Raw(data)
