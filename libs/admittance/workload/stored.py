"""The workload as stored in the bucket: metadata, the spec as bytes, and a typed status.

A spec is decoded once, on submission. After submission the spec stays bytes, and `head` decodes the
part that services need.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import (
    AdmissionConstraints,
    ArrayStatus,
    CheckState,
    DependencyRow,
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
from admittance.events.files import OutputFile
from admittance.events.placement import Placement
from admittance.events.shapes import Admission, PendingPreemption, PreemptedBy


class ReleasedQuota(Kept, frozen=True, kw_only=True):
    """The quota that a workload held from ``since`` to ``until``. ``admission``: None while the
    status of the workload still has it. ``revision``: that of the admission; 0: the workload was
    not admitted. ``machines``: the runners on which its job was placed."""

    since: datetime
    until: datetime
    admission: Admission | None = None
    revision: int = 0
    machines: tuple[str, ...] = ()


class OutboxEntry(Kept, frozen=True, kw_only=True):
    """One message that the last commit of a workload publishes. The payload of an outbox entry is
    made from the workload, which does not change before its outbox is published. ``released``: the
    quota that an entry ``quota_released`` is about."""

    what: str
    reason: str = ""
    message: str = ""
    detail: str = ""
    cycle: int = 0
    released: ReleasedQuota | None = None


class PartFailure(Kept, frozen=True, kw_only=True):
    """Why the first part of a job failed, as in the fact ``finished``."""

    part: int
    reason: str = ""
    message: str = ""
    exit_code: int | None = None


class JobParts(Kept, frozen=True, kw_only=True):
    """What runners have reported about the parts of a job on several machines, each with the
    numbers of its parts. ``ready``: parts with all pods ready; ``over``: parts without processes;
    ``succeeded``: those of them that have succeeded; ``failure``: of the first that failed.
    ``outputs``: the files that they left."""

    ready: tuple[int, ...] = ()
    over: tuple[int, ...] = ()
    succeeded: tuple[int, ...] = ()
    failure: PartFailure | None = None
    outputs: tuple[OutputFile, ...] = ()


class LogPosition(Kept, frozen=True, kw_only=True):
    """What a stored workload knows about the log. ``fact``: sequence of the last fact applied to
    the workload. ``says``, ``released``: the outbox, with the messages of the last commit; the
    messages about released quota are kept apart, because earlier versions do not know them."""

    fact: int = 0
    says: tuple[OutboxEntry, ...] = ()
    released: tuple[OutboxEntry, ...] = ()

    @property
    def outbox(self) -> tuple[OutboxEntry, ...]:
        """All messages of the last commit, in order."""
        return self.says + self.released if self.released else self.says


class WorkloadStatus(Kept, frozen=True, kw_only=True):
    """Kueue's workload status plus the fields of Kueue's proposals.

    ``log`` is a field of Admittance: how far the log is applied, and the outbox.
    ``admitted_revision`` and ``evicted_revision``: the revisions of the admission and of the
    eviction, which a runner names in its reports. ``released_revision``: the revision of the last
    released admission, because the result of its job may still arrive. ``preempted_by``: the last
    preempting workload, until the workload has quota again. ``preemptions``: the number of
    preemptions by each preempting workload. ``submitted_as``: digest of the submission's message
    id, to recognise a repeated submission; "": the submission had no id. ``immediate_retries``: for
    each check the count that paces its Retries (`admittance.workload.moves.backoff.paced`).
    ``exit_code``: the exit code of a failed job, if its runner reported one. ``outputs``: the files
    that the job left, of those that its workload asks for. ``submitted_by``: the
    user that submitted the workload, or its parent, as the server knows the user; "": the server
    has no users. ``waited_seconds``: how long the workload waited for its last reservation of
    quota. ``placement``: the runners of all pods of the admission; it stays until the job has
    stopped. Empty: any runner may start the job. ``restarts``: how many admissions of it have
    ended before, counted as in `facts.Admitted`. ``parts``: the reports about the parts of a job
    on several machines; None: there are none yet. ``started_at``: when all pods of the admission
    were ready for the first time; None: they were not yet. ``renewed_at``: when the program that
    holds the quota renewed its lease; None: never.

    A parent has: ``variants``: the rows of its variants. ``admitted_variant``: the workload name of
    the admitted variant, also while its job stops; "": none. ``migrating_to``: the better variant
    that is admitted once the job has stopped. ``family_start``: the time when the family was reset;
    None: never. ``first_admitted_at``: the time of the first admission after ``family_start``.
    ``next_change_at``: the time at which the desired state of a variant changes.
    ``preemption_gate``: the preemption gate that was opened last.

    ``dependencies``: what it waits for, or has waited for.
    An array has ``array``: the results and states of its elements.

    A variant has: ``stopped_by``: why policy keeps the variant inactive
    (`admittance.family.STOPPED`); so has an element that its array deactivated (`BY_ARRAY`).
    ``promised``: quota that is kept for the variant until its sibling's job has stopped.
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
    outputs: tuple[OutputFile, ...] = ()
    variants: tuple[VariantRow, ...] = ()
    admitted_variant: str = ""
    migrating_to: str = ""
    family_start: datetime | None = None
    first_admitted_at: datetime | None = None
    next_change_at: datetime | None = None
    preemption_gate: GateHolder | None = None
    stopped_by: str = ""
    submitted_as: str = ""
    submitted_by: str = ""
    waited_seconds: int = 0
    promised: Admission | None = None
    placement: Placement = ()
    parts: JobParts | None = None
    started_at: datetime | None = None
    array: ArrayStatus | None = None
    dependencies: tuple[DependencyRow, ...] = ()
    restarts: int = 0
    renewed_at: datetime | None = None
    admitted_revision: int = 0
    evicted_revision: int = 0
    released_revision: int = 0
    log: LogPosition = LogPosition()


