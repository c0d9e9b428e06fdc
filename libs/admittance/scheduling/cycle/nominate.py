"""Nominates heads: finds what a head would get if no other head competed: flavors, numbers of pods,
and victims."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from admittance.quota.cell import Cell, FlavorResource, borrow_level
from admittance.scheduling.cycle.flavor_assigner import Only, assign
from admittance.scheduling.preemption import classical
from admittance.scheduling.preemption import fair_sharing as fair
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.preemption.min_run import NotVictims
from admittance.scheduling.preemption.room import affects_no_other, fits
from admittance.scheduling.state.assignment import (
    FIT,
    NO_CANDIDATES,
    NO_FIT,
    PREEMPT,
    RECLAIM,
    Assignment,
    Cursor,
)
from admittance.scheduling.state.config import CohortFairSharing
from admittance.scheduling.state.equivalence import SavedNomination
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION
from admittance.scheduling.state.held.person_limits import PersonLimits
from admittance.scheduling.state.held.shared_quota import WithoutUsage
from admittance.scheduling.state.requests import RequestShape
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import (
    Nomination,
    Queue,
    SavedSearch,
    Victim,
    WorkloadInfo,
    family_quota_of,
)

T = TypeVar("T")


NO_VICTIMS: Sequence[Victim] = ()


class Nominator:
    """Finds the nominations of heads: assignments, and the victims that must stop first.

    ``gone``: workloads that must not be victims, because they are victims of an earlier entry of
    the cycle or got quota in the same cycle. ``loops``: the loop guard, which excludes pairs of
    preemptor and victim. ``now``: the time of the cycle, which decides which workloads are too
    young to be victims."""

    def __init__(self, state: SchedulerState, loops: LoopGuard) -> None:
        config = state.config
        self._loops = loops
        self.gone: set[WorkloadInfo] = set()
        self.now = state.now
        self._min_runs = state.min_runs
        self._queues = state.queues
        self._partial = config.partial_admission
        self._as_kueue = config.as_kueue
        self._fair = config.fair_sharing
        self._ignore_undeclared = config.quota_check_strategy == "IgnoreUndeclared"
        # With admission fair sharing a nomination must not be saved: usages of LocalQueues order
        # the victims, and usages change with time.
        self._remembers = config.admission_fair_sharing is None

    def may_remember(self, workload: WorkloadInfo) -> bool:
        """Returns whether a nomination of the workload may be saved: whether it is valid until the
        version of the workload's domain changes."""
        return self._remembers and not self._loops.forbidden_victims(workload)

    def search(self, queue: Queue, workload: WorkloadInfo) -> Search:
        """Returns the `Search` for one nomination of the workload."""
        gone = self.gone
        if barred := self._loops.forbidden_victims(workload):
            gone = gone | barred
        held = family_quota_of(workload) if workload.family is not None else None
        if held is not None:
            # A variant does not preempt its siblings.
            gone = gone | held.members.keys()
        spared = NotVictims(gone, self._min_runs, self.now) if self._min_runs else None
        return Search(self._queues, queue, workload, gone, self._fair, spared)

    def nominate(
        self,
        queue: Queue,
        workload: WorkloadInfo,
        cursor: Cursor | None = None,
        only: Only | None = None,
        search: Search | None = None,
    ) -> Nomination:
        """Returns the best nomination for the workload now.

        The best nomination is the first of these that is possible: all pods now; all pods after
        preemption; as many pods as possible, now or after preemption; the same with victims that
        are younger than their minRunSeconds, if their minRunPolicy is Preferred; no assignment,
        with the obstacles for all pods and for the fewest."""
        assert queue.plan is not None
        if not self._min_runs or queue.plan.policy is NO_PREEMPTION:
            return self._nominate(queue, workload, cursor, only, search)
        search = search or self.search(queue, workload)
        nomination = self._nominate(queue, workload, cursor, only, search)
        if not _serves(nomination) and search.yields():
            nomination = self._nominate(queue, workload, cursor, only, search)
        nomination[0].spared_until = search.spared_until
        return nomination

    def _nominate(
        self,
        queue: Queue,
        workload: WorkloadInfo,
        cursor: Cursor | None,
        only: Only | None,
        search: Search | None,
    ) -> Nomination:
        shape = workload.shape
        assert shape is not None
        if queue.limits is not None and queue.limits.partial and shape.is_flexible:
            shape = within_limits(queue.limits, workload, shape)
        whole = self._try(queue, workload, shape, cursor, only, search)
        if not self._partial or not shape.is_flexible or _serves(whole):
            return whole

        last: Assignment | None = None

        def attempt(counts: list[int]) -> Nomination | None:
            nonlocal last
            tried = self._try(queue, workload, shape.scaled(counts), cursor, only, search)
            last = tried[0]
            return tried if _serves(tried) else None

        fewer = most_of(counts_of(shape), attempt)
        if fewer is None and not self._as_kueue:
            # The last attempt was with the fewest pods: its obstacles are what the workload lacks.
            whole[0].fewest = last
        return fewer or whole

    def _try(
        self,
        queue: Queue,
        workload: WorkloadInfo,
        shape: RequestShape,
        cursor: Cursor | None,
        only: Only | None,
        search: Search | None,
    ) -> Nomination:
        plan = queue.plan
        assert plan is not None
        undeclared = self._ignore_undeclared
        held = family_quota_of(workload) if workload.family is not None else None
        if plan.policy is NO_PREEMPTION:
            assignment = assign(
                plan, shape, cursor, only=only, ignore_undeclared=undeclared, overlap=held
            )
            return assignment, NO_VICTIMS
        search = search or self.search(queue, workload)
        assignment = assign(
            plan,
            shape,
            cursor,
            oracle=search.ask,
            only=only,
            ignore_undeclared=undeclared,
            overlap=held,
        )
        if assignment.mode in (FIT, NO_FIT):
            return assignment, NO_VICTIMS
        return assignment, search.victims(assignment.usage, assignment.contested)


