"""Why holders of what is short stay where they are: by queue, the rule and the policy behind it.

It tells of one flavor and resource what the searches of `preempt` and `fair` make of it, without
searching: whom the policies leave out, and, where they leave somebody, what else is in the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from admittance.api.quantity import render
from admittance.events.why import Barrier
from admittance.quota.cell import Cell, borrow_level, is_over
from admittance.quota.shares import share_of
from admittance.quota.tree import Node
from admittance.scheduler import loops
from admittance.scheduler.fair import almost_common
from admittance.scheduler.grounds import number, share
from admittance.scheduler.picture import Member
from admittance.scheduler.plan import NOBODY, Policy
from admittance.scheduler.queue import Queue
from admittance.scheduler.victims import allows
from admittance.scheduler.world import World

QUEUES_MAX = 5
"""Barriers told of other queues, those that use most first."""
LOOKED_AT_MAX = 1_000
"""Workloads looked at per flavor and resource."""


class Ask(NamedTuple):
    """Who asks, for how much of what: ``wanted`` counts what its other pod sets take."""

    queue: Queue
    member: Member
    cell: Cell
    wanted: int

    @property
    def policy(self) -> Policy:
        """What its queue allows."""
        return self.queue.plan.policy if self.queue.plan is not None else NOBODY

    @property
    def is_entitled(self) -> bool:
        """It stays within its queue's own quota."""
        return not is_over(self.cell, self.wanted)


def spared_by(world: World, ask: Ask, other: Member) -> str:
    """Which rule keeps the holder from being preempted; "": it is a candidate."""
    assert other.charge is not None
    queue = other.charge.queue
    if other in world.loops.barred(ask.member):
        return loops.REASON
    if queue is ask.queue:
        if ask.policy.within == "Never":
            return "PolicyNever"
        return "" if allows(ask.policy.within, ask.member, other) else "PriorityNotLower"
    return _outside(world, ask, queue) or _by_priority(world, ask, other)


def _outside(world: World, ask: Ask, queue: Queue) -> str:
    """What protects everybody in another queue."""
    if ask.policy.reclaim == "Never":
        return "PolicyNever"
    if not queue.activity.active:
        return "Inactive"
    cell = queue.node.cells.get(ask.cell.fr) if queue.node is not None else None
    if cell is None or not is_over(cell):
        return "WithinNominal"
    assert queue.node is not None and ask.queue.node is not None
    if world.config.fair_sharing is None and _sheltered(queue.node, ask) is not None:
        return "CohortWithinQuota"
    return ""


def _sheltered(node: Node, ask: Ask) -> Node | None:
    """The cohort below the common one that takes no more than it has."""
    mine: set[Node] = set()
    here = ask.queue.node
    while here is not None:
        mine.add(here)
        here = here.parent
    above = node.parent
    while above is not None and above not in mine:
        cell = above.cells.get(ask.cell.fr)
        if cell is None or not is_over(cell):
            return above
        above = above.parent
    return None


def _by_priority(world: World, ask: Ask, other: Member) -> str:
    policy = ask.policy
    if not allows(policy.reclaim, ask.member, other):
        return "PriorityNotLower"
    if ask.is_entitled or world.config.fair_sharing is not None:
        return ""
    if not policy.borrow:
        return "WhileBorrowing"
    if other.priority >= ask.member.priority:
        return "PriorityNotLower"
    if policy.threshold is not None and other.priority > policy.threshold:
        return "AboveThreshold"
    return ""


