"""Updates the status of a parent from its variants. docs/spec/lifecycle.md#1.3, #4.10.

The status has the rows of the variants, the reason why no variant is admitted, the end of a common
wait, and the time of the next change of a desired state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.meta import Condition
from admittance.api.workload import RequeueState, VariantRow
from admittance.events import reasons
from admittance.family import (
    STOPPED,
    ActivityReason,
    DesiredState,
    FamilyRules,
    begins,
    changes_next,
)
from admittance.workload.change import with_condition, with_status
from admittance.workload.conditions import (
    PendingReason,
    Type,
    find,
    is_false,
    is_held,
    pending_reason,
)
from admittance.workload.families.family_change import FamilyTransition
from admittance.workload.families.roles import wanted_tags
from admittance.workload.family_info import allowed_flavors, parent_state, variant_state
from admittance.workload.moves.backoff import no_wait, rejection_phrase
from admittance.workload.phase import Phase, holds_quota, is_reserved, phase
from admittance.workload.stored import OutboxEntry, StoredWorkload, head

EACH_MAX: Final = 300
"""Longest text about one variant in a message, in characters."""


def update_parent_status(family: FamilyTransition, *, requested: bool = False) -> None:
    """Updates the parent's status if another change writes the parent anyway, if an update was
    requested (``requested``), or if one of the times in the status changes."""
    parent = family.existing_parent()
    states = [variant_state(variant) for variant in family.variants.values()]
    at = changes_next(parent_state(parent), states, family.rules, family.now)
    touched = family.touched(family.parent_name)
    desired = family.desired()
    waits = _wait(family, desired)
    same = at == parent.status.next_change_at and waits == parent.status.requeue_state
    if not touched and not requested and same:
        return
    rows = rows_of(map(summary_of, family.variants.values()), desired)
    updated = with_status(parent, variants=rows, next_change_at=at, requeue_state=waits)
    pending = _reason(family, updated, desired)
    if pending is None:
        if updated != parent:
            family.keep(updated)
        return
    reason, message = pending
    before = find(parent, Type.QUOTA_RESERVED)
    outbox: tuple[OutboxEntry, ...] = ()
    if before is None or before.reason != reason:
        outbox = (OutboxEntry(what="pending", reason=reason, message=message),)
    if before is None or (before.reason, before.message) != pending:
        updated = with_condition(
            updated, Type.QUOTA_RESERVED, False, reason, message, now=family.now
        )
    if updated != parent:
        family.keep(updated, *outbox)


def update_finished_parent(family: FamilyTransition) -> None:
    """Updates the rows of a parent that has finished. If all of its variants were deleted with the
    end of its job, their rows stay."""
    parent = family.existing_parent()
    rows = rows_of(map(summary_of, family.variants.values()), family.desired())
    rows = rows or parent.status.variants
    family.keep(with_status(parent, variants=rows, next_change_at=None))


def _wait(family: FamilyTransition, desired: dict[str, DesiredState]) -> RequeueState | None:
    """The parent's requeue state. While each variant of the parent waits for a time, the parent
    waits until the first of these times. A backoff of the parent itself stays."""
    parent = family.existing_parent()
    state = parent.status.requeue_state
    if holds_quota(parent) or is_false(parent, Type.REQUEUED):
        return state
    rules = _rules_of_waiting(family, parent)
    requeue_at = _first_time(family, rules, desired) if rules is not None else None
    if requeue_at is None:
        return no_wait(state)
    return RequeueState(count=state.count if state is not None else None, requeue_at=requeue_at)


def _first_time(
    family: FamilyTransition, rules: FamilyRules, desired: dict[str, DesiredState]
) -> datetime | None:
    """The earliest time for which a variant of the family waits; None: a variant waits for no time,
    or does not exist yet."""
    parent = family.existing_parent()
    tags = {head(family.variants[name]).variant for name in desired if name in family.variants}
    if any(tag.name not in tags for tag in wanted_tags(parent, rules)):
        return None
    times: list[datetime] = []
    for name, wanted in desired.items():
        variant = family.variants[name]
        if wanted.why is ActivityReason.CREATE_DELAY:
            at = begins(parent_state(parent), rules, head(variant).variant)
        elif wanted.active:
            state = variant.status.requeue_state
            waits = phase(variant, family.now) is Phase.BACKOFF
            at = state.requeue_at if waits and state is not None else None
        elif wanted.why in STOPPED:
            continue  # This variant needs no timer: time alone never activates it.
        else:
            return None
        if at is None or at <= family.now:
            return None
        times.append(at)
    return min(times, default=None)


def _rules_of_waiting(family: FamilyTransition, parent: StoredWorkload) -> FamilyRules | None:
    """The rules of a family that waits only for its variants; None: it also waits for other things,
    or has no rules."""
    waits = (
        head(parent).active
        and not is_held(parent)
        and pending_reason(parent, family.parent_context) is None
    )
    return family.rules if waits else None


def _reason(
    family: FamilyTransition, parent: StoredWorkload, desired: dict[str, DesiredState]
) -> PendingReason | None:
    """Why no variant is admitted; None: a variant is admitted, or the parent has another reason to
    wait."""
    if holds_quota(parent) or is_false(parent, Type.REQUEUED):
        return None
    rules = _rules_of_waiting(family, parent)
    if rules is None:
        return None
    if not wanted_tags(parent, rules):
        allowed = ", ".join(sorted(allowed_flavors(parent) or ()))
        return PendingReason(
            reasons.NO_MATCHING_FLAVOR, f"The queue offers none of the flavors: {allowed}"
        )
    judged = [
        (variant, desired[name]) for name in desired if (variant := family.variants.get(name))
    ]
    if not judged:
        return None
    given = [
        reserved.reason
        for variant, wanted in judged
        if wanted.active
        and not is_reserved(variant)
        and (reserved := find(variant, Type.QUOTA_RESERVED)) is not None
    ]
    # Take the reason of the best variant as the family's reason. Take NoMatchingFlavor only if all
    # variants with a reason have this reason.
    held = any(map(_holds, judged))
    possible = [reason for reason in given if reason != reasons.NO_MATCHING_FLAVOR]
    if not possible and not held:
        possible = given
    otherwise = reasons.UNSATISFIED_ADMISSION_CHECKS if held else reasons.WAITING_FOR_FAMILY
    reason = possible[0] if possible else otherwise
    return PendingReason(
        reason, "; ".join(_variant_text(family, variant, wanted) for variant, wanted in judged)
    )


def _holds(judged: tuple[StoredWorkload, DesiredState]) -> bool:
    return is_reserved(judged[0]) and judged[1].active


def _variant_text(family: FamilyTransition, variant: StoredWorkload, wanted: DesiredState) -> str:
    tag = head(variant).variant
    reserved = find(variant, Type.QUOTA_RESERVED)
    if wanted.why is ActivityReason.CREATE_DELAY:
        at = begins(parent_state(family.existing_parent()), family.rules, tag)
        return f"{tag}: inactive ({wanted.why}){until_text(at)}"
    if wanted.why is ActivityReason.REJECTED:
        return f"{tag}: inactive ({wanted.why}): {rejection_phrase(variant)}"[:EACH_MAX]
    if not wanted.active:
        return f"{tag}: inactive ({wanted.why})"
    if is_reserved(variant):
        waits = sorted(row.name for row in variant.status.admission_checks if row.state != "Ready")
        return f"{tag}: reserved, waits for {', '.join(waits) or 'its admission'}"
    if reserved is None:
        return f"{tag}: not considered yet"
    return f"{tag}: {reserved.message or reserved.reason}"[:EACH_MAX]


def until_text(at: datetime | None) -> str:
    """Returns the part of a message that names the time ``at``; "": there is no time."""
    return f" until {at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if at is not None else ""


SHOWN: Final = (Type.QUOTA_RESERVED, Type.ADMITTED, Type.EVICTED, Type.REQUEUED)
"""Conditions of a variant that the parent's row about the variant repeats."""

