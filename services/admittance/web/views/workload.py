"""The page of a workload: why it waits, and what a person may do to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from admittance.client.calls import Login
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.history import LogEntry
from admittance.web.paths import workload_path
from admittance.web.views.actions import Ask, actions
from admittance.web.views.log import LogRow, log_rows
from admittance.web.views.words import Link, Word, between, clock_time, state
from admittance.workload.conditions import is_held
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.waiting_reason import reason_of


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the facts beside a page."""

    name: str
    text: str
    link: Link | None = None


class WorkloadView(msgspec.Struct, frozen=True, kw_only=True):
    """``say``: the sentence that says how the workload stands; ``then``: what comes next or came
    last, "" for nothing."""

    title: str
    namespace: str
    name: str
    word: Word
    say: str
    then: str
    crumbs: tuple[str, ...]
    facts: tuple[Fact, ...]
    ways: tuple[str, ...]
    log: tuple[LogRow, ...]
    log_more: int
    acts: tuple[Ask, ...]


LOG_ROWS: Final = 60


def build(
    stored: StoredWorkload,
    explained: ExplainReply | None,
    entries: Sequence[LogEntry],
    login: Login,
    now: datetime,
    approvals: tuple[str, ...] = (),
) -> WorkloadView:
    """The view of a stored workload. ``explained`` None: the scheduler does not answer.
    ``approvals``: its checks that wait for the verdict of a person."""
    meta, where = stored.metadata, phase(stored, now)
    reply = explained if explained is not None else ExplainReply()
    reason, message = (
        (reply.reason, reply.message) if reply.message or reply.reason else reason_of(stored, now)
    )
    rows = log_rows(entries, now)
    return WorkloadView(
        title=f"{meta.name} {where}",
        namespace=meta.namespace,
        name=meta.name,
        word=state(where),
        say=sentence(where, reason, message),
        then=_next(reply, now),
        crumbs=tuple(part for part in (reply.cohort, reply.cluster_queue, meta.namespace) if part),
        facts=tuple(_facts(stored, reply, now)),
        ways=reply.unblocked_by,
        log=rows[:LOG_ROWS],
        log_more=max(0, len(rows) - LOG_ROWS),
        acts=actions(
            meta.namespace,
            meta.name,
            where,
            login,
            priority=head(stored).priority or 0,
            held=is_held(stored),
            approvals=approvals,
        ),
    )


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
        return "Its quota was taken by another workload."
    return ""


def _facts(stored: StoredWorkload, reply: ExplainReply, now: datetime) -> list[Fact]:
    meta, spec = stored.metadata, head(stored)
    facts = [Fact(name="Queue", text=reply.local_queue or spec.queue_name)]
    if reply.position:
        of = f" of {reply.pending:,}" if reply.pending else ""
        facts.append(Fact(name="Position", text=f"{reply.position:,}{of}"))
    facts.append(Fact(name="Priority", text=str(spec.priority or 0)))
    if reply.waiting_since is not None:
        facts.append(Fact(name="Waiting", text=between(reply.waiting_since, now)))
    if meta.creation_timestamp is not None:
        at = meta.creation_timestamp
        ago = f"{clock_time(at, now)}, {between(at, now)} ago"
        facts.append(Fact(name="Submitted", text=ago))
    if stored.status.submitted_by:
        facts.append(Fact(name="By", text=stored.status.submitted_by))
    if reply.parent:
        link = Link(reply.parent, workload_path(meta.namespace, reply.parent))
        facts.append(Fact(name="Variant of", text=reply.parent, link=link))
    facts.append(Fact(name="Namespace", text=meta.namespace))
    return facts
