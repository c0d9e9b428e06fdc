"""Makes the decisions of a cycle: each decision is assumed in the scheduler's state at once, and is
returned as a fact for the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice, repeat
from typing import Any, Final, TypeAlias

from admittance.api.fields.units import render
from admittance.events import reasons
from admittance.events.facts import (
    Assigned,
    Confirmed,
    Planned,
    Preempted,
    Refused,
    Revoked,
)
from admittance.events.shapes import (
    Grounds,
    HandedOn,
    Head,
    PendingPreemption,
    PromisedStart,
    Refusal,
    Scan,
    Taken,
)
from admittance.scheduling import families
from admittance.scheduling.cycle.process import CycleEntry
from admittance.scheduling.cycle.refusals import recorded_cursor, shortfall
from admittance.scheduling.preemption import decision_inputs
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.preemption.min_run import with_youth
from admittance.scheduling.state.assignment import Assignment, Cursor, admission_of
from admittance.scheduling.state.assumption import assume_assigned
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.held.charging import pending_preemption_of
from admittance.scheduling.state.queue import remove_from_queue
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import Domain, Queue, Victim, WorkloadInfo

Decided: TypeAlias = Assigned | Preempted | Refused | Revoked | Planned | Confirmed

NAMED_MAX: Final = 5
"""How many victims the message of a decision names. For further victims the message gives only
their number."""

HEADS_MAX: Final = 3_000
"""How many processed heads of its cycle a decision lists for a replay at most, so that the decision
fits into one message."""


class CycleDecisions:
    """Makes the decisions of one cycle of a domain, and lists them in order. Each decision is
    assumed in the scheduler's state at once. ``promise``: the promise of a start that the cycle
    keeps; None: there is none."""

    def __init__(self, state: SchedulerState, domain: Domain, now: datetime) -> None:
        self.made: list[Decided] = []
        self.promise: PromisedStart | None = None
        self._state = state
        self._domain = domain
        self._now = now

    def accept(self, entry: CycleEntry, *, plans: bool) -> None:
        """Assigns the quota of its assignment to the entry's workload. The victims hand their quota
        over in the same decision. ``plans``: the victims are preempted later, and hand nothing over
        now."""
        state, queue, workload = self._state, entry.queue, entry.workload
        assignment, victims = entry.assignment, entry.victims
        remove_from_queue(queue, workload)
        queue.forget_preemptor(workload)
        workload.cursor = None
        admission = admission_of(queue.name, assignment)
        taken = decision_inputs.taken_quota(assignment, victims)
        preempts: tuple[HandedOn, ...] = ()
        message = ""
        scan = self._scan(workload, bool(victims))
        usage = queue.lanes.recorded_usage(workload) if queue.lanes is not None else None
        pending: PendingPreemption | None = None
        if plans:
            pending = pending_preemption_of(victims, issued=False)
            message = (
                f"Quota reserved in ClusterQueue {queue.name}, once {victims_text(victims)} went"
            )
        elif victims:
            preempts = self._handed_on(entry)
            message = (
                f"Quota reserved in ClusterQueue {queue.name}, handed on by {victims_text(victims)}"
            )
        giver = None
        if workload.family is not None:
            giver = families.sibling_to_replace(state, workload, queue.name, admission)
        if giver is not None:
            message = f"Quota is kept in ClusterQueue {queue.name} until {giver.key[1]} has stopped"
        assume_assigned(
            state,
            self._domain,
            workload,
            queue,
            admission,
            list(assignment.whole.items()),
            givers=[victim.workload for victim in victims] if preempts else [],
            plan=pending,
            migrates_from=giver,
            now=self._now,
        )
        self.made.append(
            Assigned(
                **self._fields(workload),
                admission=admission,
                message=message,
                taken=taken,
                level=assignment.level,
                waited_seconds=decision_inputs.waited_seconds(workload, self._now),
                preempts=preempts,
                pending_preemption=pending,
                local_usage=usage,
                scan=scan,
                migrates_from=_migrated(giver, workload) if giver is not None else None,
            )
        )
        if workload.family is not None:
            families.family_changed(state, workload.family, self._now)

    def preempt(self, entry: CycleEntry) -> bool:
        """Preempts the victims of the entry that are not being preempted yet, and refuses the
        entry's workload until they have stopped. Returns whether the call preempted a victim."""
        workload, victims, assignment = entry.workload, entry.victims, entry.assignment
        staying = [victim for victim in victims if not victim.workload.is_leaving]
        for one in victims:
            one.workload.preemptor_waits = True
        if any(victim.workload.in_flight for victim in staying):
            # A decision about a victim is not stored yet, so a preemption now would name a revision
            # of the victim that is about to change.
            return False
        scans = self._scans(workload)
        loops = LoopGuard(self._state)
        for victim, why, message in preemption_reasons(
            entry.queue, workload, staying, decision_inputs.missing_flavors(assignment)
        ):
            text = with_youth(message, self._state.min_runs, victim.workload, self._now)
            self._set_in_flight(victim.workload, InFlight.PREEMPTED)
            self.made.append(
                Preempted(
                    **self._fields(victim.workload),
                    reason=victim.reason,
                    message=loops.with_consequence(workload, victim, text),
                    by=f"{workload.key[0]}/{workload.key[1]}",
                    by_uid=workload.uid,
                    scan=next(scans),
                    grounds=why,
                    times=loops.times(workload, victim.workload),
                )
            )
        if (
            workload.status_reason != reasons.WAITING_FOR_PREEMPTED_WORKLOADS
            and not self._state.config.as_kueue
        ):
            refusal = waiting_refusal(victims, assignment)
            self._set_in_flight(workload, InFlight.REFUSED)
            self.made.append(Refused(**self._fields(workload), refusal=refusal, scan=next(scans)))
        return bool(staying)

    def _handed_on(self, entry: CycleEntry) -> tuple[HandedOn, ...]:
        loops = LoopGuard(self._state)
        handed_on: list[HandedOn] = []
        for victim, why, message in preemption_reasons(
            entry.queue,
            entry.workload,
            entry.victims,
            decision_inputs.missing_flavors(entry.assignment),
        ):
            other = victim.workload
            handed_on.append(
                HandedOn(
                    namespace=other.key[0],
                    name=other.key[1],
                    uid=other.uid,
                    revision=other.revision,
                    reason=victim.reason,
                    message=loops.with_consequence(entry.workload, victim, message),
                    grounds=why,
                    times=loops.times(entry.workload, other),
                )
            )
        return tuple(handed_on)

    def _scans(self, workload: WorkloadInfo) -> Iterator[Scan | None]:
        """Yields what a replay needs (`_scan`) for the first decision about an entry, and None for
        its further decisions."""
        yield self._scan(workload, True)
        yield from repeat(None)

    def _scan(self, workload: WorkloadInfo, preempts: bool) -> Scan | None:
        """Returns what a replay of the next decision about the workload needs in addition to the
        stored state; None: nothing."""
        cursors, heads = self._domain.scan_cursors, self._domain.unlogged_heads
        cursor = cursors.get(workload)
        usages: dict[str, float] = {}
        if preempts and self._state.accounts is not None:
            for queue in self._domain.queues:
                if queue.lanes is not None:
                    usages |= queue.lanes.recorded_usages()
        if cursor is None and not heads and not usages and self.promise is None:
            return None
        lost = len(heads) > HEADS_MAX
        recorded = () if lost else tuple([head(first, cursors.get(first)) for first in heads])
        heads.clear()
        return Scan(
            cursor=recorded_cursor(cursor),
            heads=recorded,
            lost=lost,
            usages=usages,
            promise=self.promise,
        )

    def _set_in_flight(self, workload: WorkloadInfo, what: InFlight) -> None:
        self._state.set_in_flight(workload, self._domain, what)

    def _fields(self, workload: WorkloadInfo) -> dict[str, Any]:
        return self._state.decision_fields(workload, self._domain, self._now)


