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

    __slots__ = ("_cells", "_out", "plans", "subtracted")

    def __init__(self, plans: list[Plan[Member]]) -> None:
        self.plans = plans
        self._cells: list[tuple[Cell, list[tuple[Member, PlanLevel[Member]]]]] = _by_cell(plans)
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
        self._set()

    def include(self, workload: Member) -> None:
        """Undoes `exclude`: the planner or victim counts in the quota that planners and victims
        share again."""
        self._out.remove(workload)
        self._set()

    def end(self) -> None:
        """Charges planners and victims in full from now on."""
        for cell, amount in self.subtracted:
            cell.charge(amount)
        self.subtracted.clear()

    def _set(self) -> None:
        self.end()
        without = [cell.usage for cell, _ in self._cells]
        for (cell, levels), used in zip(self._cells, without, strict=True):
            # A subtraction at a lower cell lowers the usage of the cells above by the same amount
            # or by less.
            off = self._counted_twice(levels) - (used - cell.usage)
            if off:
                cell.charge(-off)
                self.subtracted.append((cell, off))

    def _counted_twice(self, levels: list[tuple[Member, PlanLevel[Member]]]) -> int:
        out = self._out
        there = [one for one in levels if one[0] not in out]
        if len(there) == 1:
            ((_, level),) = there
            return min(level.mine, sum(m for one, m in level.loads.items() if one not in out))
        return shared_by_plans(
            {planner: level.mine for planner, level in there},
            {
                planner: {one: much for one, much in level.loads.items() if one not in out}
                for planner, level in there
            },
        )


def connected(plans: Iterable[Plan[Member]]) -> list[list[Plan[Member]]]:
    """Groups the plans: plans of the same flavor and resource below one root are in one group if
    they have a workload in common."""
    groups: list[list[Plan[Member]]] = []
    places: list[set[tuple[int, Member]]] = []
    for plan in plans:
        root = id(plan.levels[-1].cell)
        mine = {(root, one) for one in (plan.planner, *plan.victims)}
        joined = [plan]
        for index in reversed(range(len(groups))):
            if not mine.isdisjoint(places[index]):
                joined = groups.pop(index) + joined
                mine |= places.pop(index)
        groups.append(joined)
        places.append(mine)
    return groups


def _by_cell(
    plans: list[Plan[Member]],
) -> list[tuple[Cell, list[tuple[Member, PlanLevel[Member]]]]]:
    """The cells of all plans, those of lower nodes first, each with the levels of the plans."""
    found: dict[int, tuple[Cell, list[tuple[Member, PlanLevel[Member]]]]] = {}
    for plan in plans:
        for level in plan.levels:
            found.setdefault(id(level.cell), (level.cell, []))[1].append((plan.planner, level))
    return sorted(found.values(), key=lambda one: -_depth(one[0]))


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
        return most_given(*_alike(planners, loads))
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
        most = max(most, stays + rest - most_given(*_alike(left, ways)))
    return sum(held.values()) - most


def _alike(
    planners: Mapping[Member, int], loads: Mapping[Member, Mapping[Member, int]]
) -> tuple[
    Mapping[Member, int],
    Mapping[frozenset[Member], int],
    Mapping[Member, Mapping[frozenset[Member], int]],
]:
    """Takes victims of the same planners as one, since a plan may have hundreds of victims."""
    planners_of: dict[Member, list[Member]] = {}
    for planner, victims in loads.items():
        for one in victims:
            planners_of.setdefault(one, []).append(planner)
    kind_of = {one: frozenset(found) for one, found in planners_of.items()}
    given: dict[frozenset[Member], int] = {}
    ways: dict[Member, dict[frozenset[Member], int]] = {}
    for one, kind in kind_of.items():
        given[kind] = given.get(kind, 0) + max(loads[planner][one] for planner in kind)
        for planner in kind:
            way = ways.setdefault(planner, {})
            way[kind] = way.get(kind, 0) + loads[planner][one]
    return planners, given, ways


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
    total = 0
    for taker in takers:
        while wanted[taker] > 0:
            path = _path(taker, left, flow, ways)
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
) -> list[tuple[Left, Right]]:
    """The shortest augmenting path of the taker: pairs of a taker and the giver from which it gets
    more; empty if there is none."""
    came: dict[Right, tuple[Left, Right | None]] = {}
    reached: dict[Left, Right | None] = {taker: None}
    ahead = [taker]
    for to in ahead:
        for giver, most in ways.get(to, {}).items():
            if giver in came or flow[giver].get(to, 0) >= most:
                continue
            came[giver] = to, reached[to]
            if left[giver] > 0:
                return list(_way_back(giver, came))[::-1]
            for other, much in flow[giver].items():
                if much > 0 and other not in reached:
                    reached[other] = giver
                    ahead.append(other)
    return []


def _way_back(
    giver: Right, came: Mapping[Right, tuple[Left, Right | None]]
) -> Iterator[tuple[Left, Right]]:
    here: Right | None = giver
    while here is not None:
        to, before = came[here]
        yield to, here
        here = before
