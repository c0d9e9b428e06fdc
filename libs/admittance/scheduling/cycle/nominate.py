"""What a head would get as if it were alone: flavors, counts, and who has to go for it.

Source: `docs/spec/scheduling.md#4.2, #5.6, #6.5`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from admittance.quota.cell import Cell, FlavorResource, borrow_level
from admittance.scheduling.config import Config, FairSharing
from admittance.scheduling.cycle.flavor_assigner import Only, assign
from admittance.scheduling.preemption import classical
from admittance.scheduling.preemption import fair_sharing as fair
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.preemption.room import fits, is_indifferent
from admittance.scheduling.state.assignment import (
    FIT,
    NO_CANDIDATES,
    NO_FIT,
    PREEMPT,
    RECLAIM,
    Assignment,
    Cursor,
)
from admittance.scheduling.state.equivalence import Memo
from admittance.scheduling.state.flavor_plan import NOBODY
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.requests import Shape
from admittance.scheduling.state.shared_quota import put_all, put_back, take_all, take_out
from admittance.scheduling.state.workload_info import (
    Nomination,
    Patience,
    Victim,
    WorkloadInfo,
    held_for,
)

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Queue
    from admittance.scheduling.state.workload_info import Nomination


T = TypeVar("T")


NO_VICTIMS: Sequence[Victim] = ()


class Nominator:
    """Looks for room. ``gone``: workloads that are as good as gone, or that count as none yet: no
    victims. ``loops``: whom who may not take any more."""

    def __init__(
        self, queues: Mapping[str, Queue], config: Config, loops: LoopGuard | None = None
    ) -> None:
        self._loops = loops
        self.gone: set[WorkloadInfo] = set()
        self._queues = queues
        self._partial = config.partial_admission
        self._fair = config.fair_sharing
        self._ignore_undeclared = config.quota_check_strategy == "IgnoreUndeclared"
        # Usages of LocalQueues decide about victims too, and move with time.
        self._remembers = config.admission_fair_sharing is None

    def may_remember(self, member: WorkloadInfo) -> bool:
        """What the member would get depends on nothing that moves without its domain's version."""
        return self._remembers and (self._loops is None or not self._loops.barred(member))

    def search(self, queue: Queue, member: WorkloadInfo) -> Search:
        """The searches of one nomination, for whoever wants to ask more of them."""
        gone = self.gone
        if self._loops is not None and (barred := self._loops.barred(member)):
            gone = gone | barred
        held = held_for(member) if member.family is not None else None
        if held is not None:
            # Siblings make room for each other by other means.
            gone = gone | held.members.keys()
        return Search(self._queues, queue, member, gone, self._fair)

    def nominate(
        self,
        queue: Queue,
        member: WorkloadInfo,
        cursor: Cursor | None = None,
        only: Only | None = None,
        search: Search | None = None,
    ) -> Nomination:
        """The best there is now: all of it; else all of it once others have gone; else as much of
        it as there is, now or once others have gone; else what stands in the way of all of it."""
        shape = member.shape
        assert shape is not None
        whole = self._try(queue, member, shape, cursor, only, search)
        if not self._partial or not shape.is_flexible or _serves(whole):
            return whole

        def attempt(counts: list[int]) -> Nomination | None:
            tried = self._try(queue, member, shape.scaled(counts), cursor, only, search)
            return tried if _serves(tried) else None

        return most_of([(ps.count, ps.min_count) for ps in shape.pod_sets], attempt) or whole

    def _try(
        self,
        queue: Queue,
        member: WorkloadInfo,
        shape: Shape,
        cursor: Cursor | None,
        only: Only | None,
        search: Search | None,
    ) -> Nomination:
        plan = queue.plan
        assert plan is not None
        undeclared = self._ignore_undeclared
        held = held_for(member) if member.family is not None else None
        if plan.policy is NOBODY:
            found = assign(
                plan, shape, cursor, only=only, ignore_undeclared=undeclared, overlap=held
            )
            return found, NO_VICTIMS
        search = search or self.search(queue, member)
        found = assign(
            plan,
            shape,
            cursor,
            oracle=search.ask,
            only=only,
            ignore_undeclared=undeclared,
            overlap=held,
        )
        if found.mode in (FIT, NO_FIT):
            return found, NO_VICTIMS
        return found, search.victims(found.usage, found.contested)


def _serves(nomination: Nomination) -> bool:
    return nomination[0].mode == FIT or bool(nomination[1])


