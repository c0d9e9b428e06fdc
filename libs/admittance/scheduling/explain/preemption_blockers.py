"""Explains for each ClusterQueue why preempting its workloads does not free a missing resource.

The explanation names the rule and the policy that protect the ClusterQueue's workloads from
preemption, with numbers; it does not repeat the search for victims. For workloads that may be
preempted, the explanation says why preempting them is not enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import nlargest
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.fields.units import render
from admittance.events import reasons
from admittance.events.requests.explanation import Protection
from admittance.quota.cell import Cell, available, borrow_level, is_over
from admittance.quota.tree import Node
from admittance.scheduling.fairsharing.shares import share_of
from admittance.scheduling.preemption.candidates import allows
from admittance.scheduling.preemption.decision_inputs import share_text, share_value
from admittance.scheduling.preemption.fair_sharing import almost_common
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.preemption.min_run import Youth, may_not_preempt, when_old
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION, Policy
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo

QUEUES_MAX = 5
"""For how many other ClusterQueues an explanation says why they are not preempted; those with the
highest usage are chosen."""
MINIMUM_RUN_TIME: Final = "MinimumRunTime"
"""The rule that protects workloads that have not run for their minRunSeconds."""
LOOKED_AT_MAX = 2_000
"""How many workloads with quota, and how many ClusterQueues, are checked for one explanation of a
pending workload."""


class QuotaNeed(NamedTuple):
    """A flavor and resource (``cell``) of which a pending workload lacks quota. ``wanted``: the
    amount that the workload requests, including its earlier pod sets."""

    queue: Queue
    workload: WorkloadInfo
    cell: Cell
    wanted: int

    @property
    def policy(self) -> Policy:
        """The preemption policy of the pending workload's ClusterQueue."""
        return self.queue.plan.policy if self.queue.plan is not None else NO_PREEMPTION


class SearchBudget:
    """How many workloads with quota and ClusterQueues may still be checked for one explanation."""

    def __init__(self) -> None:
        self.left = LOOKED_AT_MAX
        self.queues_left = LOOKED_AT_MAX

    def through(self, queue: Queue) -> Iterator[WorkloadInfo]:
        """The workloads that hold quota of the queue, as many as one explanation may still
        check."""
        count = min(self.left, len(queue.holding))
        self.left -= count
        return islice(queue.holding, count)


def is_in_family(workload: WorkloadInfo, other: WorkloadInfo, cell: Cell) -> bool:
    """Whether the quota of ``other`` in the cell counts for the pending workload too: both are
    variants of one family, and the family keeps its quota."""
    if workload.family is None or workload.family is not other.family:
        return False
    held = workload.family.quota
    return held is not None and held.reliable(cell) > 0


def preemption_blockers(
    state: SchedulerState, need: QuotaNeed, budget: SearchBudget
) -> Iterator[Protection]:
    """Yields for each ClusterQueue why preempting its workloads does not free the needed flavor and
    resource."""
    if not state.config.preemption:
        yield _blocker(need, None, "PolicyNever", "", "preemption is disabled in the configuration")
        return
    within = need.policy.within
    if exceeds_entitlement(need):
        nominal = render(need.cell.fr[1], need.cell.nominal)
        text = (
            f"it requests more than nominalQuota {nominal} of ClusterQueue {need.queue.name} and "
            "would have to borrow, and borrowWithinCohort: Never forbids preemption for that"
        )
        yield _blocker(need, None, "AboveNominal", "borrowWithinCohort: Never", text)
        return
    if within == "Never":
        text = f"ClusterQueue {need.queue.name} has withinClusterQueue: Never"
        used = need.cell.usage
        policy = "withinClusterQueue: Never"
        if used:
            yield _blocker(need, need.queue, "PolicyNever", policy, text, amount=used)
    else:
        yield from _blockers_in(state, need, need.queue, f"withinClusterQueue: {within}", budget)
    domain = need.queue.domain
    if domain is None:
        return
    if budget.queues_left <= 0:
        yield _blocker(need, None, "NotLookedAt", "", "too many ClusterQueues to check again")
        return
    budget.queues_left -= len(domain.queues)
    using = [
        (cell.usage, queue)
        for queue in domain.queues
        if queue is not need.queue
        and queue.node is not None
        and (cell := queue.node.cells.get(need.cell.fr)) is not None
        and cell.usage > 0
    ]
    if not using:
        return
    reclaim = f"reclaimWithinCohort: {need.policy.reclaim}"
    if need.policy.reclaim == "Never":
        amount = sum(used for used, _ in using)
        text = (
            f"ClusterQueue {need.queue.name} has {reclaim}, so other ClusterQueues keep their quota"
        )
        yield _blocker(need, None, "PolicyNever", reclaim, text, amount=amount)
        return
    largest = nlargest(QUEUES_MAX, using, key=lambda used_in: (used_in[0], used_in[1].name))
    for used, other in largest:
        rule = queue_protection_rule(state, need, other)
        if rule:
            text = _queue_sentence(state, need, other, rule)
            policy = reclaim if rule == "PolicyNever" else ""
            yield _blocker(need, other, rule, policy, text, amount=used)
        else:
            yield from _blockers_in(state, need, other, reclaim, budget)
    if len(using) > len(largest):
        text = f"{len(using) - len(largest)} more ClusterQueues with less usage were not checked"
        yield _blocker(need, None, "NotLookedAt", "", text)


