"""The quota that stored workloads hold, added up anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from admittance.api.fields.units import amount
from admittance.api.workload import ReclaimablePod
from admittance.events.shapes import Admission
from admittance.workload.stored import PARENT, StoredWorkload, head, owner_of
from simulation.invariants.quota import most
from simulation.invariants.reference_quota import Usage


def written_usage(
    stored: Mapping[str, StoredWorkload], without: Sequence[str] = ()
) -> dict[str, Usage]:
    """The usage of each ClusterQueue; for a family the most that any of its variants holds or is
    promised. ``without``: workloads that are left out. Pods that were reclaimed count no more."""
    held: dict[tuple[str, str], list[Usage]] = {}
    for name, workload in stored.items():
        admission = workload.status.admission or workload.status.promised
        if admission is None or name in without or head(workload).role == PARENT:
            continue
        holder = admission.cluster_queue, owner_of(workload)[0] or name
        held.setdefault(holder, []).append(_left(admission, workload.status.reclaimable_pods))
    usage: dict[str, Usage] = {}
    for (queue, _), usages in held.items():
        for cell, much in most(usages).items():
            if much:
                of = usage.setdefault(queue, {})
                of[cell] = of.get(cell, 0) + much
    return usage


def _left(admission: Admission, reclaimable: Sequence[ReclaimablePod]) -> Usage:
    """What the admission books, without pods that are not needed any more."""
    gone = {pods.name: pods.count for pods in reclaimable}
    usage: Usage = {}
    for row in admission.pod_set_assignments:
        left = max(0, row.count - gone.get(row.name, 0))
        for resource, flavor in row.flavors.items():
            much = amount(resource, row.resource_usage[resource]) // row.count * left
            usage[flavor, resource] = usage.get((flavor, resource), 0) + much
    return usage
