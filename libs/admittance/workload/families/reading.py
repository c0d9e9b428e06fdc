"""What a stored parent or variant tells of its family."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from admittance.api.workload import ALLOWED_FLAVORS
from admittance.family.gates import Opening
from admittance.family.states import ParentState, VariantState
from admittance.workload.conditions import Type, is_false, is_true
from admittance.workload.families.roles import owner_of
from admittance.workload.phase import is_stopping
from admittance.workload.standing import gated_by, is_held
from admittance.workload.stored import StoredWorkload, head

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)


def allowed_flavors(workload: StoredWorkload) -> frozenset[str] | None:
    """The flavors that it may have; None: any."""
    constraints = head(workload).admission_constraints
    if constraints is not None and constraints.allowed_resource_flavors is not None:
        return frozenset(constraints.allowed_resource_flavors)
    written = workload.metadata.annotations.get(ALLOWED_FLAVORS)
    if written is None:
        return None
    return frozenset(name.strip() for name in written.split(",") if name.strip())


def parent_state(parent: StoredWorkload) -> ParentState:
    """What is to be known of a parent. Its role is not looked at."""
    meta, status, spec = parent.metadata, parent.status, head(parent)
    gate = status.preemption_gate
    return ParentState(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        queue=spec.queue_name,
        active=(
            spec.active
            and not is_true(parent, Type.FINISHED)
            and meta.deletion_timestamp is None
            and not is_held(parent)
            and not gated_by(parent)
        ),
        waits=is_false(parent, Type.REQUEUED),
        start=status.family_start or meta.creation_timestamp or _LONG_AGO,
        admitted=status.admitted_variant,
        migrating_to=status.migrating_to,
        first_admitted=status.first_admitted_at,
        stopping=is_stopping(parent),
        allowed=allowed_flavors(parent),
        gate=Opening(gate.holder, gate.since) if gate is not None else None,
    )


def variant_state(variant: StoredWorkload) -> VariantState:
    """What is to be known of a variant. Its role is not looked at."""
    spec = head(variant)
    name, uid = owner_of(variant)
    return VariantState(
        name=variant.metadata.name,
        tag=spec.variant,
        parent=name,
        parent_uid=uid,
        stopped_by=variant.status.stopped_by,
        active=spec.active,
    )
