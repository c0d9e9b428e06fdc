"""The numbers and sentences that are published with a decision: by direct calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.events import reasons
from admittance.events.shapes import Grounds, Shares, Taken
from admittance.quota.cell import UNLIMITED, Quota
from admittance.quota.tree import Tree
from admittance.scheduling.preemption.decision_inputs import (
    compared_shares,
    comparison_text,
    grounds,
    missing_flavors,
    policy_of,
    preemption_message,
    share_text,
    share_value,
    taken_quota,
    waited_seconds,
)
from admittance.scheduling.state.assignment import Assignment, Obstacle
from admittance.scheduling.state.equivalence import RefusalQueue
from admittance.scheduling.state.flavor_plan import FlavorPlan, Policy
from admittance.scheduling.state.workload_info import Charge, Queue, Victim, WorkloadInfo
from support.builders import NOON, an_admission

CPU = ("default", "cpu")
GPU = ("default", "gpu")
POLICY = Policy("LowerPriority", "Any", borrow=True, threshold=7)


@pytest.mark.parametrize(
    ("used", "amount", "borrowed", "available"),
    [
        (0, 3, 0, 9),
        (1, 3, 0, 8),
        (2, 3, 1, 7),
        (5, 2, 3, 4),
        (0, 0, 0, 9),
        (9, 2, 7, 0),
        (12, 3, 11, 0),
    ],
)
def test_taken_quota_says_what_is_borrowed(
    used: int, amount: int, borrowed: int, available: int
) -> None:
    tree = Tree()
    tree.set_cohort("co", "", {CPU: Quota(5)})
    cell = tree.set_queue("cq", "co", {CPU: Quota(4)}).cell(CPU)
    cell.charge(used)
    assignment = Assignment()
    assignment.usage[cell] = amount
    assert taken_quota(assignment) == (
        Taken(
            flavor="default", resource="cpu", amount=amount, available=available, borrowed=borrowed
        ),
    )


@pytest.mark.parametrize(("cohort", "available", "borrowed"), [("co", 7, 1), ("", 2, 0)])
def test_taken_quota_counts_what_the_victims_give_back(
    cohort: str, available: int, borrowed: int
) -> None:
    tree = Tree()
    tree.set_cohort("co", "", {CPU: Quota(5)})
    cell = tree.set_queue("cq", cohort, {CPU: Quota(4)}).cell(CPU)
    cell.charge(4)
    victim = holder("cq")
    assert victim.charge is not None
    victim.charge.cells.append((cell, 2))
    assignment = Assignment()
    assignment.usage[cell] = 3
    assert taken_quota(assignment, [Victim(victim, reasons.IN_CLUSTER_QUEUE)]) == (
        Taken(flavor="default", resource="cpu", amount=3, available=available, borrowed=borrowed),
    )
    assert cell.usage == 4


@pytest.mark.parametrize(
    ("seconds", "waited"), [(0, 0), (0.9, 0), (1, 1), (61.5, 61), (-5, 0), (None, 0)]
)
def test_whole_seconds_of_waiting_are_counted(seconds: float | None, waited: int) -> None:
    workload = WorkloadInfo(("ns", "w"))
    if seconds is not None:
        workload.queued_at = NOON - timedelta(seconds=seconds)
    assert waited_seconds(workload, NOON) == waited


def test_missing_flavors_are_those_that_need_preemption_once_each() -> None:
    assignment = Assignment()
    assignment.contested[CPU] = None

    def obstacle(pod_set: str, resource: str, requested: int, taken: int = 0) -> Obstacle:
        return Obstacle(
            pod_set, "default", resource, "WaitingForQuota", requested=requested, available=1,
            taken=taken,
        )  # fmt: skip

    assignment.obstacles += [
        obstacle("a", "cpu", 3), obstacle("a", "gpu", 9), obstacle("b", "cpu", 2, taken=3),
    ]  # fmt: skip
    assert missing_flavors(assignment) == (
        Taken(flavor="default", resource="cpu", amount=5, available=1),
    )


def holder(queue: str, priority: int = 2) -> WorkloadInfo:
    workload = WorkloadInfo(("ns", "victim"))
    workload.priority = priority
    workload.charge = Charge(Queue(queue, RefusalQueue()), an_admission(queue), [])
    return workload


@pytest.mark.parametrize(
    ("rule", "policy", "threshold"),
    [
        (reasons.IN_CLUSTER_QUEUE, "withinClusterQueue: LowerPriority", None),
        (reasons.IN_COHORT_RECLAMATION, "reclaimWithinCohort: Any", None),
        (reasons.IN_COHORT_FAIR_SHARING, "reclaimWithinCohort: Any", None),
        (reasons.IN_COHORT_RECLAIM_WHILE_BORROWING, "borrowWithinCohort: LowerPriority", 7),
    ],
)
def test_grounds_name_the_policy_of_the_rule(rule: str, policy: str, threshold: int | None) -> None:
    queue = Queue("mine", RefusalQueue())
    queue.plan = FlavorPlan(
        queue="mine", groups={}, covers_pods=False, borrow_next=False, preempt_next=True,
        preemption_first=False, policy=POLICY,
    )  # fmt: skip
    preemptor = WorkloadInfo(("ns", "preemptor"))
    preemptor.priority = 5
    short = (Taken(flavor="default", resource="cpu", amount=5, available=1),)
    assert policy_of(POLICY, rule) == policy
    assert grounds(queue, preemptor, Victim(holder("theirs"), rule), short) == Grounds(
        cluster_queue="theirs", priority=2, by_cluster_queue="mine", by_priority=5,
        policy=policy, threshold=threshold, shares=None, short=short,
    )  # fmt: skip


SHARES = Shares(strategy="LessThanInitialShare", preemptor=10, victim=20)


@pytest.mark.parametrize(
    ("queue", "more", "shares", "text"),
    [
        ("mine", {}, None,
         "Preempted for ns/preemptor in ClusterQueue mine: priority 5 against 2 (P)"),
        ("theirs", {}, None,
         "Preempted for ns/preemptor of ClusterQueue mine, priority 5, in ClusterQueue theirs, "
         "priority 2 (P)"),
        ("mine", {"threshold": 7}, None,
         "Preempted for ns/preemptor in ClusterQueue mine: priority 5 against 2 (P up to 7)"),
        ("mine", {"threshold": 0}, SHARES,
         "Preempted for ns/preemptor in ClusterQueue mine: priority 5 against 2 (P up to 0; share "
         "10 is less than 20)"),
    ],
)  # fmt: skip
def test_the_message_names_both_sides_and_the_policy(
    queue: str, more: dict[str, Any], shares: Shares | None, text: str
) -> None:
    why = Grounds(
        cluster_queue=queue, priority=2, by_cluster_queue="mine", by_priority=5, policy="P", **more
    )
    preemptor = WorkloadInfo(("ns", "preemptor"))
    victim = Victim(holder(queue), reasons.IN_CLUSTER_QUEUE, shares)
    assert preemption_message(preemptor, victim, why) == text


@pytest.mark.parametrize(
    ("standing", "value", "text"),
    [
        ((False, 12.6), 12.6, "13"),
        ((False, 0.0), 0.0, "0"),
        ((True, 12.6), float(UNLIMITED), "without weight"),
    ],
)
def test_a_share_is_a_number_unless_its_node_has_no_weight(
    standing: Any, value: float, text: str
) -> None:
    assert share_value(standing) == value
    assert share_text(value) == text


def test_compared_shares_say_what_would_be_left() -> None:
    initial = compared_shares("LessThanInitialShare", (False, 1.0), (False, 2.0))
    assert initial == Shares(strategy="LessThanInitialShare", preemptor=1.0, victim=2.0, after=None)
    assert comparison_text(initial) == "share 1 is less than 2"
    final = compared_shares("LessThanOrEqualToFinalShare", (False, 1.0), (True, 2.0), (False, 0.0))
    assert final.after == 0.0
    assert comparison_text(final) == "share 1 is no more than 0, what is left of without weight"
