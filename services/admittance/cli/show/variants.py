"""Families of variants as text: the policy of the queue, and the state of each variant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from admittance.api.workload import FAMILY_GATE
from admittance.cli.show import sections
from admittance.cli.support.output import NOTHING, Column, Table, columns_of
from admittance.cli.support.times import age
from admittance.client.arguments.times import span, stamp
from admittance.client.errors import sentence
from admittance.client.requests.workloads.families import (
    Family,
    FamilyMember,
    is_parent,
    is_variant,
)
from admittance.client.wording.phrases import admission_text
from admittance.client.wording.variants import SENTENCES
from admittance.events import reasons
from admittance.family import (
    ActivityReason,
    DesiredState,
    FamilyRules,
    ParentState,
    Tag,
    changes_next,
    desired_variants,
)
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.family_info import variant_state
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head, owner_of
from admittance.workload.waiting_reason import reason_of


def policy_text(rules: FamilyRules) -> str:
    """One sentence: how the queue's policy treats the variants of a workload."""
    count = len(rules.tags)
    tried = "1 variant is" if count == 1 else f"{count} variants are"
    if rules.mode == "NoMigration":
        return f"NoMigration: {tried} tried, and the first that is admitted stays"
    floor = f", to nothing below {rules.floor}" if rules.floor else ""
    return f"UpgradeOnly: {tried} tried, and the job moves up when a better one is admitted{floor}"


def tag_table(rules: FamilyRules) -> Table:
    """The table of the variants that the queue's policy defines, best first."""
    columns = columns_of("#PLACE", "VARIANT", "FLAVORS", "FROM", "UNTIL")
    rows = [
        (
            str(tag.place + 1),
            tag.name,
            ",".join(tag.flavors),
            f"{span(tag.create_delay)} after the beginning" if tag.create_delay else "at once",
            NOTHING
            if tag.delete_delay is None
            else f"{span(tag.delete_delay)} after the first admission",
        )
        for tag in rules.tags
    ]
    return Table(columns, rows)


def wish_text(
    wish: DesiredState, active: bool, tag: Tag | None, parent: ParentState, now: datetime
) -> str:
    """Why the policy requires a variant to be active or inactive, and from or until when.

    ``active``: the current state of the variant, which follows the policy within a moment.
    """
    text = f"{wish.why}: {SENTENCES[wish.why]}"
    if tag is not None:
        begins = parent.start + timedelta(seconds=tag.create_delay)
        ends = (
            parent.first_admitted + timedelta(seconds=tag.delete_delay)
            if parent.first_admitted is not None and tag.delete_delay is not None
            else None
        )
        if wish.why is ActivityReason.CREATE_DELAY:
            text += f" (from {_moment(begins, now)})"
        elif wish.why is ActivityReason.DELETE_DELAY and ends is not None:
            text += f" (since {stamp(ends)})"
        elif wish.why is ActivityReason.UPGRADE and ends is not None:
            text += f" (until {_moment(ends, now)})"
    if wish.active != active:
        text += f"; it is about to become {'active' if wish.active else 'inactive'}"
    return text


def _moment(moment: datetime, now: datetime) -> str:
    return f"{stamp(moment)}, in {span((moment - now).total_seconds())}"


def variant_table(family: Family, now: datetime) -> Table:
    """The table of a family's variants: whether each is active and why, and its phase."""
    columns = columns_of(
        "VARIANT", "ACTIVE", "PHASE", "SINCE", "RESERVED", "GATE", "WHY", "NAME", "MESSAGE"
    )
    wishes = family.wishes(now)
    rows = []
    for variant in family.variants:
        workload = variant.workload
        reason, message = reason_of(workload, now)
        rows.append(
            (
                variant.tag or NOTHING,
                "yes" if head(workload).active else "no",
                str(phase(workload, now)),
                age(phase_since(workload, now), now),
                reserved_text(workload),
                gate_text(workload, now),
                activity_text(family, variant, wishes.get(variant.found.name), now),
                variant.found.name,
                sentence(reason, message) or NOTHING,
            )
        )
    return Table(columns, rows)


def activity_text(
    family: Family, member: FamilyMember, wish: DesiredState | None, now: datetime
) -> str:
    """Why the variant is active or inactive; "-" once the job has finished."""
    if is_true(member.workload, Type.FINISHED):
        return NOTHING
    active = head(member.workload).active
    if wish is None:
        return f"the queue has no variant {member.tag} any more: the variant will be deleted"
    tag = family.rules.tag(member.tag) if family.rules is not None else None
    return wish_text(wish, active, tag, family.state, now)


def reserved_text(workload: StoredWorkload) -> str:
    """The admission of the variant, or the admission that is promised to it."""
    if workload.status.admission is not None:
        return admission_text(workload.status.admission)
    if workload.status.promised is not None:
        return f"promised: {admission_text(workload.status.promised)}"
    return NOTHING


def gate_text(workload: StoredWorkload, now: datetime) -> str:
    """The state of the variant's preemption gate."""
    row = next((r for r in workload.status.preemption_gates if r.name == FAMILY_GATE), None)
    if row is not None and row.position == "Open":
        return f"open for {age(row.last_transition_time, now)}"
    blocked = find(workload, Type.BLOCKED_ON_PREEMPTION_GATES)
    if blocked is not None and blocked.status == "True":
        return f"closed, needs it open for {age(blocked.last_transition_time, now)}"
    return "closed"


