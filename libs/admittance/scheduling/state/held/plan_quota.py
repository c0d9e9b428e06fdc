"""Quota that reservations (the planners) share with the victims that they plan to preempt.

A planner goes on and its victims go, or it gives up and they stay. So at every node the usage that
counts is the most that may come to be held there: with one plan, the larger of the planner's amount
and the victims' amount. Plans that have a victim in common cannot all get the quota of that victim,
so they are looked at together. Source: `docs/spec/lifecycle.md#2.7`, `docs/decisions/0064-…`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import chain, combinations, pairwise
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from admittance.quota.cell import Cell, FlavorResource

Member = TypeVar("Member", bound=Hashable)
_Taker = frozenset[tuple[Member, int]]
Left = TypeVar("Left", bound=Hashable)
Right = TypeVar("Right", bound=Hashable)
_Node: TypeAlias = tuple[str, Hashable]


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
        return dict.fromkeys(
            member for plan in self.plans for member in (plan.planner, *plan.victims)
        )

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
        joined = [*chain.from_iterable(groups.pop(other) for other in met[1:]), plan]
        groups.setdefault(place, []).extend(joined)
        for moved in joined:
            places.update(dict.fromkeys(_keys(moved), place))
    return list(groups.values())


def _keys(plan: Plan[Member]) -> list[tuple[int, Member]]:
    root = id(plan.levels[-1].cell)
    return [(root, member) for member in (plan.planner, *plan.victims)]


class _Level(Generic[Member]):
    """The levels of all plans at one cell."""

    __slots__ = ("_cover", "_loads", "_planners", "cell")

    def __init__(self, cell: Cell, levels: Mapping[Member, PlanLevel[Member]]) -> None:
        self.cell = cell
        self._planners = {planner: level.mine for planner, level in levels.items()}
        self._loads = {planner: level.loads for planner, level in levels.items()}
        victims = chain.from_iterable(self._loads.values())
        self._cover: _Cover[Member] | None = None
        if self._planners.keys().isdisjoint(victims):
            self._cover = _Cover(self._planners, self._loads)

    def change(self, workload: Member, sign: int) -> None:
        """Subtracts (``sign`` -1) or adds what the workload holds."""
        if self._cover is not None:
            self._cover.change(workload, sign)

    def counted_twice(self, out: set[Member]) -> int:
        """How much of the usage counts twice without the workloads in ``out``."""
        if self._cover is not None:
            return self._cover.given()
        return shared_by_plans(*_without(out, self._planners, self._loads))


def _by_cell(plans: list[Plan[Member]]) -> list[_Level[Member]]:
    """The cells of all plans, those of lower nodes first."""
    by_cell: dict[Cell, dict[Member, PlanLevel[Member]]] = {}
    for plan in plans:
        for level in plan.levels:
            by_cell.setdefault(level.cell, {})[plan.planner] = level
    cells = sorted(by_cell, key=lambda cell: -_depth(cell))
    return [_Level(cell, by_cell[cell]) for cell in cells]


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
    held = dict(planners)
    enemies: dict[Member, set[Member]] = {}
    for planner, victims in loads.items():
        for victim, amount in victims.items():
            held[victim] = max(held.get(victim, 0), amount)
            enemies.setdefault(victim, set()).add(planner)
            enemies.setdefault(planner, set()).add(victim)
    planned = set(chain.from_iterable(loads.values()))
    both = [planner for planner in planners if planner in planned]
    if not both:
        return _Cover(planners, loads).given()
    if len(both) > MOST_BOTH:
        ways = {
            member: {other: min(held[member], held[other]) for other in enemies[member]}
            for member in held
        }
        return most_given(held, held, ways) // 2
    most = 0
    for staying in chain.from_iterable(combinations(both, n) for n in range(len(both) + 1)):
        ended = set().union(*(enemies[planner] for planner in staying))
        if ended.isdisjoint(staying):
            settled = ended.union(both)
            cover = _Cover(*_without(settled, planners, loads))
            rest = sum(amount for member, amount in held.items() if member not in settled)
            stays = sum(held[planner] for planner in staying)
            most = max(most, stays + rest - cover.given())
    return sum(held.values()) - most


def _without(
    out: set[Member], planners: Mapping[Member, int], loads: Mapping[Member, Mapping[Member, int]]
) -> tuple[dict[Member, int], dict[Member, dict[Member, int]]]:
    left = {planner: amount for planner, amount in planners.items() if planner not in out}
    return left, {
        planner: {victim: load for victim, load in loads[planner].items() if victim not in out}
        for planner in left
    }


class _Cover(Generic[Member]):
    """Planners and victims of which none is both. Planners with the same victims count as one taker
    of quota, and victims of the same planners as one giver: a plan may have hundreds of victims,
    and a victim hundreds of planners."""

    __slots__ = ("_giver", "_gives", "_held", "_loads", "_planners", "_taker", "_wants", "_ways")

    def __init__(
        self, planners: Mapping[Member, int], loads: Mapping[Member, Mapping[Member, int]]
    ) -> None:
        self._planners = planners
        self._taker = {planner: frozenset(loads[planner].items()) for planner in planners}
        self._loads = {taker: dict(taker) for taker in self._taker.values()}
        self._wants: dict[_Taker[Member], int] = {}
        for planner, amount in planners.items():
            taker = self._taker[planner]
            self._wants[taker] = self._wants.get(taker, 0) + amount
        self._held: dict[Member, int] = {}
        takers: dict[Member, list[_Taker[Member]]] = {}
        for taker, victims in self._loads.items():
            for victim, amount in victims.items():
                self._held[victim] = max(self._held.get(victim, 0), amount)
                takers.setdefault(victim, []).append(taker)
        self._giver = {victim: frozenset(its_takers) for victim, its_takers in takers.items()}
        self._gives = dict.fromkeys(self._giver.values(), 0)
        self._ways = {
            taker: dict.fromkeys([self._giver[victim] for victim in victims], 0)
            for taker, victims in self._loads.items()
        }
        for victim in self._giver:
            self._give(victim, 1)

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
    left: dict[_Node, int] = {("giver", giver): amount for giver, amount in givers.items()}
    spare: dict[_Node, dict[_Node, int]] = {giver: {} for giver in left}
    for taker in takers:
        row = ways.get(taker, {})
        spare["taker", taker] = {("giver", giver): most for giver, most in row.items()}
    exhausted: set[_Node] = set()
    total = 0
    for taker, most in takers.items():
        wanted = most
        while wanted > 0 and (path := _path(("taker", taker), left, spare, exhausted)):
            steps = list(pairwise(path))
            amount = min(wanted, left[path[-1]], *(spare[here][there] for here, there in steps))
            for here, there in steps:
                spare[here][there] -= amount
                spare[there][here] = spare[there].get(here, 0) + amount
            left[path[-1]] -= amount
            wanted -= amount
            total += amount
    return total


def _path(
    taker: _Node,
    left: Mapping[_Node, int],
    spare: Mapping[_Node, Mapping[_Node, int]],
    exhausted: set[_Node],
) -> list[_Node]:
    """The shortest augmenting path: from the taker to a giver that has something left, over other
    takers that can get what they have from another giver; empty if there is none. Then what was
    reached is added to ``exhausted``: no later path leads through it."""
    came: dict[_Node, _Node | None] = {taker: None}
    ahead = [taker]
    for here in ahead:
        for there, amount in spare[here].items():
            if amount > 0 and there not in came and there not in exhausted:
                came[there] = here
                ahead.append(there)
                if left.get(there):
                    return _back_from(there, came)[::-1]
    exhausted.update(came)
    return []


def _back_from(node: _Node, came: Mapping[_Node, _Node | None]) -> list[_Node]:
    path, here = [node], came[node]
    while here is not None:
        path.append(here)
        here = came[here]
    return path
