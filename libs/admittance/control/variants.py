"""Submitted variants: the stored variant is computed from its parent, whatever was submitted.

Source: docs/spec/lifecycle.md#4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.api.workload import Kept
from admittance.control.known import FamilyRef, VersionedWorkload, Workloads, ref_of
from admittance.events import facts
from admittance.family.policy import FamilyRules, VariantState, desired_variants
from admittance.workload.change import Change, ignored, refused, with_spec
from admittance.workload.conditions import Type, is_true
from admittance.workload.families.family_change import FamilyMembers
from admittance.workload.families.shaping import metadata_of, name_of, planned_variants
from admittance.workload.family_info import parent_state, variant_state
from admittance.workload.moves.arrival import Arrived
from admittance.workload.stored import PARENT, VARIANT, StoredWorkload, head, owner_of

MADE_MAX: Final = 256
"""Number of parents with cached variants; siblings are submitted one after another."""
_MARK: Final = b'"variant"'


class _Reference(Kept, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Meta(Kept, frozen=True, kw_only=True):
    owner_references: tuple[_Reference, ...] = ()


class _Spec(Kept, frozen=True, kw_only=True):
    role: str = ""
    variant: str = ""


class VariantClaim(Kept, frozen=True, kw_only=True):
    """The parent and the variant that a submission names."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()

    @property
    def owner(self) -> tuple[str, str]:
        """Name and uid of the parent; empty if it names none."""
        for one in self.metadata.owner_references:
            if one.kind == "Workload":
                return one.name, one.uid
        return "", ""


_claim = msgspec.json.Decoder(VariantClaim)


def claim_of(fact: facts.Submitted) -> VariantClaim | None:
    """The claim of a submission with the role variant; None: it has another role."""
    written = bytes(fact.workload)
    if _MARK not in written:
        return None
    try:
        claim = _claim.decode(written)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None  # `validate_submission` reports the error.
    return claim if claim.spec.role == VARIANT else None


class VariantIntake:
    """Computes the stored form of submitted variants, and caches the variants of a parent."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[msgspec.Raw, FamilyRules, dict[str, bytes]]] = {}

    def spec_of(self, parent: StoredWorkload, rules: FamilyRules, tag: str) -> bytes | None:
        """The active spec of one of the parent's variants; None: the parent has no such variant."""
        uid = parent.metadata.uid
        kept = self._made.get(uid)
        if kept is None or kept[0] is not parent.spec or kept[1] is not rules:
            if len(self._made) >= MADE_MAX:
                self._made.clear()
            specs = {one.tag.name: one.spec for one in planned_variants(parent, rules)}
            kept = self._made[uid] = parent.spec, rules, specs
        return kept[2].get(tag)

    def enter(
        self,
        fact: facts.Submitted,
        claim: VariantClaim,
        present: StoredWorkload | None,
        family: FamilyMembers,
        rules: FamilyRules | None,
        now: datetime,
    ) -> Arrived | Change:
        """The variant as an `Arrived` fact, or why it is refused. ``present``: the workload with
        that name."""
        parent = family.parent
        tag = claim.spec.variant
        if present is not None:
            same = head(present).variant == tag and owner_of(present) == claim.owner
            if same and present.metadata.deletion_timestamp is None:
                return ignored(present, "Unchanged", "the variant exists")
            return refused(
                present, "AlreadyExists", f"a workload {fact.namespace}/{fact.name} exists"
            )
        if (
            parent is None
            or is_true(parent, Type.FINISHED)
            or parent.metadata.deletion_timestamp is not None
        ):
            name, uid = claim.owner
            return refused(None, "NoParent", f"there is no parent {name!r} with the uid {uid!r}")
        spec = self.spec_of(parent, rules, tag) if rules is not None else None
        if spec is None or rules is None:
            return refused(None, "NoSuchVariant", f"its parent has no variant {tag!r}")
        if fact.name not in (name_of(parent, tag), name_of(parent, tag, taken=True)):
            return refused(None, "OtherName", f"the variant {tag!r} has another name")
        twin = next((one for one in family.variants.values() if head(one).variant == tag), None)
        if twin is not None:
            return refused(None, "AlreadyExists", f"that variant is {twin.metadata.name!r}")
        states = [variant_state(one) for one in family.variants.values()]
        states.append(VariantState(fact.name, tag, *claim.owner))
        wish = desired_variants(parent_state(parent), states, rules, now).get(fact.name)
        stored = msgspec.Raw(spec)
        if wish is not None and not wish.active:
            plain = StoredWorkload(api_version=parent.api_version, kind="Workload", spec=stored)
            stored = with_spec(plain, active=False).spec
        metadata = msgspec.convert(metadata_of(parent, fact.name), ObjectMeta)
        return Arrived(
            namespace=fact.namespace,
            name=fact.name,
            uid=fact.uid,
            api_version=parent.api_version,
            metadata=replace(metadata, namespace=fact.namespace),
            spec=stored,
        )


class BatchFamilies:
    """The families as one batch changes them, on top of the index of stored workloads. ``known``:
    returns a workload with the batch's changes."""

    def __init__(self, workloads: Workloads, known: Callable[[str], VersionedWorkload]) -> None:
        self._workloads = workloads
        self._known = known
        self._refs: dict[str, FamilyRef | None] = {}
        self._new: dict[str, set[str]] = {}

    def ref(self, key: str) -> FamilyRef | None:
        """The family of the workload at that key; None: it is regular or does not exist."""
        if key in self._refs:
            return self._refs[key]
        return self._workloads.family_of(key)

    def note(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        """Records the change of a workload."""
        if after is None:
            if before is not None:
                self._refs[key] = None
            return
        if before is not None and before.spec is after.spec:
            return
        ref = ref_of(key, after)
        if ref is None and self.ref(key) is None:
            return
        self._refs[key] = ref
        if ref is not None:
            self._new.setdefault(ref.uid, set()).add(key)

    def has_parent(self, ref: FamilyRef) -> bool:
        """Whether the family's parent exists."""
        return self._parent(ref) is not None

    def _parent(self, ref: FamilyRef) -> StoredWorkload | None:
        parent = self._known(ref.parent).workload
        if parent is None or parent.metadata.uid != ref.uid or head(parent).role != PARENT:
            return None
        return parent

    def members(self, ref: FamilyRef) -> FamilyMembers:
        """The family's members, without finished and deleted ones."""
        parent = self._parent(ref)
        keys = self._workloads.variants_of(ref.uid)
        new = self._new.get(ref.uid)
        if new:
            keys = keys | new
        variants = {}
        for key in sorted(keys):
            variant = self._known(key).workload
            if key == ref.parent or variant is None or self.ref(key) != ref:
                continue
            if not is_true(variant, Type.FINISHED):
                variants[variant.metadata.name] = variant
        return FamilyMembers(parent, variants)
