"""The page of a workload: why it waits, and what a person may do to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from admittance.client.calls import Login
from admittance.client.requests.workloads.traces import newest_trace
from admittance.events.requests.explanation import (
    ExplainReply,
    FlavorVerdict,
    Holder,
    VariantVerdict,
    remedies_of,
)
from admittance.events.requests.history import LogEntry
from admittance.web.paths import manifest_path, workload_path
from admittance.web.views import timeline
from admittance.web.views.accounts.log import NONE_REPLAYED, LogRow, Replayed, log_rows
from admittance.web.views.actions import Ask, actions
from admittance.web.views.bars import Rooms, rooms_of
from admittance.web.views.chances import chance
from admittance.web.views.details import relations
from admittance.web.views.details.elements import Elements
from admittance.web.views.details.family import say_family
from admittance.web.views.details.output import Output
from admittance.web.views.details.relations import Relations
from admittance.web.views.holders import CheckRow, Held, check_rows, held_by
from admittance.web.views.timeline import Timeline
from admittance.web.views.whatif.remedies import Way, ways
from admittance.web.views.words import (
    Detail,
    Link,
    Word,
    amount,
    between,
    clock_time,
    number,
    state,
)
from admittance.workload.arrays.elements import element_of
from admittance.workload.conditions import is_held
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import VARIANT, StoredWorkload, head
from admittance.workload.waiting_reason import reason_of


class Part(msgspec.Struct, frozen=True):
    """A part of a sentence. ``mark``: "bold" for the answer, "short" for what is missing; "": plain
    text."""

    text: str
    mark: str = ""


class WorkloadView(msgspec.Struct, frozen=True, kw_only=True):
    """``say``: the sentence that says how the workload stands; ``then``: what comes next or came
    last, "" for nothing. ``rooms`` None: no flavor has numbers; ``timeline`` None: the log has no
    facts."""

    title: str
    namespace: str
    name: str
    word: Word
    say: tuple[Part, ...]
    then: str
    crumbs: tuple[str, ...]
    facts: tuple[Detail, ...]
    rooms: Rooms | None
    ways: tuple[Way, ...]
    timeline: Timeline | None
    held: tuple[Held, ...]
    checks: tuple[CheckRow, ...]
    log: tuple[LogRow, ...]
    log_more: int
    output: Output | None
    elements: Elements | None
    relations: Relations
    manifest: Link
    acts: tuple[Ask, ...]


LOG_ROWS: Final = 60


def build(
    stored: StoredWorkload,
    explained: ExplainReply | None,
    entries: Sequence[LogEntry],
    login: Login,
    now: datetime,
    approvals: tuple[str, ...] = (),
    *,
    open_fact: int = 0,
    replayed: Mapping[int, Replayed] = NONE_REPLAYED,
    output: Output | None = None,
    elements: Elements | None = None,
    dependents: Sequence[StoredWorkload] | None = None,
    past: bool = False,
) -> WorkloadView:
    """The view of a stored workload. ``explained`` None: the scheduler does not answer.
    ``approvals``: its checks that wait for the verdict of a person. ``open_fact``, ``replayed``: as
    for `log_rows`. ``output``: of its job; None: it has none. ``elements``: of an array.
    ``dependents``: what waits for it, None: not looked for. ``past``: ``now`` is a past moment."""
    meta, where = stored.metadata, phase(stored, now)
    reply = explained if explained is not None else ExplainReply()
    reason, message = (
        (reply.reason, reply.message) if reply.message or reply.reason else reason_of(stored, now)
    )
    rows = log_rows(
        entries,
        f"{meta.namespace}/{meta.name}",
        now,
        role=login.role,
        open_fact=open_fact,
        replayed=replayed,
        detailed=LOG_ROWS,
    )
    verdicts, words = flavors_of(reply, where)
    due = reply.requeue_at
    return WorkloadView(
        title=f"{meta.name} {where}",
        namespace=meta.namespace,
        name=meta.name,
        word=state(where),
        say=(Part(elements.say),)
        if elements is not None
        else say(where, reason, message, verdicts, reply.variants, past=past),
        then=_next(reply, now),
        crumbs=tuple(part for part in (reply.cohort, reply.cluster_queue, meta.namespace) if part),
        facts=tuple(_facts(stored, reply, where, now)),
        rooms=rooms_of(verdicts, words),
        ways=ways(
            remedies_of(reply),
            namespace=meta.namespace,
            name=meta.name,
            queue=reply.cluster_queue,
            role=login.role,
            now=now,
        ),
        timeline=timeline.build(
            newest_trace(entries, meta.namespace, meta.name), now, due, past=past
        ),
        held=held_by(_holders(reply), reply.priority),
        checks=check_rows(stored.status.admission_checks, now),
        log=tuple(row for place, row in enumerate(rows) if place < LOG_ROWS or row.is_open),
        output=output,
        elements=elements,
        relations=relations.build(stored, login.role, now, dependents),
        manifest=Link("Manifest", manifest_path(meta.namespace, meta.name)),
        log_more=max(0, len(rows) - LOG_ROWS),
        acts=actions(
            meta.namespace,
            meta.name,
            where,
            login,
            priority=head(stored).priority or 0,
            held=is_held(stored),
            approvals=approvals,
            submitted_by=stored.status.submitted_by,
            is_variant=head(stored).role == VARIANT,
        ),
    )


def flavors_of(reply: ExplainReply, where: str) -> tuple[list[FlavorVerdict], list[Word]]:
    """The flavors of a workload, of a parent those of its variants, each with its state."""
    verdicts = list(reply.flavors)
    words = [Word("Fits", "finished") if each.fits else state(where) for each in verdicts]
    for variant in reply.variants:
        for verdict in variant.explained.flavors:
            verdicts.append(verdict)
            words.append(state(variant.explained.phase or where))
    return verdicts, words


def _holders(reply: ExplainReply) -> list[Holder]:
    return [
        *reply.held_by,
        *(holder for variant in reply.variants for holder in variant.explained.held_by),
    ]


NAMED_MAX: Final = 3
"""The most flavors that the sentence names."""


def say(
    where: Phase,
    reason: str,
    message: str,
    verdicts: Sequence[FlavorVerdict],
    variants: Sequence[VariantVerdict] = (),
    *,
    past: bool = False,
) -> tuple[Part, ...]:
    """The sentence. For a workload that waits for quota it has the numbers of its flavors.
    ``variants``: of a parent. ``past``: it is about a past moment."""
    short = [
        (verdict.flavor, room)
        for verdict in verdicts
        for room in verdict.rooms
        if room.short and not verdict.fits
    ]
    if where is not Phase.PENDING or not short or any(verdict.fits for verdict in verdicts):
        if variants and where in (Phase.PENDING, Phase.BACKOFF):
            return (Part(say_family(variants)),)
        return (Part(sentence(where, reason, message)),)
    resource = short[0][1].resource
    of = [(flavor, room) for flavor, room in short if room.resource == resource]
    asked = amount(resource, max(room.taken + room.requested for _, room in of))
    parts = [Part("It waits because no flavor takes its "), Part(asked, "bold")]
    parts.append(Part(" then: " if past else " now: "))
    for place, (flavor, room) in enumerate(of[:NAMED_MAX]):
        parts.append(Part(f"{', ' if place else ''}{flavor} is "))
        parts.append(Part(f"{number(resource, room.short)} short", "short"))
    if left := len(of) - NAMED_MAX:
        parts.append(Part(f" and {left} more" if left > 0 else ""))
    return (*parts, Part("."))


def sentence(where: Phase, reason: str, message: str) -> str:
    """How the workload stands, with "It" as subject."""
    begin = {
        Phase.PENDING: "It waits",
        Phase.BACKOFF: "It waits for its next attempt",
        Phase.QUOTA_RESERVED: "It has its quota, and waits for its checks",
        Phase.ADMITTED: "It is admitted, and its job starts",
        Phase.RUNNING: "It runs",
        Phase.EVICTING: "It is evicted, and its job stops",
        Phase.FINISHED: "It has finished",
        Phase.REJECTED: "A check has rejected it",
        Phase.DEACTIVATED: "It is stopped",
    }[where]
    why = message or reason
    return f"{begin}: {why.rstrip('.')}." if why else f"{begin}."


def _next(reply: ExplainReply, now: datetime) -> str:
    if reply.requeue_at is not None and reply.requeue_at > now:
        left = between(now, reply.requeue_at)
        return f"It is tried again at {clock_time(reply.requeue_at, now)}, in {left}."
    if reply.preempted_by is not None:
        return f"It held its quota until {reply.preempted_by.by} took it."
    return ""


def _facts(
    stored: StoredWorkload, reply: ExplainReply, where: Phase, now: datetime
) -> list[Detail]:
    meta, spec = stored.metadata, head(stored)
    facts = [Detail(name="Queue", text=reply.local_queue or spec.queue_name)]
    if reply.position:
        of = f" of {reply.pending:,}" if reply.pending else ""
        facts.append(Detail(name="Position", text=f"{reply.position:,}{of}"))
    facts.append(Detail(name="Priority", text=str(spec.priority or 0)))
    if reply.waiting_since is not None:
        facts.append(Detail(name="Waiting", text=between(reply.waiting_since, now)))
    if where is Phase.PENDING and reply.start is not None:
        facts.append(Detail(name="Expected start", text=chance(reply.start, now)))
    if meta.creation_timestamp is not None:
        at = meta.creation_timestamp
        ago = f"{clock_time(at, now)}, {between(at, now)} ago"
        facts.append(Detail(name="Submitted", text=ago))
    if stored.status.submitted_by:
        facts.append(Detail(name="By", text=stored.status.submitted_by))
    if reply.parent:
        link = Link(reply.parent, workload_path(meta.namespace, reply.parent))
        facts.append(Detail(name="Variant of", text=reply.parent, link=link))
    if (element := element_of(stored)) is not None:
        link = Link(element.array, workload_path(meta.namespace, element.array))
        facts.append(Detail(name="Element", text=str(element.number)))
        facts.append(Detail(name="Of array", link=link))
    facts.append(Detail(name="Namespace", text=meta.namespace))
    return facts
