"""The invariants of families, checked at every revision, and what the policy requires at rest.

From docs/spec/lifecycle.md#4, and from what is stored only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from admittance.family import FamilyRules, desired_variants
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.families.roles import wanted_tags
from admittance.workload.family_info import allowed_flavors, parent_state, variant_state
from admittance.workload.phase import holds_quota
from admittance.workload.stored import PARENT, VARIANT, StoredWorkload, head, owner_of
from simulation.invariants.siblings import between, runs

MIRRORED = ("QuotaReserved", "Admitted", "Evicted", "Requeued")


class FamilyWatch:
    """Knows every parent and variant as it is stored; raises AssertionError where an invariant is
    broken. Without families it looks at a role and forgets it."""

    def __init__(self) -> None:
        self.parents: dict[str, StoredWorkload] = {}
        self.variants: dict[str, dict[str, StoredWorkload]] = {}
        """Uid of the parent to its variants by name."""
        self._keys: dict[str, tuple[str, str]] = {}
        self.names: set[str] = set()
        """Every name that a variant ever had."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def saw(self, key: str, workload: StoredWorkload | None) -> None:
        """Records a new version of the workload; None: it was deleted."""
        role = head(workload).role if workload is not None else ""
        uid, name = self._keys.pop(key, ("", ""))
        if uid and name:
            self.variants[uid].pop(name, None)
        elif uid:
            self.parents.pop(uid, None)
        if workload is None or role not in (PARENT, VARIANT):
            return
        if role == PARENT:
            self._parent(key, workload)
        else:
            self._variant(key, workload)

    def _parent(self, key: str, parent: StoredWorkload) -> None:
        uid = parent.metadata.uid
        self._keys[key] = uid, ""
        self.parents[uid] = parent
        assert not parent.status.admission_checks, f"the parent {key} has rows of checks (4.1)"

    def _variant(self, key: str, variant: StoredWorkload) -> None:
        _, uid = owner_of(variant)
        name = variant.metadata.name
        self._keys[key] = uid, name
        self.names.add(name)
        siblings = self.variants.setdefault(uid, {})
        siblings[name] = variant
        admitted = [n for n, sibling in siblings.items() if runs(sibling)]
        assert len(admitted) <= 1, f"two of one family are admitted: {admitted} (4.5)"

    def settled(self) -> None:
        """An atomic batch is whole: what has to hold between several objects."""
        for uid, parent in self.parents.items():
            broken = list(between(parent, self.variants.get(uid, {}).values()))
            assert not broken, f"{parent.metadata.name}: {'; '.join(broken)}"
        for uid, variants in self.variants.items():
            if uid not in self.parents:
                broken = list(between(None, variants.values()))
                assert not broken, f"{uid}: {'; '.join(broken)}"

    def at_rest(
        self, parent: StoredWorkload, rules: FamilyRules | None, now: datetime
    ) -> Iterator[str]:
        """Yields a sentence for each difference from the family policy, once all messages are
        applied."""
        variants = self.variants.get(parent.metadata.uid, {})
        if parent.metadata.deletion_timestamp is not None:
            return
        if is_true(parent, Type.FINISHED):
            for name, variant in variants.items():
                if not is_true(variant, Type.FINISHED):
                    yield f"{name} goes on although the parent has finished"
            return
        if rules is None:
            left = set(variants) - {parent.status.admitted_variant}
            if left:
                yield f"the queue knows no families, and there are {sorted(left)}"
            return
        yield from _as_wanted(parent, variants, rules, now)
        yield from _row_faults(parent, variants)


def _as_wanted(
    parent: StoredWorkload,
    variants: Mapping[str, StoredWorkload],
    rules: FamilyRules,
    now: datetime,
) -> Iterator[str]:
    tags = {tag.name: tag for tag in wanted_tags(parent, rules)}
    wishes = desired_variants(
        parent_state(parent), map(variant_state, variants.values()), rules, now
    )
    # One that is being deleted stays until the job has stopped, and comes back after that.
    going = {
        name
        for name, variant in variants.items()
        if variant.metadata.deletion_timestamp is not None
    }
    leaving = {head(variants[name]).variant for name in going}
    variants = {name: variant for name, variant in variants.items() if name not in going}
    there = [head(variant).variant for variant in variants.values()]
    twice = len(set(there)) < len(there)
    if twice or not set(there) <= set(tags) <= {*there, *leaving}:
        yield f"it has {sorted(there)}, and is to have {sorted(tags)}"
        return
    mine = head(parent)
    for name, variant in variants.items():
        spec, tag = head(variant), tags[head(variant).variant]
        wish = wishes[name]
        if spec.active != wish.active:
            yield f"{name} is active {spec.active}, and policy says {wish}"
        if holds_quota(variant) and not wish.active and not is_true(variant, Type.EVICTED):
            yield f"{name} holds quota, and policy says {wish}"
        if (spec.priority or 0) != (mine.priority or 0):
            yield f"{name} has priority {spec.priority}, the parent {mine.priority}"
        if spec.queue_name != mine.queue_name:
            yield f"{name} is in {spec.queue_name}, the parent in {mine.queue_name}"
        if spec.sibling_index != tag.place:
            yield f"{name} has place {spec.sibling_index}, and is to have {tag.place}"
        if allowed_flavors(variant) != frozenset(tag.within(allowed_flavors(parent))):
            yield f"{name} may have {allowed_flavors(variant)}"


def _row_faults(parent: StoredWorkload, variants: Mapping[str, StoredWorkload]) -> Iterator[str]:
    """Compares the rows of the parent with its variants."""
    rows = {row.name: row for row in parent.status.variants}
    if set(rows) != set(variants):
        yield f"it has rows of {sorted(rows)}, and the variants are {sorted(variants)}"
        return
    places = [head(variants[name]).sibling_index or 0 for name in rows]
    if places != sorted(places):
        yield f"it has the rows of its variants in the order {list(rows)}"
    for name, row in rows.items():
        spec = head(variants[name])
        if (row.variant, row.active) != (spec.variant, spec.active):
            yield f"its row of {name} has the variant {row.variant}, active {row.active}"
        shown = {
            condition.type: (condition.status, condition.reason) for condition in row.conditions
        }
        has = {
            kind: (state.status, state.reason)
            for kind in MIRRORED
            if (state := find(variants[name], kind)) is not None
        }
        if shown != has:
            yield f"its row of {name} has {shown}, and the variant has {has}"
