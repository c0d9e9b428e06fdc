"""The page of checks: each AdmissionCheck, the workloads that wait for it, and the approvals that
wait for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.api.checks import AdmissionCheck
from admittance.api.workload import CheckState
from admittance.client.calls import Login
from admittance.control.manifests.heartbeats import active_of
from admittance.events.subjects import APPROVAL_CONTROLLER
from admittance.web.paths import verdict_path, workload_path
from admittance.web.views.actions import Ask, verdicts
from admittance.web.views.words import Link, Word, between, clock_time
from admittance.workload.conditions import Type, is_true
from admittance.workload.moves.backoff import end_of
from admittance.workload.moves.counted_verdicts import is_under_check, waits_for_checks
from admittance.workload.stored import StoredWorkload, head

APPROVALS_MAX: Final = 100
"""The most approvals of one page, the oldest first."""

NO_ANSWERS: Final[Mapping[str, datetime]] = {}


class CheckLine(msgspec.Struct, frozen=True, kw_only=True):
    """An AdmissionCheck. ``word``: whether its controller is alive; ``since``: since when, ""
    without a heartbeat; ``last_answer``: when it last reported a verdict, "": not known;
    ``waiting``: how many workloads wait for its verdict; ``oldest``: the one
    that waits longest, and ``oldest_waits`` for how long; ``retries``: how often it said "not now"
    to workloads that are not admitted now; ``delayed``: how many wait for the end of a delay, and
    when the next delay ends; ``words``: what the controller says about itself."""

    id: str
    name: str
    controller: str
    word: Word
    since: str
    last_answer: str
    words: str
    waiting: int
    oldest: Link | None
    oldest_waits: str
    retries: int
    delayed: str


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """A button of the inbox. ``path``: where its form is posted."""

    id: str
    path: str
    ask: Ask


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that waits for the verdict of a person. ``acts``: () if the user may give none."""

    id: str
    name: Link
    namespace: str
    check: str
    queue: str
    by: str
    waits: str
    words: str
    acts: tuple[Act, ...]


class ChecksView(msgspec.Struct, frozen=True, kw_only=True):
    """``more``: how many further approvals wait. ``trouble``: whether workloads wait for a check
    that gives no verdicts."""

    title: str
    say: str
    checks: tuple[CheckLine, ...]
    approvals: tuple[Approval, ...]
    more: int
    trouble: bool


class _Wait(NamedTuple):
    """A row of a workload's checks."""

    workload: StoredWorkload
    row: CheckState

    @property
    def since(self) -> datetime | None:
        return self.row.last_transition_time or self.workload.metadata.creation_timestamp

    def age(self, now: datetime) -> float:
        return 0.0 if self.since is None else (now - self.since).total_seconds()


def build(
    checks: Iterable[AdmissionCheck],
    workloads: Sequence[StoredWorkload],
    login: Login,
    now: datetime,
    *,
    every: bool = True,
    answers: Mapping[str, datetime] = NO_ANSWERS,
) -> ChecksView:
    """The view of the AdmissionChecks. ``workloads``: those that the user may see. ``every``:
    False if there may be further checks, which no workload of these has. ``answers``: when each
    controller last reported a verdict."""
    rows: dict[str, list[_Wait]] = {}
    for workload in workloads:
        for row in workload.status.admission_checks:
            rows.setdefault(row.name, []).append(_Wait(workload, row))
    by_name = sorted(checks, key=lambda check: check.metadata.name)
    lines = tuple(
        _line(check, rows.get(check.metadata.name, ()), answers, now) for check in by_name
    )
    inbox = [
        wait
        for check in by_name
        if check.spec.controller_name == APPROVAL_CONTROLLER
        for wait in rows.get(check.metadata.name, ())
        if _waits(wait)
    ]
    inbox.sort(key=lambda wait: (-wait.age(now), wait.workload.metadata.name))
    listed = {line.name for line in lines}
    waiting = [wait for of in rows.values() for wait in of if wait.row.name in listed]
    silent = [line.name for line in lines if line.waiting and line.word.state == "rejected"]
    return ChecksView(
        title=f"{len(inbox):,} wait for approval" if inbox else f"{len(lines):,} checks",
        say=_say(lines, _count(waiting), _count(inbox), silent)
        if lines or every
        else "No workload that you may see has a check.",
        checks=lines,
        approvals=tuple(_approval(wait, login, now) for wait in inbox[:APPROVALS_MAX]),
        more=max(0, len(inbox) - APPROVALS_MAX),
        trouble=bool(silent),
    )


