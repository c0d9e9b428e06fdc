"""Why a parent waits, or what it holds: told variant by variant, since it is never tried itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.events.requests import ExplainReply, VariantVerdict
from admittance.events.shapes import Refusal
from admittance.family.policy import STOPPED, ActivityReason, DesiredState, begins, changes_next
from admittance.scheduling.cycle.cycle import refusal_for
from admittance.scheduling.cycle.reasons import SEVERITY
from admittance.scheduling.cycle.refusals import standing_of
from admittance.scheduling.explain.queue_status import is_parked
from admittance.scheduling.explain.remedies import REMEDIES_MAX
from admittance.scheduling.families import migration, siblings
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.queue_order import position_in
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import BACKOFF, FamilyInfo, Key, WorkloadInfo
from admittance.scheduling.state.workload_view import PROMISED
from admittance.workload.families.parent_status import until

Explain = Callable[[Key], ExplainReply]
"""As of any workload."""


def explain(
    state: SchedulerState,
    parent: WorkloadInfo,
    queue: Queue | None,
    now: datetime,
    of_variant: Explain,
) -> ExplainReply:
    """One line for each of its variants, the best first."""
    family = parent.family
    assert family is not None and family.state is not None
    parent_state = family.state
    found = variants(state, queue, family)
    verdicts = tuple(
        _verdict(state, queue, one, of_variant(one.workload.key))
        for one in found
        if queue is not None
    )
    phase, reason, message = _standing(state, parent, now)
    waits = parent.competes
    name = queue.name if queue is not None else ""
    position = position_in(queue, parent) if queue is not None and waits else 0
    cohort = queue.node.parent if queue is not None and queue.node is not None else None
    return ExplainReply(
        phase=phase,
        reason=reason,
        message=message,
        cluster_queue=name,
        local_queue=parent.local_queue[1],
        cohort=cohort.name if cohort is not None else "",
        strategy="BestEffortFIFO" if queue is not None else "",
        position=position,
        pending=queue.pending if queue is not None else 0,
        parked=waits and is_parked(parent),
        priority=parent.priority,
        waiting_since=parent.queued_at if waits else None,
        requeue_at=parent.requeue_at if not parent.is_due(now) else None,
        preempted_by=next(
            (one.workload.preempted_by for one in found if one.workload.preempted_by is not None),
            None,
        ),
        unblocked_by=tuple(dict.fromkeys(_remedies(queue, parent, parent_state.name, verdicts)))[
            :REMEDIES_MAX
        ],
        variants=verdicts,
        seen=state.seen,
    )


def _standing(state: SchedulerState, parent: WorkloadInfo, now: datetime) -> tuple[str, str, str]:
    """Phase, reason and a sentence."""
    family = parent.family
    assert family is not None and family.state is not None
    parent_state = family.state
    if parent.state != "Pending":
        variant = family.admitted()
        tag = family.tag(variant) if variant is not None else ""
        message = f"Admitted as its variant {tag}" if tag else "Admitted"
        if parent.state == "Evicting":
            heir = next(
                (one for one in family.variants if one.key[1] == parent_state.migrating_to), None
            )
            message = "Its job is being stopped"
            if heir is not None:
                message += f", to go on as its variant {family.tag(heir)}"
        return parent.state, parent.state, message
    phase = "Pending" if parent.is_due(now) else "Backoff"
    if not parent.competes:
        return phase, parent.status_reason or "Suspended", "It does not compete for quota"
    activity = state.catalog.local_queue_activity(*parent.local_queue)
    if not activity.active:
        return phase, activity.reason, activity.message
    refusal = told(state, parent)
    if refusal is None:
        return phase, EVALUATED_NEXT, "One of its variants is tried next"
    return phase, refusal.reason, refusal.message


def _verdict(
    state: SchedulerState, queue: Queue | None, one: One, explained: ExplainReply
) -> VariantVerdict:
    assert queue is not None
    workload = one.workload
    family = workload.family
    assert family is not None and family.state is not None
    aside = siblings.hindrance(state, queue, workload) if workload.charge is None else None
    if workload.charge is None and not workload.competes and not one.wish.active:
        phase = "Rejected" if one.wish.why is ActivityReason.REJECTED else "Deactivated"
        explained = replace(explained, phase=phase)
    return VariantVerdict(
        name=workload.key[1],
        variant=one.tag,
        active=one.wish.active,
        why=str(one.wish.why),
        admitted=family.state.admitted == workload.key[1],
        gate="Open" if family.variants[workload].is_open else "Closed",
        set_aside=aside.message if aside is not None and one.wish.active else "",
        explained=explained,
    )


def _remedies(
    queue: Queue | None,
    parent: WorkloadInfo,
    name: str,
    verdicts: tuple[VariantVerdict, ...],
) -> Iterator[str]:
    """What would let any of its variants go on."""
    family = parent.family
    assert family is not None
    if queue is not None and not verdicts:
        rules, allowed = queue.rules, family.state.allowed if family.state is not None else None
        if rules is not None and allowed and not rules.tags_within(allowed):
            named = ", ".join(sorted(allowed))
            yield f"ClusterQueue {queue.name} offering {named}, or {name} allowing what it offers"
        else:
            yield f"variants of {name} being made, for flavors that it may have"
    stays = queue is not None and queue.rules is not None and queue.rules.mode == "NoMigration"
    if stays and any(one.admitted for one in verdicts):
        return
    for one in verdicts:
        if one.admitted:
            # A family never migrates to a worse variant.
            return
        if one.active:
            for way in one.explained.unblocked_by:
                yield f"{one.variant}: {way}"
        elif one.why in STOPPED:
            yield f"{one.variant}: `admit activate workload {one.name}`"
        elif one.why == ActivityReason.CREATE_DELAY and (
            at := begins(family.state, queue.rules, one.variant) if family.state and queue else None
        ):
            yield f"{one.variant}: its createDelaySeconds being over at {at:%Y-%m-%dT%H:%M:%SZ}"


def of_variant(state: SchedulerState, queue: Queue | None, workload: WorkloadInfo) -> Iterator[str]:
    """What lets a variant go on that its family keeps back."""
    family = workload.family
    if family is None or queue is None or workload.charge is not None:
        return
    if family.state is None:
        yield "its parent being known"
        return
    aside = siblings.hindrance(state, queue, workload)
    if aside is None:
        return
    wish = siblings.wish_of(state, queue, workload)
    if wish is None:
        yield f"ClusterQueue {queue.name} having a variant {family.tag(workload)}"
    elif migration.busy(family):
        yield f"its family having settled: {aside.message}"
    elif not wish.active:
        at = changes_next(family.state, family.variant_states(), queue.rules, state.now)
        until = f" (by the clock at {at:%Y-%m-%dT%H:%M:%SZ})" if at is not None else ""
        yield f"its family's policy wanting it{until}: {aside.message}"
    else:
        yield f"its better sibling having had its turn: {aside.message}"


EVALUATED_NEXT: Final = "PendingEvaluation"
NO_FLAVOR: Final = "NoMatchingFlavor"
WAITS_FOR_CHECKS: Final = "UnsatisfiedAdmissionChecks"
_MILD: Final = -1


class One(NamedTuple):
    """A variant that the queue has, and what policy wants of it."""

    workload: WorkloadInfo
    tag: str
    wish: DesiredState


def variants(state: SchedulerState, queue: Queue | None, family: FamilyInfo) -> list[One]:
    """The variants that the queue has, the best first."""
    if family.state is None or queue is None:
        return []
    by_name = {one.key[1]: one for one in family.variants}
    wanted = siblings.wishes(state, queue, family)
    return [One(by_name[name], family.tag(by_name[name]), wish) for name, wish in wanted.items()]


def told(state: SchedulerState, parent: WorkloadInfo) -> Refusal | None:
    """Why the family waits; None: some variant is tried next, and nobody knows more."""
    family = parent.family
    assert family is not None
    if family.state is not None and family.state.waits:
        waits = f"The family waits{until(parent.requeue_at)} before it competes again"
        return Refusal(reason=BACKOFF.reason, message=waits)
    found = variants(state, parent.queue, family)
    if not found:
        if any(True for _ in family.variants):
            return None
        rules = parent.queue.rules if parent.queue is not None else None
        allowed = family.state.allowed if family.state is not None else None
        if rules is not None and not rules.tags_within(allowed):
            named = ", ".join(sorted(allowed or ())) or "none"
            message = f"The queue offers none of the flavors: {named}"
            return Refusal(reason=NO_FLAVOR, message=message)
        message = "Its variants are not made yet, or the ClusterQueue has none for it"
        return Refusal(reason=EVALUATED_NEXT, message=message)
    rules = parent.queue.rules if parent.queue is not None else None
    assert family.state is not None, "it has variants that policy knows"
    lines = [_line(one, begins(family.state, rules, one.tag), state.now) for one in found]
    if any(line.reason == "" for line in lines):
        return None
    # That of the best one that waits: what the family would like to be changed.
    reason = next((line.reason for line in lines if line.waits), min(lines, key=_weight).reason)
    if not parent.is_due(state.now):
        reason = BACKOFF.reason  # All of them wait for a time.
    shortfalls = tuple(one for line in lines for one in line.refusal.shortfalls)
    return Refusal(
        reason=reason,
        message="; ".join(f"{line.tag}: {line.refusal.message}" for line in lines),
        shortfalls=shortfalls,
    )


class _Line(NamedTuple):
    """What is told of one variant. ``reason``: "" where it is tried next. ``waits``: it tries, and
    holds nothing."""

    tag: str
    reason: str
    refusal: Refusal
    weight: int
    waits: bool = False


def _weight(line: _Line) -> int:
    return line.weight


def _line(one: One, begins_at: datetime | None, now: datetime) -> _Line:
    """``begins_at``: when the variant may be tried for the first time."""
    workload = one.workload
    if workload.charge is not None:
        waits = [name for name, state in workload.checks if state != "Ready"]
        message = f"reserved, waits for {', '.join(waits) or 'its admission'}"
        if workload.state == PROMISED:
            message = "takes over when the job has stopped"
        return _Line(one.tag, WAITS_FOR_CHECKS, Refusal(reason="", message=message), _MILD)
    if not one.wish.active:
        message = f"inactive ({one.wish.why})"
        if one.wish.why is ActivityReason.CREATE_DELAY:
            message += until(begins_at)
        elif one.wish.why is ActivityReason.REJECTED and workload.problem is not None:
            message += f": {workload.problem.message}"
        return _Line(
            one.tag, siblings.WAITS, Refusal(reason="", message=message), len(SEVERITY) + 1
        )
    if not workload.is_due(now):
        because = f": {workload.problem.message}" if workload.problem is not None else ""
        backoff = Refusal(reason="", message=f"waits{until(workload.requeue_at)}{because}")
        return _Line(one.tag, BACKOFF.reason, backoff, len(SEVERITY), waits=True)
    refusal = refusal_for(workload)
    if refusal is None and (standing := standing_of(workload)) is not None:
        refusal = standing.refusal
    if refusal is None:
        if workload.queue is None:
            reason = workload.status_reason or "Suspended"
            refusal = Refusal(reason="", message="does not compete")
            return _Line(one.tag, reason, refusal, len(SEVERITY), waits=True)
        return _Line(one.tag, "", Refusal(reason="", message="is tried next"), _MILD)
    weight = SEVERITY.get(refusal.reason, len(SEVERITY))
    return _Line(one.tag, refusal.reason, refusal, weight, waits=True)
