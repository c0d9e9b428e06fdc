"""Reports for each flavor whether it fits a pending workload, with numbers, and whether preemption
helps; lists the workloads that hold most of a missing resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.events import reasons
from admittance.events.requests.explanation import (
    FlavorVerdict,
    Holder,
    PreemptionVictim,
    Protection,
    Room,
)
from admittance.quota.cell import (
    Cell,
    FlavorResource,
    available,
    borrow_level,
    is_over,
    plus,
    potential,
)
from admittance.scheduling.cycle.flavor_assigner import FlavorOffer, examine
from admittance.scheduling.cycle.nominate import Search
from admittance.scheduling.cycle.refusals import obstacle_message, shortfall
from admittance.scheduling.explain.preemption_blockers import (
    QuotaNeed,
    SearchBudget,
    is_in_family,
    preemption_blockers,
    protection_rule,
)
from admittance.scheduling.state.assignment import Assignment, FlavorAssignmentMode
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, Victim, WorkloadInfo, family_quota_of

HOLDERS_MAX = 10
LOOKED_AT_MAX = 1_000

SORTED_MAX = 500
"""If more ClusterQueues than this number hold quota in the domain, holders of missing quota are
looked for without sorting the ClusterQueues by how much they borrow."""

_Candidate = tuple[int, int, Key, FlavorResource, Cell, WorkloadInfo]
"""A workload that may be listed as a holder of missing quota: its sort key (negated amount,
priority, name, flavor and resource), then the cell and the workload."""


def holders(state: SchedulerState, needs: Mapping[FlavorResource, QuotaNeed]) -> tuple[Holder, ...]:
    """Returns the workloads that hold most of the quota that a pending workload lacks. Checks at
    most `LOOKED_AT_MAX` workloads: first those in the pending workload's own queue, then those in
    the queues that borrow most."""
    if not needs:
        return ()
    first = next(iter(needs.values()))
    best = nsmallest(HOLDERS_MAX, _candidates(first, needs), key=itemgetter(0, 1, 2, 3))
    return tuple(
        _holder(state, needs[fr], other, cell, -less) for less, _, _, fr, cell, other in best
    )


def _candidates(
    first: QuotaNeed, needs: Mapping[FlavorResource, QuotaNeed]
) -> Iterator[_Candidate]:
    for other in islice(_holding(first.queue, needs), LOOKED_AT_MAX):
        if other.charge is None or other is first.workload:
            continue
        for cell, amount in other.charge.cells:
            if amount > 0 and cell.fr in needs and not is_in_family(first.workload, other, cell):
                yield -amount, other.priority, other.key, cell.fr, cell, other


def _holding(queue: Queue, needs: Mapping[FlavorResource, QuotaNeed]) -> Iterator[WorkloadInfo]:
    yield from queue.holding
    if queue.domain is None:
        return
    others = [other for other in queue.domain.queues if other is not queue and other.holding]
    if len(others) <= SORTED_MAX:
        others.sort(key=lambda other: (-_over(other, needs), other.name))
    for other in others:
        yield from other.holding


def _over(queue: Queue, needs: Mapping[FlavorResource, QuotaNeed]) -> int:
    cells = (queue.node.cells.get(fr) for fr in needs) if queue.node is not None else ()
    return sum(max(0, cell.usage - cell.nominal) for cell in cells if cell is not None)


def _holder(
    state: SchedulerState, need: QuotaNeed, other: WorkloadInfo, cell: Cell, amount: int
) -> Holder:
    assert other.charge is not None
    return Holder(
        namespace=other.key[0],
        name=other.key[1],
        cluster_queue=other.charge.queue.name,
        flavor=cell.fr[0],
        resource=cell.fr[1],
        amount=amount,
        priority=other.priority,
        borrowed=is_over(cell),
        leaving=other.is_leaving,
        leased=other.leased,
        spared_by="" if other.is_leaving else protection_rule(state, need, other),
    )


VICTIMS_MAX: Final = 20
CANDIDATES_MAX: Final = 4_000
"""How many candidates for preemption the searches for victims of one explanation may look at. Once
the searches have looked at so many candidates, the remaining flavors get no search for victims."""

FLAVORS_MAX: Final = 200
"""How many verdicts on flavors one explanation has at most, over all pod sets: the reply must fit
into one message."""

OUTCOMES: Final = {
    FlavorAssignmentMode.FIT: "Fits",
    FlavorAssignmentMode.RECLAIM: "Preempts",
    FlavorAssignmentMode.PREEMPT: "Preempts",
    FlavorAssignmentMode.NO_CANDIDATES: "NoCandidates",
    FlavorAssignmentMode.NO_FIT: "NoFit",
}


class FlavorReport(NamedTuple):
    """``verdicts``: for a pending workload, whether and how well each flavor serves it; ``needs``:
    the flavors and resources of which the workload lacks quota."""

    verdicts: list[FlavorVerdict]
    needs: dict[FlavorResource, QuotaNeed]


class _BoundedSearch:
    """The searches for victims of one explanation, limited to `CANDIDATES_MAX` candidates.
    ``unsearched``: the flavors and resources for which victims were not searched, because the limit
    was reached."""

    def __init__(self, queue: Queue, search: Search) -> None:
        self._search = search
        domain = queue.domain
        queues = domain.queues if domain is not None else (queue,)
        self._each = sum(len(member.candidates) for member in queues)
        self._left = CANDIDATES_MAX
        self.unsearched: set[FlavorResource] = set()

    def ask(self, cell: Cell, amount: int) -> tuple[int, int]:
        """Returns how well preemption would serve the amount in the cell. Once the searches have
        looked at `CANDIDATES_MAX` candidates, the answer is as if no workload could be preempted.
        """
        if not self._search.knows(cell, amount):
            if self._left <= 0:
                self.unsearched.add(cell.fr)
                return FlavorAssignmentMode.NO_CANDIDATES, borrow_level(cell, amount)[0]
            self._left -= self._each
        return self._search.ask(cell, amount)


def report_flavors(
    state: SchedulerState,
    queue: Queue,
    workload: WorkloadInfo,
    assignment: Assignment,
    search: Search,
    *,
    closed: str,
) -> FlavorReport:
    """Reports for each flavor whether it fits the workload. ``assignment``: the assignment that a
    scan of flavors found for the whole workload, or for its fewest pods; ``closed``: why the
    workload cannot start in any flavor, whatever quota is free; "": no such reason."""
    plan, shape = queue.plan, workload.shape
    assert plan is not None and shape is not None
    if assignment.fewest is not None:
        assignment, shape = assignment.fewest, shape.fewest()
    bounded = _BoundedSearch(queue, search)
    ask = None if plan.policy is NO_PREEMPTION else bounded.ask
    report = FlavorReport([], {})
    budget = SearchBudget()
    reported: set[FlavorResource] = set()
    uncovered = dict(_uncovered(state, queue, workload))
    for pod_set, resources in uncovered.items():
        for resource in resources:
            report.verdicts.append(
                FlavorVerdict(
                    pod_set=pod_set,
                    flavor="",
                    resources=(resource,),
                    outcome="Ineligible",
                    reason=reasons.NO_MATCHING_FLAVOR,
                    message=f"resource {resource} unavailable in ClusterQueue",
                )
            )
    # Flavors that fit alone, but not together with the flavors chosen before.
    excluded = {
        (obstacle.pod_set, obstacle.flavor): obstacle
        for obstacle in (
            assignment.obstacles if assignment.mode == FlavorAssignmentMode.NO_FIT else ()
        )
        if not obstacle.resource
    }
    held = family_quota_of(workload)
    for offer in examine(plan, shape, ask, list(_before(assignment)), held):
        why = closed
        if not why and offer.pod_set in uncovered:
            missing = ", ".join(uncovered[offer.pod_set])
            why = f"its pod set also requests {missing}, which no flavor of the ClusterQueue has"
        verdict, needs = _verdict(offer, queue, workload, search, bounded, why)
        obstacle = excluded.get((offer.pod_set, offer.option.flavor))
        if obstacle is not None and verdict.fits:
            verdict = replace(
                verdict,
                fits=False,
                outcome="Ineligible",
                reason=obstacle.reason,
                message=obstacle.message,
            )
        blockers: list[Protection] = []
        if verdict.outcome in ("NoCandidates", "NoFit"):
            for need in needs:
                if need.cell.fr not in reported:
                    reported.add(need.cell.fr)
                    blockers += preemption_blockers(state, need, budget)
        for need in needs:
            report.needs.setdefault(need.cell.fr, need)
        if len(report.verdicts) < FLAVORS_MAX:
            report.verdicts.append(_with_blockers(verdict, blockers) if blockers else verdict)
    return report


NO_VICTIMS: Final = "no workload can be preempted for it"
TOO_FEW_VICTIMS: Final = "the workloads that may be preempted for it do not hold enough"


def _with_blockers(verdict: FlavorVerdict, blockers: Sequence[Protection]) -> FlavorVerdict:
    """Returns the verdict with the rules that protect workloads. Its message says whether there are
    candidates for preemption at all."""
    message = verdict.message
    if any(blocker.frees is not None for blocker in blockers):
        message = message.replace(NO_VICTIMS, TOO_FEW_VICTIMS)
    return replace(verdict, message=message, barriers=tuple(blockers))


def _before(assignment: Assignment) -> Iterator[Mapping[Cell, int]]:
    """Yields for each pod set the amounts per cell that the earlier pod sets of the workload would
    take."""
    cells = {cell.fr: cell for cell in assignment.whole}
    taken: dict[Cell, int] = {}
    for place in assignment.places:
        yield dict(taken)
        for resource, amount in place.amounts:
            cell = cells.get((place.flavors[resource], resource))
            if cell is not None:
                taken[cell] = taken.get(cell, 0) + amount
    yield taken


def _uncovered(
    state: SchedulerState, queue: Queue, workload: WorkloadInfo
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields each pod set that requests resources which no flavor of the queue has, with these
    resources."""
    assert queue.plan is not None and workload.shape is not None
    if state.config.quota_check_strategy == "IgnoreUndeclared":
        return
    for ps, totals in zip(workload.shape.pod_sets, workload.shape.totals, strict=True):
        missing = tuple(
            resource for resource, amount in totals if amount and resource not in queue.plan.groups
        )
        if missing:
            yield ps.name, missing


