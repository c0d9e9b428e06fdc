"""Computes the acts that one family of variants requires, from stored objects and the time. The
module is pure.

The acts are in this order: delete surplus variants, deactivate variants, set priorities, submit
missing variants (the best first), activate variants, open one preemption gate, update the parent's
rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec

from admittance.acts import Act
from admittance.events import facts, reasons
from admittance.family import (
    PREEMPTION_TIMEOUT,
    DesiredState,
    FamilyRules,
    VariantState,
    changes_next,
    desired_variants,
    to_open,
)
from admittance.variants.known_families import (
    KnownFamily,
    KnownParent,
    KnownVariant,
    QueueContext,
    RowMark,
)
from admittance.workload.families.roles import manifest_of, name_of, planned_variants


class RequiredActs(NamedTuple):
    """The acts that a family of variants requires. ``look``: when the required acts may change if
    nothing happens until then; None: never. ``gate_open``: a variant of the family has an open
    preemption gate. ``names``: the names that missing variants would get; a change of a workload
    with one of these names may change the acts."""

    acts: list[Act]
    look: datetime | None = None
    gate_open: bool = False
    names: tuple[str, ...] = ()


def required_acts(
    family: KnownFamily, context: QueueContext, taken: Callable[[str], bool], now: datetime
) -> RequiredActs:
    """Returns the acts that the family requires now. ``taken``: returns whether a workload of the
    namespace has the name.

    If the family's ClusterQueue is missing, only acts that depend on the parent alone are returned.
    If the ClusterQueue has no concurrent admission any more, the admitted variant stays while it is
    admitted."""
    parent = family.parent
    own, orphans = _own_and_orphans(family)
    acts = [_deleted(family, orphan, "namesake" if parent else "orphan") for orphan in orphans]
    if parent is None or parent.ended:
        return RequiredActs(acts)
    rules = context.rules
    # An unfinished variant that is being deleted still counts as a variant, as it does for the
    # workload-controller.
    states = [variant.state for variant in own if not variant.finished]
    desired = desired_variants(parent.state, states, rules, now)
    surplus = _surplus(parent, own, context)
    there = [variant for variant in own if not variant.deleting]
    acts += [
        _deleted(family, variant, surplus[n])
        for variant in there
        if (n := variant.state.name) in surplus
    ]
    alive = [
        variant for variant in there if variant.state.name not in surplus and not variant.finished
    ]
    activity_changes = list(_activity_changes(family, alive, desired))
    acts += [act for act in activity_changes if isinstance(act.fact, facts.Deactivated)]
    acts += _reprioritized(family, parent, alive)
    tags = rules.tags_within(parent.state.allowed) if rules is not None else ()
    names: list[str] = []
    if rules is not None:
        present = {variant.state.tag for variant in own}
        free = {}
        for tag in tags:
            if tag.name not in present:
                plain, hashed = (name_of(parent.stored, tag.name, taken=t) for t in (False, True))
                names += [plain, hashed]
                free[tag.name] = next((name for name in (plain, hashed) if not taken(name)), "")
        new_names = {tag: name for tag, name in free.items() if name}
        acts += _submitted(family, parent, rules, new_names, now)
    acts += [act for act in activity_changes if isinstance(act.fact, facts.Activated)]
    look = changes_next(parent.state, states, rules, now)
    if rules is not None:
        opened, again = _ungated(family, parent, alive, desired, rules, now)
        acts += opened
        look = min((at for at in (look, again) if at is not None), default=None)
    no_flavor = rules is not None and not tags and parent.state.active and not parent.state.admitted
    # If the feature gate ConcurrentAdmission was turned off while the workload-controller was down,
    # only the act `Aggregated` makes the workload-controller turn the parent into a regular
    # workload: no change of a queue does.
    regular = rules is None and bool(context.queue) and not parent.state.admitted
    outdated = regular or (no_flavor and parent.reason != reasons.NO_MATCHING_FLAVOR)
    acts += _aggregated(parent, own, desired, outdated=outdated)
    return RequiredActs(acts, look, any(variant.sibling.open for variant in alive), tuple(names))


def _own_and_orphans(family: KnownFamily) -> tuple[list[KnownVariant], list[KnownVariant]]:
    """Returns the variants of the family's parent, and the orphans: variants with an ownerReference
    to a parent that does not exist. A workload with the parent's name but another uid is not the
    parent."""
    parent = family.parent
    own, orphans = [], []
    for variant in sorted(
        family.variants.values(), key=lambda variant: (variant.place, variant.state.name)
    ):
        if parent is not None and variant.state.parent_uid == parent.state.uid:
            own.append(variant)
        elif not variant.deleting or variant.finished:
            # An unfinished variant that is being deleted needs no act: it only waits until its job
            # has stopped.
            orphans.append(variant)
    return own, orphans


def _surplus(
    parent: KnownParent, own: Iterable[KnownVariant], context: QueueContext
) -> dict[str, str]:
    """Returns the names of the surplus variants, which must be deleted because their tag is not
    offered or another variant has the same tag, each with the reason."""
    admitted = parent.state.admitted
    rules = context.rules
    if not context.queue or (rules is None and not admitted):
        # If the family's ClusterQueue is missing, no variant counts as surplus. If the ClusterQueue
        # has no concurrent admission, the workload-controller makes the parent a regular workload
        # and deletes its variants.
        return {}
    if rules is None:
        return {variant.state.name: "noPolicy" for variant in own if variant.state.name != admitted}
    offered = {tag.name for tag in rules.tags_within(parent.state.allowed)}
    surplus: dict[str, str] = {}
    best: dict[str, KnownVariant] = {}
    for variant in sorted(own, key=partial(_duplicate_rank, parent), reverse=True):
        name, tag = variant.state.name, variant.state.tag
        if tag not in offered:
            # The admitted variant may still run in the family's former ClusterQueue, with a flavor
            # that the new one does not offer.
            elsewhere = name == admitted and variant.quota_queue not in ("", context.queue)
            if not elsewhere:
                surplus[name] = "notOffered"
        elif best.setdefault(tag, variant) is not variant:
            surplus[name] = "double"
    return surplus


def _duplicate_rank(parent: KnownParent, variant: KnownVariant) -> tuple[bool, bool, bool, int]:
    """Sort key of variants with the same tag: the variant with the greatest key stays, the others
    are surplus."""
    name, state = variant.state.name, parent.state
    used = name in (state.admitted, state.migrating_to)
    return not variant.deleting, used, bool(variant.quota_queue), -len(name)


def _about(family: KnownFamily, variant: KnownVariant) -> dict[str, Any]:
    name = variant.state.name
    return {"namespace": family.name.namespace, "name": name, "uid": variant.uid}


def _deleted(family: KnownFamily, variant: KnownVariant, why: str) -> Act:
    return Act(facts.Deleted(**_about(family, variant)), why, revision=variant.revision)


def _activity_changes(
    family: KnownFamily, alive: list[KnownVariant], desired: Mapping[str, DesiredState]
) -> Iterator[Act]:
    by_name = {variant.state.name: variant for variant in alive}
    for name, wanted in desired.items():
        variant = by_name.get(name)
        if variant is None or variant.state.active == wanted.active:
            continue
        why = str(wanted.why)
        kind = facts.Activated if wanted.active else facts.Deactivated
        fact = kind(**_about(family, variant), reason=why)
        yield Act(fact, why, why, variant.revision)


def _reprioritized(
    family: KnownFamily, parent: KnownParent, alive: Iterable[KnownVariant]
) -> Iterator[Act]:
    for variant in alive:
        if variant.priority != parent.priority:
            fact = facts.Reprioritized(**_about(family, variant), priority=parent.priority)
            yield Act(fact, "parent", parent.priority, variant.revision)


def _submitted(
    family: KnownFamily,
    parent: KnownParent,
    rules: FamilyRules,
    new_names: Mapping[str, str],
    now: datetime,
) -> Iterator[Act]:
    """Yields the acts that submit the missing variants. ``new_names``: the name of each missing
    variant by tag, the best first."""
    if not new_names:
        return
    stored, state = parent.stored, parent.state
    others = [
        variant.state
        for variant in family.variants.values()
        if variant.state.parent_uid == state.uid
    ]
    more = [VariantState(name, tag, state.name, state.uid) for tag, name in new_names.items()]
    desired = desired_variants(state, [*others, *more], rules, now)
    specs = {
        active: {
            planned.tag.name: planned.spec
            for planned in planned_variants(stored, rules, active=active)
        }
        for active in {desired[name].active for name in new_names.values()}
    }
    for tag, name in new_names.items():
        wanted = desired[name]
        manifest = manifest_of(stored, name, specs[wanted.active][tag])
        fact = facts.Submitted(namespace=state.namespace, name=name, workload=msgspec.Raw(manifest))
        yield Act(fact, str(wanted.why), (state.uid, wanted.active))


def _ungated(
    family: KnownFamily,
    parent: KnownParent,
    alive: Iterable[KnownVariant],
    desired: Mapping[str, DesiredState],
    rules: FamilyRules,
    now: datetime,
) -> tuple[list[Act], datetime | None]:
    """Returns the act that opens a variant's preemption gate, if a gate must open now, and when to
    decide again about gates."""
    state = parent.state
    if not state.active or state.waits or state.stopping:
        # The scheduler may try no variant of the family now, so an open preemption gate would be
        # useless.
        return [], None
    places = {tag.name: tag.place for tag in rules.tags}
    running = {
        variant.state.name: variant
        for variant in alive
        if variant.competes
        and (wanted := desired.get(variant.state.name)) is not None
        and wanted.active
    }
    siblings = [
        variant.sibling._replace(place=places[variant.state.tag]) for variant in running.values()
    ]
    name = to_open(siblings, state.gate, now)
    if name:
        variant = running[name]
        fact = facts.Ungated(**_about(family, variant))
        return [Act(fact, "blocked", state.gate, variant.revision)], None
    waiting = any(sibling.blocked and not sibling.open for sibling in siblings)
    if state.gate is None or not waiting:
        return [], None
    ends = state.gate.since + PREEMPTION_TIMEOUT
    return [], ends if ends > now else None


def _aggregated(
    parent: KnownParent,
    own: Iterable[KnownVariant],
    desired: Mapping[str, DesiredState],
    *,
    outdated: bool,
) -> Iterator[Act]:
    """Yields the act that updates the parent's status rows about its variants, if the stored rows
    differ or the parent is ``outdated``."""
    # The rows must be in the order of `admittance.workload.families.parent_status.rows_of`.
    rows = tuple(
        RowMark(name, variant.mark, str(desired[name].why) if name in desired else "")
        for variant in sorted(own, key=lambda variant: (variant.place, variant.state.name))
        if not variant.finished
        for name in (variant.state.name,)
    )
    if rows == parent.rows and not outdated:
        return
    state = parent.state
    fact = facts.Aggregated(namespace=state.namespace, name=state.name, uid=state.uid)
    # The mark of the act must not contain the parent's revision, which changes for many reasons: if
    # the workload-controller computed other rows than this module, the act would be published again
    # at every revision.
    yield Act(fact, "variants", (rows, parent.rows))
