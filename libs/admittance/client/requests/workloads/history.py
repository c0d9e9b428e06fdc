"""What happened to workloads: the facts on the log about them, and the output of their pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.client import kinds
from admittance.client.arguments.times import stamp
from admittance.client.errors import (
    BadInput,
    ClientError,
    NotAllowed,
    NotFound,
    Refused,
    RequestFailed,
)
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, find, is_array, lookup, not_found
from admittance.client.requests.workloads.facts import ALL_FACTS, Narrowing, check_applied
from admittance.client.requests.workloads.families import (
    is_parent,
    refuse_variant,
    rules_for,
    tags_of,
)
from admittance.client.requests.workloads.news import (
    AGAIN_SECONDS,
    GATHER_SECONDS,
    notify_of_facts,
)
from admittance.events import codec, reasons
from admittance.events.names import plain
from admittance.events.requests.history import Events, EventsReply, LogEntry, Logs, LogsReply
from admittance.runtime import clock
from admittance.workload.conditions import Type, is_true
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head

PAGE: Final = 500


async def no_names() -> tuple[str, ...]:
    """No further names of workloads."""
    return ()


def _ignore(_error: ClientError) -> None:
    pass


def _ignore_time(_time: datetime) -> None:
    pass


async def facts_about(
    link: Link,
    namespace: str | None,
    workload: str | None,
    *,
    since: datetime | None = None,
    after: int = 0,
    narrowed: Narrowing = ALL_FACTS,
    follow: bool,
    also: Callable[[], Awaitable[tuple[str, ...]]] | None = None,
    on_away: Callable[[ClientError], None] = _ignore,
    on_removed: Callable[[datetime], None] = _ignore_time,
) -> AsyncGenerator[LogEntry]:
    """Yields facts of the log, the oldest first, each once; with ``follow`` also new ones.

    ``namespace``: None is all namespaces. ``workload``: None is all workloads. ``since``,
    ``after``: only facts from this time on, and after this sequence. ``narrowed``: which facts.
    ``also``: returns further
    names of workloads whenever the log is read; None: the names of the workload's family.
    ``on_away``: called when the log cannot be read for a while, after which no fact is missed.
    ``on_removed``: called with the time before which facts were removed to keep the log small.
    """
    news = asyncio.Event()
    subscriptions: list[Any] = []
    subscribed: set[str | None] = set()
    begun = False
    family = workload is not None and also is None
    told: set[str] = set()
    try:
        while True:
            names = await (also or no_names)()
            if follow:
                for name in {workload, *names, *told} - subscribed:
                    subscriptions += await notify_of_facts(link, namespace, name, news)
                    subscribed.add(name)
            query = Events(
                workload=workload or "",
                also=names,
                family=family,
                after=after,
                since=since,
                limit=PAGE,
                **narrowed.fields(),
            )
            try:
                reply = await link.ask("events", query, EventsReply, namespace=namespace)
            except RequestFailed as error:
                if not follow or not begun or isinstance(error, NotAllowed):
                    raise
                on_away(error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            check_applied(query, reply)
            begun = True
            if reply.compacted_until is not None:
                on_removed(reply.compacted_until)
            for entry in reply.entries:
                if family and follow:
                    told.add(plain(entry.subject.rpartition(".")[2]))
                yield entry
            before, after = after, max(after, reply.covered())
            if not reply.complete and after > before:
                continue
            if not follow:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await news.wait()
            await asyncio.sleep(GATHER_SECONDS)
            news.clear()
    finally:
        for subscription in subscriptions:
            await link.bus.nc.unlisten(subscription)


async def facts_of(
    link: Link,
    namespace: str | None,
    workload: str | None,
    *,
    since: datetime | None = None,
    after: int = 0,
    narrowed: Narrowing = ALL_FACTS,
    follow: bool,
) -> AsyncGenerator[LogEntry]:
    """Yields facts as `facts_about` does. Raises NotFound for a workload that does not exist and
    of which the log has no fact, unless with ``follow``, which waits for its facts."""
    told = False
    entries = facts_about(
        link, namespace, workload, since=since, after=after, narrowed=narrowed, follow=follow
    )
    async with aclosing(entries):
        async for entry in entries:
            told = True
            yield entry
    if told or workload is None or namespace is None:
        return
    if since is not None or after or narrowed != ALL_FACTS:
        async with aclosing(facts_about(link, namespace, workload, follow=False)) as earlier:
            async for _ in earlier:
                return
    if await lookup(link, kinds.WORKLOAD.object_key(namespace, workload)) is None:
        raise await not_found(link, kinds.WORKLOAD, workload, namespace)


class VariantNames:
    """The names of a parent's variants; their events belong to the parent. ``tags``: variant by
    workload name; empty if the workload is not a parent."""

    def __init__(self, link: Link, namespace: str, workload: str) -> None:
        self._link = link
        self._namespace = namespace
        self._workload = workload
        self.tags: dict[str, str] = {}

    async def names(self) -> tuple[str, ...]:
        """The names of the workload and its variants known now, including variants deleted since
        the last call.
        """
        key = kinds.WORKLOAD.object_key(self._namespace, self._workload)
        stored = await lookup(self._link, key)
        if stored is not None:
            parent = stored.workload()
            spec = head(parent)
            if is_parent(parent):
                rules = await rules_for(self._link, self._namespace, spec.queue_name)
                self.tags |= tags_of(parent, rules)
            elif spec.variant:
                self.tags[self._workload] = spec.variant
        return tuple(self.tags)


def history_of(
    link: Link, namespace: str, name: str, variants: VariantNames
) -> AsyncGenerator[LogEntry]:
    """All entries of the log about the workload and its variants, oldest first, also those about
    earlier workloads of the same name."""
    return facts_about(link, namespace, name, follow=False, also=variants.names)


ROUNDED: Final = timedelta(milliseconds=1)
"""The timestamp of a message on the log and the time that a workload keeps of the same message
differ by less than this, because of rounding.
"""


def is_of(entry: LogEntry, meta: ObjectMeta) -> bool:
    """Whether the entry of the log is about this workload or one of its variants, and not about an
    earlier workload of the same name.
    """
    try:
        fact = codec.decode(entry.subject, bytes(entry.data))
    except codec.Undecodable:
        fact = None
    if fact is not None and fact.uid and fact.name == meta.name:
        return fact.uid == meta.uid
    # A submission may have no uid, so its time is compared with the creation time of the workload,
    # which is the time when the submission was stored.
    created = meta.creation_timestamp
    return created is None or entry.time >= created - ROUNDED


class RemovedEvents:
    """Which events were removed from the log to keep it small. ``until``: events from before this
    time were removed; None: no events were removed, or it is not known yet."""

    def __init__(self) -> None:
        self.until: datetime | None = None

    def note(self, until: datetime) -> None:
        """Records that the events from before this time were removed."""
        self.until = until

    def are_before(self, first: LogEntry) -> bool:
        """Whether events of a workload may be missing before the first one that is left."""
        submitted = "submitted" in first.subject.split(".")[2:4]
        return self.until is not None and not submitted

    def text(self) -> str:
        """The rest of a sentence about the events."""
        return (
            f"from before {stamp(self.until)} were removed to keep the log below ADMIT_LOG_BYTES; "
            "`admit usage` has their sums"
        )


# The output of pods. --------------------------------------------------------------------

POLL_SECONDS: Final = 0.3
NOT_YET_SECONDS: Final = 1.0
ENDS: Final = frozenset({Phase.FINISHED, Phase.DEACTIVATED, Phase.REJECTED})
"""Phases in which no pod prints any more."""


async def output_of(
    link: Link,
    name: str,
    namespace: str = "",
    *,
    pod: int | None = None,
    follow: bool = False,
    tail: int | None = None,
    previous: int = 0,
    instead: str = 'workload "{}"',
) -> AsyncGenerator[LogsReply]:
    """Yields the output so far, each reply with what is new; with ``follow`` until the workload has
    ended. ``pod``: None is all pods; ``tail``: only the last lines of each pod; ``previous``: how
    many runs back, 0 is the newest run.

    Raises NotFound if the workload, pod, run or output does not exist.
    """
    space = namespace or link.namespace
    stored = await find(link, kinds.WORKLOAD, name, space)
    refuse_variant(stored, instead)
    name = stored.name
    if is_array(stored.workload()):
        raise Refused(
            f"{name} is an array, and its elements have the output: name one, such as {name}[0]",
            reason=reasons.IS_ARRAY,
        )
    asked = Logs(name=name, pod=pod, tail=tail, before=await _before(link, name, space, previous))
    newest = 0 if previous else _last_admission(stored)
    offsets: dict[str, int] = {}
    ended = False
    while True:
        # Every runner that has had the job answers, so the newest run is asked for by name. Without
        # it, such as before the job starts again, the output of an earlier run is shown.
        reply = await _ask_all_parts(link, space, replace(asked, revision=newest))
        if reply.error and newest:
            reply = await _ask_all_parts(link, space, asked)
        if reply.error and not (follow and not ended):
            if offsets:
                return
            stored = await find(link, kinds.WORKLOAD, name, space)
            raise NotFound(why_no_output(stored.workload()) or reply.error)
        for pod_log in reply.pods:
            offsets[pod_log.pod] = pod_log.offset
        # A pod that starts after the first answer is shown from its first line.
        asked = replace(asked, offsets=dict(offsets), tail=None if offsets else tail)
        yield reply
        if not reply.complete:
            continue
        if not follow or ended:
            break
        # After the end of the workload the output is read once more, so that the last lines are not
        # missed.
        seen = await _seen(link, name, space)
        ended = _has_ended(seen) and not any(pod_log.running for pod_log in reply.pods)
        if seen is not None and not previous:
            newest = _last_admission(seen)
        await asyncio.sleep(NOT_YET_SECONDS if reply.error else 0 if ended else POLL_SECONDS)
    if pod is not None and not offsets:
        raise NotFound(f'workload "{name}" has no output of a pod "{pod}"')


async def _before(link: Link, name: str, namespace: str, previous: int) -> int:
    """The revision of the run that follows the wanted run; 0 if the newest run is wanted."""
    before = 0
    for _ in range(previous):
        reply = await _ask(link, namespace, Logs(name=name, tail=0, before=before))
        if reply.error or not reply.revision:
            raise NotFound(reply.error or "the runner is too old to find earlier runs")
        before = reply.revision
    return before


async def _ask(link: Link, namespace: str, asked: Logs) -> LogsReply:
    return await link.ask("logs", asked, LogsReply, namespace=namespace)


async def _ask_all_parts(link: Link, namespace: str, asked: Logs) -> LogsReply:
    """The output of a run; of a job on several machines the output of all its parts together, each
    of which is on the machine of its runner."""
    first = await _ask(link, namespace, asked)
    if first.parts < 2:
        return first
    others = [part for part in range(1, first.parts + 1) if part != first.part]
    of_others = await asyncio.gather(
        *(
            _ask(link, namespace, replace(asked, revision=first.revision, part=part))
            for part in others
        )
    )
    lost = [str(part) for part, reply in zip(others, of_others, strict=True) if reply.error]
    replies = [first, *(reply for reply in of_others if not reply.error)]
    return replace(
        first,
        pods=tuple(pod for reply in replies for pod in reply.pods),
        complete=all(reply.complete for reply in replies),
        waiting=next((reply.waiting for reply in replies if reply.waiting), ""),
        retries=next((reply.retries for reply in replies if reply.retries), None),
        missing=f"no runner has output of part {', '.join(lost)} of {first.parts}" if lost else "",
    )


async def _seen(link: Link, name: str, namespace: str) -> BucketObject | None:
    """The workload as it is stored now; None: it cannot be read, or is gone."""
    try:
        return await find(link, kinds.WORKLOAD, name, namespace)
    except (RequestFailed, BadInput):
        return None


def _has_ended(stored: BucketObject | None) -> bool:
    return stored is None or phase(stored.workload(), clock.now()) in ENDS


def _last_admission(stored: BucketObject) -> int:
    """The revision of the workload's last admission, by which its run is known; 0: it had none."""
    workload = stored.workload()
    status = workload.status
    if is_true(workload, Type.ADMITTED):
        # The write that admits cannot know its own revision.
        return status.admitted_revision or stored.revision
    return status.released_revision


def why_no_output(workload: StoredWorkload) -> str:
    """Why the workload has no output, if its job failed to start; else empty."""
    for condition in workload.status.conditions:
        if (
            condition.type == Type.FINISHED
            and condition.status == "True"
            and condition.reason == reasons.FAILED_TO_START
        ):
            name = workload.metadata.name
            return (
                f'workload "{name}" has no output, because it failed to start: {condition.message}'
            )
    return ""
