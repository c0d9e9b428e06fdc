"""Workload and Job, and the parts of a workload's status."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from admittance.api.arrays import INDEXES_LENGTH_MAX
from admittance.api.dependencies import (
    DEPENDENCIES_GATE,
    DEPENDENCIES_MAX,
    AfterUnmet,
    Dependency,
)
from admittance.api.fields.limits import (
    FLAVORS_ALLOWED_MAX,
    GATES_MAX,
    POD_SETS_MAX,
    ClassGroup,
    ClassKind,
    CompletionMode,
    GateName,
    Int32,
    Label,
    LeaseSeconds,
    Name,
    NameOrNone,
    Natural,
    Positive,
    RequiredName,
    Role,
    field_rule,
    list_rule,
    one_of,
)
from admittance.api.meta import Condition, ObjectMeta, Strict
from admittance.api.pods import PodTemplate


class TopologyRequest(Strict, frozen=True, kw_only=True):
    """Where the pods of a pod set should be, by levels of a Topology. Pods are not placed by
    topology, so what is required is refused."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: Natural | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: Positive | None = None
    podset_slice_required_topology_constraints: Any = None


class PodSet(Strict, frozen=True, kw_only=True):
    """Pods with the same template. ``min_count`` None: either all pods are admitted, or none; 0:
    the workload may also start without pods of this pod set.
    """

    name: Label = "main"
    count: Natural = 1
    min_count: Natural | None = None
    template: PodTemplate = PodTemplate()
    topology_request: TopologyRequest | None = None


class PriorityClassRef(Strict, frozen=True, kw_only=True):
    group: Annotated[ClassGroup, field_rule(required=True)] = ""
    kind: Annotated[ClassKind, field_rule(own=True, required=True)] = ""
    name: RequiredName = ""


class NamedGate(Strict, frozen=True, kw_only=True):
    name: GateName


class AdmissionConstraints(Strict, frozen=True, kw_only=True):
    """The flavors that may be assigned to the workload (KEP-8691); None: any flavor."""

    allowed_resource_flavors: (
        Annotated[tuple[Name, ...], list_rule(FLAVORS_ALLOWED_MAX, "flavors")] | None
    ) = None


class ArraySpec(Strict, frozen=True, kw_only=True):
    """The elements of an array. ``indexes``: such as ``0-99``, ``1,3,7`` or ``0-20:5``.
    ``parallelism``: how many elements may be open at once; None: all. ``fail_fast``: the first
    failed element ends the array."""

    indexes: Annotated[str, field_rule(required=True, maxLength=INDEXES_LENGTH_MAX)] = ""
    parallelism: Positive | None = None
    fail_fast: bool = False


class WorkloadSpec(Strict, frozen=True, kw_only=True):
    """``role``: regular, parent or variant (KEP-8691), or array. A variant has ``variant``, the
    flavor or the name of the explicit variant that it tries, and ``sibling_index``, its place among
    the variants of its parent; 0 is the best. An array has ``array``. ``after``: what it waits for,
    ``after_unmet``: what becomes of it if that cannot happen any more; None is ``cancel``. The
    completions of a job are in the annotation `COMPLETIONS` of its pod template.
    ``lease_duration_seconds``: after how long without a renewal by the program that holds the quota
    the workload ends; None: a runner starts its job."""

    pod_sets: Annotated[tuple[PodSet, ...], list_rule(POD_SETS_MAX, "pod sets", required=True)] = ()
    queue_name: NameOrNone = ""
    priority: Int32 | None = None
    priority_class_ref: PriorityClassRef | None = None
    active: bool = True
    maximum_execution_time_seconds: Positive | None = None
    lease_duration_seconds: LeaseSeconds | None = None
    preemption_gates: Annotated[tuple[NamedGate, ...], list_rule(GATES_MAX, "gates")] = ()
    admission_constraints: AdmissionConstraints | None = None
    role: Role = "regular"
    variant: str = ""
    sibling_index: Natural | None = None
    array: ArraySpec | None = None
    after: Annotated[tuple[Dependency, ...], list_rule(DEPENDENCIES_MAX, "dependencies")] = ()
    after_unmet: AfterUnmet | None = None


class Workload(Strict, frozen=True, kw_only=True):
    """A workload as submitted; the stored workload is `admittance.workload.stored`."""

    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "Workload"
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: Any = None


