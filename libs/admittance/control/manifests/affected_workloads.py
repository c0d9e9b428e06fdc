"""Which workloads the change of a manifest can affect. The module is pure."""

from __future__ import annotations

from msgspec.structs import replace

from admittance.api.checks import MACHINES_CHECK
from admittance.api.kinds import OBJECT_KINDS
from admittance.control.controller import Controller
from admittance.control.manifests.objects import Objects
from admittance.events.names import BadToken, plain
from admittance.events.reader import Reader
from admittance.events.subjects import object_key
from admittance.events.system import ObjectApplied
from admittance.workload.checks.rows import row_of

_applied = Reader(ObjectApplied)


def read_change(subject: str, data: bytes) -> ObjectApplied:
    """The message ``admit.object.…`` with this subject and payload. Its ``kind`` is "" for a
    foreign kind: only the subject tells a foreign kind from ours. Raises Unreadable."""
    parts = subject.split(".")
    kind = OBJECT_KINDS.get(parts[3], "") if len(parts) > 3 else ""
    return replace(_applied(data), kind=kind)


def affected_workloads(
    state: Controller, applied: ObjectApplied, asks: frozenset[str]
) -> list[str]:
    """Keys of the workloads that a changed object can affect. ``asks``: checks that name the object
    in ``parameters``."""
    workloads = state.workloads
    match applied.kind:
        case "LocalQueue":
            return workloads.of_queue(applied.namespace, applied.name)
        case "ClusterQueue":
            queues = {applied.name}
        case "WorkloadPriorityClass":
            return sorted(key for key, known in workloads.items() if known.workload)
        case kind:
            checks = asks | {applied.name} if kind == "AdmissionCheck" else asks
            if not checks:
                return []
            lists = state.catalog.lists
            queues = {
                queue
                for check in checks
                for queue in state.catalog.users_of_check(check)
                if check in lists[queue].listed()
            }
            if MACHINES_CHECK in checks:
                listing = _in_queues(state, queues)
                return listing + _with_machines(state, set(listing))
    return _in_queues(state, queues)


def _in_queues(state: Controller, queues: set[str]) -> list[str]:
    """Keys of the workloads of the ClusterQueues."""
    return [
        key
        for local in state.objects.of_kind("localqueue")
        if local.spec.cluster_queue in queues
        for key in state.workloads.of_queue(local.metadata.namespace, local.metadata.name)
    ]


def _with_machines(state: Controller, but: set[str]) -> list[str]:
    """Keys of the workloads, without those of ``but``, that have the row of the check
    `MACHINES_CHECK`, or may get it. A workload gets it with its quota, so the many workloads that
    wait are left out."""
    users = set(state.catalog.users_of_check(MACHINES_CHECK))
    found = []
    for key, known in state.workloads.items():
        if known.workload is None:
            continue
        status = known.workload.status
        queue = status.admission.cluster_queue if status.admission is not None else ""
        if key not in but and (
            queue in users or row_of(status.admission_checks, MACHINES_CHECK) is not None
        ):
            found.append(key)
    return sorted(found)


def checks_by_parameters(objects: Objects, subject: str, applied: ObjectApplied) -> frozenset[str]:
    """The checks that name changed, created or deleted parameters, or that now name other
    parameters."""
    if applied.kind == "AdmissionCheck":
        return frozenset({applied.name} if applied.parameters_changed else ())
    try:
        key = object_key(plain(subject.split(".")[3]), "", applied.name)
    except (BadToken, IndexError, ValueError):
        # No message of Admittance has such a subject: another program published the message.
        return frozenset()
    return objects.checks_by_parameters(key)
