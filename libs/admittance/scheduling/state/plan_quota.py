"""Quota that reservations (the planners) share with the victims that they plan to preempt.

A planner goes on and its victims go, or it gives up and they stay. So at every node the usage that
counts is the most that may come to be held there: with one plan, the larger of the planner's amount
and the victims' amount. Plans that have a victim in common cannot all get the quota of that victim,
so they are looked at together. Source: `docs/spec/lifecycle.md#2.7`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain, combinations
from typing import Final, Generic, NamedTuple, TypeVar

from admittance.quota.cell import Cell, FlavorResource

Member = TypeVar("Member", bound=Hashable)
_Taker = frozenset[tuple[Member, int]]
Left = TypeVar("Left", bound=Hashable)
Right = TypeVar("Right", bound=Hashable)


class PlanLevel(NamedTuple, Generic[Member]):
    """A cell of a node above a planner and its victims. ``mine``: what the planner adds to the
    cell's usage; ``loads``: what each victim adds."""

    cell: Cell
    mine: int
    loads: dict[Member, int]


class Plan(NamedTuple, Generic[Member]):
    """The part of a plan of preemption for one flavor and resource. ``levels``: from the lowest
    node above planner and victims up to the root."""

    planner: Member
    victims: list[Member]
    levels: list[PlanLevel[Member]]


class PlanQuota(Generic[Member]):
    """The quota that planners share with their victims, for one flavor and resource. ``plans``: one
    plan, or several plans that have workloads in common.

    ``subtracted``: the amounts subtracted from the cells now, because planners and victims both
    hold them. A planner or victim that is excluded does not count. If victims share quota with each
    other, ``subtracted`` is exact when all victims are excluded, and may otherwise be too small."""

    __slots__ = ("_levels", "_out", "plans", "subtracted")

    def __init__(self, plans: list[Plan[Member]]) -> None:
        self.plans = plans
        self._levels = _by_cell(plans)
        self._out: set[Member] = set()
        self.subtracted: list[tuple[Cell, int]] = []
        self._set()

    @property
    def fr(self) -> FlavorResource:
        """The flavor and resource that planners and victims share."""
        return self.plans[0].levels[0].cell.fr

    @property
    def members(self) -> Iterable[Member]:
        """All planners and victims, each once."""
        found = (one for plan in self.plans for one in (plan.planner, *plan.victims))
        return dict.fromkeys(found)

    def exclude(self, workload: Member) -> None:
        """Excludes a planner or victim for a while from the quota that planners and victims
        share."""
        self._out.add(workload)
        for level in self._levels:
            level.change(workload, -1)
        self._set()

    def include(self, workload: Member) -> None:
        """Undoes `exclude`: the planner or victim counts in the quota that planners and victims
        share again."""
        self._out.remove(workload)
        for level in self._levels:
            level.change(workload, 1)
        self._set()

    def end(self) -> None:
        """Charges planners and victims in full from now on."""
        for cell, amount in self.subtracted:
            cell.charge(amount)
        self.subtracted.clear()

    def _set(self) -> None:
        self.end()
        without = [level.cell.usage for level in self._levels]
        for level, used in zip(self._levels, without, strict=True):
            # A subtraction at a lower cell lowers the usage of the cells above by the same amount
            # or by less.
            off = level.counted_twice(self._out) - (used - level.cell.usage)
            if off:
                level.cell.charge(-off)
                self.subtracted.append((level.cell, off))


def connected(plans: Iterable[Plan[Member]]) -> list[list[Plan[Member]]]:
    """Groups the plans: plans of the same flavor and resource below one root are in one group if
    they have a workload in common."""
    groups: dict[int, list[Plan[Member]]] = {}
    places: dict[tuple[int, Member], int] = {}
    for number, plan in enumerate(plans):
        met = sorted({places[key] for key in _keys(plan) if key in places})
        place = met[0] if met else number
        joined = [*(one for other in met[1:] for one in groups.pop(other)), plan]
        groups.setdefault(place, []).extend(joined)
        for one in joined:
            places.update(dict.fromkeys(_keys(one), place))
    return list(groups.values())


def _keys(plan: Plan[Member]) -> list[tuple[int, Member]]:
    root = id(plan.levels[-1].cell)
    return [(root, one) for one in (plan.planner, *plan.victims)]


