"""The roles and variants that a queue gives: which workloads are parents, and the flavors of their
variants. docs/spec/lifecycle.md#4.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.reading.canonical import encode, spec_of
from admittance.api.workload import (
    ALLOWED_FLAVORS,
    FAMILY_GATE,
    GATED_BY,
    PARENT_VARIANT,
    AdmissionConstraints,
    Kept,
    NamedGate,
    WorkloadSpec,
)
from admittance.events import reasons
from admittance.family import FamilyRules, Tag, variant_name
from admittance.workload.change import (
    Change,
    FactOutcome,
    applied,
    with_condition,
    with_spec,
    with_status,
)
from admittance.workload.conditions import Type, find, is_false, is_true
from admittance.workload.families.family_change import FamilyTransition, with_rejection
from admittance.workload.family_info import allowed_flavors
from admittance.workload.moves.backoff import KEPT_REASONS, no_wait
from admittance.workload.moves.eviction import evict, withdraw
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import ARRAY, PARENT, VARIANT, StoredWorkload, head
from admittance.workload.transition_context import QueueChanged, TransitionContext
from admittance.workload.transitions import transition

REGULAR: Final = "regular"


class _PodSet(Kept, frozen=True, kw_only=True):
    min_count: int | None = None


class _PodSets(Kept, frozen=True, kw_only=True):
    pod_sets: tuple[_PodSet, ...] = ()


_pod_sets = msgspec.json.Decoder(_PodSets)


def is_partial(spec: bytes | msgspec.Raw) -> bool:
    """Whether the workload uses partial admission (minCount); such a workload gets no variants."""
    return any(pod_set.min_count is not None for pod_set in _pod_sets.decode(spec).pod_sets)


def with_role(workload: StoredWorkload, role: str) -> StoredWorkload:
    """The workload with the role set in its spec and annotation."""
    notes = annotations_of_role(workload.metadata.annotations, role)
    new = with_spec(workload, role=None if role == REGULAR else role)
    return replace(new, metadata=replace(new.metadata, annotations=notes))


def annotations_of_role(annotations: Mapping[str, str], role: str) -> dict[str, str]:
    """The annotations of a workload with that role: those of a parent, and no others, say that it
    is a parent."""
    others = {name: text for name, text in annotations.items() if name != PARENT_VARIANT}
    return {**others, PARENT_VARIANT: "true"} if role == PARENT else others


def role_now(workload: StoredWorkload, context: TransitionContext) -> str:
    """The role that the queue now gives to a workload that is not a variant. An admitted workload
    keeps its role."""
    spec = head(workload)
    keeps = holds_quota(workload) or is_true(workload, Type.FINISHED) or spec.role == ARRAY
    if keeps or workload.status.admitted_variant:
        return spec.role
    namespace = workload.metadata.namespace
    if not context.queues.cluster_queue(namespace, spec.queue_name):
        return spec.role  # The role of the workload is unknown while the queue is missing.
    if context.queues.family_rules(namespace, spec.queue_name) is None:
        return REGULAR
    return REGULAR if is_partial(workload.spec) else PARENT


def became_parent(workload: StoredWorkload) -> StoredWorkload:
    """Returns a regular workload without quota, turned into a parent. A parent has no checks of its
    own."""
    parent = with_role(workload, PARENT)
    return with_status(parent, admission_checks=(), check_retry_counts={}, immediate_retries={})


def became_regular(parent: StoredWorkload, context: TransitionContext) -> Change:
    """Returns the change that turns a parent without an admitted variant into a regular workload
    with the checks of its queue."""
    state = parent.status.requeue_state
    own_backoff = is_false(parent, Type.REQUEUED)
    regular = with_status(
        with_role(parent, REGULAR),
        requeue_state=state if own_backoff else no_wait(state),
        variants=(),
        admitted_variant="",
        migrating_to="",
        family_start=None,
        first_admitted_at=None,
        next_change_at=None,
        preemption_gate=None,
    )
    meta = parent.metadata
    reserved = find(regular, Type.QUOTA_RESERVED)
    if head(regular).active and reserved is not None and reserved.reason not in KEPT_REASONS:
        # The present message of QuotaReserved is about variants, which a regular workload does not
        # have.
        regular = with_condition(
            regular, Type.QUOTA_RESERVED, False, reasons.PENDING_EVALUATION, now=context.now
        )
    change = transition(regular, QueueChanged(namespace=meta.namespace, name=meta.name), context)
    return change if change.outcome is FactOutcome.APPLIED else applied(regular)


def queue_changed(family: FamilyTransition, fact: QueueChanged) -> Change:
    """Returns the change of the parent after its queue changed. The parent's variants are changed
    afterwards."""
    parent = family.existing_parent()
    if role_now(parent, family.context) == REGULAR:
        return became_regular(parent, family.context)
    return transition(parent, fact, family.parent_context)


def variants_changed(family: FamilyTransition, fact: QueueChanged) -> None:
    """Applies a change of a queue to each variant. A variant that the queue no longer has stays
    until it is deleted."""
    if family.parent is None or head(family.parent).role != PARENT:
        return
    update_variants(family)
    for name in list(family.variants):
        variant = family.variants[name]
        change = transition(variant, fact, family.context)
        if change.outcome is FactOutcome.APPLIED:
            family.put(name, with_rejection(variant, change))


def update_variants(family: FamilyTransition) -> None:
    """Sets places and flavors of the family's variants to the values in the queue's rules."""
    if family.rules is None:
        return
    for variant in list(family.variants.values()):
        _update_variant(family, variant, family.rules)


def _update_variant(family: FamilyTransition, variant: StoredWorkload, rules: FamilyRules) -> None:
    spec = head(variant)
    tag = rules.tag(spec.variant)
    if tag is None:
        return
    flavors = tag.within(allowed_flavors(family.existing_parent()))
    had = spec.admission_constraints.allowed_resource_flavors if spec.admission_constraints else ()
    if not flavors or (spec.sibling_index == tag.place and had == flavors):
        return
    new = with_spec(
        variant,
        siblingIndex=tag.place,
        admissionConstraints={"allowedResourceFlavors": list(flavors)},
    )
    name = variant.metadata.name
    family.keep(new)
    if new.status.promised is not None:
        return
    admission = new.status.admission
    if admission is None or not holds_quota(new) or is_stopping(new):
        return
    used = {flavor for place in admission.pod_set_assignments for flavor in place.flavors.values()}
    if used <= set(flavors):
        return
    message = f"Variant {spec.variant} may no longer use {', '.join(sorted(used - set(flavors)))}"
    if is_true(new, Type.ADMITTED):
        family.put(name, evict(new, reasons.FLAVORS_CHANGED, message, family.context))
    else:
        family.put(name, withdraw(new, reasons.FLAVORS_CHANGED, message, family.context))


_NOT_CARRIED: Final = frozenset({PARENT_VARIANT, ALLOWED_FLAVORS, GATED_BY})
"""Annotations of a parent that its variants do not have."""


class PlannedVariant(NamedTuple):
    """A variant that is to be created. ``spec``: the bytes of the spec in canonical form, as
    stored."""

    tag: Tag
    flavors: tuple[str, ...]
    spec: bytes


def wanted_tags(parent: StoredWorkload, rules: FamilyRules) -> tuple[Tag, ...]:
    """The tags of the desired variants of a parent, best first."""
    return rules.tags_within(allowed_flavors(parent))


def name_of(parent: StoredWorkload, tag: str, *, taken: bool = False) -> str:
    """Returns the workload name of a parent's variant. ``taken``: another workload already has the
    variant's usual name, so the returned name ends in a hash.
    """
    meta = parent.metadata
    return variant_name(meta.name, meta.uid, tag, force_hash=taken)


def planned_variants(
    parent: StoredWorkload, rules: FamilyRules, *, active: bool = True
) -> Iterator[PlannedVariant]:
    """The desired variants of a parent. The parent's spec is decoded only once."""
    spec = spec_of(parent.spec)
    allowed = allowed_flavors(parent)
    for tag in rules.tags_within(allowed):
        flavors = tag.within(allowed)
        yield PlannedVariant(tag, flavors, encode(_variant(spec, tag, flavors, active)))


