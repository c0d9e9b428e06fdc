"""Answers questions about a workload's queues from the manifests and the quota catalog."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from admittance.api.queues import ClusterQueueSpec, LocalQueue
from admittance.control.objects import Objects, checks_of, parameters_key
from admittance.events.shapes import Admission
from admittance.family.policy import FamilyRules
from admittance.family.policy import rules_of as families_of
from admittance.quota.catalog import Catalog
from admittance.quota.rules import ConflictingChecks
from admittance.workload.limits import Limits
from admittance.workload.transition_context import (
    CheckRules,
    FlavorParts,
    InactiveReason,
    RequiredCheck,
    check_rules,
)

STOPPING: Final = frozenset({"Hold", "HoldAndDrain"})


class ManifestQueueView:
    """Implements `admittance.workload.transition_context.QueueView` from the held manifests."""

    def __init__(self, objects: Objects, catalog: Catalog, limits: Limits) -> None:
        self._objects = objects
        self._catalog = catalog
        self.limits = limits
        self._rules: dict[str, tuple[ClusterQueueSpec, FamilyRules | None]] = {}

    def check(self, name: str) -> CheckRules | None:
        found = self._objects.check(name)
        if found is None:
            return None
        return check_rules(found)._replace(missing=self._objects.missing_parameters(found))

    def cluster_queue(self, namespace: str, queue: str) -> str:
        local = self._objects.local_queue(namespace, queue)
        if local is None:
            return ""
        name = local.spec.cluster_queue
        return name if self._objects.cluster_queue(name) is not None else ""

    def inactive_reason(self, namespace: str, queue: str) -> InactiveReason | None:
        if not queue:
            return InactiveReason("Misconfigured", "The workload names no LocalQueue")
        local = self._objects.local_queue(namespace, queue)
        if local is None:
            return InactiveReason("Misconfigured", f"LocalQueue {queue} doesn't exist")
        if local.metadata.deletion_timestamp is not None:
            return InactiveReason("Misconfigured", f"LocalQueue {queue} is being deleted")
        behind = self._objects.cluster_queue(local.spec.cluster_queue)
        if behind is None and local.spec.stop_policy in STOPPING:
            return _stopped_local(local)
        if behind is None:
            return InactiveReason(
                "Misconfigured", f"ClusterQueue {local.spec.cluster_queue} doesn't exist"
            )
        if behind.metadata.deletion_timestamp is not None:
            return InactiveReason(
                "Misconfigured", f"ClusterQueue {local.spec.cluster_queue} is being deleted"
            )
        # A stopped ClusterQueue is reported before a stopped LocalQueue: its drain affects more
        # workloads.
        name = behind.metadata.name
        if behind.spec.stop_policy in STOPPING:
            return InactiveReason(
                "Suspended",
                f"ClusterQueue {name} is stopped",
                behind.spec.stop_policy == "HoldAndDrain",
                "ClusterQueueStopped",
            )
        return _stopped_local(local) if local.spec.stop_policy in STOPPING else None

    def required_checks(
        self, cluster_queue: str, admission: Admission | None
    ) -> tuple[RequiredCheck, ...]:
        if self._objects.cluster_queue(cluster_queue) is None:
            return ()
        try:
            required = self._catalog.required_checks(cluster_queue, admission)
        except ConflictingChecks:
            # The scheduler never assigns such a combination, but an edit of the queue can create it
            # under a reservation. Then every check that the queue names must pass.
            queue = self._objects.cluster_queue(cluster_queue)
            named = checks_of(queue) if queue is not None else set()
            required = {n: c for n in named if (c := self._objects.check(n)) is not None}
        return tuple(
            RequiredCheck(name, check.spec.controller_name)
            for name, check in sorted(required.items())
        )

    def named_checks(self, cluster_queue: str) -> frozenset[str]:
        lists = self._catalog.lists.get(cluster_queue)
        return frozenset(lists.names()) if lists is not None else frozenset()

    def edition(self, namespace: str, queue: str, check: str) -> str:
        local = self._objects.local_queue(namespace, queue)
        behind = None
        if local is not None:
            behind = self._objects.cluster_queue(local.spec.cluster_queue)
        found = self._objects.check(check)
        parts = [
            f"{one.metadata.uid}/{one.metadata.generation}" if one is not None else "none"
            for one in (local, behind, found)
        ]
        kept = self._objects.get(parameters_key(found)) if found is not None else None
        parts.append(str(kept.revision) if kept is not None else "none")
        return blake2b(" ".join(parts).encode(), digest_size=6).hexdigest()

    def flavor(self, name: str) -> FlavorParts:
        return parts_of(self._objects, name)

    def not_offered(self, admission: Admission) -> tuple[str, ...]:
        queue = self._objects.cluster_queue(admission.cluster_queue)
        if queue is None:
            return ()
        offered = {
            (resource.name, flavor.name)
            for group in queue.spec.resource_groups
            for flavor in group.flavors
            for resource in flavor.resources
        }
        return tuple(
            sorted(
                {
                    flavor
                    for place in admission.pod_set_assignments
                    for resource, flavor in place.flavors.items()
                    if (resource, flavor) not in offered
                }
            )
        )

    def family_rules(self, namespace: str, queue: str) -> FamilyRules | None:
        if not self.limits.families:
            return None
        local = self._objects.local_queue(namespace, queue)
        if local is None:
            return None
        found = self._objects.cluster_queue(local.spec.cluster_queue)
        if found is None or found.spec.concurrent_admission is None:
            return None
        name = found.metadata.name
        known = self._rules.get(name)
        if known is None or known[0] is not found.spec:
            # Needed for every fact about a family; computed once per version of the queue.
            known = self._rules[name] = found.spec, families_of(found.spec)
        return known[1]


def parts_of(objects: Objects, flavor: str) -> FlavorParts:
    """What that ResourceFlavor adds to pods; empty if it does not exist."""
    found = objects.flavor(flavor)
    if found is None:
        return FlavorParts()
    return FlavorParts(found.spec.node_labels, found.spec.tolerations)


def _stopped_local(local: LocalQueue) -> InactiveReason:
    return InactiveReason(
        "Suspended",
        f"LocalQueue {local.metadata.name} is stopped",
        local.spec.stop_policy == "HoldAndDrain",
        "LocalQueueStopped",
    )