def counts_of(shape: RequestShape) -> list[tuple[int, int | None]]:
    """Returns the number of pods and the minCount of each pod set."""
    return [(ps.count, ps.min_count) for ps in shape.pod_sets]


def within_limits(
    limits: PersonLimits, workload: WorkloadInfo, shape: RequestShape
) -> RequestShape:
    """Returns the shape with as many pods as the limits of the workload's person allow; with all
    pods, if not even the fewest are allowed."""
    if limits.excess(workload, shape) is None:
        return shape

    def allowed(counts: list[int]) -> RequestShape | None:
        scaled = shape.scaled(counts)
        return scaled if limits.excess(workload, scaled) is None else None

    return most_of(counts_of(shape), allowed) or shape


def _serves(nomination: Nomination) -> bool:
    return nomination[0].mode == FIT or bool(nomination[1])


def most_of(
    counts: Sequence[tuple[int, int | None]], attempt: Callable[[list[int]], T | None]
) -> T | None:
    """Returns the result of ``attempt`` for the largest numbers of pods for which the result is not
    None; None: there are no such numbers.

    ``counts``: for each pod set its number of pods and its minCount. The numbers of pods of all pod
    sets are reduced by the same fraction. The bisection assumes that fewer pods fit wherever more
    pods fit, which is not always true."""
    spare = [count - (least if least is not None else count) for count, least in counts]
    steps = sum(spare)
    if steps <= 0:
        return None
    low, high = 0, steps + 1
    best: tuple[int, T] | None = None
    while low < high:
        middle = (low + high) // 2
        answer = attempt(
            [count - cut * middle // steps for (count, _), cut in zip(counts, spare, strict=True)]
        )
        if answer is None:
            low = middle + 1
        else:
            high = middle
            best = middle, answer
    return best[1] if best is not None and best[0] == low else None


class Search:
    """The searches for victims that one nomination of a workload needs. The scheduler's state does
    not change during a nomination, so results are cached and no search is made twice.

    ``gone``: workloads that must not be victims; ``spared``: these and the workloads that are too
    young; None: no setting has minRunSeconds."""

    __slots__ = ("_fair", "_found", "_gone", "_queue", "_queues", "_spared", "_workload")

    def __init__(
        self,
        queues: Mapping[str, Queue],
        queue: Queue,
        workload: WorkloadInfo,
        gone: set[WorkloadInfo],
        fair: CohortFairSharing | None,
        spared: NotVictims | None = None,
    ) -> None:
        self._fair = fair
        self._spared = spared
        self._queues = queues
        self._queue = queue
        self._workload = workload
        self._gone: Container[WorkloadInfo] = gone if spared is None else spared
        self._found: dict[tuple[Cell, int], list[Victim]] = {}

    @property
    def spared_until(self) -> datetime | None:
        """When the first of the workloads that were too young to be victims has run long enough;
        None: none was too young."""
        return self._spared.until if self._spared is not None else None

    def yields(self) -> bool:
        """From now on workloads with minRunPolicy Preferred may be victims in spite of their age.
        Returns whether a further search may have another result."""
        if self._spared is None or not self._spared.yields():
            return False
        self._found.clear()
        return True

    def knows(self, cell: Cell, amount: int) -> bool:
        """Returns whether the result of `ask` for the cell and amount is cached already."""
        return (cell, amount) in self._found

    def ask(self, cell: Cell, amount: int) -> tuple[int, int]:
        """Returns how well preemption would serve the amount of one flavor and resource, without
        regard to other resources: the mode, and the borrowing level after the preemption."""
        victims = self.victims({cell: amount}, {cell.fr: None})
        if not victims:
            return NO_CANDIDATES, borrow_level(cell, amount)[0]
        with WithoutUsage([victim.workload for victim in victims]):
            level = borrow_level(cell, amount)[0]
        own = any(
            victim.workload.charge is not None and victim.workload.charge.queue is self._queue
            for victim in victims
        )
        return (PREEMPT if own else RECLAIM), level

    def victims(
        self, need: Mapping[Cell, int], contested: Mapping[FlavorResource, None]
    ) -> list[Victim]:
        """Returns the victims that must stop before all amounts of ``need`` fit."""
        if len(need) != 1:
            scarce = {cell: amount for cell, amount in need.items() if cell.fr in contested}
            if len(scarce) != 1 or not all(
                cell in scarce or affects_no_other(cell, amount) for cell, amount in need.items()
            ):
                return self._search(need, contested)
            # In most cases `ask` has already made the search for this cell alone.
            need = scarce
        (key,) = need.items()
        known = self._found.get(key)
        if known is None:
            known = self._found[key] = self._search(need, contested)
        return known

    def _search(
        self, need: Mapping[Cell, int], contested: Mapping[FlavorResource, None]
    ) -> list[Victim]:
        if self._fair is not None:
            strategies = self._fair.strategies
            return fair.search(
                self._queues, self._queue, self._workload, need, contested, strategies, self._gone
            )
        return classical.search(
            self._queues, self._queue, self._workload, need, contested, self._gone
        )


def nomination_of(
    nominator: Nominator, queue: Queue, workload: WorkloadInfo, cursor: Cursor | None
) -> Nomination:
    """Returns the nomination of the head: the one saved with its class, if nothing changed in the
    domain since then, else a new one."""
    cls, domain, plan = workload.cls, queue.domain, queue.plan
    if cls is None or domain is None or plan is None:
        return nominator.nominate(queue, workload, cursor)
    stamp = workload.queued_at if plan.policy.within == "LowerOrNewerEqualPriority" else None
    known = cls.saved_nomination
    if (
        known is not None
        and known.version == domain.version
        and known.plan is plan
        and known.cursor == cursor
        and known.stamp == stamp
        and ((until := known.nomination[0].spared_until) is None or nominator.now < until)
        and nominator.may_remember(workload)
    ):
        return known.nomination
    nomination = nominator.nominate(queue, workload, cursor)
    # A nomination that fits is not worth saving: in most cases it is accepted, which changes the
    # version of the domain at once.
    if nomination[0].mode != FIT and nominator.may_remember(workload):
        cls.saved_nomination = SavedNomination(domain.version, plan, cursor, stamp, nomination)
    return nomination


def remember_search(
    queue: Queue, workload: WorkloadInfo, assignment: Assignment, victims: Sequence[Victim]
) -> None:
    """Saves the victims for which the preemptor waits, so that it is not nominated again while they
    stop.

    A new search would only find the same victims, because a search prefers workloads that are
    preempted already. Nothing is saved if there is a choice of flavors or of numbers of pods,
    because a better choice may become free."""
    plan, shape = queue.plan, workload.shape
    workload.saved_search = None
    if not victims or plan is None or shape is None or shape.is_flexible:
        return
    if assignment.family_quota is not None:
        return  # The needs of a variant depend on which of its siblings gets quota first.
    if all(len(group.options) == 1 for group in plan.groups.values()):
        workload.saved_search = SavedSearch(plan, shape, assignment, victims)


def still_waits(queue: Queue, workload: WorkloadInfo, saved: SavedSearch) -> Nomination | None:
    """Returns the nomination of a preemptor while its saved victims stop; None: a new search is
    needed."""
    if saved.plan is not queue.plan or saved.shape is not workload.shape:
        return None
    usage = saved.assignment.usage
    if fits(usage, borrowing=True):
        return None
    going = [
        victim
        for victim in saved.victims
        if victim.workload.charge is not None and victim.workload.is_leaving
    ]
    with WithoutUsage([victim.workload for victim in going]):
        enough = fits(usage, borrowing=True)
    return (saved.assignment, going) if enough else None
