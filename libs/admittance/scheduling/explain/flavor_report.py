"""What every flavor says to a workload that waits: room by room, and what preemption could give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.events.requests import FlavorVerdict
from admittance.events.why import Going, Protection, Room
from admittance.quota.amounts import plus
from admittance.quota.cell import Cell, FlavorResource, available, borrow_level, potential
from admittance.scheduling.cycle.flavor_assigner import Verdict, examine
from admittance.scheduling.cycle.nominate import Search
from admittance.scheduling.cycle.reasons import sentence, shortfall
from admittance.scheduling.explain.preemption_blockers import Ask, Looks, barriers
from admittance.scheduling.state.assignment import Assignment, Mode
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Victim, WorkloadInfo, family_quota_of

VICTIMS_MAX: Final = 20
CANDIDATES_MAX: Final = 4_000
"""Once so many candidates may have been looked at, flavors that are left are not asked about."""

FLAVORS_MAX: Final = 200
"""Verdicts of one explanation, over all pod sets: an answer has to go into one message."""

OUTCOMES: Final = {
    Mode.FIT: "Fits",
    Mode.RECLAIM: "Preempts",
    Mode.PREEMPT: "Preempts",
    Mode.NO_CANDIDATES: "NoCandidates",
    Mode.NO_FIT: "NoFit",
}


class Seen(NamedTuple):
    """``verdicts`` on flavors; ``asks``: per flavor and resource that is short, who asks for it."""

    verdicts: list[FlavorVerdict]
    asks: dict[FlavorResource, Ask]


class _Oracle:
    """The search of the nomination, for as long as it costs little."""

    def __init__(self, queue: Queue, search: Search) -> None:
        self._search = search
        domain = queue.domain
        queues = domain.queues if domain is not None else (queue,)
        self._each = sum(len(one.candidates) for one in queues)
        self._left = CANDIDATES_MAX
        self.gave_up: set[FlavorResource] = set()

    def ask(self, cell: Cell, amount: int) -> tuple[int, int]:
        """As the search answers; nobody, where it is not asked any more."""
        if not self._search.knows(cell, amount):
            if self._left <= 0:
                self.gave_up.add(cell.fr)
                return Mode.NO_CANDIDATES, borrow_level(cell, amount)[0]
            self._left -= self._each
        return self._search.ask(cell, amount)


def see(
    state: SchedulerState,
    queue: Queue,
    workload: WorkloadInfo,
    found: Assignment,
    search: Search,
    *,
    closed: str,
) -> Seen:
    """Looks at every flavor. ``found``: what the workload as a whole would get; ``closed``: why no
    flavor serves at all, however much room there is."""
    plan, shape = queue.plan, workload.shape
    assert plan is not None and shape is not None
    oracle = _Oracle(queue, search)
    asking = None if plan.policy is NO_PREEMPTION else oracle.ask
    seen = Seen([], {})
    looks = Looks()
    told: set[FlavorResource] = set()
    uncovered = dict(_uncovered(state, queue, workload))
    for pod_set, resources in uncovered.items():
        for resource in resources:
            seen.verdicts.append(
                FlavorVerdict(
                    pod_set=pod_set,
                    flavor="",
                    resources=(resource,),
                    outcome="Ineligible",
                    reason="NoMatchingFlavor",
                    message=f"resource {resource} unavailable in ClusterQueue",
                )
            )
    held = family_quota_of(workload)
    for one in examine(plan, shape, asking, list(_before(found)), held):
        why = closed
        if not why and one.pod_set in uncovered:
            missing = ", ".join(uncovered[one.pod_set])
            why = f"its pod set asks for {missing}, too, which no flavor of the ClusterQueue has"
        verdict, asks = _verdict(one, queue, workload, search, oracle, why)
        bars: list[Protection] = []
        if verdict.outcome in ("NoCandidates", "NoFit"):
            for ask in asks:
                if ask.cell.fr not in told:
                    told.add(ask.cell.fr)
                    bars += barriers(state, ask, looks)
        for ask in asks:
            seen.asks.setdefault(ask.cell.fr, ask)
        if len(seen.verdicts) < FLAVORS_MAX:
            seen.verdicts.append(replace(verdict, barriers=tuple(bars)) if bars else verdict)
    return seen


def _before(found: Assignment) -> Iterator[Mapping[Cell, int]]:
    """What pod sets before each one would take: nothing before the first."""
    cells = {cell.fr: cell for cell in found.whole}
    taken: dict[Cell, int] = {}
    for place in found.places:
        yield dict(taken)
        for resource, amount in place.amounts:
            cell = cells.get((place.flavors[resource], resource))
            if cell is not None:
                taken[cell] = taken.get(cell, 0) + amount
    yield taken


def _uncovered(
    state: SchedulerState, queue: Queue, workload: WorkloadInfo
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Per pod set, resources that no flavor of the queue has."""
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
    one: Verdict, queue: Queue, workload: WorkloadInfo, search: Search, oracle: _Oracle, closed: str
) -> tuple[FlavorVerdict, list[Ask]]:
    rooms: list[Room] = []
    asks: list[Ask] = []
    victims: dict[WorkloadInfo, Victim] = {}
    reasons = {obstacle.resource: obstacle.reason for obstacle in one.obstacles}
    held = family_quota_of(workload)
    for at, (resource, amount) in enumerate(one.amounts):
        cell = one.option.cells[resource]
        before = one.before.get(cell, 0)
        wanted = plus(before, amount)
        mode, level = one.rooms[at] if one.rooms else (Mode.NO_FIT, 0)
        free = max(0, available(cell))
        # What its family has of it is as good as free for it.
        had = min(wanted, held.backed(cell)) if held is not None else 0
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
                reason=reasons.get(resource, ""),
            )
        )
        if reasons.get(resource) == "WaitingForQuota":
            asks.append(Ask(queue, workload, cell, wanted - had))
            if mode in (Mode.PREEMPT, Mode.RECLAIM):
                going = search.victims({cell: wanted - had}, {cell.fr: None})
                victims.update((victim.workload, victim) for victim in going)
    outcome = OUTCOMES[Mode(one.mode)] if one.rooms or not one.obstacles else "Ineligible"
    if outcome != "Preempts":
        victims = {}
    fits = one.mode == Mode.FIT and not closed
    reason = one.obstacles[-1].reason if one.obstacles else ""
    return (
        FlavorVerdict(
            pod_set=one.pod_set,
            flavor=one.option.flavor,
            resources=tuple(resource for resource, _ in one.amounts),
            fits=fits,
            outcome=outcome if outcome == "Ineligible" or not closed else "NoFit",
            level=one.level,
            reason=reason,
            message=closed or _told(one, outcome, len(victims), queue, oracle),
            shortfalls=tuple(shortfall(obstacle) for obstacle in one.obstacles),
            rooms=tuple(rooms),
            victims=tuple(going_of(victim) for victim in list(victims.values())[:VICTIMS_MAX]),
            victims_left_out=max(0, len(victims) - VICTIMS_MAX),
        ),
        asks,
    )


def _told(one: Verdict, outcome: str, victims: int, queue: Queue, oracle: _Oracle) -> str:
    """The verdict in words, with its numbers."""
    what = ", ".join(sentence(obstacle) for obstacle in one.obstacles)
    match outcome:
        case "Fits":
            return "fits by borrowing from its cohort" if one.level else "fits"
        case "Preempts":
            others = "1 workload has" if victims == 1 else f"{victims} workloads have"
            return f"{what}; room once {others} gone"
        case "NoCandidates" if queue.plan is not None and queue.plan.policy is not NO_PREEMPTION:
            if any(cell.fr in oracle.gave_up for cell in one.option.cells.values()):
                return f"{what}; too many workloads run to look here for victims"
            return f"{what}; nobody can be preempted for it"
        case _:
            return what


def going_of(victim: Victim) -> Going:
    """A victim, as it is told."""
    workload = victim.workload
    told = workload.preempted_by
    return Going(
        namespace=workload.key[0],
        name=workload.key[1],
        cluster_queue=workload.charge.queue.name if workload.charge is not None else "",
        priority=workload.priority,
        rule=victim.reason,
        since=told.at if told is not None and workload.is_leaving else None,
        shares=victim.shares,
    )
