"""``admit events``: prints the facts of the log in words, with --follow also new facts as they
come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from admittance.api.meta import ObjectMeta
from admittance.cli.show.event_lines import (
    REFUSED,
    EventLine,
    FactEffects,
    is_bookkeeping,
    line_of,
)
from admittance.cli.support import output
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import sentence
from admittance.cli.support.times import stamp
from admittance.client import kinds
from admittance.client.requests.families import is_parent, rules_for, tags_of
from admittance.client.requests.history import facts_about, no_names
from admittance.client.requests.objects import BucketObject, lookup
from admittance.events import codec
from admittance.events.requests import LogEntry
from admittance.workload.stored import head

ROUNDED: Final = timedelta(milliseconds=1)
"""The timestamp of a message on the log and the time that a workload keeps of the same message
differ by less than this, because of rounding.
"""


async def events(
    call: Call,
    *,
    workload: str | None,
    follow: bool,
    since: datetime | None,
    all_namespaces: bool,
) -> None:
    """Prints events, oldest first, one line each; with follow until interrupted.

    Raises AnswerIsNo if the workload never existed."""
    namespace = None if all_namespaces else call.namespace
    async with link(call) as bus:
        shown = 0
        effects = FactEffects()
        removed = RemovedEvents()
        variants = (
            VariantNames(bus, call.namespace, workload) if workload and not all_namespaces else None
        )
        entries = _entries(bus, namespace, workload, since, variants, removed, follow=follow)
        async for entry in entries:
            if not shown and workload and removed.are_before(entry):
                output.note(f"events {removed.text()}")
            _show(call, entry, variants.tags if variants is not None else {}, effects)
            shown += 1
        if not shown and workload and removed.until is not None and since is None:
            key = kinds.WORKLOAD.object_key(call.namespace, workload)
            exists = not all_namespaces and await lookup(bus, key) is not None
            if exists:
                output.note(f"the events of workload {workload} {removed.text()}")
                return
    if shown:
        return
    where = f" in namespace {namespace}" if namespace else ""
    if workload and since is None and removed.until is not None:
        raise AnswerIsNo(
            f"no events of workload {workload}{where} are left; those {removed.text()}"
        )
    if workload and since is None:
        raise AnswerIsNo(f"no events of workload {workload}{where}")
    if call.output not in (Output.JSON, Output.YAML):
        output.note(f"no events{f' of workload {workload}' if workload else ''}{where}")


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
    entries = [entry async for entry in said if not is_bookkeeping(entry)]
    effects = FactEffects()
    own = [entry for entry in entries if is_of(entry, meta)]
    return [line_of(entry, variants.tags, effects) for entry in own][-count:]


def history(
    bus: Link, namespace: str, name: str, variants: VariantNames
) -> AsyncIterator[LogEntry]:
    """All entries of the log about the workload and its variants, oldest first, also those about
    earlier workloads of the same name."""
    return _entries(bus, namespace, name, None, variants, RemovedEvents(), follow=False)


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


def _entries(
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


def _show(call: Call, entry: LogEntry, tags: Mapping[str, str], effects: FactEffects) -> None:
    match call.output:
        case Output.JSON:
            output.show_json_line(entry)
        case Output.YAML:
            output.say("---")
            output.show_yaml(entry)
        case Output.NAME:
            output.say(entry.subject)
        case Output.TABLE | Output.WIDE:
            if call.output is Output.TABLE and is_bookkeeping(entry):
                return
            line = line_of(entry, tags, effects)
            if output.is_terminal():
                _show_rich(line, numbered=call.output is Output.WIDE)
            else:
                output.say(output.clean(line.line(numbered=call.output is Output.WIDE)))
    output.flush()


def _show_rich(line: EventLine, *, numbered: bool) -> None:
    from rich.text import Text

    why = sentence(line.reason, line.message)
    output.console().print(
        Text.assemble(
            (f"{line.sequence:>8}  " if numbered else "", "dim"),
            (f"{stamp(line.time)}  ", "dim"),
            (f"{line.what:<16}  ", _COLOURS.get(line.what, "")),
            (f"{line.subject}  ", "bold"),
            output.clean(why),
        )
    )


_COLOURS: Final = {
    "quota reserved": output.BUSY,
    **dict.fromkeys(("admitted", "started", "pods ready", "finished"), output.GOOD),
    "capacity there": output.GOOD,
    **dict.fromkeys(("evicted", "preempted", "pending"), output.WAITS),
    **dict.fromkeys(("capacity revoked", "rejected", REFUSED, "dead letter"), output.BAD),
}
