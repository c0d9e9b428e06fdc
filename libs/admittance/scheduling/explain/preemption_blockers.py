"""Why holders of what is short stay where they are: queue by queue, the rule and the policy behind
it, with the numbers.

It tells what the searches made of one flavor and resource, without searching: whom the policies
leave out, and, where they leave somebody, what else is in the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from admittance.api.units import render
from admittance.events.why import Protection
from admittance.quota.cell import Cell, borrow_level, is_over
from admittance.quota.tree import Node
from admittance.scheduling.fairsharing.shares import share_of
from admittance.scheduling.preemption import loop_guard
from admittance.scheduling.preemption.decision_inputs import number, share
from admittance.scheduling.preemption.fair_sharing import almost_common
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.preemption.victims import allows
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION, Policy
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import WorkloadInfo

QUEUES_MAX = 5
"""Barriers told of other queues, those that use most first."""
LOOKED_AT_MAX = 2_000
"""Workloads looked at for one explanation."""


class Looks:
    """How many workloads, and how many queues, may still be looked at."""

    def __init__(self) -> None:
        self.left = LOOKED_AT_MAX
        self.queues_left = LOOKED_AT_MAX

    def through(self, queue: Queue) -> Iterator[WorkloadInfo]:
        """Those that hold quota of the queue, as many as may be."""
        count = min(self.left, len(queue.holding))
        self.left -= count
        return islice(queue.holding, count)


def barriers(state: SchedulerState, ask: Ask, looks: Looks) -> Iterator[Protection]:
    """What keeps the holders of one flavor and resource in place."""
    if not state.config.preemption:
        yield _barrier(ask, "", "PolicyNever", "", "preemption is switched off")
        return
    within = ask.policy.within
    if is_too_much(ask):
        nominal = render(ask.cell.fr[1], ask.cell.nominal)
        text = (
            f"it asks for more than nominalQuota {nominal} of ClusterQueue {ask.queue.name}, whose "
            "borrowWithinCohort: Never lets nobody preempt who has to borrow"
        )
        yield _barrier(ask, "", "AboveNominal", "borrowWithinCohort: Never", text)
        return
    if within == "Never":
        text = f"withinClusterQueue: Never of ClusterQueue {ask.queue.name}"
        used = ask.cell.usage
        policy = "withinClusterQueue: Never"
        if used:
            yield _barrier(ask, ask.queue.name, "PolicyNever", policy, text, amount=used)
    else:
        yield from _of_queue(state, ask, ask.queue, f"withinClusterQueue: {within}", looks)
    domain = ask.queue.domain
    if domain is None or ask.cell.parent is None:
        return
    if looks.queues_left <= 0:
        yield _barrier(ask, "", "NotLookedAt", "", "there are too many queues to look at all again")
        return
    looks.queues_left -= len(domain.queues)
    using = [
        (cell.usage, one)
        for one in domain.queues
        if one is not ask.queue
        and one.node is not None
        and (cell := one.node.cells.get(ask.cell.fr)) is not None
        and cell.usage > 0
    ]
    if not using:
        return
    reclaim = f"reclaimWithinCohort: {ask.policy.reclaim}"
    if ask.policy.reclaim == "Never":
        amount = sum(used for used, _ in using)
        text = f"{reclaim} of ClusterQueue {ask.queue.name} leaves other queues what they use"
        yield _barrier(ask, "", "PolicyNever", reclaim, text, amount=amount)
        return
    told = nlargest(QUEUES_MAX, using, key=lambda one: (one[0], one[1].name))
    for used, other in told:
        rule = outside(state, ask, other)
        if rule:
            text = _protected(state, ask, other, rule)
            policy = reclaim if rule == "PolicyNever" else ""
            yield _barrier(ask, other.name, rule, policy, text, amount=used)
        else:
            yield from _of_queue(state, ask, other, reclaim, looks)
    if len(using) > len(told):
        text = f"{len(using) - len(told)} more ClusterQueues use less of it each"
        yield _barrier(ask, "", "NotLookedAt", "", text)


def _of_queue(
    state: SchedulerState, ask: Ask, queue: Queue, policy: str, looks: Looks
) -> Iterator[Protection]:
    """Why workloads of one queue stay, that as such gives some up."""
    spared: dict[str, list[tuple[int, int]]] = {}
    candidates = [0, 0]
    fr = ask.cell.fr
    if not looks.left:
        text = f"ClusterQueue {queue.name} was not looked through: there are too many to look at"
        yield _barrier(ask, queue.name, "NotLookedAt", "", text)
        return
    for other in looks.through(queue):
        assert other.charge is not None
        amount = sum(much for cell, much in other.charge.cells if cell.fr == fr)
        if not amount or other is ask.workload:
            continue
        rule = spared_by(state, ask, other)
        if rule:
            spared.setdefault(rule, []).append((amount, other.priority))
        else:
            candidates[0] += 1
            candidates[1] += amount
    for rule, held in spared.items():
        setting = _policy(ask, rule, policy)
        lowest = min(priority for _, priority in held)
        yield _barrier(
            ask,
            queue.name,
            rule,
            setting,
            _sentence(ask, queue, rule, setting, lowest),
            workloads=len(held),
            amount=sum(amount for amount, _ in held),
            lowest=lowest if "Priority" in rule else None,
        )
    if candidates[0]:
        yield _candidates(state, ask, queue, policy, candidates[0], candidates[1])


def _candidates(
    state: SchedulerState, ask: Ask, queue: Queue, policy: str, workloads: int, amount: int
) -> Protection:
    """Candidates whose going was not enough."""
    resource = ask.cell.fr[1]
    held = f"{_several(workloads)} of ClusterQueue {queue.name}, holding {render(resource, amount)}"
    if state.config.fair_sharing is not None and queue is not ask.queue:
        shares = _shares(ask, queue)
        if shares:
            return _barrier(
                ask, queue.name, "SharesForbid", policy, f"{held}: {shares}",
                workloads=workloads, amount=amount,
            )  # fmt: skip
    text = f"{held}: not enough even without them"
    return _barrier(ask, queue.name, "NotEnough", policy, text, workloads=workloads, amount=amount)


def _shares(ask: Ask, queue: Queue) -> str:
    """Both sides' shares, with what is asked for counted as used."""
    assert ask.queue.node is not None and queue.node is not None
    ask.cell.charge(ask.wanted)
    mine, theirs = almost_common(ask.queue.node, queue.node)
    own, other = share_of(mine).standing, share_of(theirs).standing
    ask.cell.charge(-ask.wanted)
    if own < other:
        return ""
    return (
        f"with this workload {mine.name} would have share {number(share(own))}, "
        f"{theirs.name} has {number(share(other))}"
    )


