"""Computes the numbers from which the scheduler made a decision, in the form in which they are
published with the decision."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from admittance.events import reasons
from admittance.events.shapes import Grounds, Shares, Taken
from admittance.quota.cell import UNLIMITED, available, plus
from admittance.scheduling.fairsharing.shares import Standing
from admittance.scheduling.state.assignment import Assignment
from admittance.scheduling.state.flavor_plan import Policy
from admittance.scheduling.state.held.shared_quota import WithoutUsage
from admittance.scheduling.state.workload_info import Queue, Victim, WorkloadInfo

_SECOND: Final = timedelta(seconds=1)


def taken_quota(assignment: Assignment, victims: Iterable[Victim] = ()) -> tuple[Taken, ...]:
    """Returns the quota that an assignment takes, per flavor and resource, once the victims are
    gone; for a variant only what exceeds the quota that its family holds already. Must be called
    before the scheduler charges the workload for the assignment."""
    taken: list[Taken] = []
    with WithoutUsage([victim.workload for victim in victims]):
        for cell, amount in assignment.added_usage().items():
            over = cell.usage + amount - cell.nominal
            flavor, resource = cell.fr
            taken.append(
                Taken(
                    flavor=flavor,
                    resource=resource,
                    amount=amount,
                    # Less than nothing is free while another preemptor waits for its victims.
                    available=max(0, available(cell)),
                    # A queue without a cohort has no queue to borrow from.
                    borrowed=over if over > 0 and cell.parent is not None else 0,
                )
            )
    return tuple(taken)


def waited_seconds(workload: WorkloadInfo, now: datetime) -> int:
    """Returns for how many whole seconds the workload has been queued."""
    return 0 if workload.queued_at is None else max(0, (now - workload.queued_at) // _SECOND)


def missing_flavors(assignment: Assignment) -> tuple[Taken, ...]:
    """Returns the flavors and resources of which an assignment lacks quota until its victims have
    stopped."""
    return tuple(
        {
            (obstacle.flavor, obstacle.resource): Taken(
                flavor=obstacle.flavor,
                resource=obstacle.resource,
                amount=plus(obstacle.taken, obstacle.requested),
                available=obstacle.available,
            )
            for obstacle in assignment.obstacles
            if (obstacle.flavor, obstacle.resource) in assignment.contested
        }.values()
    )


def grounds(
    queue: Queue, preemptor: WorkloadInfo, victim: Victim, lacking: tuple[Taken, ...]
) -> Grounds:
    """Returns the rule, the policy and the numbers by which the preemptor may preempt the
    victim."""
    assert queue.plan is not None and victim.workload.charge is not None
    policy = queue.plan.policy
    return Grounds(
        cluster_queue=victim.workload.charge.queue.name,
        priority=victim.workload.priority,
        by_cluster_queue=queue.name,
        by_priority=preemptor.priority,
        policy=policy_of(policy, victim.reason),
        threshold=policy.threshold
        if victim.reason == reasons.IN_COHORT_RECLAIM_WHILE_BORROWING
        else None,
        shares=victim.shares,
        short=lacking,
    )


def policy_of(policy: Policy, rule: str) -> str:
    """Returns the setting in the ClusterQueue's manifest that allows a preemption by the rule."""
    if rule == reasons.IN_CLUSTER_QUEUE:
        return f"withinClusterQueue: {policy.within}"
    if rule == reasons.IN_COHORT_RECLAIM_WHILE_BORROWING:
        return "borrowWithinCohort: LowerPriority"
    return f"reclaimWithinCohort: {policy.reclaim}"


def share_value(standing: Standing) -> float:
    """Returns a share, given as its standing, as one number; UNLIMITED: the share is above all
    others, because the node has weight 0."""
    above, value = standing
    return float(UNLIMITED) if above else value


def compared_shares(
    strategy: str, mine: Standing, theirs: Standing, after: Standing | None = None
) -> Shares:
    """Returns the shares that fair sharing compared to allow a preemption, in the form in which
    they are published. ``after``: the share that the victim's side would have without the victim.
    """
    return Shares(
        strategy=strategy,
        preemptor=share_value(mine),
        victim=share_value(theirs),
        after=None if after is None else share_value(after),
    )


def preemption_message(preemptor: WorkloadInfo, victim: Victim, why: Grounds) -> str:
    """Returns a line about a preemption that names the preemptor, the priorities and ClusterQueues
    of preemptor and victim, and the policy."""
    by = f"{preemptor.key[0]}/{preemptor.key[1]}"
    if why.cluster_queue == why.by_cluster_queue:
        text = (
            f"Preempted for {by} in ClusterQueue {why.cluster_queue}: priority {why.by_priority} "
            f"against {why.priority}"
        )
    else:
        text = (
            f"Preempted for {by} of ClusterQueue {why.by_cluster_queue}, priority "
            f"{why.by_priority}, in ClusterQueue {why.cluster_queue}, priority {why.priority}"
        )
    text += f" ({why.policy}"
    if why.threshold is not None:
        text += f" up to {why.threshold}"
    if victim.shares is not None:
        text += f"; {comparison_text(victim.shares)}"
    return text + ")"


def comparison_text(shares: Shares) -> str:
    """Returns a sentence that compares the preemptor's share with the victim's."""
    if shares.after is not None:
        return (
            f"share {share_text(shares.preemptor)} is no more than {share_text(shares.after)}, "
            f"what is left of {share_text(shares.victim)}"
        )
    return f"share {share_text(shares.preemptor)} is less than {share_text(shares.victim)}"


def share_text(value: float) -> str:
    """Returns a share of fair sharing as text."""
    return "without weight" if value >= UNLIMITED else f"{value:.0f}"
