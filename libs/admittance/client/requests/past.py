"""Single workloads that held quota, read from the facts about released quota on the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from typing import Final, cast

import msgspec

from admittance.client import kinds
from admittance.client.arguments.times import stamp
from admittance.client.errors import BadInput, RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import lookup
from admittance.client.requests.queues.questions import no_queue
from admittance.events.reader import Unreadable
from admittance.events.requests.history import Events, EventsReply, LogEntry
from admittance.runtime import clock
from admittance.usage.history import (
    SORT_KEYS,
    STATES,
    Chosen,
    PastWorkload,
    Reported,
    SortKey,
    past_workloads,
    reported,
    sorted_workloads,
)

RELEASED: Final = "quota_released"
DEFAULT_SPAN: Final = timedelta(days=1)
EARLY: Final = timedelta(minutes=10)
"""How much the clock that dates runs may be ahead of that of the log."""
LATE: Final = timedelta(days=1)
"""How long after the end of a run its fact is looked for: a workload-controller that crashed
between a write and its messages publishes these when it is started again."""


class History(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The workloads of which runs ended ``since`` a time and before ``until`` another one.
    ``removed_until``: the log has no facts from before this time any more, because it was larger
    than its bound; None: it has all facts that are not too old."""

    since: datetime
    until: datetime
    removed_until: datetime | None = None
    rows: tuple[PastWorkload, ...] = ()


def check_words(states: Sequence[str], sort: str, spelled: tuple[str, str]) -> None:
    """Raises BadInput for an unknown state or sort key. ``spelled``: how the program names these
    two arguments."""
    for state in states:
        if state not in STATES:
            raise BadInput(f'{spelled[0]} "{state}" is not one of {", ".join(STATES)}')
    if sort not in SORT_KEYS:
        raise BadInput(f'{spelled[1]} "{sort}" is not one of {", ".join(SORT_KEYS)}')


async def history(
    link: Link,
    namespace: str | None,
    *,
    user: str = "",
    queue: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    states: Sequence[str] = (),
    sort: str = "ended",
    spelled: tuple[str, str] = ("states", "sort"),
) -> History:
    """The workloads of the namespace (None: of all) of which runs ended in this time, by default in
    the last day. Raises BadInput, NotFound for a queue that neither exists nor has a run, and
    RequestFailed."""
    check_words(states, sort, spelled)
    now = clock.now()
    end = until if until is not None else now
    begin = since if since is not None else end - DEFAULT_SPAN
    if begin > now:
        raise BadInput(f"since {stamp(begin)} is in the future: it is {stamp(now)}")
    if begin >= end:
        raise BadInput(f"since {stamp(begin)} is not before until {stamp(end)}")
    if user and not link.user:
        raise BadInput(f"{link.shown_url} has no users: leave out the user")
    chosen = Chosen(begin, until, user, queue, states)
    facts: list[Reported] = []
    removed: datetime | None = None
    async with aclosing(release_pages(link, namespace, begin, end + LATE)) as pages:
        async for page in pages:
            removed = page.compacted_until
            facts += _reports(page.entries)
    rows = past_workloads(facts, chosen)
    if queue and not rows:
        await _check_queue(link, namespace, queue)
    return History(
        since=begin,
        until=end,
        removed_until=removed if removed is not None and removed > begin else None,
        rows=tuple(sorted_workloads(rows, cast("SortKey", sort))),
    )


async def release_pages(
    link: Link, namespace: str | None, since: datetime, until: datetime | None = None
) -> AsyncGenerator[EventsReply]:
    """Pages of the log with facts about released quota that were published from ``since`` on, up to
    the first one after ``until``. Raises RequestFailed."""
    after = 0
    while True:
        query = Events(only=(RELEASED,), since=since - EARLY, after=after)
        reply = await link.ask("events", query, EventsReply, namespace=namespace)
        if reply.error:
            raise RequestFailed(reply.error)
        yield reply
        before, after = after, max(after, reply.covered())
        if reply.complete or after == before:
            return
        if until is not None and reply.entries and reply.entries[-1].time > until:
            return


def _reports(entries: Sequence[LogEntry]) -> list[Reported]:
    reports: list[Reported] = []
    for entry in entries:
        # The leader reports a fact that cannot be read.
        with suppress(Unreadable):
            if is_release(entry):
                reports.append(reported(bytes(entry.data), entry.sequence))
    return reports


def is_release(entry: LogEntry) -> bool:
    """Whether the entry is a fact about released quota. A workload-controller of a version before
    `Events.only` returns all facts."""
    return entry.subject.startswith(f"admit.workload.{RELEASED}.")


def removed_text(until: datetime) -> str:
    """A sentence about runs that are missing, because the log was reduced."""
    return (
        f"runs that ended before {stamp(until)} were removed to keep the log below "
        "ADMIT_LOG_BYTES; `admit usage` has their sums"
    )


async def _check_queue(link: Link, namespace: str | None, queue: str) -> None:
    """Raises NotFound if there is neither a LocalQueue nor a ClusterQueue of this name."""
    keys = [kinds.CLUSTER_QUEUE.object_key("", queue)]
    if namespace is not None:
        keys.append(kinds.LOCAL_QUEUE.object_key(namespace, queue))
    for key in keys:
        if await lookup(link, key) is not None:
            return
    raise no_queue(link, queue, namespace or link.namespace)