def _blockers_in(
    state: SchedulerState, need: QuotaNeed, queue: Queue, policy: str, budget: SearchBudget
) -> Iterator[Protection]:
    """Yields why preempting workloads of one queue does not free the needed quota. Must be called
    only if no rule protects the whole queue from preemption."""
    protected: dict[str, list[tuple[int, int]]] = {}
    young: list[tuple[Youth, WorkloadInfo]] = []
    candidates: list[tuple[Cell, int]] = []
    fr = need.cell.fr
    if not budget.left:
        text = f"ClusterQueue {queue.name} was not checked, because too many workloads hold quota"
        yield _blocker(need, queue, "NotLookedAt", "", text)
        return
    for other in budget.through(queue):
        assert other.charge is not None
        cells = [(cell, much) for cell, much in other.charge.cells if cell.fr == fr]
        amount = sum(much for _, much in cells)
        if not amount or other is need.workload or is_in_family(need.workload, other, need.cell):
            continue
        rule = protection_rule(state, need, other)
        if rule:
            protected.setdefault(rule, []).append((amount, other.priority))
            if rule == MINIMUM_RUN_TIME and (youth := _youth(state, other)) is not None:
                young.append((youth, other))
        else:
            candidates.append((cells[0][0], amount))
    for rule, held in protected.items():
        setting = _setting(need, rule, policy)
        lowest = min(priority for _, priority in held)
        until = None
        if rule == MINIMUM_RUN_TIME:
            until = min(youth.until for youth, _ in young)
            text = _young_sentence(state, young)
        else:
            text = _workload_sentence(need, queue, rule, setting, lowest)
        yield _blocker(
            need,
            queue,
            rule,
            setting,
            text,
            workloads=len(held),
            amount=sum(amount for amount, _ in held),
            lowest=lowest if "Priority" in rule else None,
            until=until,
        )
    if candidates:
        yield _candidates(state, need, queue, policy, candidates)


def _candidates(
    state: SchedulerState,
    need: QuotaNeed,
    queue: Queue,
    policy: str,
    candidates: Sequence[tuple[Cell, int]],
) -> Protection:
    """Explains why preempting the queue's candidates for preemption does not free enough quota.
    ``candidates``: the amount that each of them holds, in the cell that it is charged to."""
    resource = need.cell.fr[1]
    workloads, amount = len(candidates), sum(much for _, much in candidates)
    holds = "holds" if workloads == 1 else "hold"
    held = f"{count_with_noun(workloads, 'workload')} in ClusterQueue {queue.name} {holds} "
    held += f"{render(resource, amount)} and may be preempted"
    if state.config.fair_sharing is not None and queue is not need.queue:
        shares = _share_sentence(need, queue)
        if shares:
            return _blocker(
                need, queue, "SharesForbid", policy, f"{held}, but {shares}",
                workloads=workloads, amount=amount,
            )  # fmt: skip
    frees, needed = _freed(need, candidates)
    too_little = "that does not free enough"
    if frees < needed:
        too_little = f"that frees {render(resource, frees)}, not {render(resource, needed)}"
    return replace(
        _blocker(
            need, queue, "NotEnough", policy, f"{held}, but {too_little}",
            workloads=workloads, amount=amount,
        ),
        frees=frees,
        needed=needed,
    )  # fmt: skip


def _freed(need: QuotaNeed, candidates: Sequence[tuple[Cell, int]]) -> tuple[int, int]:
    """Returns how much more quota the pending workload would have if all candidates stopped, and
    how much it lacks now. The limits of queues and cohorts can make the first amount smaller than
    what the candidates hold."""
    before = available(need.cell)
    for cell, amount in candidates:
        cell.charge(-amount)
    after = available(need.cell)
    for cell, amount in candidates:
        cell.charge(amount)
    had = max(0, before)
    return max(0, after) - had, need.wanted - had