def _policy(ask: Ask, rule: str, policy: str) -> str:
    if rule == loop_guard.REASON:
        return ""
    if rule == "PriorityNotLower" and policy == "reclaimWithinCohort: Any":
        return "borrowWithinCohort: LowerPriority"
    if rule == "WhileBorrowing":
        return "borrowWithinCohort: Never"
    if rule == "AboveThreshold":
        return f"borrowWithinCohort: LowerPriority up to {ask.policy.threshold}"
    return policy


def _sentence(ask: Ask, queue: Queue, rule: str, policy: str, lowest: int) -> str:
    mine = ask.queue.name
    if rule == "PolicyNever":
        return f"{policy} of ClusterQueue {mine}"
    if rule == loop_guard.REASON:
        return f"it took their quota in ClusterQueue {queue.name} again and again: not for a while"
    if rule == "WhileBorrowing":
        return (
            f"borrowWithinCohort: Never of ClusterQueue {mine}, which would have to borrow, leaves "
            f"ClusterQueue {queue.name} what it uses"
        )
    if rule == "AboveThreshold":
        return (
            f"priorities in ClusterQueue {queue.name} begin at {lowest}, above "
            f"maxPriorityThreshold {ask.policy.threshold} of ClusterQueue {mine}"
        )
    return (
        f"{policy} of ClusterQueue {mine}: priorities in ClusterQueue {queue.name} begin at "
        f"{lowest}, not below {ask.workload.priority}"
    )


def _protected(state: SchedulerState, ask: Ask, queue: Queue, rule: str) -> str:
    resource = ask.cell.fr[1]
    assert queue.node is not None
    cell = queue.node.cells[ask.cell.fr]
    if rule == "Inactive":
        return f"ClusterQueue {queue.name} is inactive, and gives nothing up"
    if rule == "CohortWithinQuota":
        cohort = sheltering(state, queue.node, ask)
        name = cohort.name if cohort is not None else ""
        return f"cohort {name}, above ClusterQueue {queue.name}, uses no more than its quota"
    used, nominal = render(resource, cell.usage), render(resource, cell.nominal)
    return f"ClusterQueue {queue.name} uses {used}, within its nominal quota of {nominal}"


