"""Tables of `admit get`: for each kind its columns and the row of an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from admittance.api.array_status import counted
from admittance.api.workload import ArrayStatus
from admittance.cli.show.variant_tree import Line, arranged
from admittance.cli.support.output import NOTHING, UNKNOWN, Column, Table, columns_of
from admittance.cli.support.times import age
from admittance.client import kinds
from admittance.client.arguments.times import span
from admittance.client.kinds import ObjectKind
from admittance.client.requests.objects import BucketObject, conditions_of, field
from admittance.client.requests.selection import duration_seconds, started_at
from admittance.events import reasons
from admittance.events.requests.queues import LocalUsage, QueueStatus
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.waiting_reason import reason_of

Counters = Mapping[tuple[str, str], QueueStatus]
"""Live counters of queues, by namespace (empty for a ClusterQueue) and name."""

Reasons = Mapping[tuple[str, str], tuple[str, str]]
"""Reason and message of waiting workloads, by namespace and name."""

NO_REASONS: Final[Reasons] = MappingProxyType({})


def table(
    kind: ObjectKind,
    stored: Sequence[BucketObject],
    now: datetime,
    counters: Counters,
    *,
    all_namespaces: bool = False,
    waits: Reasons = NO_REASONS,
) -> Table:
    """The table of objects of one kind, with a namespace column if several namespaces are shown.

    Variants stand below their parents. ``waits``: why workloads wait, from the scheduler.
    """
    columns: tuple[Column, ...]
    if kind is kinds.WORKLOAD:
        lines = arranged(stored)
        stored = [line.found for line in lines]
        columns, rows = _WORKLOAD, [_workload(line, now, waits) for line in lines]
    elif kind is kinds.MACHINE_POOL:
        from admittance.cli.show.capacity import pools

        columns, rows = pools.COLUMNS, list(map(pools.row, stored))
    elif kind is kinds.RUNNER:
        from admittance.cli.show.capacity import machines

        columns = machines.COLUMNS
        rows = [machines.row(runner, now) for runner in stored]
    elif kind is kinds.REQUEST:
        from admittance.cli.show.capacity import capacity_requests

        columns = capacity_requests.COLUMNS
        rows = [capacity_requests.row(request, now) for request in stored]
    elif kind is kinds.BUDGET:
        from admittance.cli.show import budgets

        columns, rows = budgets.COLUMNS, [budgets.row(each, now) for each in stored]
    else:
        columns, cells = _VIEWS.get(kind.manifest, _FOREIGN)
        rows = [_row(columns, cells, each, now, counters) for each in stored]
    if all_namespaces and kind.namespaced:
        columns = (Column("NAMESPACE"), *columns)
        rows = [(each.namespace, *row) for each, row in zip(stored, rows, strict=True)]
    return Table(columns, rows)


def _row(
    columns: Sequence[Column],
    cells: _Cells,
    stored: BucketObject,
    now: datetime,
    counters: Counters,
) -> tuple[str, ...]:
    own = {"NAME": stored.name, "AGE": age(stored.created(), now)}
    counted = counters.get((stored.namespace, stored.name))
    others = iter(cells(stored.plain(), counted))
    return tuple(own[column.title] if column.title in own else next(others) for column in columns)


def wait_of(workload: StoredWorkload, now: datetime) -> str:
    """How long a workload in backoff still waits, like `` (4m left)``; "": it waits for no time."""
    state = workload.status.requeue_state
    if phase(workload, now) is not Phase.BACKOFF or state is None or state.requeue_at is None:
        return ""
    return f" ({span((state.requeue_at - now).total_seconds())} left)"


def flavors_of(workload: StoredWorkload) -> str:
    """The flavors of the workload's admission, each once, in the order of its pod sets."""
    admission = workload.status.admission
    if admission is None:
        return NOTHING
    names = {f: None for pods in admission.pod_set_assignments for f in pods.flavors.values()}
    return ",".join(names) or NOTHING