def _share_sentence(need: QuotaNeed, queue: Queue) -> str:
    """Returns a sentence that says which shares of fair sharing forbid preemption in the queue; "":
    no shares forbid it. The shares are computed as if the preemptor had the needed quota."""
    assert need.queue.node is not None and queue.node is not None
    need.cell.charge(need.wanted)
    mine, theirs = almost_common(need.queue.node, queue.node)
    own, other = share_of(mine).standing, share_of(theirs).standing
    need.cell.charge(-need.wanted)
    if own < other:
        return ""
    return (
        f"with this workload {mine.name} would have share {share_text(share_value(own))}, "
        f"not below the share {share_text(share_value(other))} of {theirs.name}"
    )


def _setting(need: QuotaNeed, rule: str, policy: str) -> str:
    if rule in (reasons.PREEMPTION_LOOP, MINIMUM_RUN_TIME):
        return ""
    if rule == "PriorityNotLower" and policy == "reclaimWithinCohort: Any":
        return "borrowWithinCohort: LowerPriority"
    if rule == "WhileBorrowing":
        return "borrowWithinCohort: Never"
    if rule == "AboveThreshold":
        return f"borrowWithinCohort: LowerPriority up to {need.policy.threshold}"
    return policy


def _workload_sentence(need: QuotaNeed, queue: Queue, rule: str, policy: str, lowest: int) -> str:
    mine = need.queue.name
    if rule == "PolicyNever":
        return f"ClusterQueue {mine} has {policy}"
    if rule == reasons.PREEMPTION_LOOP:
        return (
            f"it preempted workloads in ClusterQueue {queue.name} too often and may not preempt "
            "them again for some time"
        )
    if rule == "WhileBorrowing":
        return (
            f"ClusterQueue {mine} would have to borrow, and its borrowWithinCohort: Never forbids "
            f"preemption in ClusterQueue {queue.name} for that"
        )
    if rule == "AboveThreshold":
        return (
            f"workloads in ClusterQueue {queue.name} have priority {lowest} or higher, above "
            f"maxPriorityThreshold {need.policy.threshold} of ClusterQueue {mine}"
        )
    return (
        f"ClusterQueue {mine} has {policy}, and workloads in ClusterQueue {queue.name} have "
        f"priority {lowest} or higher, not below {need.workload.priority}"
    )


def _young_sentence(state: SchedulerState, young: Sequence[tuple[Youth, WorkloadInfo]]) -> str:
    """Returns a sentence that says when the first of the young workloads may be preempted."""
    youth, first = min(young, key=lambda pair: (pair[0].until, pair[1].key))
    if first.family is not None and first.family.parent is not None:
        first = first.family.parent
    text = f"workload {first.key[0]}/{first.key[1]} may be preempted {when_old(youth, state.now)}"
    more = len(young) - 1
    return f"{text}, and {count_with_noun(more, 'workload')} later" if more else text


def _youth(state: SchedulerState, workload: WorkloadInfo) -> Youth | None:
    return may_not_preempt(state.min_runs, workload, state.now)


def _queue_sentence(state: SchedulerState, need: QuotaNeed, queue: Queue, rule: str) -> str:
    resource = need.cell.fr[1]
    assert queue.node is not None
    cell = queue.node.cells[need.cell.fr]
    if rule == "Inactive":
        return f"ClusterQueue {queue.name} is inactive, so its workloads are not preempted"
    if rule == "CohortWithinQuota":
        cohort = protecting_cohort(state, queue.node, need)
        name = cohort.name if cohort is not None else ""
        return f"cohort {name}, above ClusterQueue {queue.name}, uses no more than its quota"
    used, nominal = render(resource, cell.usage), render(resource, cell.nominal)
    return f"ClusterQueue {queue.name} uses {used}, within its nominal quota of {nominal}"


def count_with_noun(count: int, what: str) -> str:
    """Returns the count with its noun, such as ``1 workload`` or ``2 workloads``."""
    return f"1 {what}" if count == 1 else f"{count} {what}s"