def _variant(spec: WorkloadSpec, tag: Tag, flavors: tuple[str, ...], active: bool) -> WorkloadSpec:
    gates = tuple(gate for gate in spec.preemption_gates if gate.name != FAMILY_GATE)
    return msgspec.structs.replace(
        spec,
        role=VARIANT,
        variant=tag.name,
        sibling_index=tag.place,
        active=active,
        maximum_execution_time_seconds=None,
        admission_constraints=AdmissionConstraints(allowed_resource_flavors=flavors),
        preemption_gates=(*gates, NamedGate(name=FAMILY_GATE)),
    )


def metadata_of(parent: StoredWorkload, name: str) -> Mapping[str, Any]:
    """Returns the metadata with which a variant is submitted."""
    meta = parent.metadata
    annotations = {k: v for k, v in meta.annotations.items() if k not in _NOT_CARRIED}
    return {
        "name": name,
        "namespace": meta.namespace,
        **({"labels": meta.labels} if meta.labels else {}),
        **({"annotations": annotations} if annotations else {}),
        "ownerReferences": [
            {
                "apiVersion": parent.api_version,
                "kind": "Workload",
                "name": meta.name,
                "uid": meta.uid,
                "controller": True,
            }
        ],
    }


def manifest_of(parent: StoredWorkload, name: str, spec: bytes) -> bytes:
    """Returns the manifest with which a variant is submitted."""
    return msgspec.json.encode(
        {
            "apiVersion": parent.api_version,
            "kind": "Workload",
            "metadata": metadata_of(parent, name),
            "spec": msgspec.Raw(spec),
        }
    )
