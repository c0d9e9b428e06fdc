"""Explains a parent workload variant by variant: the scheduler never tries a parent, only its
variants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from admittance.events import reasons
from admittance.events.requests.explanation import ExplainReply, VariantVerdict, with_remedies
from admittance.events.requests.remedies import Remedy, RemedyKind, of_command, of_one_variant
from admittance.events.shapes import Refusal
from admittance.family import (
    STOPPED,
    ActivityReason,
    DesiredState,
    ParentState,
    begins,
    changes_next,
)
from admittance.scheduling import families
from admittance.scheduling.cycle.cycle import refusal_for
from admittance.scheduling.explain.queue_status import is_parked, why_inactive
from admittance.scheduling.explain.remedies import at_time, first_remedies
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.queue import position_in
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import FamilyInfo, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import BACKOFF, PROMISED
from admittance.workload.families.parent_status import until_text

Explain = Callable[[Key], ExplainReply]
"""A function that explains one variant, as any workload without a family is explained."""


def explain(
    state: SchedulerState,
    parent: WorkloadInfo,
    queue: Queue | None,
    now: datetime,
    of_variant: Explain,
) -> ExplainReply:
    """Returns the explanation of a parent, with one verdict per variant, best first."""
    family = parent.family
    assert family is not None and family.state is not None
    parent_state = family.state
    judged = variants(state, queue, family)
    verdicts = tuple(
        _verdict(state, queue, variant, of_variant(variant.workload.key))
        for variant in judged
        if queue is not None
    )
    phase, reason, message = _phase_and_reason(state, parent, queue, now)
    waits = parent.competes
    name = queue.name if queue is not None else ""
    position = position_in(queue, parent) if queue is not None and waits else 0
    cohort = queue.node.parent if queue is not None and queue.node is not None else None
    reply = ExplainReply(
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
            (
                variant.workload.preempted_by
                for variant in judged
                if variant.workload.preempted_by is not None
            ),
            None,
        ),
        variants=verdicts,
        seen=state.seen,
    )
    changes = _remedies(queue, parent_state, verdicts) if queue is not None else ()
    return with_remedies(reply, first_remedies(changes))


def _phase_and_reason(
    state: SchedulerState, parent: WorkloadInfo, queue: Queue | None, now: datetime
) -> tuple[str, str, str]:
    """Returns phase, reason and message for the explanation of a parent."""
    family = parent.family
    assert family is not None and family.state is not None
    parent_state = family.state
    if parent.state != "Pending":
        variant = family.admitted()
        tag = family.tag(variant) if variant is not None else ""
        message = f"Admitted as its variant {tag}" if tag else "Admitted"
        if parent.state == "Evicting":
            heir = next(
                (
                    variant
                    for variant in family.variants
                    if variant.key[1] == parent_state.migrating_to
                ),
                None,
            )
            message = "Its job is being stopped"
            if heir is not None:
                message += f" and will continue as variant {family.tag(heir)}"
        return parent.state, parent.state, message
    phase = "Pending" if parent.is_due(now) else "Backoff"
    if not parent.competes:
        return phase, parent.status_reason or reasons.SUSPENDED, "It does not compete for quota"
    refusal = why_inactive(state, parent, queue) or family_refusal(state, parent)
    if refusal is None:
        return phase, reasons.PENDING_EVALUATION, "The next cycle tries one of its variants"
    return phase, refusal.reason, refusal.message


def _verdict(
    state: SchedulerState, queue: Queue | None, variant: JudgedVariant, explained: ExplainReply
) -> VariantVerdict:
    assert queue is not None
    workload = variant.workload
    family = workload.family
    assert family is not None and family.state is not None
    inadmissible = (
        families.why_not_tried(state, queue, workload) if workload.charge is None else None
    )
    if workload.charge is None and not workload.competes and not variant.desired.active:
        phase = "Rejected" if variant.desired.why is ActivityReason.REJECTED else "Deactivated"
        explained = replace(explained, phase=phase)
    return VariantVerdict(
        name=workload.key[1],
        variant=variant.tag,
        active=variant.desired.active,
        why=str(variant.desired.why),
        admitted=family.state.admitted == workload.key[1],
        gate="Open" if family.variants[workload].is_open else "Closed",
        set_aside=inadmissible.message
        if inadmissible is not None and variant.desired.active
        else "",
        explained=explained,
    )


def _remedies(
    queue: Queue, parent: ParentState, verdicts: tuple[VariantVerdict, ...]
) -> Iterator[Remedy]:
    """Yields each change that would unblock one of the variants."""
    rules, allowed = queue.rules, parent.allowed
    if not verdicts:
        if rules is not None and allowed and not rules.tags_within(allowed):
            named = ", ".join(sorted(allowed))
            text = (
                f"one of the flavors {named} in ClusterQueue {queue.name}, or a flavor of that "
                f"ClusterQueue in the allowed flavors of {parent.name}"
            )
            yield Remedy(text=text, kind=RemedyKind.SETTING, queue=queue.name)
        else:
            yield Remedy(text=f"creation of variants of {parent.name}", kind=RemedyKind.CREATION)
    if rules is not None and rules.mode == "NoMigration" and any(row.admitted for row in verdicts):
        return
    for row in verdicts:
        if row.admitted:
            # The variants after the admitted one are worse, and a family never migrates to a worse
            # variant.
            return
        if row.active:
            for remedy in row.explained.remedies:
                yield of_one_variant(row.variant, remedy)
        elif row.why in STOPPED:
            yield of_one_variant(row.variant, of_command(f"admit activate workload {row.name}"))
        elif row.why == ActivityReason.CREATE_DELAY and (at := begins(parent, rules, row.variant)):
            yield of_one_variant(row.variant, at_time("end of its createDelaySeconds", at))


def of_variant(
    state: SchedulerState, queue: Queue | None, workload: WorkloadInfo
) -> Iterator[Remedy]:
    """Yields the change that would unblock a variant that waits for its family."""
    family = workload.family
    if family is None or queue is None or workload.charge is not None:
        return
    if family.state is None:
        text = "its parent workload, which is not known yet"
        yield Remedy(text=text, kind=RemedyKind.FAMILY)
        return
    inadmissible = families.why_not_tried(state, queue, workload)
    if inadmissible is None:
        return
    desired = families.desired_state(state, queue, workload)
    kind, at, in_queue = RemedyKind.FAMILY, None, ""
    if desired is None:
        text = f"a variant {family.tag(workload)} in ClusterQueue {queue.name}"
        kind, in_queue = RemedyKind.SETTING, queue.name
    elif families.why_busy(family):
        text = f"a change of its family: {inadmissible.message}"
    elif not desired.active:
        at = changes_next(family.state, family.variant_states(), queue.rules, state.now)
        when = f" at {at:%Y-%m-%dT%H:%M:%SZ}" if at is not None else ""
        text = f"activation by the policy of its family{when}: {inadmissible.message}"
    else:
        text = f"the turn of its better sibling: {inadmissible.message}"
    yield Remedy(text=text, kind=kind, at=at, queue=in_queue)


class JudgedVariant(NamedTuple):
    """A variant that the queue's rules for families define, with the state that the family policy
    sets for it."""

    workload: WorkloadInfo
    tag: str
    desired: DesiredState


def variants(state: SchedulerState, queue: Queue | None, family: FamilyInfo) -> list[JudgedVariant]:
    """Returns the variants of the family that the queue's rules define, the best first."""
    if family.state is None or queue is None:
        return []
    by_name = {variant.key[1]: variant for variant in family.variants}
    wanted = families.desired_states(state, queue, family)
    return [
        JudgedVariant(by_name[name], family.tag(by_name[name]), desired)
        for name, desired in wanted.items()
    ]