def _migrated(giver: WorkloadInfo, workload: WorkloadInfo) -> HandedOn:
    """Returns the part of a decision that migrates a family to ``workload`` about ``giver``, the
    admitted variant."""
    assert workload.family is not None
    return HandedOn(
        namespace=giver.key[0],
        name=giver.key[1],
        uid=giver.uid,
        revision=giver.revision,
        reason=reasons.FLAVOR_MIGRATION,
        message=f"Migrates to variant {workload.family.tag(workload)}",
    )


def head(workload: WorkloadInfo, cursor: Cursor | None) -> Head:
    """Returns the form in which a decision on the log lists a processed head."""
    return Head(name=f"{workload.key[0]}/{workload.key[1]}", cursor=recorded_cursor(cursor))


def preemption_reasons(
    queue: Queue, preemptor: WorkloadInfo, victims: Sequence[Victim], short: tuple[Taken, ...]
) -> Iterator[tuple[Victim, Grounds, str]]:
    """Yields each victim with the rule and numbers that allow its preemption, and with a sentence
    that explains the preemption.

    Unless fair sharing compared shares, the numbers are computed once for all victims with the same
    queue, priority and rule."""
    known: dict[tuple[str, int, str], tuple[Grounds, str]] = {}
    for victim in victims:
        held = victim.workload.charge
        assert held is not None
        key = (held.queue.name, victim.workload.priority, victim.reason)
        about = known.get(key) if victim.shares is None else None
        if about is None:
            why = decision_inputs.grounds(queue, preemptor, victim, short)
            about = why, decision_inputs.preemption_message(preemptor, victim, why)
            if victim.shares is None:
                known[key] = about
        yield victim, *about