class StoredWorkload(Kept, frozen=True, kw_only=True):
    """A stored workload: ``{apiVersion, kind, metadata, spec, status}`` at the bucket key
    ``workload.<ns>.<name>``."""

    # The fields of a stored workload have no defaults, so that they are always written to the
    # bucket.
    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: WorkloadStatus = WorkloadStatus()


class ArrayHead(Kept, frozen=True, kw_only=True):
    """`admittance.api.workload.ArraySpec` as stored."""

    indexes: str = ""
    parallelism: int | None = None
    fail_fast: bool = False


class SpecHead(Kept, frozen=True, kw_only=True, gc=False):
    """The part of a spec that can change. The pod sets of a spec are not decoded."""

    queue_name: str = ""
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    lease_duration_seconds: int | None = None
    role: str = "regular"
    variant: str = ""
    sibling_index: int | None = None
    admission_constraints: AdmissionConstraints | None = None
    array: ArrayHead | None = None
    after_unmet: str | None = None


_stored = msgspec.json.Decoder(StoredWorkload)
_head = msgspec.json.Decoder(SpecHead)
_encoder = msgspec.json.Encoder()

decode = _stored.decode
decode_head = _head.decode
encode = _encoder.encode

HEADS_MAX = 4096
HEADED_MAX = 8192
LARGE_HEADS_MAX = 16
"""Of specs of more than `HEADED_MAX` bytes only so many heads are cached: an entry of the cache
keeps the bytes of its spec, also when the workload is gone."""
_heads: dict[int, tuple[msgspec.Raw, SpecHead]] = {}
"""A cache of decoded heads by the identity of the spec bytes. A cache entry keeps the spec bytes,
so that their identity is not reused. One fact needs the heads of the same few workloads dozens of
times."""
_large_heads: dict[int, tuple[msgspec.Raw, SpecHead]] = {}


def head(workload: StoredWorkload) -> SpecHead:
    """Returns queue name, priority, activity and other fields that can change of a stored
    workload."""
    spec = workload.spec
    kept = _heads.get(id(spec)) or _large_heads.get(id(spec))
    if kept is not None and kept[0] is spec:
        return kept[1]
    decoded = _head.decode(spec)
    heads, most = (
        (_heads, HEADS_MAX) if len(spec) <= HEADED_MAX else (_large_heads, LARGE_HEADS_MAX)
    )
    if len(heads) >= most:
        heads.clear()
    heads[id(spec)] = spec, decoded
    return decoded


class _ClassRef(Kept, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class _Classed(Kept, frozen=True, kw_only=True):
    priority_class_ref: _ClassRef | None = None


_classed = msgspec.json.Decoder(_Classed)


def priority_class(workload: StoredWorkload) -> str:
    """The WorkloadPriorityClass that the workload names; "": the workload names no class."""
    named = _classed.decode(workload.spec).priority_class_ref
    if named is None or named.kind not in ("", "WorkloadPriorityClass"):
        return ""
    return named.name


PARENT: Final = "parent"
VARIANT: Final = "variant"
ARRAY: Final = "array"
BY_ARRAY: Final = "array"
"""The ``stopped_by`` of an element that its array deactivated, and the reason of that fact."""


def owner_of(workload: StoredWorkload) -> tuple[str, str]:
    """Name and uid of the first owner that is a Workload; ("", ""): no such owner."""
    for reference in workload.metadata.owner_references:
        if reference.kind == "Workload":
            return reference.name, reference.uid
    return "", ""
