"""The workload as the bucket keeps it: metadata, the spec as bytes, and a typed status.

A spec is decoded once, at the door; after that it travels as the bytes it came in, and whoever
needs a part of it decodes that part: `head`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import (
    AdmissionConstraints,
    CheckState,
    GateHolder,
    GatePosition,
    ImmediateRetries,
    Kept,
    PreemptionCount,
    ReclaimablePod,
    RequeueState,
    SchedulingStats,
    VariantRow,
)
from admittance.events.shapes import Admission, PendingPreemption, PreemptedBy


class OutboxEntry(Kept, frozen=True, kw_only=True):
    """One thing that the last commit had to say. The payload is made from the object, which does
    not change before all of it is said."""

    what: str
    reason: str = ""
    message: str = ""
    detail: str = ""
    cycle: int = 0


class LogPosition(Kept, frozen=True, kw_only=True):
    """``fact``: sequence of the last fact applied to the object. ``says``: what follows from it."""

    fact: int = 0
    says: tuple[OutboxEntry, ...] = ()


class WorkloadStatus(Kept, frozen=True, kw_only=True):
    """Kueue's status plus the fields of the proposals.

    ``log`` is ours: how far the log is applied, and the outbox. ``admitted_revision`` and
    ``evicted_revision`` are the facts' revisions that a runner names; ``released_revision`` is that
    of the last admission that was released, whose result may still come. ``preempted_by``: who took
    its quota last, until it has quota again. ``preemptions``: who did how often, over reservations.
    ``submitted_as``: a digest of the message id of the submission, by which it is known when it is
    said again; "": it had none.
    ``immediate_retries``: by check, what paces its retries (`admittance.workload.moves.backoff`).
    ``exit_code``: of the job, where it failed and its runner knows.

    Of a parent: ``variants``, as last seen; ``admitted_variant``: the workload's name of the one
    that is admitted, also while its job still stops, "" is none; ``migrating_to``: the better one
    that takes over once the job has stopped; ``family_start``: when the family began, or was reset
    (None: when the parent was created); ``first_admitted_at``: since then; ``next_change_at``: when
    time alone changes who may try; ``preemption_gate``: whose gate was opened last.
    Of a variant: ``stopped_by``: why policy never turns it on (`admittance.family.policy.STOPPED`);
    ``promised``: the quota that is kept for it until its sibling's job has stopped.
    """

    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    admission_checks: tuple[CheckState, ...] = ()
    preemption_gates: tuple[GatePosition, ...] = ()
    admission_cycle: int = 0
    rounds_since: int = 0
    check_retry_counts: dict[str, int] = msgspec.field(default_factory=dict)
    immediate_retries: dict[str, ImmediateRetries] = msgspec.field(default_factory=dict)
    accumulated_past_execution_time_seconds: int | None = None
    scheduling_stats: SchedulingStats | None = None
    pending_preemption: PendingPreemption | None = None
    preempted_by: PreemptedBy | None = None
    preemptions: tuple[PreemptionCount, ...] = ()
    exit_code: int | None = None
    variants: tuple[VariantRow, ...] = ()
    admitted_variant: str = ""
    migrating_to: str = ""
    family_start: datetime | None = None
    first_admitted_at: datetime | None = None
    next_change_at: datetime | None = None
    preemption_gate: GateHolder | None = None
    stopped_by: str = ""
    submitted_as: str = ""
    promised: Admission | None = None
    admitted_revision: int = 0
    evicted_revision: int = 0
    released_revision: int = 0
    log: LogPosition = LogPosition()


class StoredWorkload(Kept, frozen=True, kw_only=True):
    """``{apiVersion, kind, metadata, spec, status}`` under ``workload.<ns>.<name>``."""

    # Without defaults, so that they are written: whoever reads the bucket wants to see them.
    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: WorkloadStatus = WorkloadStatus()


class SpecHead(Kept, frozen=True, kw_only=True, gc=False):
    """The mutable part of a spec; pod sets are skipped over."""

    queue_name: str = ""
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    role: str = "regular"
    variant: str = ""
    sibling_index: int | None = None
    admission_constraints: AdmissionConstraints | None = None


_stored = msgspec.json.Decoder(StoredWorkload)
_head = msgspec.json.Decoder(SpecHead)
_encoder = msgspec.json.Encoder()

decode = _stored.decode
encode = _encoder.encode

HEADS_MAX = 4096
HEADED_MAX = 8192
"""Bytes of a spec whose head is kept: those that nobody needs any more may take some room."""
_heads: dict[int, tuple[msgspec.Raw, SpecHead]] = {}
"""By the identity of the bytes, which are kept with it, so that no others can come to have it. A
fact asks dozens of times for the heads of the same few workloads."""


def head(workload: StoredWorkload) -> SpecHead:
    """Queue, priority and activity of a stored workload."""
    spec = workload.spec
    kept = _heads.get(id(spec))
    if kept is not None and kept[0] is spec:
        return kept[1]
    found = _head.decode(spec)
    if len(spec) <= HEADED_MAX:
        if len(_heads) >= HEADS_MAX:
            _heads.clear()
        _heads[id(spec)] = spec, found
    return found


class _ClassRef(Kept, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class _Classed(Kept, frozen=True, kw_only=True):
    priority_class_ref: _ClassRef | None = None


_classed = msgspec.json.Decoder(_Classed)


def priority_class(workload: StoredWorkload) -> str:
    """The WorkloadPriorityClass that the workload names; "" when it names none."""
    named = _classed.decode(workload.spec).priority_class_ref
    if named is None or named.kind not in ("", "WorkloadPriorityClass"):
        return ""
    return named.name


PARENT: Final = "parent"
VARIANT: Final = "variant"


def owner_of(workload: StoredWorkload) -> tuple[str, str]:
    """Name and uid of the Workload that the first owner reference of that kind names; ("", "")."""
    for reference in workload.metadata.owner_references:
        if reference.kind == "Workload":
            return reference.name, reference.uid
    return "", ""
