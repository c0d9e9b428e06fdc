"""`Catalog`: the configuration of a cluster (queues, cohorts, flavors, checks, namespaces), kept
current by every applied manifest.

The scheduler and the workload-controller both use the catalog for answers on which they must agree:
the domain of a ClusterQueue, the revision of the domain's last change, whether the ClusterQueue
admits workloads, and the checks of a workload. The catalog is pure: it uses no bus and no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from admittance.api.checks import (
    MACHINES_CHECK,
    AdmissionCheck,
    Namespace,
    WorkloadPriorityClass,
    covered_flavors,
)
from admittance.api.fields.units import amount, parse
from admittance.api.queues import (
    ClusterQueue,
    Cohort,
    FairSharing,
    LocalQueue,
    ResourceFlavor,
    ResourceGroup,
    Topology,
)
from admittance.events import reasons
from admittance.events.shapes import Admission
from admittance.quota.cell import FlavorResource, Quota
from admittance.quota.labels import selects
from admittance.quota.required_checks import CheckLists, ConflictingChecks, required_checks
from admittance.quota.tree import Node, Tree


class Activity(NamedTuple):
    """Whether a ClusterQueue or LocalQueue admits new workloads, and if not, a reason (one word)
    and a sentence.

    ``active``: the queue admits new workloads, and ``reason`` is Ready. If several reasons for an
    inactive queue apply, ``message`` names all of them, and ``reason`` is the first in the order of
    docs/spec/scheduling.md#1.3."""

    active: bool
    reason: str
    message: str


READY = Activity(True, reasons.READY, "Can admit new workloads")
NOT_FOUND = Activity(False, reasons.NOT_FOUND, "ClusterQueue not found")
TERMINATING = Activity(
    False, reasons.TERMINATING, "Can't admit new workloads; clusterQueue is terminating"
)


def inactive_for(problems: Iterable[tuple[str, str]]) -> Activity:
    """Returns the activity of a queue with these problems, each a reason and a clause of the
    sentence, in order; READY if there are no problems."""
    reasons = list(problems)
    if not reasons:
        return READY
    clauses = ", ".join(clause for _, clause in reasons)
    return Activity(False, reasons[0][0], f"Can't admit new workloads: {clauses}.")


def is_check_active(check: AdmissionCheck) -> bool:
    """Returns whether the controller of the AdmissionCheck can evaluate the check. A check without
    the condition Active counts as active."""
    return inactive_because(check) is None


def inactive_because(check: AdmissionCheck) -> str | None:
    """Returns why the controller of the AdmissionCheck cannot evaluate the check; None: the
    controller can."""
    if check.status is not None:
        for condition in check.status.conditions:
            if condition.type == "Active" and condition.status != "True":
                return ": ".join(filter(None, (condition.reason, condition.message)))
    return None


def quotas_of(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, Quota]:
    """Returns the quotas in the resource groups of a ClusterQueue or Cohort, in accounting
    units."""
    return {
        (flavor.name, resource.name): Quota(
            amount(resource.name, resource.nominal_quota),
            _limit(resource.name, resource.borrowing_limit),
            _limit(resource.name, resource.lending_limit),
        )
        for group in groups
        for flavor in group.flavors
        for resource in flavor.resources
    }


def _limit(resource: str, quantity: Any) -> int | None:
    return None if quantity is None else amount(resource, quantity)


class _QueueParts:
    """What the catalog computes from the manifest of a ClusterQueue."""

    def __init__(self, queue: ClusterQueue, covered: Collection[str]) -> None:
        self.lists = CheckLists(queue, covered)
        self.flavors = _flavors(queue)
        self.quotas = quotas_of(queue.spec.resource_groups)
        self.weight = _weight(queue.spec.fair_sharing)


