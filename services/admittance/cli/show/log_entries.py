"""Entries of the log about a workload and its variants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from admittance.api.meta import ObjectMeta
from admittance.cli.show.event_lines import EventLine, FactEffects, is_bookkeeping, line_of
from admittance.cli.support import output
from admittance.cli.support.times import stamp
from admittance.client import kinds
from admittance.client.requests.families import is_parent, rules_for, tags_of
from admittance.client.requests.history import facts_about, no_names
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, lookup
from admittance.events import codec
from admittance.events.requests import LogEntry
from admittance.workload.stored import head

ROUNDED: Final = timedelta(milliseconds=1)
"""The timestamp of a message on the log and the time that a workload keeps of the same message
differ by less than this, because of rounding.
"""


class RemovedEvents:
    """Which events were removed from the log to keep it small. ``until``: those from before this
    time; None: none were, or that is not known yet."""

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


async def recent(bus: Link, found: BucketObject, count: int) -> list[EventLine]:
    """The last ``count`` events of one workload, oldest first; for a parent including its variants.
    Events of an earlier workload of the same name are left out."""
    variants = VariantNames(bus, found.namespace, found.name)
    meta = found.workload().metadata
    said = history(bus, found.namespace, found.name, variants)
    told = [entry async for entry in said if not is_bookkeeping(entry)]
    effects = FactEffects()
    own = [entry for entry in told if is_of(entry, meta)]
    return [line_of(entry, variants.tags, effects) for entry in own][-count:]


def history(
    bus: Link, namespace: str, name: str, variants: VariantNames
) -> AsyncIterator[LogEntry]:
    """All entries of the log about the workload and its variants, oldest first, also those about
    earlier workloads of the same name."""
    return entries(bus, namespace, name, None, variants, RemovedEvents(), follow=False)


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


class VariantNames:
    """The names of a parent's variants; their events belong to the parent. ``tags``: variant by
    workload name; empty if the workload is not a parent."""

    def __init__(self, bus: Link, namespace: str, workload: str) -> None:
        self._bus = bus
        self._namespace = namespace
        self._workload = workload
        self.tags: dict[str, str] = {}

    async def names(self) -> tuple[str, ...]:
        """The names of the workload and its variants known now, including variants deleted since
        the last call.
        """
        key = kinds.WORKLOAD.object_key(self._namespace, self._workload)
        found = await lookup(self._bus, key)
        if found is not None:
            parent = found.workload()
            spec = head(parent)
            if is_parent(parent):
                rules = await rules_for(self._bus, self._namespace, spec.queue_name)
                self.tags |= tags_of(parent, rules)
            elif spec.variant:
                self.tags[self._workload] = spec.variant
        return tuple(self.tags)


def entries(
    bus: Link,
    namespace: str | None,
    workload: str | None,
    since: datetime | None,
    variants: VariantNames | None,
    removed: RemovedEvents,
    *,
    follow: bool,
) -> AsyncIterator[LogEntry]:
    return facts_about(
        bus,
        namespace,
        workload,
        since=since,
        follow=follow,
        also=variants.names if variants is not None else no_names,
        on_away=lambda error: output.warn(str(error)),
        on_removed=removed.note,
    )