def phase_since(workload: StoredWorkload, now: datetime) -> datetime | None:
    """When the current phase of the workload began; None if unknown."""
    kind = {
        Phase.RUNNING: Type.PODS_READY,
        Phase.ADMITTED: Type.ADMITTED,
        Phase.EVICTING: Type.EVICTED,
        Phase.REJECTED: Type.EVICTED,
        Phase.FINISHED: Type.FINISHED,
        Phase.BACKOFF: Type.REQUEUED,
    }.get(phase(workload, now), Type.QUOTA_RESERVED)
    condition = find(workload, kind) or find(workload, Type.QUOTA_RESERVED)
    return condition.last_transition_time if condition is not None else None


def check_table(family: Family, now: datetime) -> Table:
    """The table of the checks of all active variants; a parent has no checks of its own."""
    rows: list[tuple[str, ...]] = []
    columns: tuple[Column, ...] = ()
    for variant in family.variants:
        if not head(variant.workload).active:
            continue
        table = sections.check_table(variant.workload, now)
        columns = (Column("VARIANT"), *table.columns)
        rows += [(variant.tag, *row) for row in table.rows]
    return Table(columns, rows)


def parent_facts(family: Family, now: datetime) -> Iterator[tuple[str, str]]:
    """Facts about the parent that the table of variants does not show."""
    status, state = family.parent.status, family.state
    count = len(family.variants)
    if family.rules is not None:
        yield "Family", policy_text(family.rules)
    else:
        yield "Family", f"variants: {count}; its queue has no policy for families any more"
    tags = {variant.found.name: variant.tag for variant in family.variants}
    if status.admitted_variant:
        when = find(family.parent, Type.ADMITTED)
        held = f", for {age(when.last_transition_time, now)}" if when is not None else ""
        stopping = ", its job is being stopped" if state.stopping else held
        if is_true(family.parent, Type.FINISHED):
            yield "Ran as", _named(tags, status.admitted_variant)
        else:
            yield "Admitted as", f"{_named(tags, status.admitted_variant)}{stopping}"
    if status.migrating_to:
        yield "Moves to", f"{_named(tags, status.migrating_to)}, once its job has stopped"
    if head(family.parent).active and not is_true(family.parent, Type.FINISHED):
        yield "Racing since", f"{stamp(state.start)} ({age(state.start, now)})"
    if status.first_admitted_at is not None:
        first = status.first_admitted_at
        yield "First admitted", f"{stamp(first)} ({age(first, now)})"
    yield "Migrations", str(migrations(family.parent)) if migrations(family.parent) else ""
    if status.preemption_gate is not None:
        held_by = status.preemption_gate
        yield (
            "Preemption gate",
            f"opened for {_named(tags, held_by.holder)}, "
            f"{stamp(held_by.since)} ({age(held_by.since, now)})",
        )
    yield "Next change", next_change(family, now)


def _named(tags: dict[str, str], name: str) -> str:
    tag = tags.get(name)
    return f"{tag} ({name})" if tag else name


def migrations(parent: StoredWorkload) -> int:
    """How often the parent's job has migrated to a better variant, as text."""
    stats = parent.status.scheduling_stats
    counted = stats.evictions if stats is not None else ()
    return sum(
        eviction.count
        for eviction in counted
        if reasons.FLAVOR_MIGRATION in (eviction.reason, eviction.underlying_cause)
    )


def next_change(family: Family, now: datetime) -> str:
    """The family's next change that happens at a known time, and this time; "" if there is none."""
    states = [variant_state(variant.workload) for variant in family.variants]
    moment = changes_next(family.state, states, family.rules, now)
    if moment is None:
        return ""
    before = desired_variants(family.state, states, family.rules, now)
    after = desired_variants(family.state, states, family.rules, moment)
    tags = {variant.found.name: variant.tag for variant in family.variants}
    turned = ", ".join(
        f"{tags.get(name, name)} {'becomes' if before[name].active != wish.active else 'stays'} "
        f"{'active' if wish.active else 'inactive'} ({wish.why})"
        for name, wish in after.items()
        if before[name] != wish
    )
    left = span((moment - now).total_seconds())
    return f"{stamp(moment)} (in {left})" + (f": {turned}" if turned else "")


def variant_facts(
    variant: StoredWorkload, family: Family | None, now: datetime
) -> Iterator[tuple[str, str]]:
    """Facts that a variant shows about its family. ``family``: None if the parent is deleted."""
    parent, _ = owner_of(variant)
    tag = head(variant).variant
    yield "Variant", f"{tag} of workload {parent}" if parent else tag
    if family is None:
        yield "Parent", f"{parent or 'none'}, which does not exist: the variant will be deleted"
        return
    own = next(
        (member for member in family.variants if member.found.name == variant.metadata.name), None
    )
    if own is not None:
        place = family.variants.index(own) + 1
        yield "Place", f"{place} of {len(family.variants)}, 1 is the best"
        yield "Why", activity_text(family, own, family.wishes(now).get(own.found.name), now)
    if variant.status.promised is not None:
        yield "Promised", admission_text(variant.status.promised)
    yield "Gate", gate_text(variant, now)
    yield "Job", f"that of workload {parent}: `admit describe workload {parent}`"


def family_facts(
    workload: StoredWorkload, family: Family | None, now: datetime
) -> Iterator[tuple[str, str]]:
    """Facts about the family of a workload; empty for a regular workload."""
    if is_parent(workload) and family is not None:
        yield from parent_facts(family, now)
    elif is_variant(workload):
        yield from variant_facts(workload, family, now)