def _workload(line: Line, now: datetime, waits: Reasons) -> tuple[str, ...]:
    stored, workload = line.found, line.workload
    spec = head(workload)
    where = phase(workload, now)
    reason, message = reason_of(workload, now)
    if where is Phase.PENDING and reason != reasons.ON_HOLD:
        reason, message = waits.get((stored.namespace, stored.name), (reason, message))
    if workload.status.array is not None and where is not Phase.DEACTIVATED:
        reason = counts_of(workload.status.array)
    if line.why and not spec.active and where is Phase.DEACTIVATED:
        reason = line.why
    admission = workload.status.admission
    ran = duration_seconds(workload, now)
    pods = ",".join(
        f"{pod_set.get('name', 'main')}={pod_set.get('count', 1)}"
        for pod_set in field(stored.plain(), "spec", "podSets", default=[])
    )
    return (
        f"{line.mark}{stored.name}",
        spec.queue_name or NOTHING,
        str(spec.priority or 0),
        str(where),
        flavors_of(workload),
        age(workload.metadata.creation_timestamp, now),
        age(started_at(workload), now),
        NOTHING if ran is None else span(ran),
        f"{reason}{wait_of(workload, now)}" if reason else NOTHING,
        admission.cluster_queue if admission else NOTHING,
        pods or NOTHING,
        str(workload.status.admission_cycle),
        message,
    )


def counts_of(array: ArrayStatus) -> str:
    """The elements of an array by result and state, like ``3 succeeded, 10 Running of 100``."""
    return f"{', '.join(counted(array))} of {len(array.results)}"


def _counted(status: QueueStatus | None) -> tuple[str, str, str, str]:
    """The cells pending, reserving, admitted and active of a queue."""
    if status is None:
        return UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
    return (
        str(status.pending),
        str(status.reserving),
        str(status.admitted),
        "yes" if status.active else "no",
    )


def _why(status: QueueStatus | None) -> str:
    return "" if status is None or status.active else f"{status.reason}: {status.message}"


def _cluster_queue(plain: Mapping[str, Any], status: QueueStatus | None) -> tuple[str, ...]:
    spec = field(plain, "spec", default={})
    flavors = {
        flavor.get("name", ""): None
        for group in spec.get("resourceGroups") or []
        for flavor in group.get("flavors") or []
    }
    return (
        spec.get("cohortName") or NOTHING,
        spec.get("queueingStrategy") or "BestEffortFIFO",
        *_counted(status),
        ",".join(flavors) or NOTHING,
        UNKNOWN if status is None else str(status.parked),
        _why(status),
    )


def _local_queue(plain: Mapping[str, Any], status: QueueStatus | None) -> tuple[str, ...]:
    used = None if status is None else status.used
    return (
        field(plain, "spec", "clusterQueue", default=NOTHING),
        *_counted(status),
        NOTHING if used is None else value_of(used),
        NOTHING if used is None else f"{used.weight:g}",
        _why(status),
    )


def value_of(used: LocalUsage) -> str:
    """The usage that orders a LocalQueue among the LocalQueues of its ClusterQueue, as text."""
    return "last" if used.value is None else f"{used.value:.4g}"


def _labels(labels: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items()) or NOTHING