def _waits(wait: _Wait) -> bool:
    """Whether the check has been asked and has not answered. A workload that has no quota yet has
    rows, too, but its checks are not asked."""
    workload, row = wait
    asked = is_under_check(workload) or waits_for_checks(workload)
    return row.state == "Pending" and asked


def _count(waits: Iterable[_Wait]) -> int:
    """How many workloads wait: one may wait for several checks."""
    return len({id(wait.workload) for wait in waits if _waits(wait)})


def _say(lines: Sequence[CheckLine], waiting: int, approvals: int, silent: Sequence[str]) -> str:
    """The sentence. ``waiting``, ``approvals``: numbers of workloads."""
    if not lines:
        return "There is no AdmissionCheck: workloads are admitted as soon as they have quota."
    many = "workload waits for a check" if waiting == 1 else "workloads wait for checks"
    say = f"{waiting:,} {many}" if waiting else "No workload waits for a check"
    if approvals:
        of = "" if approvals == waiting else f" {approvals:,} of them"
        say += f",{of} for the approval of a person"
    if silent:
        verb = "gives" if len(silent) == 1 else "give"
        say += f". {', '.join(silent)} {verb} no verdicts now"
    return f"{say}."


def _line(
    check: AdmissionCheck, rows: Sequence[_Wait], answers: Mapping[str, datetime], now: datetime
) -> CheckLine:
    name, active = check.metadata.name, active_of(check)
    waiting = [wait for wait in rows if _waits(wait)]
    oldest = max(waiting, key=lambda wait: wait.age(now), default=None)
    since = active.last_transition_time if active is not None else None
    last = answers.get(check.spec.controller_name)
    return CheckLine(
        id=name,
        name=name,
        controller=check.spec.controller_name,
        word=_alive(check),
        since=clock_time(since, now) if since is not None else "",
        last_answer=clock_time(last, now) if last is not None else "",
        words=active.message if active is not None else "",
        waiting=len(waiting),
        oldest=_link(oldest.workload) if oldest is not None else None,
        oldest_waits=_age(oldest, now) if oldest is not None else "",
        retries=sum(
            wait.row.retry_count for wait in rows if not is_true(wait.workload, Type.ADMITTED)
        ),
        delayed=_delayed(rows, now),
    )


def _alive(check: AdmissionCheck) -> Word:
    active = active_of(check)
    if active is not None and active.status == "True":
        return Word("Alive", "running")
    if active is not None:
        return Word(active.reason or "Not alive", "rejected")
    if check.spec.controller_name == APPROVAL_CONTROLLER:
        return Word("By people", "admitted")
    return Word("No heartbeat yet", "rejected")


def _delayed(rows: Sequence[_Wait], now: datetime) -> str:
    ends = sorted(end for wait in rows if (end := end_of(wait.row)) is not None and end > now)
    return f"{len(ends):,}, the next until {clock_time(ends[0], now)}" if ends else ""


def _age(wait: _Wait, now: datetime) -> str:
    return between(wait.since, now) if wait.since is not None else ""


def _link(workload: StoredWorkload) -> Link:
    meta = workload.metadata
    return Link(meta.name, workload_path(meta.namespace, meta.name))


def _approval(wait: _Wait, login: Login, now: datetime) -> Approval:
    workload, row = wait
    meta = workload.metadata
    of = f"{meta.namespace}/{meta.name}"
    return Approval(
        id=f"{of}/{row.name}",
        name=_link(workload),
        namespace=meta.namespace,
        check=row.name,
        queue=head(workload).queue_name,
        by=workload.status.submitted_by or "",
        waits=_age(wait, now),
        words=row.message,
        acts=tuple(
            Act(
                id=f"{of}/{ask.verb}",
                path=verdict_path(meta.namespace, meta.name, ask.verb),
                ask=ask,
            )
            for ask in verdicts(meta.namespace, meta.name, (row.name,), login)
        ),
    )