MESSAGE_MAX: Final = 400
"""Longest variant message in a parent's rows, in characters: a parent can have dozens of
variants."""


class VariantSummary(NamedTuple):
    """A variant's row in the parent's status, without the reason that policy gives. ``place``: the
    variant's place among the siblings."""

    place: int
    row: VariantRow


def summary_of(variant: StoredWorkload) -> VariantSummary:
    """Returns the summary of a stored variant for the parent's row."""
    spec = head(variant)
    constraints = spec.admission_constraints
    conditions = {condition.type: condition for condition in variant.status.conditions}
    row = VariantRow(
        name=variant.metadata.name,
        variant=spec.variant,
        resource_flavors=(constraints and constraints.allowed_resource_flavors) or (),
        active=spec.active,
        conditions=tuple(_short(conditions[kind]) for kind in SHOWN if kind in conditions),
    )
    return VariantSummary(spec.sibling_index or 0, row)


def _short(condition: Condition) -> Condition:
    if len(condition.message) <= MESSAGE_MAX:
        return condition
    return replace(condition, message=f"{condition.message[: MESSAGE_MAX - 3]}...")


def rows_of(
    variants: Iterable[VariantSummary], wants: Mapping[str, DesiredState]
) -> tuple[VariantRow, ...]:
    """Returns the rows of ``status.variants``, the best variant first. ``wants``: the desired
    states; a variant without one gets no reason."""
    ordered = sorted(variants, key=lambda summary: (summary.place, summary.row.name))
    return tuple(
        replace(summary.row, why=str(wanted.why)) if wanted is not None else summary.row
        for summary in ordered
        for wanted in (wants.get(summary.row.name),)
    )
