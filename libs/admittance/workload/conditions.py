"""Reads and sets conditions of a workload, and finds why the scheduler does not consider a
workload.

Source: docs/spec/lifecycle.md#1.2, #T02, #T30. Conditions are immutable.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from admittance.api.dependencies import DEPENDENCIES_GATE, described
from admittance.api.meta import Condition
from admittance.api.workload import ARRAY_GATE, GATED_BY
from admittance.events import reasons
from admittance.workload.stored import ARRAY, StoredWorkload, head

if TYPE_CHECKING:
    from admittance.workload.transition_context import TransitionContext


class Type(StrEnum):
    """Types of conditions; docs/spec/lifecycle.md#1.2."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    REQUEUED = "Requeued"
    PODS_READY = "PodsReady"
    DEACTIVATION_TARGET = "DeactivationTarget"
    BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates"
    FINISHED = "Finished"
    DEPENDENCIES_MET = "DependenciesMet"


MESSAGE_MAX = 32_768
"""Longest message of a condition in characters, as in Kubernetes; longer messages are cut."""

Conditions = tuple[Condition, ...]


def find(workload: StoredWorkload, kind: str) -> Condition | None:
    """The condition of that type; None: the condition is absent, which differs from a status of
    False."""
    for condition in workload.status.conditions:
        if condition.type == kind:
            return condition
    return None


def is_true(workload: StoredWorkload, kind: str) -> bool:
    """Whether the condition is present with status True."""
    # Called thirty times for each fact, so it does not call `find`.
    for condition in workload.status.conditions:
        if condition.type == kind:
            return condition.status == "True"
    return False


def find_true(workload: StoredWorkload, kind: str) -> Condition | None:
    """The condition of that type if its status is True."""
    condition = find(workload, kind)
    return condition if condition is not None and condition.status == "True" else None


def find_false(workload: StoredWorkload, kind: str) -> Condition | None:
    """The condition of that type if it is present with status False."""
    condition = find(workload, kind)
    return condition if condition is not None and condition.status == "False" else None


def is_false(workload: StoredWorkload, kind: str) -> bool:
    """Whether the condition is present with status False."""
    return find_false(workload, kind) is not None


def put(
    conditions: Conditions,
    kind: str,
    status: bool,
    reason: str,
    message: str = "",
    *,
    now: datetime,
) -> Conditions:
    """The conditions, with the one of type ``kind`` set. The transition time of a condition changes
    only with its status."""
    text = "True" if status else "False"
    since: datetime | None = now
    kept: list[Condition] = []
    for condition in conditions:
        if condition.type != kind:
            kept.append(condition)
        elif condition.status == text:
            since = condition.last_transition_time
    new = Condition(
        type=kind,
        status=text,
        reason=reason,
        message=message[:MESSAGE_MAX],
        last_transition_time=since,
    )
    return (*kept, new)


def revoke(conditions: Conditions, kind: str, *, now: datetime) -> Conditions:
    """The conditions, with the one of type ``kind`` set to False by a new reservation if it was
    True. The condition's message is kept."""
    for condition in conditions:
        if condition.type == kind and condition.status == "True":
            return put(
                conditions,
                kind,
                False,
                reasons.QUOTA_RESERVED,
                f"Previously: {condition.message}",
                now=now,
            )
    return conditions


def without_condition(conditions: Conditions, kind: str) -> Conditions:
    """The conditions without the one of type ``kind``."""
    return tuple(condition for condition in conditions if condition.type != kind)


# Why a workload is not considered. ------------------------------------------------------------


class PendingReason(NamedTuple):
    """The reason and the message of a condition QuotaReserved=False."""

    reason: str
    message: str


def gated_by(workload: StoredWorkload) -> str:
    """The admission gates in the workload's annotation; "": none."""
    return workload.metadata.annotations.get(GATED_BY, "").strip()


def _gated_message(workload: StoredWorkload, gates: str) -> str:
    message = f"The admission is gated by: {gates}"
    if DEPENDENCIES_GATE in gates:
        message = f"{message}; {waits_for(workload)}"
    if ARRAY_GATE in gates:
        message = f"{message}; its array has as many open elements as it may have at once"
    return message


def unmet(workload: StoredWorkload) -> str:
    """Why a dependency of the workload can never be met, such as ``prep failed``; "": none is known
    to be so."""
    condition = find_false(workload, Type.DEPENDENCIES_MET)
    if condition is None or condition.reason != reasons.DEPENDENCY_UNMET:
        return ""
    return condition.message


def waits_for(workload: StoredWorkload) -> str:
    """What the workload still waits for, like ``waits for prep to succeed``."""
    rows = workload.status.dependencies
    each = [
        described(row.workload, row.condition, row.index)
        for row in rows
        if row.since is None and not row.elementwise
    ]
    return f"waits for {' and '.join(each)}" if each else "waits for nothing"


def is_held(workload: StoredWorkload) -> bool:
    """Whether a user has put the workload on hold."""
    waits = find_false(workload, Type.QUOTA_RESERVED)
    return waits is not None and waits.reason == reasons.ON_HOLD


def pending_reason(workload: StoredWorkload, context: TransitionContext) -> PendingReason | None:
    """Why the scheduler does not consider an active workload; None: the workload competes."""
    gates = gated_by(workload)
    if gates:
        return PendingReason(reasons.ADMISSION_GATED, _gated_message(workload, gates))
    spec = head(workload)
    if spec.role == ARRAY:
        return PendingReason(reasons.ARRAY, "The elements of the array wait and run")
    inactive = context.queues.inactive_reason(workload.metadata.namespace, spec.queue_name)
    if inactive is not None:
        return PendingReason(inactive.reason, inactive.message)
    return None
