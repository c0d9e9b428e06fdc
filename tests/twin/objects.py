"""Objects of the reference scheduler: queues, cohorts, flavors, workloads; read from manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

FR = tuple[str, str]
"""A flavor and a resource."""

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
MOST = 2**63 - 1
UNLIMITED = float("inf")


def exact(quantity: str | float) -> Fraction:
    """The number that a quantity stands for."""
    text = str(quantity)
    if text.endswith("m"):
        return Fraction(text[:-1]) / 1000
    digits = text.rstrip("".join(sorted({letter for unit in UNITS for letter in unit})))
    return Fraction(digits) * UNITS[text[len(digits) :]]


def amount(resource: str, quantity: str | float) -> int:
    """In the unit of account: cpu in thousandths, all else whole; rounded up."""
    value = exact(quantity) * (1000 if resource == "cpu" else 1)
    return min(MOST, -(-value.numerator // value.denominator))


@dataclass
class Quota:
    nominal: float = 0
    borrow: float | None = None
    lend: float | None = None


@dataclass
class Group:
    resources: list[str]
    flavors: list[str]


@dataclass
class Place:
    """A cohort, or a ClusterQueue (then ``is_queue``)."""

    name: str
    is_queue: bool
    parent: str = ""
    groups: list[Group] = field(default_factory=list)
    quotas: dict[FR, Quota] = field(default_factory=dict)
    weight: float = 1.0
    strict: bool = False
    stop: str = "None"
    selector: Mapping[str, Any] | None = None
    within: str = "Never"
    reclaim: str = "Never"
    borrow: str = "Never"
    threshold: int | None = None
    can_borrow: str = "MayStopSearch"
    can_preempt: str = "TryNextFlavor"
    preference: str = "BorrowingOverPreemption"
    checks: list[tuple[str, list[str]]] = field(default_factory=list)

    def group_of(self, resource: str) -> Group | None:
        return next((group for group in self.groups if resource in group.resources), None)


def place(obj: Mapping[str, Any]) -> Place:
    """A Cohort or a ClusterQueue."""
    spec = obj.get("spec", {})
    is_queue = obj["kind"] == "ClusterQueue"
    made = Place(obj["metadata"]["name"], is_queue)
    made.parent = spec.get("cohortName" if is_queue else "parentName", "")
    made.weight = float(exact(spec.get("fairSharing", {}).get("weight", 1)))
    for group in spec.get("resourceGroups", []):
        names = [flavor["name"] for flavor in group["flavors"]]
        made.groups.append(Group(list(group["coveredResources"]), names))
        for flavor in group["flavors"]:
            for row in flavor["resources"]:
                resource = row["name"]
                limits = [
                    None if row.get(key) is None else quota_amount(resource, row[key])
                    for key in ("borrowingLimit", "lendingLimit")
                ]
                nominal = quota_amount(resource, row["nominalQuota"])
                made.quotas[flavor["name"], resource] = Quota(nominal, *limits)
    made.strict = spec.get("queueingStrategy", "BestEffortFIFO") == "StrictFIFO"
    made.stop = spec.get("stopPolicy", "None")
    made.selector = spec.get("namespaceSelector")
    preemption = spec.get("preemption", {})
    made.within = preemption.get("withinClusterQueue", "Never")
    made.reclaim = preemption.get("reclaimWithinCohort", "Never")
    made.borrow = preemption.get("borrowWithinCohort", {}).get("policy", "Never")
    made.threshold = preemption.get("borrowWithinCohort", {}).get("maxPriorityThreshold")
    fungibility = spec.get("flavorFungibility", {})
    made.can_borrow = fungibility.get("whenCanBorrow", "MayStopSearch")
    made.can_preempt = fungibility.get("whenCanPreempt", "TryNextFlavor")
    made.preference = fungibility.get("preference") or "BorrowingOverPreemption"
    for rule in spec.get("admissionChecksStrategy", {}).get("admissionChecks", []):
        made.checks.append((rule["name"], list(rule.get("onFlavors", []))))
    return made


def quota_amount(resource: str, quantity: str) -> float:
    """The amount, or infinity for the largest amount, which means no limit."""
    much = amount(resource, quantity)
    return UNLIMITED if much >= MOST else much


@dataclass
class PodSet:
    name: str
    count: int
    least: int | None
    per_pod: dict[str, int]
    selector: dict[str, str]
    tolerations: list[Mapping[str, Any]]

    def shape(self) -> object:
        """Two pod sets with equal shapes differ for the scheduler only in their counts."""
        tolerations = [sorted(toleration.items()) for toleration in self.tolerations]
        rest = [sorted(self.per_pod.items()), sorted(self.selector.items()), tolerations]
        return repr((self.name, self.least, rest))


@dataclass
class Admission:
    """``pods``: per pod set its name, how many pods, a flavor and an amount for each resource."""

    queue: str
    pods: list[tuple[str, int, dict[str, str], dict[str, int]]]

    def usage(self) -> dict[FR, int]:
        total: dict[FR, int] = {}
        for _, _, flavors, amounts in self.pods:
            for resource, flavor in flavors.items():
                key = (flavor, resource)
                total[key] = total.get(key, 0) + amounts[resource]
        return total


@dataclass
class Job:
    """A workload. ``leaving``: evicted, and not stopped yet. Times are seconds."""

    name: str
    uid: str
    created: float
    priority: int
    local_queue: str
    pod_sets: list[PodSet]
    reclaimed: dict[str, int] = field(default_factory=dict)
    admission: Admission | None = None
    reserved_at: float = 0
    admitted: bool = False
    finished: bool = False
    active: bool = True
    leaving: bool = False
    checks: dict[str, str] = field(default_factory=dict)
    check_evicted_at: float | None = None
    stopped: bool = False

    def count(self, pod_set: PodSet) -> int:
        return max(0, pod_set.count - self.reclaimed.get(pod_set.name, 0))

    def queue_time(self) -> float:
        return self.created if self.check_evicted_at is None else self.check_evicted_at

    def shape(self) -> object:
        return (
            self.priority,
            *((pod_set.shape(), self.count(pod_set)) for pod_set in self.pod_sets),
        )


def job(obj: Mapping[str, Any], created: float) -> Job:
    """A Workload."""
    spec = obj["spec"]
    pod_sets = []
    for pod_set in spec["podSets"]:
        pod = pod_set["template"]["spec"]
        per_pod: dict[str, int] = {}
        for container in pod["containers"]:
            for resource, quantity in container.get("resources", {}).get("requests", {}).items():
                per_pod[resource] = per_pod.get(resource, 0) + amount(resource, quantity)
        pod_sets.append(
            PodSet(
                pod_set.get("name", "main"),
                pod_set.get("count", 1),
                pod_set.get("minCount"),
                per_pod,
                dict(pod.get("nodeSelector", {})),
                list(pod.get("tolerations", [])),
            )
        )
    meta = obj["metadata"]
    queue, priority = spec.get("queueName", ""), spec.get("priority") or 0
    return Job(meta["name"], meta.get("uid", ""), created, priority, queue, pod_sets)