class _Level(Generic[Member]):
    """The levels of all plans at one cell."""

    __slots__ = ("_cover", "_loads", "_planners", "cell")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._planners: dict[Member, int] = {}
        self._loads: dict[Member, dict[Member, int]] = {}
        self._cover: _Cover[Member] | None = None

    def add(self, planner: Member, level: PlanLevel[Member]) -> None:
        self._planners[planner] = level.mine
        self._loads[planner] = level.loads

    def complete(self) -> None:
        """Must be called after the last `add`."""
        victims = {one for loads in self._loads.values() for one in loads}
        if len(self._planners) > 1 and victims.isdisjoint(self._planners):
            self._cover = _Cover(self._planners, self._loads)

    def change(self, workload: Member, sign: int) -> None:
        """Subtracts (``sign`` -1) or adds what the workload holds."""
        if self._cover is not None:
            self._cover.change(workload, sign)

    def counted_twice(self, out: set[Member]) -> int:
        """How much of the usage counts twice without the workloads in ``out``."""
        if self._cover is not None:
            return self._cover.given()
        there = {one: much for one, much in self._planners.items() if one not in out}
        loads = {p: {v: m for v, m in self._loads[p].items() if v not in out} for p in there}
        if len(there) == 1:
            ((planner, mine),) = there.items()
            return min(mine, sum(loads[planner].values()))
        return shared_by_plans(there, loads)


def _by_cell(plans: list[Plan[Member]]) -> list[_Level[Member]]:
    """The cells of all plans, those of lower nodes first."""
    found: dict[int, _Level[Member]] = {}
    for plan in plans:
        for level in plan.levels:
            found.setdefault(id(level.cell), _Level(level.cell)).add(plan.planner, level)
    for one in found.values():
        one.complete()
    return sorted(found.values(), key=lambda one: -_depth(one.cell))


def _depth(cell: Cell) -> int:
    depth, here = 0, cell
    while here.parent is not None:
        depth, here = depth + 1, here.parent
    return depth


# Plans with workloads in common. --------------------------------------------------------------

MOST_BOTH: Final = 6
"""So many planners that are victims of others are combined in every way."""


def shared_by_plans(
    planners: Mapping[Member, int], loads: Mapping[Member, Mapping[Member, int]]
) -> int:
    """Returns how much of the usage of planners and victims counts twice: their sum without the
    most that they may come to hold, if no planner holds anything beside a victim of its own.

    ``planners``: the amount of each planner; ``loads``: the amounts of the victims of each planner.
    Planners get from victims what counts twice, where none gets or gives more than it has (theorem
    of König). That holds while no planner is a victim. A planner that is a victim either stays, and
    neither its victims nor its preemptors hold anything, or holds nothing itself: each combination
    is looked at. With more than `MOST_BOTH` such planners the result may be too small."""
    held: dict[Member, int] = {}
    enemies: dict[Member, set[Member]] = {}
    for planner, victims in loads.items():
        for one, much in victims.items():
            held[one] = max(held.get(one, 0), much)
            enemies.setdefault(one, set()).add(planner)
            enemies.setdefault(planner, set()).add(one)
    both = [one for one in planners if one in held]
    if not both:
        return _Cover(planners, loads).given()
    held |= {one: max(much, held.get(one, 0)) for one, much in planners.items()}
    if len(both) > MOST_BOTH:
        ways = {one: {other: min(held[one], held[other]) for other in enemies[one]} for one in held}
        return most_given(held, held, ways) // 2
    most = 0
    for staying in chain.from_iterable(combinations(both, n) for n in range(len(both) + 1)):
        beside = set().union(*(enemies[one] for one in staying))
        if not beside.isdisjoint(staying):
            continue
        gone = beside.union(both)
        left = {one: much for one, much in planners.items() if one not in gone}
        ways = {p: {v: m for v, m in loads[p].items() if v not in gone} for p in left}
        rest = sum(much for one, much in held.items() if one not in gone)
        stays = sum(held[one] for one in staying)
        most = max(most, stays + rest - _Cover(left, ways).given())
    return sum(held.values()) - most


