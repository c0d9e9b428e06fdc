"""`FlavorPlan`: a ClusterQueue prepared for scans of flavors: its flavors in order, with the cells
that hold quota and usage of each flavor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from admittance.api.meta import Taint, Toleration
from admittance.api.queues import Preemption, ResourceGroup
from admittance.quota.catalog import Catalog
from admittance.quota.cell import Cell
from admittance.quota.labels import BLOCKING_EFFECTS
from admittance.quota.tree import Node
from admittance.scheduling.state.config import Config

NO_RIVALS: Final[Mapping[str, str]] = MappingProxyType({})


class Option(NamedTuple):
    """One flavor of a resource group in a `FlavorPlan`. ``exists``: the flavor's ResourceFlavor
    exists. ``checks``: controller and name of each admission check that the flavor needs.
    ``rivals``: the flavors of other groups with another value of a node label, each with the label:
    no node has both values.
    """

    flavor: str
    exists: bool
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    checks: tuple[tuple[str, str], ...]
    cells: dict[str, Cell]
    rivals: Mapping[str, str] = NO_RIVALS


class Group(NamedTuple):
    """A resource group of a ClusterQueue: resources for which a pod set gets one flavor together.
    ``at``: the index of the group in the ClusterQueue's resource groups.
    """

    at: int
    resources: frozenset[str]
    options: tuple[Option, ...]


class Policy(NamedTuple):
    """The preemption policy of a ClusterQueue: which workloads its workloads may preempt.

    ``within``: the policy for victims in the same ClusterQueue. ``reclaim``: the policy for victims
    in other ClusterQueues of the cohort tree. ``borrow``: preemption is allowed also while
    borrowing, of victims up to priority ``threshold``.
    """

    within: str = "Never"
    reclaim: str = "Never"
    borrow: bool = False
    threshold: int | None = None


NO_PREEMPTION = Policy()


class MinRun(NamedTuple):
    """How long an admitted workload runs before it may be preempted. ``is_required``: False: it is
    preempted before if no other workloads make enough room. ``source``: the kind and name of the
    object that has the setting.
    """

    least: timedelta
    is_required: bool
    source: str


class MinRuns:
    """The settings of the ClusterQueues and WorkloadPriorityClasses that have minRunSeconds, by
    name.
    """

    __slots__ = ("of_class", "of_queue")

    def __init__(self) -> None:
        self.of_queue: dict[str, MinRun] = {}
        self.of_class: dict[str, MinRun] = {}

    def __bool__(self) -> bool:
        return bool(self.of_queue) or bool(self.of_class)

    def of(self, queue: str, priority_class: str) -> MinRun | None:
        """Returns the setting for workloads of the class that hold quota of the ClusterQueue: the
        setting of the class, or of the queue if the class has none; None: neither has one.
        """
        return self.of_class.get(priority_class) or self.of_queue.get(queue)

    def apply(self, kind: str, name: str, obj: Any) -> bool:
        """Applies a manifest; None: it was deleted. Returns whether a setting changed."""
        if kind == "ClusterQueue":
            known, of = self.of_queue, obj.spec.preemption if obj is not None else None
        elif kind == "WorkloadPriorityClass":
            known, of = self.of_class, obj
        else:
            return False
        before = known.pop(name, None)
        if of is None or of.min_run_seconds is None:
            return before is not None
        least = timedelta(seconds=of.min_run_seconds)
        known[name] = MinRun(least, of.min_run_policy == "Required", f"{kind} {name}")
        return known[name] != before


class FlavorPlan(NamedTuple):
    """A ClusterQueue prepared for scans.

    ``groups``: the resource group of each resource. ``borrow_preempts``: True: victims are searched
    even if the nominal quota of the queue is too small for the request. ``flavors_fit_whole``:
    True: a pod set fits if the scan judged each of its flavors as fitting, by the flavor's worst
    resource, as in Kueue; False: each resource of the pod set must fit.
    """

    queue: str
    groups: dict[str, Group]
    covers_pods: bool
    borrow_next: bool
    preempt_next: bool
    preemption_first: bool
    policy: Policy = NO_PREEMPTION
    borrow_preempts: bool = False
    flavors_fit_whole: bool = False


def flavor_plan_of(catalog: Catalog, name: str, node: Node, config: Config) -> FlavorPlan:
    """Returns the ClusterQueue prepared for scans of flavors, from its current configuration."""
    spec = catalog.cluster_queues[name].spec
    lists = catalog.lists[name]
    # Kueue keeps one of the values and loses the other.
    rivals = {} if config.as_kueue else _rivals(catalog, spec.resource_groups)
    groups: dict[str, Group] = {}
    for index, group in enumerate(spec.resource_groups):
        options: list[Option] = []
        for offered in group.flavors:
            flavor = catalog.flavors.get(offered.name)
            checks = tuple(
                (check.spec.controller_name, check_name)
                for check_name in lists.flavors.get(offered.name, ())
                if (check := catalog.checks.get(check_name)) is not None
            )
            options.append(
                Option(
                    flavor=offered.name,
                    exists=flavor is not None,
                    labels=dict(flavor.spec.node_labels) if flavor is not None else {},
                    taints=tuple(
                        taint
                        for taint in (flavor.spec.node_taints if flavor is not None else ())
                        if taint.effect in BLOCKING_EFFECTS
                    ),
                    tolerations=flavor.spec.tolerations if flavor is not None else (),
                    checks=checks,
                    cells={
                        resource: node.cell((offered.name, resource))
                        for resource in group.covered_resources
                    },
                    rivals=rivals.get(offered.name, NO_RIVALS),
                )
            )
        compiled = Group(index, frozenset(group.covered_resources), tuple(options))
        for resource in group.covered_resources:
            groups.setdefault(resource, compiled)
    fungibility = spec.flavor_fungibility
    policy = _policy(spec.preemption) if config.preemption else NO_PREEMPTION
    if policy == NO_PREEMPTION:
        # Returns the constant NO_PREEMPTION and not an equal policy, so that callers can compare
        # with `is`.
        policy = NO_PREEMPTION
    return FlavorPlan(
        queue=name,
        groups=groups,
        covers_pods="pods" in groups,
        borrow_next=fungibility.when_can_borrow == "TryNextFlavor",
        preempt_next=fungibility.when_can_preempt in ("", "TryNextFlavor"),
        preemption_first=fungibility.preference == "PreemptionOverBorrowing",
        policy=policy,
        borrow_preempts=policy.borrow
        or (config.fair_sharing is not None and policy.reclaim != "Never"),
        flavors_fit_whole=config.as_kueue,
    )


def _rivals(catalog: Catalog, groups: Sequence[ResourceGroup]) -> dict[str, dict[str, str]]:
    """Returns for each flavor the flavors of other resource groups with another value of a node
    label, each with the label."""
    rivals: dict[str, dict[str, str]] = {}
    if len(groups) < 2:
        return rivals
    labels = [
        [
            (offered.name, flavor.spec.node_labels)
            for offered in group.flavors
            if (flavor := catalog.flavors.get(offered.name)) is not None and flavor.spec.node_labels
        ]
        for group in groups
    ]
    for label, other in combinations(labels, 2):
        for name, mine in label:
            for rival, theirs in other:
                lost = next((key for key in mine if theirs.get(key, mine[key]) != mine[key]), None)
                if lost is not None:
                    rivals.setdefault(name, {})[rival] = lost
                    rivals.setdefault(rival, {})[name] = lost
    return rivals


def _policy(preemption: Preemption) -> Policy:
    borrow = preemption.borrow_within_cohort
    return Policy(
        within=preemption.within_cluster_queue,
        reclaim=preemption.reclaim_within_cohort,
        borrow=borrow is not None and borrow.policy != "Never",
        threshold=borrow.max_priority_threshold if borrow is not None else None,
    )