class Kept(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a stored object in which unknown fields (of newer versions) are tolerated."""


class ImmediateRetries(Kept, frozen=True, kw_only=True):
    """The number of Retries without a delay in a row from one check. ``cycle``: the last cycle with
    a Retry without a delay. ``edition``: a digest of the workload, its queues, the check and its
    parameters when the count was last raised; after an edit of any of these objects the count
    starts at 0.
    """

    count: int = 0
    cycle: int = 0
    edition: str = ""


class RequeueState(Kept, frozen=True, kw_only=True):
    """``count``: how often the workload was evicted because its pods were not ready.
    ``requeue_at``: when the workload may be requeued: at the end of the checks' delays, or of the
    backoff after such an eviction, whichever is later. ``pods_ready_until``: the end of
    the backoff after an eviction because pods were not ready, kept while a check delays the
    workload too, since the check may shorten its delay.
    """

    count: int | None = None
    requeue_at: datetime | None = None
    pods_ready_until: datetime | None = None


def _pending() -> str:
    """The default state. The encoder would leave a plain default out of the JSON, and other
    programs need the state there.
    """
    return "Pending"


class CheckState(Kept, frozen=True, kw_only=True):
    """One row of ``status.admissionChecks``. ``state``: Pending, Ready, Retry or Rejected.

    ``verdict_cycle``: the cycle that the last verdict judged; None: no verdict since the row was
    created or reset. ``placement``: of a Ready row, the runners of all pods, with the parts of
    `admittance.events.placement.Placement`."""

    name: str
    state: str = msgspec.field(default_factory=_pending)
    message: str = ""
    reason: str = ""
    last_transition_time: datetime | None = None
    requeue_after_seconds: int | None = None
    retry_count: int = 0
    pod_set_updates: tuple[Any, ...] = ()
    verdict_cycle: int | None = None
    placement: tuple[Any, ...] = ()


class GatePosition(Kept, frozen=True, kw_only=True):
    """One row of ``status.preemptionGates``. A gate of the spec without a row is closed.
    ``used_at``: when the workload first preempted another one through the open gate.
    """

    name: str
    position: str = "Closed"
    last_transition_time: datetime | None = None
    used_at: datetime | None = None


class VariantRow(Kept, frozen=True, kw_only=True):
    """One row of a parent's ``status.variants``, the best first. ``variant``: the flavor that the
    variant tries, or its name if it is explicit. ``why``: `ActivityReason` of `admittance.family`.
    """

    name: str
    variant: str
    resource_flavors: tuple[str, ...] = ()
    active: bool = msgspec.field(default_factory=lambda: True)
    why: str = ""
    conditions: tuple[Condition, ...] = ()


class GateHolder(Kept, frozen=True, kw_only=True):
    """The variant with the preemption gate that was opened last in a family, and the time."""

    holder: str
    since: datetime


class PreemptionCount(Kept, frozen=True, kw_only=True):
    """Counts preemptions of the workload by the preemptor ``by`` (``namespace/name``). ``last``:
    the time of the last preemption. ``seen``: the newest revision of the bucket that the decision
    of that preemption had seen.
    """

    by: str
    by_uid: str
    count: int = 0
    last: datetime | None = None
    seen: int = 0


class EvictionCount(Kept, frozen=True, kw_only=True):
    reason: str
    underlying_cause: str = ""
    count: int = 0


class SchedulingStats(Kept, frozen=True, kw_only=True):
    evictions: tuple[EvictionCount, ...] = ()


class ReclaimablePod(Kept, frozen=True, kw_only=True):
    name: str
    count: int


COMPLETIONS = "admittance.dev/completions"
"""Annotation of a pod template: the number of pods that must succeed to end the pod set."""


def noted_completions(annotations: Mapping[str, str]) -> int:
    """The number in the annotation `COMPLETIONS`; 0: the annotation is absent or not a 32-bit
    number."""
    written = annotations.get(COMPLETIONS, "")
    if not written.isascii() or not written.isdecimal() or len(written) > 10:
        return 0
    number = int(written)
    return number if number < 2**31 else 0


QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a Job or Workload, naming its LocalQueue."""

PRIORITY_CLASS_LABEL = "kueue.x-k8s.io/priority-class"
"""Label of a Job, naming its WorkloadPriorityClass."""

ALLOWED_FLAVORS = "kueue.x-k8s.io/workload-allowed-resource-flavors"
"""Annotation: flavors that may be assigned, separated by commas; Kueue's spelling of
``admissionConstraints.allowedResourceFlavors``."""

PARENT_VARIANT = "kueue.x-k8s.io/parent-variant"
"""The annotation with the value "true" that marks a workload as a parent, for display only."""

FAMILY_GATE = "kueue.x-k8s.io/concurrent-admission"
"""The name of the preemption gate that every variant has, so that only one variant of a parent may
preempt at a time.
"""

SUBMISSION_KEY = "admittance.dev/submission-key"
"""Annotation: the key by which a client recognises its own submission when it submits again."""

GATED_BY = "kueue.x-k8s.io/admission-gated-by"
"""Annotation: while it is not empty, the workload is not queued."""


class ArrayStatus(Kept, frozen=True, kw_only=True):
    """What is known of the elements of an array. ``created``: how many have been created.
    ``results``: a letter for each index, see `RESULTS`. ``states``: how many elements without a
    result are in each phase, or ``NotCreated``."""

    created: int = 0
    results: str = ""
    states: dict[str, int] = msgspec.field(default_factory=dict)


class DependencyRow(Kept, frozen=True, kw_only=True):
    """A `Dependency` of a stored workload. ``uid``: that of the workload that is waited for.
    ``since``: when the dependency was met; None: it is not. ``elementwise``: the row is for the
    elements of this array, each of which has a row with its index."""

    workload: str
    uid: str
    condition: str = msgspec.field(default_factory=lambda: "ok")
    index: int | None = None
    elementwise: bool = False
    since: datetime | None = None


SUCCEEDED, FAILED, DELETED, ENDED, NO_RESULT = "s", "f", "d", "c", "."
"""The letters of results: of an element that succeeded, failed, was deleted before its end, or was
ended by its array; and of one without a result."""

NOT_CREATED = "NotCreated"
"""The state of elements that do not exist yet."""

ARRAY_GATE = "admittance.dev/array"
"""The admission gate of an element of an array, which opens when few enough elements before it are
unfinished."""

OWN_GATES = frozenset({ARRAY_GATE, DEPENDENCIES_GATE})
"""The admission gates that services of Admittance open."""


def gate_names(written: str) -> tuple[str, ...]:
    """The names of the gates in a value of the annotation `GATED_BY`."""
    return tuple(gate.strip() for gate in written.split(",") if gate.strip())


class ExitCodes(Strict, frozen=True, kw_only=True):
    """Which exit codes of failed containers a rule is about. ``container_name`` None: of any
    container. An exit by signal N has the code 128 + N."""

    container_name: str | None = None
    operator: Annotated[str, one_of(("In", "NotIn"), required=True)] = ""
    values: Annotated[tuple[Int32, ...], list_rule(255, "exit codes", required=True)] = ()


class PodConditionPattern(Strict, frozen=True, kw_only=True):
    type: Annotated[str, field_rule(required=True)] = ""
    status: Annotated[str, one_of(("True", "False", "Unknown"))] = "True"


class PodFailureRule(Strict, frozen=True, kw_only=True):
    """What a failed pod does to its job. Pods of local processes and containers have no conditions,
    so that a rule with ``on_pod_conditions`` never matches them."""

    action: Annotated[str, one_of(("FailJob", "FailIndex", "Ignore", "Count"), required=True)] = ""
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: Annotated[tuple[PodConditionPattern, ...], list_rule(20, "conditions")] = ()


class PodFailurePolicy(Strict, frozen=True, kw_only=True):
    """The first rule that matches a failed pod counts."""

    rules: Annotated[tuple[PodFailureRule, ...], list_rule(20, "rules", required=True)] = ()


class SuccessRule(Strict, frozen=True, kw_only=True):
    """``succeeded_indexes``: indexes like ``0-2,5``; None: all. ``succeeded_count``: how many of
    them must succeed; None: all of them."""

    succeeded_indexes: Annotated[str, field_rule(maxLength=65_536)] | None = None
    succeeded_count: Positive | None = None


class SuccessPolicy(Strict, frozen=True, kw_only=True):
    """The job has succeeded as soon as one of its rules is met."""

    rules: Annotated[tuple[SuccessRule, ...], list_rule(20, "rules", required=True)] = ()


class JobPolicy(Strict, frozen=True, kw_only=True):
    """The fields of a Job that say how its pods are repeated and how it ends. A workload has them
    as JSON in the annotation `JOB_POLICY` of its pod template, since Kueue's Workload has no such
    fields.

    ``backoff_limit`` None: 6, or no limit with ``backoff_limit_per_index``.
    ``work_queue``: the job has ended well when all pods have ended and one has succeeded (a Job
    with several pods and without ``completions``).
    """

    backoff_limit: Natural | None = None
    backoff_limit_per_index: Natural | None = None
    max_failed_indexes: Natural | None = None
    completion_mode: CompletionMode = "NonIndexed"
    active_deadline_seconds: Positive | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    work_queue: bool = False


JOB_POLICY = "admittance.dev/job-policy"
"""Annotation of a pod template: a `JobPolicy` as JSON."""

JOB_CONTROLLER = "kubernetes.io/job-controller"
"""The ``managedBy`` of a Job that no other controller runs."""

TTL_AFTER_FINISHED = "admittance.dev/ttl-seconds-after-finished"
TTL_MIN = 60
"""The least seconds for which a finished workload is kept: a leader that reads facts again after a
crash must find it, or it would submit the workload once more."""
"""Annotation of a workload: seconds after its end at which it is deleted."""


class JobSpec(Strict, frozen=True, kw_only=True):
    """The spec of a Job. ``parallelism`` None is 1; ``completions`` None: the pods work on one
    queue, and the job has ended well when one has succeeded and all have ended. ``backoff_limit``
    None is 6, or no limit with ``backoff_limit_per_index``."""

    parallelism: Natural | None = None
    completions: Natural | None = None
    backoff_limit: Natural | None = None
    active_deadline_seconds: Positive | None = None
    suspend: bool | None = None
    template: PodTemplate
    backoff_limit_per_index: Natural | None = None
    max_failed_indexes: Natural | None = None
    completion_mode: CompletionMode | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    ttl_seconds_after_finished: Natural | None = None
    pod_replacement_policy: Annotated[str, one_of(("TerminatingOrFailed", "Failed"))] | None = None
    managed_by: str | None = None
    # Fields that only a cluster's Job controller reads.
    manual_selector: Any = None
    selector: Any = None


class Job(Strict, frozen=True, kw_only=True):
    api_version: str = "batch/v1"
    kind: str = "Job"
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec
    status: Any = None


BACKOFF_LIMIT = 6
"""How many pods of a Job without ``backoffLimit`` may fail, as in Kubernetes."""


class BadPolicy(ValueError):
    """The error that the annotation `JOB_POLICY` is not a policy."""


def policy_of(job: Job) -> JobPolicy:
    """The policy of a Job, with Kubernetes' defaults."""
    spec = job.spec
    limit = spec.backoff_limit
    if limit is None and spec.backoff_limit_per_index is None:
        limit = BACKOFF_LIMIT
    return JobPolicy(
        backoff_limit=limit,
        backoff_limit_per_index=spec.backoff_limit_per_index,
        max_failed_indexes=spec.max_failed_indexes,
        completion_mode=spec.completion_mode or "NonIndexed",
        active_deadline_seconds=spec.active_deadline_seconds,
        pod_failure_policy=spec.pod_failure_policy,
        success_policy=spec.success_policy,
        work_queue=spec.completions is None and (spec.parallelism or 1) > 1,
    )


def written_policy(policy: JobPolicy) -> str:
    """The policy as the value of the annotation `JOB_POLICY`."""
    return msgspec.json.encode(policy).decode()


_policies = msgspec.json.Decoder(JobPolicy)


def noted_policy(annotations: Mapping[str, str]) -> JobPolicy | None:
    """The policy in the annotations of a pod template; None if there is none. Raises BadPolicy."""
    written = annotations.get(JOB_POLICY)
    if written is None:
        return None
    try:
        return _policies.decode(written)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise BadPolicy(f"is not a policy of a job: {error}") from error


def indexes_of(text: str) -> list[tuple[int, int]]:
    """The ranges of indexes in a text like ``0-2,5``, in their order. Raises ValueError."""
    ranges: list[tuple[int, int]] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        numbers = [low, high] if dash else [low]
        if not all(
            number.isascii() and number.isdecimal() and len(number) <= 10 for number in numbers
        ):
            raise ValueError(f"{part!r} is not an index or a range like 0-2")
        first, last = int(low), int(high or low)
        if first > last:
            raise ValueError(f"the range {part} is empty")
        if ranges and first <= ranges[-1][1]:
            raise ValueError(f"{part} does not come after {ranges[-1][1]}: write indexes in order")
        ranges.append((first, last))
    return ranges