def _verdict(
    offer: FlavorOffer,
    queue: Queue,
    workload: WorkloadInfo,
    search: Search,
    bounded: _BoundedSearch,
    closed: str,
) -> tuple[FlavorVerdict, list[QuotaNeed]]:
    rooms: list[Room] = []
    needs: list[QuotaNeed] = []
    victims: dict[WorkloadInfo, Victim] = {}
    reason_of = {obstacle.resource: obstacle.reason for obstacle in offer.obstacles}
    held = family_quota_of(workload)
    for at, (resource, amount) in enumerate(offer.amounts):
        cell = offer.option.cells[resource]
        before = offer.before.get(cell, 0)
        wanted = plus(before, amount)
        mode, level = offer.rooms[at] if offer.rooms else (FlavorAssignmentMode.NO_FIT, 0)
        free = max(0, available(cell))
        # For a variant the quota that its family holds is available too.
        had = min(wanted, held.reliable(cell)) if held is not None else 0
        rooms.append(
            Room(
                resource=resource,
                requested=amount,
                taken=before,
                available=plus(free, had),
                short=max(0, wanted - had - free),
                usage=cell.usage,
                nominal=cell.nominal,
                borrowing_limit=cell.borrow,
                potential=potential(cell),
                level=level,
                reason=reason_of.get(resource, ""),
            )
        )
        if reason_of.get(resource) == reasons.WAITING_FOR_QUOTA:
            needs.append(QuotaNeed(queue, workload, cell, wanted - had))
            if mode in (FlavorAssignmentMode.PREEMPT, FlavorAssignmentMode.RECLAIM):
                going = search.victims({cell: wanted - had}, {cell.fr: None})
                victims.update((victim.workload, victim) for victim in going)
    outcome = (
        OUTCOMES[FlavorAssignmentMode(offer.mode)]
        if offer.rooms or not offer.obstacles
        else "Ineligible"
    )
    if outcome != "Preempts":
        victims = {}
    fits = offer.mode == FlavorAssignmentMode.FIT and not closed
    reason = offer.obstacles[-1].reason if offer.obstacles else ""
    return (
        FlavorVerdict(
            pod_set=offer.pod_set,
            flavor=offer.option.flavor,
            resources=tuple(resource for resource, _ in offer.amounts),
            fits=fits,
            outcome=outcome if outcome == "Ineligible" or not closed else "NoFit",
            level=offer.level,
            reason=reason,
            message=closed or _message(offer, outcome, len(victims), queue, bounded),
            shortfalls=tuple(shortfall(obstacle) for obstacle in offer.obstacles),
            rooms=tuple(rooms),
            victims=tuple(
                preemption_victim_of(victim) for victim in list(victims.values())[:VICTIMS_MAX]
            ),
            victims_left_out=max(0, len(victims) - VICTIMS_MAX),
        ),
        needs,
    )


