"""What a fact of the log opens to: its cause, and for a decision what it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.names import BadToken, plain
from admittance.events.requests.history import LogEntry
from admittance.events.shapes import Grounds, PendingPreemption, Scan, Shortfall, Taken
from admittance.events.subjects import user_of
from admittance.web.paths import workload_path
from admittance.web.views.words import Detail, Link, amount, number

ROWS_MAX: Final = 10
"""The most flavors, victims or heads that a row names."""


def opened(
    entry: LogEntry, fact: Fact | None, follows: tuple[int, str] | None
) -> tuple[Detail, ...]:
    """The rows of a fact; ``fact`` None: its shape is not known. ``follows``: sequence and name of
    the fact about the workload before it, after which the workload-controller published it."""
    rows = [Detail(name="Fact", text=f"{entry.sequence:,} of the log"), _cause(entry, fact)]
    if isinstance(fact, facts.CommitFact) and follows is not None:
        sequence, what = follows
        link = Link(f"{what}, fact {sequence:,}", f"#fact-{sequence}")
        rows.append(Detail(name="Follows", link=link))
    if isinstance(fact, facts.Decision):
        rows += _decision(fact)
    return tuple(rows)


def _cause(entry: LogEntry, fact: Fact | None) -> Detail:
    """The user, program or service that caused the fact."""
    parts = entry.subject.split(".")
    match parts:
        case _ if user := user_of(entry.subject):
            text = f"user {user}"
        case ["admit", "check", "reported", controller, *_]:
            text = f"check controller {_plain(controller)}"
        case ["admit", "provisioning", what, name, *_] if what not in ("requested", "cancelled"):
            text = f"provider of {_plain(name)}"
        case ["admit", "provisioning", *_]:
            text = "the provisioning check"
        case ["admit", "deadletter", service]:
            text = f"the {_plain(service)}"
        case _:
            text = _service(fact)
    return Detail(name="Caused by", text=text)


def _service(fact: Fact | None) -> str:
    match fact:
        case facts.Decision(domain=domain):
            return f"the scheduler of {domain}" if domain else "the scheduler"
        case facts.CommitFact() | facts.CheckRequested() | facts.CheckWithdrawn():
            return "the workload-controller"
        case facts.JobFact():
            return "the runner of its job"
        case facts.Finished(revision=revision):
            return "the runner of its job" if revision else "a program without a login"
        case facts.TimerDue():
            return "a time that was due"
        case facts.DependenciesJudged() | facts.ElementsCounted():
            return "the array-controller"
        case facts.Aggregated() | facts.Ungated():
            return "the variant-controller"
        case _:
            return "a service, or a program without a login"


def _decision(fact: facts.Decision) -> Iterable[Detail]:
    yield Detail(name="Seen", text=f"revision {fact.seen:,} of the bucket")
    yield Detail(name="About", text=f"revision {fact.revision:,} of the workload")
    match fact:
        case facts.Assigned():
            yield from _taken("Took", fact.taken)
            if fact.level:
                yield Detail(name="Borrowed", text=f"{fact.level} up in the cohort tree")
            yield from _workloads(
                "Takes it from", (f"{v.namespace}/{v.name}" for v in fact.preempts)
            )
            yield from _plan(fact.pending_preemption)
        case facts.Refused(refusal=refusal):
            yield Detail(name="Rule", text=refusal.reason)
            yield from _short(refusal.shortfalls)
        case facts.Revoked():
            yield Detail(name="Rule", text=fact.reason)
            yield from _short(fact.shortfalls)
        case facts.Planned(pending_preemption=plan):
            yield from _plan(plan)
        case facts.Preempted():
            yield from _preempted(fact)
    yield from _scan(fact.scan)


def _preempted(fact: facts.Preempted) -> Iterable[Detail]:
    yield from _workloads("Turn of", [fact.by] if fact.by else [])
    grounds = fact.grounds or Grounds()
    yield Detail(name="Rule", text=fact.reason, code=grounds.policy)
    if fact.grounds is not None:
        text = f"{grounds.by_priority} against {grounds.priority}"
        if grounds.threshold is not None:
            text += f", threshold {grounds.threshold}"
        yield Detail(name="Priorities", text=text)
        where = f"{grounds.by_cluster_queue} and {grounds.cluster_queue}"
        yield Detail(name="Queues", text=where)
        if (shares := grounds.shares) is not None:
            text = f"{shares.preemptor:g} and {shares.victim:g}, {shares.strategy}"
            yield Detail(name="Shares", text=text)
    yield from _taken("It was short of", grounds.short)
    if fact.times > 1:
        yield Detail(name="Times", text=f"{fact.times}, by the same workload")


def _taken(name: str, several: Sequence[Taken]) -> Iterable[Detail]:
    if several:
        said = [
            f"{amount(taken.resource, taken.amount)} on {taken.flavor}, where "
            f"{number(taken.resource, taken.available)} were free"
            for taken in several[:ROWS_MAX]
        ]
        yield Detail(name=name, text=_joined(said, len(several)))


def _short(shortfalls: Sequence[Shortfall]) -> Iterable[Detail]:
    """The flavors that were considered, each with what it lacked."""
    for shortfall in shortfalls[:ROWS_MAX]:
        missing = shortfall.requested - shortfall.available
        said = (
            f"{amount(shortfall.resource, missing)} short ("
            f"{number(shortfall.resource, shortfall.requested)} asked, "
            f"{number(shortfall.resource, shortfall.available)} free)"
            if shortfall.resource and missing > 0
            else shortfall.message or shortfall.reason
        )
        yield Detail(name=shortfall.flavor or "No flavor", text=said)
    if (more := len(shortfalls) - ROWS_MAX) > 0:
        yield Detail(name="Others", text=f"{more} more")


def _plan(plan: PendingPreemption | None) -> Iterable[Detail]:
    if plan is not None and plan.victims:
        name = "Preempts" if plan.issued else "Will preempt"
        yield from _workloads(name, [f"{each.namespace}/{each.name}" for each in plan.victims])


def _scan(scan: Scan | None) -> Iterable[Detail]:
    if scan is None:
        return
    yield from _workloads("Before it", [head.name for head in scan.heads])
    if scan.head:
        yield from _workloads("Judged as", [scan.head])
    if scan.promise is not None:
        yield from _workloads("Kept a start for", [scan.promise.head])


def _workloads(name: str, several: Iterable[str]) -> Iterable[Detail]:
    """Rows with links to workloads ``namespace/name``."""
    known = list(several)
    for place, each in enumerate(known[:ROWS_MAX]):
        namespace, _, plain_name = each.partition("/")
        link = Link(plain_name, workload_path(namespace, plain_name))
        yield Detail(name="" if place else name, link=link)
    if (more := len(known) - ROWS_MAX) > 0:
        yield Detail(name="", text=f"and {more:,} more")


def _joined(said: Sequence[str], count: int) -> str:
    more = count - len(said)
    return "; ".join(said) + (f"; and {more:,} more" if more > 0 else "")


def _plain(token: str) -> str:
    try:
        return plain(token)
    except BadToken:
        return token