def _flavor(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    spec = field(plain, "spec", default={})
    taints = ",".join(
        f"{taint.get('key')}={taint.get('value', '')}:{taint.get('effect', '')}"
        for taint in spec.get("nodeTaints") or []
    )
    return _labels(spec.get("nodeLabels") or {}), taints or NOTHING


def _check(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    spec = field(plain, "spec", default={})
    parameters = spec.get("parameters") or {}
    [active, *_rest] = [c for c in conditions_of(plain) if c.get("type") == "Active"] or [{}]
    inactive = active.get("status") == "False"
    return (
        spec.get("controllerName") or NOTHING,
        f"{parameters.get('kind')}/{parameters.get('name')}" if parameters else NOTHING,
        {"True": "yes", "False": "no"}.get(str(active.get("status", "")), UNKNOWN),
        (str(active.get("reason", "")) if inactive else "") or NOTHING,
        spec.get("preemptionPolicy") or "Anytime",
        str(active.get("message", "")) if inactive else "",
    )


def _topology(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    levels = field(plain, "spec", "levels", default=())
    return (",".join(str(level.get("nodeLabel")) for level in levels) or NOTHING,)


def _cohort(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    spec = field(plain, "spec", default={})
    return spec.get("parentName") or NOTHING, str(len(spec.get("resourceGroups") or []))


def _priority_class(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    return str(plain.get("value", 0)), str(plain.get("description", ""))


def _pod_priority_class(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    value, description = _priority_class(plain, _)
    return value, "yes" if plain.get("globalDefault") else NOTHING, description


def _provisioning(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    return (
        field(plain, "spec", "provisioningClassName", default=NOTHING),
        ",".join(field(plain, "spec", "managedResources", default=())) or "all",
        str(field(plain, "spec", "retryStrategy", "backoffLimitCount", default=3)),
        _labels(field(plain, "spec", "parameters", default={})),
    )


def _namespace(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    return (_labels(field(plain, "metadata", "labels", default={})),)


def _foreign(plain: Mapping[str, Any], _: object) -> tuple[str, ...]:
    return str(plain.get("kind", "")), str(plain.get("apiVersion", ""))


_Cells = Callable[[Mapping[str, Any], QueueStatus | None], tuple[str, ...]]
"""Returns the cells of a stored object, with its counters if it is a queue, in all columns but NAME
and AGE."""
_COUNTED = ("#PENDING", "#RESERVING", "#ADMITTED", "ACTIVE", "AGE")
_WORKLOAD = columns_of(
    *("NAME", "QUEUE", "#PRIORITY", "PHASE", "FLAVORS", "AGE", "~STARTED", "DURATION"),
    *("REASON", "+RESERVED IN", "+PODS", "+#CYCLE", "+MESSAGE"),
)
_FOREIGN = columns_of("NAME", "KIND", "API VERSION", "AGE"), _foreign
_VIEWS: Final[Mapping[str, tuple[tuple[Column, ...], _Cells]]] = {
    kinds.CLUSTER_QUEUE.manifest: (
        columns_of(
            "NAME", "COHORT", "STRATEGY", *_COUNTED, "+FLAVORS", "+#PARKED", "+WHY INACTIVE"
        ),
        _cluster_queue,
    ),
    kinds.LOCAL_QUEUE.manifest: (
        columns_of("NAME", "CLUSTERQUEUE", *_COUNTED, "+#USAGE", "+#WEIGHT", "+WHY INACTIVE"),
        _local_queue,
    ),
    kinds.FLAVOR.manifest: (columns_of("NAME", "NODE LABELS", "TAINTS", "AGE"), _flavor),
    kinds.TOPOLOGY.manifest: (columns_of("NAME", "LEVELS", "AGE"), _topology),
    kinds.CHECK.manifest: (
        columns_of(
            *("NAME", "CONTROLLER", "PARAMETERS", "ACTIVE", "REASON", "AGE", "+PREEMPTION"),
            "+MESSAGE",
        ),
        _check,
    ),
    kinds.COHORT.manifest: (columns_of("NAME", "PARENT", "#GROUPS", "AGE"), _cohort),
    kinds.PRIORITY_CLASS.manifest: (
        columns_of("NAME", "#VALUE", "AGE", "DESCRIPTION"),
        _priority_class,
    ),
    kinds.POD_PRIORITY_CLASS.manifest: (
        columns_of("NAME", "#VALUE", "DEFAULT", "AGE", "DESCRIPTION"),
        _pod_priority_class,
    ),
    kinds.PROVISIONING.manifest: (
        columns_of("NAME", "CLASS", "RESOURCES", "#RETRIES", "AGE", "+PARAMETERS"),
        _provisioning,
    ),
    kinds.NAMESPACE.manifest: (columns_of("NAME", "LABELS", "AGE"), _namespace),
}