def _message(
    offer: FlavorOffer, outcome: str, victims: int, queue: Queue, bounded: _BoundedSearch
) -> str:
    """Returns the verdict on one flavor as a sentence with numbers."""
    what = ", ".join(obstacle_message(obstacle) for obstacle in offer.obstacles)
    match outcome:
        case "Fits":
            return "fits by borrowing from its cohort" if offer.level else "fits"
        case "Preempts":
            others = "1 workload is" if victims == 1 else f"{victims} workloads are"
            return f"{what}; fits once {others} preempted"
        case "NoCandidates" if queue.plan is not None and queue.plan.policy is not NO_PREEMPTION:
            if any(cell.fr in bounded.unsearched for cell in offer.option.cells.values()):
                return f"{what}; not searched for victims, because too many workloads hold quota"
            return f"{what}; {NO_VICTIMS}"
        case _:
            return what


def preemption_victim_of(victim: Victim) -> PreemptionVictim:
    """Returns a victim in the form in which an explanation lists it."""
    workload = victim.workload
    reported = workload.preempted_by
    return PreemptionVictim(
        namespace=workload.key[0],
        name=workload.key[1],
        cluster_queue=workload.charge.queue.name if workload.charge is not None else "",
        priority=workload.priority,
        rule=victim.reason,
        since=reported.at if reported is not None and workload.is_leaving else None,
        shares=victim.shares,
    )