def family_refusal(state: SchedulerState, parent: WorkloadInfo) -> Refusal | None:
    """Returns the refusal that says why the family of the parent waits; None: the next cycle tries
    one of its variants."""
    family = parent.family
    assert family is not None
    if family.state is not None and family.state.waits:
        waits = f"The family waits{until_text(parent.requeue_at)} before it competes again"
        return Refusal(reason=BACKOFF.reason, message=waits)
    judged = variants(state, parent.queue, family)
    if not judged:
        rules = parent.queue.rules if parent.queue is not None else None
        allowed = family.state.allowed if family.state is not None else None
        if rules is not None and not rules.tags_within(allowed):
            named = ", ".join(sorted(allowed or ())) or "none"
            message = f"The ClusterQueue has none of the allowed flavors: {named}"
            return Refusal(reason=reasons.NO_MATCHING_FLAVOR, message=message)
        message = "Its variants are not created yet, or the ClusterQueue has no variant for it"
        return Refusal(reason=reasons.PENDING_EVALUATION, message=message)
    rules = parent.queue.rules if parent.queue is not None else None
    assert family.state is not None, "it has variants that policy knows"
    lines = [
        _line(variant, begins(family.state, rules, variant.tag), state.now) for variant in judged
    ]
    if any(line.reason == "" for line in lines):
        return None
    # The reason of the family is the reason of the best variant that waits for quota.
    waiting = [line.reason for line in lines if line.waits]
    held = any(line.reason == reasons.UNSATISFIED_ADMISSION_CHECKS for line in lines)
    otherwise = reasons.UNSATISFIED_ADMISSION_CHECKS if held else reasons.WAITING_FOR_FAMILY
    reason = waiting[0] if waiting else otherwise
    if not parent.is_due(state.now):
        reason = BACKOFF.reason  # All variants of the family wait until the backoff ends.
    shortfalls = tuple(shortfall for line in lines for shortfall in line.refusal.shortfalls)
    return Refusal(
        reason=reason,
        message="; ".join(f"{line.tag}: {line.refusal.message}" for line in lines),
        shortfalls=shortfalls,
    )