def _blocker(
    need: QuotaNeed,
    queue: Queue | None,
    rule: str,
    policy: str,
    text: str,
    *,
    workloads: int = 0,
    amount: int = 0,
    lowest: int | None = None,
    until: datetime | None = None,
) -> Protection:
    flavor, resource = need.cell.fr
    node = queue.node if queue is not None else None
    cell = node.cells.get(need.cell.fr) if node is not None else None
    return Protection(
        cluster_queue=queue.name if queue is not None else "",
        flavor=flavor,
        resource=resource,
        rule=rule,
        policy=policy,
        of=need.queue.name if policy else "",
        workloads=workloads,
        amount=amount,
        lowest_priority=lowest,
        message=text,
        until=until,
        used=cell.usage if cell is not None else None,
        nominal=cell.nominal if cell is not None else None,
    )


def protection_rule(state: SchedulerState, need: QuotaNeed, other: WorkloadInfo) -> str:
    """Returns the rule that protects the workload ``other``, which holds quota, from preemption;
    "": no rule protects it, so it is a candidate for preemption."""
    assert other.charge is not None
    queue = other.charge.queue
    if other in LoopGuard(state).forbidden_victims(need.workload):
        return reasons.PREEMPTION_LOOP
    if queue is need.queue:
        if need.policy.within == "Never":
            return "PolicyNever"
        rule = "" if allows(need.policy.within, need.workload, other) else "PriorityNotLower"
    else:
        rule = queue_protection_rule(state, need, queue) or _by_priority(state, need, other)
    return rule or (MINIMUM_RUN_TIME if _youth(state, other) is not None else "")


def queue_protection_rule(state: SchedulerState, need: QuotaNeed, queue: Queue) -> str:
    """Returns the rule that protects all workloads of another queue from preemption; "": no rule
    protects all of them."""
    if need.policy.reclaim == "Never":
        return "PolicyNever"
    if not queue.activity.active:
        return "Inactive"
    node = queue.node
    cell = node.cells.get(need.cell.fr) if node is not None else None
    if node is None or cell is None or not is_over(cell):
        return "WithinNominal"
    return "CohortWithinQuota" if protecting_cohort(state, node, need) is not None else ""


def protecting_cohort(state: SchedulerState, node: Node, need: QuotaNeed) -> Node | None:
    """Returns the lowest cohort that does not borrow, of the cohorts between another queue and the
    lowest cohort above both queues; None: all of these cohorts borrow. With fair sharing a cohort
    borrows if it borrows any flavor and resource, else if it borrows the needed one."""
    above = node.parent
    common = _common_cohort(need, node)
    while above is not None and above is not common:
        if state.config.fair_sharing is not None:
            if not share_of(above).borrowing:
                return above
        else:
            cell = above.cells.get(need.cell.fr)
            if cell is None or not is_over(cell):
                return above
        above = above.parent
    return None


def _common_cohort(need: QuotaNeed, node: Node) -> Node | None:
    """Returns the lowest cohort above both the node and the pending workload's queue; None: node
    and queue are in different cohort trees."""
    mine: set[Node] = set()
    here = need.queue.node
    while here is not None:
        mine.add(here)
        here = here.parent
    above = node.parent
    while above is not None and above not in mine:
        above = above.parent
    return above


def _by_priority(state: SchedulerState, need: QuotaNeed, other: WorkloadInfo) -> str:
    assert other.charge is not None
    policy = need.policy
    if not allows(policy.reclaim, need.workload, other):
        return "PriorityNotLower"
    node = other.charge.queue.node
    if state.config.fair_sharing is not None or (node is not None and _is_entitled(need, node)):
        return ""
    if not policy.borrow:
        return "WhileBorrowing"
    if other.priority >= need.workload.priority:
        return "PriorityNotLower"
    if policy.threshold is not None and other.priority > policy.threshold:
        return "AboveThreshold"
    return ""


def _is_entitled(need: QuotaNeed, node: Node) -> bool:
    """Whether the pending workload's queue has enough quota of its own for the need, or a cohort
    between that queue and the lowest cohort above both it and the node."""
    common = _common_cohort(need, node)
    cell, rest = need.cell, need.wanted
    while is_over(cell, rest):
        rest = max(0, rest - cell.local_free())
        if cell.parent is None or cell.parent.node is common:
            return False
        cell = cell.parent
    return True


def exceeds_entitlement(need: QuotaNeed) -> bool:
    """Whether the scheduler searches no victims for the need, because the needed amount exceeds the
    quota of every node between the workload's queue and the root. Source:
    `docs/spec/scheduling.md#5.3, #6.4`."""
    plan = need.queue.plan
    if plan is None or plan.borrow_preempts or need.cell.nominal >= need.wanted:
        return False
    return not borrow_level(need.cell, need.wanted)[1]
