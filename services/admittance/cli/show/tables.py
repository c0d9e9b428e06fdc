"""Tables of `admit get`: for each kind its columns and the row of an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from admittance.cli.show.variant_tree import Line, arranged
from admittance.cli.support.output import NOTHING, UNKNOWN, Column, Table, columns_of
from admittance.cli.support.times import age
from admittance.client import kinds
from admittance.client.kinds import Kind
from admittance.client.requests.objects import BucketObject, conditions_of, field
from admittance.client.requests.selection import duration_seconds, started_at
from admittance.client.times import span
from admittance.events import reasons
from admittance.events.requests import LocalUsage, QueueStatus
from admittance.events.shapes import Admission
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.waiting_reason import reason_of

Counters = Mapping[tuple[str, str], QueueStatus]
"""Live counters of queues, by namespace (empty for a ClusterQueue) and name."""

Reasons = Mapping[tuple[str, str], tuple[str, str]]
"""Reason and message of waiting workloads, by namespace and name."""

NO_REASONS: Final[Reasons] = MappingProxyType({})


class _View(NamedTuple):
    columns: tuple[Column, ...]
    row: Callable[[BucketObject, datetime, Counters], tuple[str, ...]]


def table(
    kind: Kind,
    found: Sequence[BucketObject],
    now: datetime,
    counters: Counters,
    *,
    all_namespaces: bool = False,
    waits: Reasons = NO_REASONS,
) -> Table:
    """The table of objects of one kind, with a namespace column if several namespaces are shown.

    Variants stand below their parents. ``waits``: why workloads wait, from the scheduler.
    """
    view = _view(kind)
    columns = view.columns
    if kind is kinds.WORKLOAD:
        lines = arranged(found)
        found = [line.found for line in lines]
        rows = [_workload_line(line, now, waits) for line in lines]
    else:
        rows = [view.row(one, now, counters) for one in found]
    if all_namespaces and kind.namespaced:
        columns = (Column("NAMESPACE"), *columns)
        rows = [(one.namespace, *row) for one, row in zip(found, rows, strict=True)]
    return Table(columns, rows)


def _view(kind: Kind) -> _View:
    if kind is kinds.MACHINE_POOL:
        from admittance.cli.show import pools

        return _View(pools.COLUMNS, pools.row)
    return _VIEWS.get(kind.manifest, _FOREIGN)


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


def admission_text(admission: Admission) -> str:
    """The admission as text, like ``cluster-queue: main on spot``."""
    pods = ", ".join(
        f"{one.name} on {'+'.join(dict.fromkeys(one.flavors.values())) or 'nothing'}"
        for one in admission.pod_set_assignments
    )
    return f"{admission.cluster_queue}: {pods}" if pods else admission.cluster_queue


def _workload(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    return _workload_line(Line(found, found.workload()), now)


def _workload_line(line: Line, now: datetime, waits: Reasons = NO_REASONS) -> tuple[str, ...]:
    found, workload = line.found, line.workload
    spec = head(workload)
    where = phase(workload, now)
    reason, message = reason_of(workload, now)
    if where is Phase.PENDING and reason != reasons.ON_HOLD:
        reason, message = waits.get((found.namespace, found.name), (reason, message))
    if line.why and not spec.active and where is Phase.DEACTIVATED:
        reason = line.why
    admission = workload.status.admission
    ran = duration_seconds(workload, now)
    pods = ",".join(
        f"{pod_set.get('name', 'main')}={pod_set.get('count', 1)}"
        for pod_set in field(found.plain(), "spec", "podSets", default=[])
    )
    return (
        f"{line.mark}{found.name}",
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


def _cluster_queue(found: BucketObject, now: datetime, counters: Counters) -> tuple[str, ...]:
    spec = field(found.plain(), "spec", default={})
    status = counters.get(("", found.name))
    flavors = {
        flavor.get("name", ""): None
        for group in spec.get("resourceGroups") or []
        for flavor in group.get("flavors") or []
    }
    return (
        found.name,
        spec.get("cohortName") or NOTHING,
        spec.get("queueingStrategy") or "BestEffortFIFO",
        *_counted(status),
        age(found.created(), now),
        ",".join(flavors) or NOTHING,
        UNKNOWN if status is None else str(status.parked),
        _why(status),
    )


def _local_queue(found: BucketObject, now: datetime, counters: Counters) -> tuple[str, ...]:
    status = counters.get((found.namespace, found.name))
    return (
        found.name,
        field(found.plain(), "spec", "clusterQueue", default=NOTHING),
        *_counted(status),
        age(found.created(), now),
        NOTHING if status is None or status.used is None else value_of(status.used),
        NOTHING if status is None or status.used is None else f"{status.used.weight:g}",
        _why(status),
    )


def value_of(used: LocalUsage) -> str:
    """The usage that orders a LocalQueue among the LocalQueues of its ClusterQueue, as text."""
    return "last" if used.value is None else f"{used.value:.4g}"


def _labels(labels: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items()) or NOTHING


def _flavor(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    spec = field(found.plain(), "spec", default={})
    taints = ",".join(
        f"{taint.get('key')}={taint.get('value', '')}:{taint.get('effect', '')}"
        for taint in spec.get("nodeTaints") or []
    )
    return (
        found.name,
        _labels(spec.get("nodeLabels") or {}),
        taints or NOTHING,
        age(found.created(), now),
    )


def _check(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    spec = field(found.plain(), "spec", default={})
    parameters = spec.get("parameters") or {}
    [active, *_] = [c for c in conditions_of(found.plain()) if c.get("type") == "Active"] or [{}]
    inactive = active.get("status") == "False"
    return (
        found.name,
        spec.get("controllerName") or NOTHING,
        f"{parameters.get('kind')}/{parameters.get('name')}" if parameters else NOTHING,
        {"True": "yes", "False": "no"}.get(str(active.get("status", "")), UNKNOWN),
        (str(active.get("reason", "")) if inactive else "") or NOTHING,
        age(found.created(), now),
        spec.get("preemptionPolicy") or "Anytime",
        str(active.get("message", "")) if inactive else "",
    )


def _topology(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    levels = field(found.plain(), "spec", "levels", default=())
    return (
        found.name,
        ",".join(str(one.get("nodeLabel")) for one in levels) or NOTHING,
        age(found.created(), now),
    )


def _cohort(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    spec = field(found.plain(), "spec", default={})
    return (
        found.name,
        spec.get("parentName") or NOTHING,
        str(len(spec.get("resourceGroups") or [])),
        age(found.created(), now),
    )


def _priority_class(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    plain = found.plain()
    return (
        found.name,
        str(plain.get("value", 0)),
        age(found.created(), now),
        str(plain.get("description", "")),
    )


def _pod_priority_class(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    plain = found.plain()
    return (
        found.name,
        str(plain.get("value", 0)),
        "yes" if plain.get("globalDefault") else NOTHING,
        age(found.created(), now),
        str(plain.get("description", "")),
    )


def _provisioning(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    return (
        found.name,
        field(found.plain(), "spec", "provisioningClassName", default=NOTHING),
        ",".join(field(found.plain(), "spec", "managedResources", default=())) or "all",
        str(field(found.plain(), "spec", "retryStrategy", "backoffLimitCount", default=3)),
        age(found.created(), now),
        _labels(field(found.plain(), "spec", "parameters", default={})),
    )


def _request(found: BucketObject, now: datetime, counters: Counters) -> tuple[str, ...]:
    from admittance.cli.show import capacity_requests

    return capacity_requests.row(found, now, counters)


def _namespace(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    return (
        found.name,
        _labels(field(found.plain(), "metadata", "labels", default={})),
        age(found.created(), now),
    )


def _foreign(found: BucketObject, now: datetime, _counters: Counters) -> tuple[str, ...]:
    plain = found.plain()
    return (
        found.name,
        str(plain.get("kind", "")),
        str(plain.get("apiVersion", "")),
        age(found.created(), now),
    )


_COUNTED = ("#PENDING", "#RESERVING", "#ADMITTED", "ACTIVE", "AGE")
_FOREIGN = _View(columns_of("NAME", "KIND", "API VERSION", "AGE"), _foreign)
_VIEWS: Final[dict[str, _View]] = {
    kinds.WORKLOAD.manifest: _View(
        columns_of(
            *("NAME", "QUEUE", "#PRIORITY", "PHASE", "FLAVORS", "AGE", "~STARTED", "DURATION"),
            *("REASON", "+RESERVED IN", "+PODS", "+#CYCLE", "+MESSAGE"),
        ),
        _workload,
    ),
    kinds.CLUSTER_QUEUE.manifest: _View(
        columns_of(
            "NAME", "COHORT", "STRATEGY", *_COUNTED, "+FLAVORS", "+#PARKED", "+WHY INACTIVE"
        ),
        _cluster_queue,
    ),
    kinds.LOCAL_QUEUE.manifest: _View(
        columns_of("NAME", "CLUSTERQUEUE", *_COUNTED, "+#USAGE", "+#WEIGHT", "+WHY INACTIVE"),
        _local_queue,
    ),
    kinds.FLAVOR.manifest: _View(columns_of("NAME", "NODE LABELS", "TAINTS", "AGE"), _flavor),
    kinds.TOPOLOGY.manifest: _View(columns_of("NAME", "LEVELS", "AGE"), _topology),
    kinds.CHECK.manifest: _View(
        columns_of(
            *("NAME", "CONTROLLER", "PARAMETERS", "ACTIVE", "REASON", "AGE", "+PREEMPTION"),
            "+MESSAGE",
        ),
        _check,
    ),
    kinds.COHORT.manifest: _View(columns_of("NAME", "PARENT", "#GROUPS", "AGE"), _cohort),
    kinds.PRIORITY_CLASS.manifest: _View(
        columns_of("NAME", "#VALUE", "AGE", "DESCRIPTION"), _priority_class
    ),
    kinds.POD_PRIORITY_CLASS.manifest: _View(
        columns_of("NAME", "#VALUE", "DEFAULT", "AGE", "DESCRIPTION"), _pod_priority_class
    ),
    kinds.PROVISIONING.manifest: _View(
        columns_of("NAME", "CLASS", "RESOURCES", "#RETRIES", "AGE", "+PARAMETERS"), _provisioning
    ),
    kinds.REQUEST.manifest: _View(
        columns_of(
            *("NAME", "WORKLOAD", "CHECK", "CLASS", "#ATTEMPT", "STATE", "AGE", "MESSAGE", "+ID")
        ),
        _request,
    ),
    kinds.NAMESPACE.manifest: _View(columns_of("NAME", "LABELS", "AGE"), _namespace),
}