def waiting_refusal(victims: Sequence[Victim], assignment: Assignment) -> Refusal:
    """Returns the refusal of a preemptor that waits for its victims; it names the victims and the
    quota that the preemptor lacks."""
    lacking = ", ".join(map(_lacking, decision_inputs.missing_flavors(assignment)))
    going = (
        f"for {victims_text(victims)} to go" if victims else "for what others preempt to be free"
    )
    return Refusal(
        reason=reasons.WAITING_FOR_PREEMPTED_WORKLOADS,
        message=f"Waits {going}" + (f": {lacking}" if lacking else ""),
        shortfalls=tuple(
            shortfall(obstacle)
            for obstacle in assignment.obstacles
            if (obstacle.flavor, obstacle.resource) in assignment.contested
        ),
    )


def victims_text(victims: Sequence[Victim]) -> str:
    """Names the victims with their priorities: ``2 workloads (ns/a at priority 0, ns/b at …)``.

    The variants of a family are named once, by the name of their parent."""
    going = {_name_of_family(victim.workload): victim.workload.priority for victim in victims}
    names = [
        f"{namespace}/{name} at priority {priority}"
        for (namespace, name), priority in islice(going.items(), NAMED_MAX)
    ]
    if len(going) > NAMED_MAX:
        names.append(f"and {len(going) - NAMED_MAX} more")
    number = "1 workload" if len(going) == 1 else f"{len(going)} workloads"
    return f"{number} ({', '.join(names)})"


def _name_of_family(workload: WorkloadInfo) -> Key:
    """Returns the key by which users know the workload: for a variant the key of its parent."""
    family = workload.family
    return family.parent.key if family is not None and family.parent is not None else workload.key


def _lacking(quota: Taken) -> str:
    asked, there = (
        render(quota.resource, much) for much in (quota.amount, max(0, quota.available))
    )
    return f"{quota.resource} in flavor {quota.flavor}, {asked} asked, {there} free"