def barriers(world: World, ask: Ask) -> Iterator[Barrier]:
    """What keeps the holders of one flavor and resource in place."""
    if not world.config.preemption:
        yield _barrier(ask, "", "PolicyNever", "", "preemption is switched off")
        return
    within = ask.policy.within
    if _is_too_much(ask):
        nominal = render(ask.cell.fr[1], ask.cell.nominal)
        text = (
            f"it asks for more than nominalQuota {nominal} of ClusterQueue {ask.queue.name}, whose "
            "borrowWithinCohort: Never lets nobody preempt who has to borrow"
        )
        yield _barrier(ask, "", "AboveNominal", "borrowWithinCohort: Never", text)
        return
    yield from _of_queue(world, ask, ask.queue, f"withinClusterQueue: {within}")
    domain = ask.queue.domain
    if domain is None or ask.cell.parent is None:
        return
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
        rule = _outside(world, ask, other)
        if rule:
            text = _protected(ask, other, rule)
            policy = reclaim if rule == "PolicyNever" else ""
            yield _barrier(ask, other.name, rule, policy, text, amount=used)
        else:
            yield from _of_queue(world, ask, other, reclaim)
    if len(using) > len(told):
        text = f"{len(using) - len(told)} more ClusterQueues use less of it each"
        yield _barrier(ask, "", "NotLookedAt", "", text)


def _is_too_much(ask: Ask) -> bool:
    """No part of the tree below the root is entitled to so much, so that victims are not even
    looked for. Source: SCHEDULING 5.3 and 6.4."""
    plan = ask.queue.plan
    if plan is None or plan.borrow_preempts or ask.cell.nominal >= ask.wanted:
        return False
    return not borrow_level(ask.cell, ask.wanted)[1]


def _of_queue(world: World, ask: Ask, queue: Queue, policy: str) -> Iterator[Barrier]:
    """Why workloads of one queue stay, that as such gives some up."""
    spared: dict[str, list[tuple[int, int]]] = {}
    candidates = [0, 0]
    fr = ask.cell.fr
    for other in islice(queue.holding, LOOKED_AT_MAX):
        assert other.charge is not None
        amount = sum(much for cell, much in other.charge.cells if cell.fr == fr)
        if not amount or other is ask.member:
            continue
        rule = spared_by(world, ask, other)
        if rule:
            spared.setdefault(rule, []).append((amount, other.priority))
        else:
            candidates[0] += 1
            candidates[1] += amount
    for rule, held in spared.items():
        yield _barrier(
            ask,
            queue.name,
            rule,
            _policy(ask, rule, policy),
            _sentence(ask, queue, rule, policy, min(priority for _, priority in held)),
            workloads=len(held),
            amount=sum(amount for amount, _ in held),
            lowest=min(priority for _, priority in held) if "Priority" in rule else None,
        )
    if candidates[0]:
        yield _candidates(world, ask, queue, policy, candidates[0], candidates[1])


def _candidates(
    world: World, ask: Ask, queue: Queue, policy: str, workloads: int, amount: int
) -> Barrier:
    """Candidates whose going was not enough."""
    resource = ask.cell.fr[1]
    held = f"{_several(workloads)} of ClusterQueue {queue.name}, holding {render(resource, amount)}"
    if world.config.fair_sharing is not None and queue is not ask.queue:
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
    if rule == loops.REASON:
        return ""
    if rule == "WhileBorrowing":
        return "borrowWithinCohort: Never"
    if rule == "AboveThreshold":
        return f"borrowWithinCohort: LowerPriority up to {ask.policy.threshold}"
    return policy


def _sentence(ask: Ask, queue: Queue, rule: str, policy: str, lowest: int) -> str:
    mine = ask.queue.name
    if rule == "PolicyNever":
        return f"{policy} of ClusterQueue {mine}"
    if rule == loops.REASON:
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
        f"{lowest}, not below {ask.member.priority}"
    )


def _protected(ask: Ask, queue: Queue, rule: str) -> str:
    resource = ask.cell.fr[1]
    assert queue.node is not None
    cell = queue.node.cells[ask.cell.fr]
    if rule == "Inactive":
        return f"ClusterQueue {queue.name} is inactive, and gives nothing up"
    if rule == "CohortWithinQuota":
        cohort = _sheltered(queue.node, ask)
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
) -> Barrier:
    flavor, resource = ask.cell.fr
    return Barrier(
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