class _VariantLine(NamedTuple):
    """The part of a parent's explanation about one variant. ``reason``: why the variant waits; "":
    the next cycle tries the variant. ``waits``: the variant competes and holds no quota."""

    tag: str
    reason: str
    refusal: Refusal
    waits: bool = False


def _line(variant: JudgedVariant, begins_at: datetime | None, now: datetime) -> _VariantLine:
    """Returns the part of a parent's explanation about one variant. ``begins_at``: the end of the
    variant's createDelaySeconds."""
    workload = variant.workload
    if workload.charge is not None:
        waits = [name for name, state in workload.checks if state != "Ready"]
        message = f"reserved, waits for {', '.join(waits) or 'admission'}"
        if workload.state == PROMISED:
            message = "takes over once the job has stopped"
        return _VariantLine(
            variant.tag,
            reasons.UNSATISFIED_ADMISSION_CHECKS,
            Refusal(reason="", message=message),
        )
    if not variant.desired.active:
        message = f"inactive ({variant.desired.why})"
        if variant.desired.why is ActivityReason.CREATE_DELAY:
            message += until_text(begins_at)
        elif variant.desired.why is ActivityReason.REJECTED and workload.problem is not None:
            message += f": {workload.problem.message}"
        return _VariantLine(
            variant.tag,
            reasons.WAITING_FOR_FAMILY,
            Refusal(reason="", message=message),
        )
    if not workload.is_due(now):
        because = f": {workload.problem.message}" if workload.problem is not None else ""
        backoff = Refusal(reason="", message=f"waits{until_text(workload.requeue_at)}{because}")
        return _VariantLine(variant.tag, BACKOFF.reason, backoff, waits=True)
    refusal = refusal_for(workload)
    if refusal is not None:
        return _VariantLine(variant.tag, refusal.reason, refusal, waits=True)
    if workload.queue is not None:
        refusal = Refusal(reason="", message="tried in the next cycle")
        return _VariantLine(variant.tag, "", refusal)
    reason = workload.status_reason or reasons.SUSPENDED
    refusal = Refusal(reason="", message="does not compete")
    return _VariantLine(variant.tag, reason, refusal, waits=True)