class _Cover(Generic[Member]):
    """Planners and victims of which none is both. Planners with the same victims count as one taker
    of quota, and victims of the same planners as one giver: a plan may have hundreds of victims,
    and a victim hundreds of planners."""

    __slots__ = ("_giver", "_gives", "_held", "_loads", "_planners", "_taker", "_wants", "_ways")

    def __init__(
        self, planners: Mapping[Member, int], loads: Mapping[Member, Mapping[Member, int]]
    ) -> None:
        self._planners = planners
        self._taker = {one: frozenset(loads[one].items()) for one in planners}
        self._loads = {taker: dict(taker) for taker in self._taker.values()}
        self._wants: dict[_Taker[Member], int] = {}
        for one, much in planners.items():
            self._wants[self._taker[one]] = self._wants.get(self._taker[one], 0) + much
        self._held: dict[Member, int] = {}
        takers: dict[Member, list[_Taker[Member]]] = {}
        for taker, victims in self._loads.items():
            for one, much in victims.items():
                self._held[one] = max(self._held.get(one, 0), much)
                takers.setdefault(one, []).append(taker)
        self._giver = {one: frozenset(found) for one, found in takers.items()}
        self._gives = dict.fromkeys(self._giver.values(), 0)
        self._ways = {
            taker: dict.fromkeys([self._giver[one] for one in victims], 0)
            for taker, victims in self._loads.items()
        }
        for one in self._giver:
            self._give(one, 1)

    def change(self, workload: Member, sign: int) -> None:
        """Subtracts (``sign`` -1) or adds what the workload holds."""
        taker = self._taker.get(workload)
        if taker is not None:
            self._wants[taker] += sign * self._planners[workload]
        elif workload in self._giver:
            self._give(workload, sign)

    def _give(self, victim: Member, sign: int) -> None:
        giver = self._giver[victim]
        self._gives[giver] += sign * self._held[victim]
        for taker in giver:
            self._ways[taker][giver] += sign * self._loads[taker][victim]

    def given(self) -> int:
        """What the planners can get from the victims."""
        return most_given(self._wants, self._gives, self._ways)


def most_given(
    takers: Mapping[Left, int],
    givers: Mapping[Right, int],
    ways: Mapping[Left, Mapping[Right, int]],
) -> int:
    """The maximum flow from givers to takers: ``takers`` and ``givers`` have the most that each may
    take or give, ``ways`` the most that a taker may get from a giver. By shortest augmenting paths
    (Edmonds and Karp)."""
    wanted, left = dict(takers), dict(givers)
    flow: dict[Right, dict[Left, int]] = {giver: {} for giver in givers}
    exhausted: set[Right] = set()
    total = 0
    for taker in takers:
        while wanted[taker] > 0:
            path = _path(taker, left, flow, ways, exhausted)
            if not path:
                break
            # From the taker: a way to a giver, back to a taker that gets something from it, and so
            # on to a giver that has something left.
            much = min(wanted[taker], left[path[-1][1]])
            for index, (to, giver) in enumerate(path):
                much = min(much, ways[to][giver] - flow[giver].get(to, 0))
                if index + 1 < len(path):
                    much = min(much, flow[giver][path[index + 1][0]])
            for index, (to, giver) in enumerate(path):
                flow[giver][to] = flow[giver].get(to, 0) + much
                if index + 1 < len(path):
                    flow[giver][path[index + 1][0]] -= much
            wanted[taker] -= much
            left[path[-1][1]] -= much
            total += much
    return total


def _path(
    taker: Left,
    left: Mapping[Right, int],
    flow: Mapping[Right, Mapping[Left, int]],
    ways: Mapping[Left, Mapping[Right, int]],
    exhausted: set[Right],
) -> list[tuple[Left, Right]]:
    """The shortest augmenting path of the taker: pairs of a taker and the giver from which it gets
    more; empty if there is none. Then the givers that were reached are added to ``exhausted``: no
    later path leads through them."""
    came: dict[Right, tuple[Left, Right | None]] = {}
    reached: dict[Left, Right | None] = {taker: None}
    ahead = [taker]
    for to in ahead:
        for giver, most in ways.get(to, {}).items():
            if giver in came or giver in exhausted or flow[giver].get(to, 0) >= most:
                continue
            came[giver] = to, reached[to]
            if left[giver] > 0:
                return list(_way_back(giver, came))[::-1]
            for other, much in flow[giver].items():
                if much > 0 and other not in reached:
                    reached[other] = giver
                    ahead.append(other)
    exhausted.update(came)
    return []


def _way_back(
    giver: Right, came: Mapping[Right, tuple[Left, Right | None]]
) -> Iterator[tuple[Left, Right]]:
    here: Right | None = giver
    while here is not None:
        to, before = came[here]
        yield to, here
        here = before