class Catalog:
    """The configuration of a cluster, updated manifest by manifest.

    ``tree``: the cohort trees with their quotas, to which the users of the catalog also charge the
    usage of workloads."""

    def __init__(self, *, machines: bool = True) -> None:
        """``machines``: False: no queue has the check `MACHINES_CHECK` unless it names it."""
        self.tree = Tree()
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.local_queues: dict[tuple[str, str], LocalQueue] = {}
        self.cohorts: dict[str, Cohort] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.topologies: dict[str, Topology] = {}
        self.checks: dict[str, AdmissionCheck] = {}
        self.priority_classes: dict[str, WorkloadPriorityClass] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.lists: dict[str, CheckLists] = {}
        self.affected: set[str] = set()
        """The names of the ClusterQueues that may have become active or inactive, or have other
        flavors or checks, through the last call of `apply`."""
        self._machines = machines
        self._covered: frozenset[str] = frozenset()
        self._newest: dict[str, int] = {}
        self._flavor_users: dict[str, set[str]] = {}
        self._check_users: dict[str, set[str]] = {}
        # Dictionaries keep the order in which the LocalQueues came, which a set would not.
        self._locals_of_queue: dict[str, dict[tuple[str, str], None]] = {}
        self._locals_of_namespace: dict[str, dict[tuple[str, str], None]] = {}

    # Change. --------------------------------------------------------------------------------

    def apply(self, kind: str, namespace: str, name: str, obj: Any, revision: int) -> set[str]:
        """Applies a manifest (None: the object was deleted). Returns the names of the domains that
        the object touches.

        Objects of kinds that concern no domain, and of unknown kinds, touch no domain. An object
        that has not changed touches the same domains as a changed one, so that all readers of the
        bucket agree on the result."""
        self.affected = set()
        match kind:
            case "ClusterQueue":
                touched = self._cluster_queue(name, obj)
            case "Cohort":
                touched = self._cohort(name, obj)
            case "LocalQueue":
                touched = self._local_queue((namespace, name), obj)
            case "ResourceFlavor":
                _put(self.flavors, name, obj)
                touched = self._users(self._flavor_users.get(name, ()))
            case "Topology":
                _put(self.topologies, name, obj)
                named = [
                    f for f, flavor in self.flavors.items() if flavor.spec.topology_name == name
                ]
                touched = self._users(
                    {queue for flavor in named for queue in self._flavor_users.get(flavor, ())}
                )
            case "AdmissionCheck":
                _put(self.checks, name, obj)
                users = set(self._check_users.get(name, ()))
                if name == MACHINES_CHECK:
                    users |= self._cover(covered_flavors(obj))
                touched = self._users(users)
            case "Namespace":
                _put(self.namespaces, name, obj)
                touched = self._domains(
                    queue.spec.cluster_queue
                    for key in self._locals_of_namespace.get(name, ())
                    if (queue := self.local_queues.get(key)) is not None
                )
            case "WorkloadPriorityClass":
                _put(self.priority_classes, name, obj)
                touched = set()
            case _:
                touched = set()
        for domain in touched:
            self._newest[domain] = max(revision, self._newest.get(domain, 0))
        return touched

    def _cluster_queue(self, name: str, obj: ClusterQueue | None) -> set[str]:
        # Everything that is computed from the manifest is computed first: a manifest that cannot be
        # applied changes nothing.
        parts = None if obj is None else _QueueParts(obj, self._covered)
        touched = self._domains([name])
        before = self.cluster_queues.get(name)
        if before is not None:
            for flavor in _flavors(before):
                self._flavor_users[flavor].discard(name)
            for check in self.lists[name].names():
                self._check_users[check].discard(name)
        _put(self.cluster_queues, name, obj)
        self.affected.add(name)
        if obj is None or parts is None:
            self.lists.pop(name, None)
            self.tree.drop_queue(name)
            return touched
        self.lists[name] = parts.lists
        for flavor in parts.flavors:
            self._flavor_users.setdefault(flavor, set()).add(name)
        for check in parts.lists.names():
            self._check_users.setdefault(check, set()).add(name)
        node = self.tree.set_queue(name, obj.spec.cohort_name, parts.quotas)
        node.weight = parts.weight
        return touched | self._domains([name])

    def _cohort(self, name: str, obj: Cohort | None) -> set[str]:
        quotas = {} if obj is None else quotas_of(obj.spec.resource_groups)
        weight = 1.0 if obj is None else _weight(obj.spec.fair_sharing)
        before = self.tree.cohorts.get(name)
        touched = {f"cohort-{before.root().name}"} if before is not None else set()
        _put(self.cohorts, name, obj)
        if obj is None:
            self.tree.drop_cohort(name)
        else:
            node = self.tree.set_cohort(name, obj.spec.parent_name, quotas)
            node.weight = weight
        after = self.tree.cohorts.get(name)
        if after is not None:
            touched.add(f"cohort-{after.root().name}")
        return touched

    def _local_queue(self, key: tuple[str, str], obj: LocalQueue | None) -> set[str]:
        queues: list[str] = []
        before = self.local_queues.get(key)
        if before is not None:
            queues.append(before.spec.cluster_queue)
            self._locals_of_queue[before.spec.cluster_queue].pop(key, None)
            self._locals_of_namespace[key[0]].pop(key, None)
        _put(self.local_queues, key, obj)
        if obj is not None:
            queues.append(obj.spec.cluster_queue)
            self._locals_of_queue.setdefault(obj.spec.cluster_queue, {})[key] = None
            self._locals_of_namespace.setdefault(key[0], {})[key] = None
        return self._domains(queues)

    def use_machines(self, on: bool) -> None:
        """Sets whether queues have the check `MACHINES_CHECK` without naming it."""
        if on is not self._machines:
            self._machines = on
            self._cover(covered_flavors(self.checks.get(MACHINES_CHECK)))

    def _cover(self, flavors: Iterable[str]) -> set[str]:
        """Sets the flavors that have the check `MACHINES_CHECK`; returns the names of the
        ClusterQueues that have got or lost the check for one of their flavors."""
        covered = frozenset(flavors if self._machines else ())
        changed = covered ^ self._covered
        self._covered = covered
        queues = {queue for flavor in changed for queue in self._flavor_users.get(flavor, ())}
        for name in queues:
            self.lists[name] = CheckLists(self.cluster_queues[name], covered)
            users = self._check_users.setdefault(MACHINES_CHECK, set())
            if MACHINES_CHECK in self.lists[name].names():
                users.add(name)
            else:
                users.discard(name)
        return queues

    def _users(self, queues: Collection[str]) -> set[str]:
        self.affected.update(queues)
        return self._domains(queues)

    def _domains(self, queues: Iterable[str]) -> set[str]:
        return {domain for name in queues if (domain := self.domain_of(name)) is not None}

    # Answers. -------------------------------------------------------------------------------

    def domain_of(self, cluster_queue: str) -> str | None:
        """Returns the name of the ClusterQueue's domain: ``cohort-<root>``, or ``queue-<name>`` for
        a ClusterQueue without a cohort; None: the ClusterQueue does not exist."""
        node = self.tree.queues.get(cluster_queue)
        return None if node is None else domain_of_node(node)

    def newest(self, domain: str) -> int:
        """Returns the bucket revision of the last change to an object that touches the domain; 0:
        no such object was applied yet."""
        return self._newest.get(domain, 0)

    def in_cycle(self, cluster_queue: str) -> bool:
        """Returns whether the cohorts above the ClusterQueue form a cycle. A ClusterQueue below a
        cycle of cohorts admits nothing."""
        node = self.tree.queues.get(cluster_queue)
        return node is not None and self.tree.in_cycle(node)

    def local_queue_weight(self, key: tuple[str, str]) -> float:
        """Returns the weight of a LocalQueue relative to other LocalQueues of its ClusterQueue; 1
        by default."""
        queue = self.local_queues.get(key)
        return _weight(queue.spec.fair_sharing) if queue is not None else 1.0

    def locals_of(self, cluster_queue: str) -> Iterator[tuple[str, str]]:
        """Yields the LocalQueues of the ClusterQueue, each as namespace and name."""
        yield from self._locals_of_queue.get(cluster_queue, ())

    def locals_in(self, namespace: str) -> Iterator[tuple[str, str]]:
        """Yields the LocalQueues of the namespace, each as namespace and name."""
        yield from self._locals_of_namespace.get(namespace, ())

    def selects_namespace(self, cluster_queue: str, namespace: str) -> bool:
        """Returns whether the ClusterQueue's namespaceSelector selects the namespace. A namespace
        without a Namespace object has only the label ``kubernetes.io/metadata.name``."""
        queue = self.cluster_queues.get(cluster_queue)
        if queue is None:
            return False
        selector = queue.spec.namespace_selector
        if selector is not None and not (selector.match_labels or selector.match_expressions):
            return True
        known = self.namespaces.get(namespace)
        labels = {"kubernetes.io/metadata.name": namespace}
        if known is not None:
            labels.update(known.metadata.labels)
        return selects(selector, labels)

    def activity(self, cluster_queue: str) -> Activity:
        """Returns whether the ClusterQueue admits new workloads, and if not, why."""
        queue = self.cluster_queues.get(cluster_queue)
        if queue is None:
            return NOT_FOUND
        if queue.metadata.deletion_timestamp is not None:
            return TERMINATING
        return inactive_for(self._problems(queue, self.lists[cluster_queue]))

    def _problems(self, queue: ClusterQueue, lists: CheckLists) -> Iterator[tuple[str, str]]:
        if queue.spec.stop_policy not in ("", "None"):
            yield reasons.STOPPED, "is stopped"
        missing = [name for name in _flavors(queue) if name not in self.flavors]
        if missing:
            yield (
                reasons.FLAVOR_NOT_FOUND,
                f"references missing ResourceFlavor(s): {','.join(missing)}",
            )
        names = list(lists.names())
        absent = [name for name in names if name not in self.checks]
        if absent:
            yield (
                reasons.ADMISSION_CHECK_NOT_FOUND,
                f"references missing AdmissionCheck(s): {','.join(absent)}",
            )
        idle = [name for name in names if name in self.checks]
        idle = [name for name in idle if not is_check_active(self.checks[name])]
        if idle:
            listed = f"references inactive AdmissionCheck(s): {','.join(idle)}"
            if lists.covered and MACHINES_CHECK in idle:
                # No manifest of the queue has this name, so the sentence says what serves it.
                why = inactive_because(self.checks[MACHINES_CHECK])
                listed += f" ({MACHINES_CHECK} is answered by the service placement: {why})"
            yield reasons.ADMISSION_CHECK_INACTIVE, listed
        pair = lists.conflicting(self.checks.get)
        if pair is not None:
            yield (
                reasons.CONFLICTING_ADMISSION_CHECKS,
                f"AdmissionChecks {pair[0]} and {pair[1]} of one list have one controller",
            )

        lost = {
            flavor: topology
            for flavor in _flavors(queue)
            if (topology := self._topology_of(flavor)) and topology not in self.topologies
        }
        for flavor, topology in lost.items():
            yield reasons.TOPOLOGY_NOT_FOUND, f"there is no Topology {topology} for flavor {flavor}"

    def _topology_of(self, flavor: str) -> str:
        known = self.flavors.get(flavor)
        return (known.spec.topology_name or "") if known is not None else ""

    def without_cluster_queue(self, namespace: str, name: str) -> Activity | None:
        """Returns why workloads of the LocalQueue have no ClusterQueue: the LocalQueue does not
        exist, is stopped, or names a ClusterQueue that does not exist; None: they have one."""
        queue = self.local_queues.get((namespace, name))
        if queue is None:
            return Activity(False, reasons.NOT_FOUND, f"LocalQueue {name} does not exist")
        if queue.spec.stop_policy not in ("", "None"):
            return Activity(False, reasons.STOPPED, "LocalQueue is stopped")
        target = queue.spec.cluster_queue
        if target not in self.cluster_queues:
            message = f"Can't submit new workloads to clusterQueue: {target} doesn't exist"
            return Activity(False, reasons.CLUSTER_QUEUE_DOES_NOT_EXIST, message)
        return None

    def local_queue_activity(self, namespace: str, name: str) -> Activity:
        """Returns whether workloads of the LocalQueue may be admitted, and if not, why."""
        nowhere = self.without_cluster_queue(namespace, name)
        if nowhere is not None:
            return nowhere
        target = self.local_queues[namespace, name].spec.cluster_queue
        if not self.activity(target).active:
            message = f"Can't submit new workloads to clusterQueue: {target} is inactive"
            return Activity(False, reasons.CLUSTER_QUEUE_IS_INACTIVE, message)
        return READY._replace(message="Can submit new workloads to localQueue")

    def required_checks(
        self, cluster_queue: str, admission: Admission | None
    ) -> dict[str, AdmissionCheck]:
        """Returns the checks that a workload of the ClusterQueue must pass, by name: with an
        admission the checks of its flavors, without an admission the checks that every flavor of
        the queue has. Raises ConflictingChecks if two required checks have the same controller."""
        lists = self.lists.get(cluster_queue)
        return {} if lists is None else required_checks(lists, admission, self.checks.get)

    def users_of_check(self, check: str) -> list[str]:
        """Returns the names of the ClusterQueues that have the check, sorted."""
        return sorted(self._check_users.get(check, ()))

    def checks_to_pass(self, cluster_queue: str, admission: Admission) -> dict[str, AdmissionCheck]:
        """Returns the checks that a workload with reserved quota must pass before it is admitted,
        by name.

        The scheduler never assigns flavors with checks that conflict. If a later edit of the
        configuration makes the checks conflict, the workload must pass every check that the
        ClusterQueue names."""
        try:
            return self.required_checks(cluster_queue, admission)
        except ConflictingChecks:
            return {
                name: check
                for name in self.lists[cluster_queue].names()
                if (check := self.checks.get(name)) is not None
            }


def domain_of_node(node: Node) -> str:
    """Returns the name of the domain to which a node of a cohort tree belongs."""
    root = node.root()
    return f"cohort-{root.name}" if root.is_cohort else f"queue-{root.name}"


def _weight(sharing: FairSharing | None) -> float:
    return 1.0 if sharing is None or sharing.weight is None else float(parse(sharing.weight))


def _flavors(queue: ClusterQueue) -> list[str]:
    return [flavor.name for group in queue.spec.resource_groups for flavor in group.flavors]


def _put(objects: dict[Any, Any], key: Any, obj: Any) -> None:
    if obj is None:
        objects.pop(key, None)
    else:
        objects[key] = obj
