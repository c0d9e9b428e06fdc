"""Three ClusterQueues in a cohort tree, for direct calls of the searches for victims."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from admittance.quota.cell import Cell, Quota
from admittance.quota.tree import Node, Tree
from admittance.scheduling.state.equivalence import RefusalQueue
from admittance.scheduling.state.flavor_plan import FlavorPlan, Policy
from admittance.scheduling.state.workload_info import Charge, Domain, Queue, WorkloadInfo
from support.builders import NOON, an_admission

CPU = ("default", "cpu")
GPU = ("default", "gpu")
ACTIVE: Any = type("Activity", (), {"active": True})()
STOPPED: Any = type("Activity", (), {"active": False})()


def plan(name: str, **policy: Any) -> FlavorPlan:
    return FlavorPlan(
        queue=name, groups={}, covers_pods=False, borrow_next=False, preempt_next=True,
        preemption_first=False, policy=Policy(**policy),
    )  # fmt: skip


class ThreeQueues:
    """Queues by name: ``here`` and ``near`` in cohort left, ``far`` in cohort right, both below
    root; each has 2 cpu and 2 gpu. ``domain``: of all."""

    def __init__(self, **policy: Any) -> None:
        tree = Tree()
        tree.set_cohort("root", "", {})
        for name in ("left", "right"):
            tree.set_cohort(name, "root", {})
        self.domain = Domain("root")
        self.queues: dict[str, Queue] = {}
        for name, cohort in (("here", "left"), ("near", "left"), ("far", "right")):
            node = tree.set_queue(name, cohort, {CPU: Quota(2), GPU: Quota(2)})
            queue = Queue(name, RefusalQueue(), node=node, domain=self.domain)
            queue.activity = ACTIVE
            queue.plan = plan(name, **policy)
            self.queues[name] = queue

    def node(self, name: str) -> Node:
        node = self.queues[name].node
        assert node is not None
        return node

    def cell(self, name: str, fr: tuple[str, str] = CPU) -> Cell:
        return self.node(name).cell(fr)

    def holds(
        self, name: str, queue: str, amount: int, *, priority: int = 0, age: int = 0,
        fr: tuple[str, str] = CPU,
    ) -> WorkloadInfo:  # fmt: skip
        """A workload with so much quota of the queue; ``age``: how long it has had it."""
        workload = WorkloadInfo(("ns", name), uid=name)
        workload.priority = priority
        workload.queued_at = NOON - timedelta(seconds=age)
        cell = self.cell(queue, fr)
        cell.charge(amount)
        workload.charge = Charge(self.queues[queue], an_admission(queue), [(cell, amount)])
        self.queues[queue].add_candidate(workload, NOON - timedelta(seconds=age))
        self.domain.version += 1
        return workload


def preemptor(priority: int = 1, age: int = 50) -> WorkloadInfo:
    workload = WorkloadInfo(("ns", "preemptor"), uid="preemptor")
    workload.priority = priority
    workload.queued_at = NOON - timedelta(seconds=age)
    return workload
