"""Reads the family state from a stored parent or variant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from admittance.api.workload import ALLOWED_FLAVORS, FAMILY_GATE, GatePosition
from admittance.events import facts, reasons
from admittance.family import GateOpening, ParentState, Sibling, VariantState
from admittance.workload.conditions import Type, find, gated_by, is_false, is_held, is_true
from admittance.workload.phase import is_reserved, is_stopping
from admittance.workload.stored import StoredWorkload, head, owner_of

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)


def allowed_flavors(workload: StoredWorkload) -> frozenset[str] | None:
    """The flavors that the workload may use; None: all flavors."""
    constraints = head(workload).admission_constraints
    if constraints is not None and constraints.allowed_resource_flavors is not None:
        return frozenset(constraints.allowed_resource_flavors)
    written = workload.metadata.annotations.get(ALLOWED_FLAVORS)
    if written is None:
        return None
    return frozenset(name.strip() for name in written.split(",") if name.strip())


def parent_state(parent: StoredWorkload) -> ParentState:
    """Returns the fields of a parent that policy reads. Does not check that the workload is a
    parent."""
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
        gate=GateOpening(gate.holder, gate.since) if gate is not None else None,
    )


def variant_state(variant: StoredWorkload) -> VariantState:
    """Returns the fields of a variant that policy reads. Does not check that the workload is a
    variant."""
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


Gates = tuple[GatePosition, ...]


def is_used(gate: GatePosition) -> bool:
    """Whether workloads were preempted for the reservation of the variant that has the gate."""
    return gate.used_at is not None


def with_use_noted(gates: Gates, has_preempted: bool, now: datetime) -> Gates:
    """Returns the gates with a note whether workloads are preempted for the current reservation.
    The note is stored, because a preempted workload may be deleted or hold other quota later."""
    since = now if has_preempted else None
    return tuple(
        replace(gate, used_at=since)
        if gate.name == FAMILY_GATE and gate.position == "Open" and gate.used_at != since
        else gate
        for gate in gates
    )


def preempts_workloads(fact: facts.Assigned) -> bool:
    """Whether the assignment preempts workloads, in the same decision or later."""
    pending = fact.pending_preemption
    return bool(fact.preempts) or (pending is not None and pending.issued)


def gate_of(workload: StoredWorkload) -> GatePosition:
    """The preemption gate of the variant that the family controls; the gate is closed by
    default."""
    for gate in workload.status.preemption_gates:
        if gate.name == FAMILY_GATE:
            return gate
    return GatePosition(name=FAMILY_GATE)


def with_closed_gate(workload: StoredWorkload) -> Gates:
    """Returns the gates with the family's gate closed. The note whether workloads are preempted for
    the current reservation stays in the gates."""
    return tuple(
        replace(gate, position="Closed") if gate.name == FAMILY_GATE else gate
        for gate in workload.status.preemption_gates
    )


def sibling(variant: StoredWorkload, place: int) -> Sibling:
    """Returns the variant in the form in which gate policy reads it. An absent QuotaReserved and
    the reason PendingEvaluation both mean that the scheduler has not evaluated the variant in the
    present attempt."""
    reserved = find(variant, Type.QUOTA_RESERVED)
    gate = gate_of(variant)
    is_only_reserved = is_reserved(variant) and not is_true(variant, Type.ADMITTED)
    return Sibling(
        name=variant.metadata.name,
        place=place,
        evaluated=reserved is not None and reserved.reason != reasons.PENDING_EVALUATION,
        blocked=is_true(variant, Type.BLOCKED_ON_PREEMPTION_GATES),
        open=gate.position == "Open",
        took=is_used(gate) and is_only_reserved,
    )


def competes(variant: StoredWorkload) -> bool:
    """Whether the variant competes or holds quota: it is active and not in backoff. A variant in
    backoff does not delay its siblings.
    """
    if variant.metadata.deletion_timestamp is not None or is_true(variant, Type.FINISHED):
        return False
    return head(variant).active and (is_reserved(variant) or not is_false(variant, Type.REQUEUED))