def _several(workloads: int) -> str:
    return "1 workload" if workloads == 1 else f"{workloads} workloads"


def _barrier(
    ask: Ask,
    queue: str,
    rule: str,
    policy: str,
    text: str,
    *,
    workloads: int = 0,
    amount: int = 0,
    lowest: int | None = None,
) -> Protection:
    flavor, resource = ask.cell.fr
    return Protection(
        cluster_queue=queue,
        flavor=flavor,
        resource=resource,
        rule=rule,
        policy=policy,
        of=ask.queue.name if policy else "",
        workloads=workloads,
        amount=amount,
        lowest_priority=lowest,
        message=text,
    )


class Ask(NamedTuple):
    """Who asks, for how much of what: ``wanted`` counts what its other pod sets take."""

    queue: Queue
    workload: WorkloadInfo
    cell: Cell
    wanted: int

    @property
    def policy(self) -> Policy:
        """What its queue allows."""
        return self.queue.plan.policy if self.queue.plan is not None else NO_PREEMPTION


def spared_by(state: SchedulerState, ask: Ask, other: WorkloadInfo) -> str:
    """Which rule keeps the holder from being preempted; "": it is a candidate."""
    assert other.charge is not None
    queue = other.charge.queue
    if other in LoopGuard(state).barred(ask.workload):
        return loop_guard.REASON
    if queue is ask.queue:
        if ask.policy.within == "Never":
            return "PolicyNever"
        return "" if allows(ask.policy.within, ask.workload, other) else "PriorityNotLower"
    return outside(state, ask, queue) or _by_priority(state, ask, other)


def outside(state: SchedulerState, ask: Ask, queue: Queue) -> str:
    """The rule that protects all workloads of another queue; "" if none does."""
    if ask.policy.reclaim == "Never":
        return "PolicyNever"
    if not queue.activity.active:
        return "Inactive"
    node = queue.node
    cell = node.cells.get(ask.cell.fr) if node is not None else None
    if node is None or cell is None or not is_over(cell):
        return "WithinNominal"
    return "CohortWithinQuota" if sheltering(state, node, ask) is not None else ""


def sheltering(state: SchedulerState, node: Node, ask: Ask) -> Node | None:
    """The cohort above another queue, below the common one, that takes no more than it has: of what
    is asked for, or, where shares count, of anything."""
    above = node.parent
    common = _common(ask, node)
    while above is not None and above is not common:
        if state.config.fair_sharing is not None:
            if not share_of(above).borrowing:
                return above
        else:
            cell = above.cells.get(ask.cell.fr)
            if cell is None or not is_over(cell):
                return above
        above = above.parent
    return None


def _common(ask: Ask, node: Node) -> Node | None:
    """The lowest cohort above both."""
    mine: set[Node] = set()
    here = ask.queue.node
    while here is not None:
        mine.add(here)
        here = here.parent
    above = node.parent
    while above is not None and above not in mine:
        above = above.parent
    return above


def _by_priority(state: SchedulerState, ask: Ask, other: WorkloadInfo) -> str:
    assert other.charge is not None
    policy = ask.policy
    if not allows(policy.reclaim, ask.workload, other):
        return "PriorityNotLower"
    node = other.charge.queue.node
    if state.config.fair_sharing is not None or (node is not None and _is_entitled(ask, node)):
        return ""
    if not policy.borrow:
        return "WhileBorrowing"
    if other.priority >= ask.workload.priority:
        return "PriorityNotLower"
    if policy.threshold is not None and other.priority > policy.threshold:
        return "AboveThreshold"
    return ""


def _is_entitled(ask: Ask, node: Node) -> bool:
    """Its queue, or a cohort above it and below the one that it shares with the other queue, has
    enough of its own."""
    common = _common(ask, node)
    cell, rest = ask.cell, ask.wanted
    while is_over(cell, rest):
        rest = max(0, rest - cell.local_free())
        if cell.parent is None or cell.parent.node is common:
            return False
        cell = cell.parent
    return True


def is_too_much(ask: Ask) -> bool:
    """No part of the tree below the root is entitled to so much, so that victims are not even
    looked for. Source: `docs/spec/scheduling.md#5.3, #6.4`."""
    plan = ask.queue.plan
    if plan is None or plan.borrow_preempts or ask.cell.nominal >= ask.wanted:
        return False
    return not borrow_level(ask.cell, ask.wanted)[1]