def most_of(
    counts: Sequence[tuple[int, int | None]], attempt: Callable[[list[int]], T | None]
) -> T | None:
    """The answer to the largest counts for which attempt gives one; None: there are none.

    counts: of each pod set the full count, and the least that would do. All are cut alike. A
    bisection: that less fits where more does is assumed, though it need not be so.
    """
    spare = [count - (least if least is not None else count) for count, least in counts]
    steps = sum(spare)
    if steps <= 0:
        return None
    low, high = 0, steps + 1
    found: tuple[int, T] | None = None
    while low < high:
        middle = (low + high) // 2
        answer = attempt(
            [count - cut * middle // steps for (count, _), cut in zip(counts, spare, strict=True)]
        )
        if answer is None:
            low = middle + 1
        else:
            high = middle
            found = middle, answer
    return found[1] if found is not None and found[0] == low else None


class Search:
    """The searches of one nomination. They all see the same picture, so none is made twice."""

    __slots__ = ("_fair", "_found", "_gone", "_member", "_queue", "_queues")

    def __init__(
        self,
        queues: Mapping[str, Queue],
        queue: Queue,
        member: WorkloadInfo,
        gone: set[WorkloadInfo],
        fair: FairSharing | None,
    ) -> None:
        self._fair = fair
        self._queues = queues
        self._queue = queue
        self._member = member
        self._gone = gone
        self._found: dict[tuple[Cell, int], list[Victim]] = {}

    def knows(self, cell: Cell, amount: int) -> bool:
        """This was searched for already, so that asking again costs nothing."""
        return (cell, amount) in self._found

    def ask(self, cell: Cell, amount: int) -> tuple[int, int]:
        """How well preemption would serve one flavor and resource, looked at alone."""
        victims = self.victims({cell: amount}, {cell.fr: None})
        if not victims:
            return NO_CANDIDATES, borrow_level(cell, amount)[0]
        going = [one.member for one in victims]
        held = take_all(going)
        level = borrow_level(cell, amount)[0]
        put_all(going, held)
        own = any(
            one.member.charge is not None and one.member.charge.queue is self._queue
            for one in victims
        )
        return (PREEMPT if own else RECLAIM), level

    def victims(
        self, need: Mapping[Cell, int], contested: Mapping[FlavorResource, None]
    ) -> list[Victim]:
        """Who has to go for all of this."""
        if len(need) != 1:
            scarce = {cell: amount for cell, amount in need.items() if cell.fr in contested}
            if len(scarce) != 1 or not all(
                cell in scarce or is_indifferent(cell, amount) for cell, amount in need.items()
            ):
                return self._search(need, contested)
            # The same search was made for the flavor alone, as a rule.
            need = scarce
        (key,) = need.items()
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._search(need, contested)
        return found

    def _search(
        self, need: Mapping[Cell, int], contested: Mapping[FlavorResource, None]
    ) -> list[Victim]:
        if self._fair is not None:
            strategies = self._fair.strategies
            return fair.search(
                self._queues, self._queue, self._member, need, contested, strategies, self._gone
            )
        return classical.search(
            self._queues, self._queue, self._member, need, contested, self._gone
        )


def nominated(
    nominator: Nominator, queue: Queue, member: WorkloadInfo, cursor: Cursor | None
) -> Nomination:
    """What the head would get now, looked at anew only if something moved since its class was."""
    cls, domain, plan = member.cls, queue.domain, queue.plan
    if cls is None or domain is None or plan is None or not nominator.may_remember(member):
        return nominator.nominate(queue, member, cursor)
    stamp = member.stamp if plan.policy.within == "LowerOrNewerEqualPriority" else None
    known = cls.memo
    if (
        known is not None
        and known.version == domain.version
        and known.plan is plan
        and known.cursor == cursor
        and known.stamp == stamp
    ):
        return known.nomination
    found = nominator.nominate(queue, member, cursor)
    # What fits is mostly taken at once, and moves the domain.
    if found[0].mode != FIT:
        cls.memo = Memo(domain.version, plan, cursor, stamp, found)
    return found


# While the victims of a preemptor still stop, no cycle searches victims for it again: those that it
# has preempted are the first that any search would take. Where there is a choice, of flavors or of
# counts, the search is made in full, since a better choice may have come free.


def remember_search(
    queue: Queue, member: WorkloadInfo, assignment: Assignment, victims: Sequence[Victim]
) -> None:
    """Notes the victims that the preemptor waits for from now on."""
    plan, shape = queue.plan, member.shape
    member.patience = None
    if not victims or plan is None or shape is None or shape.is_flexible:
        return
    if assignment.overlap is not None:
        return  # What it asks for depends on who of its family goes first.
    if all(len(group.options) == 1 for group in plan.groups.values()):
        member.patience = Patience(plan, shape, assignment, victims)


def still_waits(queue: Queue, member: WorkloadInfo) -> Nomination | None:
    """Returns what a search would find for a preemptor that waits; None: a search is needed."""
    saved = member.patience
    if saved is None or saved.plan is not queue.plan or saved.shape is not member.shape:
        return None
    going = [
        one for one in saved.victims if one.member.charge is not None and one.member.is_leaving
    ]
    usage = saved.assignment.usage
    if not going or fits(usage, borrowing=True):
        return None
    for one in going:
        take_out(one.member)
    enough = fits(usage, borrowing=True)
    for one in going:
        put_back(one.member)
    return (saved.assignment, going) if enough else None
