"""Which flavors a workload would get: the scan of `docs/spec/scheduling.md#5`.

If a flavor has room only after preemption, an oracle, a function, says how well preemption would
serve the request. Without an oracle no workload is a candidate for preemption, as if every policy
were Never."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from admittance.events import reasons
from admittance.quota.cell import Cell, available, borrow_level, potential
from admittance.quota.labels import matches_node, untolerated
from admittance.scheduling.state.assignment import (
    NO_FIT,
    Assignment,
    Choice,
    Cursor,
    Obstacle,
    PodSetPlace,
)
from admittance.scheduling.state.flavor_plan import FlavorPlan, Group, Option
from admittance.scheduling.state.held.shared_quota import FamilyQuota
from admittance.scheduling.state.requests import PodSetRequests, RequestShape

# Plain ints compare faster than members of the enumeration, and the scan of flavors is the
# innermost loop.
_NO_FIT: Final = 0
_NO_CANDIDATES: Final = 1
_RECLAIM: Final = 3
_FIT: Final = 4


Oracle = Callable[[Cell, int], tuple[int, int]]
"""A function that returns how well preemption would serve an amount of one flavor and resource,
without regard to other resources: the mode, and the borrowing level after the preemption."""

Only = Sequence[Mapping[str, str]]
"""For each pod set a map from a resource to the only flavor that a scan may try."""


_START: Mapping[int, int] = {}

TRIES_MAX: Final = 64
"""How often a scan is repeated because flavors have different checks of one controller, or
different values of a node label: as often as a resource group may have flavors."""


def assign(
    plan: FlavorPlan,
    shape: RequestShape,
    cursor: Cursor | None = None,
    *,
    oracle: Oracle | None = None,
    only: Only | None = None,
    ignore_undeclared: bool = False,
    overlap: FamilyQuota[Any] | None = None,
) -> Assignment:
    """Returns the flavors that the shape would get now, starting behind the cursor.

    ``only``: the flavors that the scan may look at. ``overlap``: quota that the family holds, which
    is not requested again.

    Flavors with different checks of one controller are not used together, and flavors with
    different values of a node label not for one pod set. If the first choice of a flavor excludes
    all flavors for the other resources, the scan is repeated and avoids that first choice, or its
    check."""
    first = _attempt(plan, shape, cursor, oracle, only, ignore_undeclared, frozenset(), overlap)
    if first.mode != _NO_FIT or not first.clashes:
        return first
    tried: set[frozenset[Choice]] = set()
    ahead = [frozenset((name,)) for name in first.clashes]
    while ahead and len(tried) < TRIES_MAX:
        avoided = ahead.pop(0)
        if avoided in tried:
            continue
        tried.add(avoided)
        again = _attempt(plan, shape, cursor, oracle, only, ignore_undeclared, avoided, overlap)
        if again.mode != _NO_FIT:
            return again
        ahead += [avoided | {name} for name in again.clashes]
    return first


def _attempt(
    plan: FlavorPlan,
    shape: RequestShape,
    cursor: Cursor | None,
    oracle: Oracle | None,
    only: Only | None,
    ignore_undeclared: bool,
    avoided: frozenset[Choice],
    overlap: FamilyQuota[Any] | None,
) -> Assignment:
    """Scans the flavors once, without the ``avoided`` choices."""
    result = Assignment(avoided, overlap)
    taken = result.usage
    stops: list[dict[int, int]] = []
    pending = False
    for index, ps in enumerate(shape.pod_sets):
        amounts = _amounts(plan, shape, index)
        flavors: dict[str, str] = {}
        result.chosen = flavors
        charges: list[tuple[Cell, int]] = []
        place: list[tuple[str, int]] = []
        stopped: dict[int, int] = {}
        start = cursor[index] if cursor is not None and index < len(cursor) else _START
        mode, flavors_fit = _FIT, True
        for resource, amount in amounts:
            group = plan.groups.get(resource)
            if group is None:
                if amount == 0 or ignore_undeclared:
                    continue
                result.failed_from = len(result.obstacles)
                result.obstacles.append(
                    Obstacle(
                        ps.name,
                        "",
                        resource,
                        reasons.NO_MATCHING_FLAVOR,
                        f"resource {resource} unavailable in ClusterQueue",
                        requested=amount,
                    )
                )
                mode = _NO_FIT
                break
            if resource not in flavors:
                result.failed_from = len(result.obstacles)
                of_group = [row for row in amounts if row[0] in group.resources]
                flavor = only[index].get(resource) if only is not None else None
                scanned = _scan(
                    plan,
                    group,
                    shape,
                    ps,
                    of_group,
                    result,
                    start.get(group.at, -1) + 1,
                    oracle,
                    flavor,
                )
                if scanned is None:
                    mode = _NO_FIT
                    break
                option, got, level, rooms, stop = scanned
                for one, much in of_group:
                    flavors[one] = option.flavor
                    charges.append((option.cells[one], much))
                    place.append((one, much))
                stopped[group.at] = stop
                if option.checks:
                    result.checks.update(option.checks)
                if got != _FIT or plan.preemption_first:
                    # During the scan the mode of the worst resource decides about the flavor, and a
                    # resource that fits by borrowing can be worse than one that preempts. After the
                    # scan, in the assignment, each resource has its own mode.
                    flavors_fit = flavors_fit and got == _FIT
                    for (one, _), room in zip(of_group, rooms, strict=True):
                        level = max(level, room[1])
                        if room[0] != _FIT:
                            mode = min(mode, room[0])
                            result.contested[option.cells[one].fr] = None
                result.level = max(result.level, level)
        if mode == _NO_FIT:
            result.mode = _NO_FIT
            break
        if flavors_fit and plan.flavors_fit_whole:
            mode = _FIT
        for cell, much in charges:
            taken[cell] = taken.get(cell, 0) + much
        result.places.append(PodSetPlace(ps.name, ps.count, flavors, place))
        result.mode = min(result.mode, mode)
        stops.append(stopped)
        pending = pending or any(stop != -1 for stop in stopped.values())
    if pending:
        result.cursor = tuple(stops)
    if overlap is not None:
        result.usage = overlap.missing_for(taken)
    return result


class FlavorOffer(NamedTuple):
    """What one flavor offers to one pod set, without regard to other pod sets.

    ``rooms``: mode and borrowing level for each requested amount; empty if the flavor is not
    eligible. ``before``: the amounts that earlier pod sets of the workload take."""

    pod_set: str
    option: Option
    amounts: list[tuple[str, int]]
    mode: int
    level: int
    obstacles: list[Obstacle]
    rooms: list[tuple[int, int]]
    before: Mapping[Cell, int]


def _amounts(plan: FlavorPlan, shape: RequestShape, index: int) -> Sequence[tuple[str, int]]:
    """What a pod set needs of each resource. If the queue has quota of pods, pods are counted, and
    a request of the resource ``pods`` does not matter."""
    totals = shape.totals[index]
    if not plan.covers_pods:
        return totals
    requested = (row for row in totals if row[0] != "pods")
    return [*requested, ("pods", shape.pod_sets[index].count)]


def examine(
    plan: FlavorPlan,
    shape: RequestShape,
    oracle: Oracle | None = None,
    before: Sequence[Mapping[Cell, int]] = (),
    overlap: FamilyQuota[Any] | None = None,
) -> list[FlavorOffer]:
    """Returns what every flavor offers to every pod set, also flavors behind the one where a scan
    would have stopped.

    ``before``: per pod set, the amounts that earlier pod sets would take. ``overlap``: quota that
    the variant's family holds, which is not requested again."""
    verdicts: list[FlavorOffer] = []
    for index, ps in enumerate(shape.pod_sets):
        totals = _amounts(plan, shape, index)
        groups = {
            group.at: group
            for resource, _ in totals
            if (group := plan.groups.get(resource)) is not None
        }
        taken = before[index] if index < len(before) else {}
        for group in groups.values():
            amounts = [row for row in totals if row[0] in group.resources]
            for option in group.options:
                alone = Assignment(overlap=overlap)
                alone.usage.update(taken)
                mode, level = NO_FIT, 0
                rooms: list[tuple[int, int]] = []
                if _is_eligible(option, shape, ps, alone):
                    rooms = [
                        _room(plan, option, resource, much, ps, alone, oracle)
                        for resource, much in amounts
                    ]
                    mode = min((got for got, _ in rooms), default=_FIT)
                    level = max((far for _, far in rooms), default=0)
                verdicts.append(
                    FlavorOffer(
                        ps.name, option, amounts, mode, level, alone.obstacles, rooms, taken
                    )
                )
    return verdicts


def _scan(
    plan: FlavorPlan,
    group: Group,
    shape: RequestShape,
    ps: PodSetRequests,
    amounts: list[tuple[str, int]],
    result: Assignment,
    first: int,
    oracle: Oracle | None,
    only: str | None,
) -> tuple[Option, int, int, list[tuple[int, int]], int] | None:
    """Returns the flavor of the group for the requested amounts: the option, its mode and borrowing
    level, mode and level for each amount, and the index where the scan stopped. Returns None if no
    flavor serves the amounts; ``result.obstacles`` then says why."""
    best: tuple[Option, int, int, list[tuple[int, int]]] | None = None
    best_mode, best_level = _NO_FIT, 0
    options = group.options
    last = len(options) - 1
    index = last
    for index in range(first, len(options)):
        option = options[index]
        if only is not None and option.flavor != only:
            continue
        if not _is_eligible(option, shape, ps, result):
            continue
        mode, level = _FIT, 0
        rooms: list[tuple[int, int]] = []
        for resource, amount in amounts:
            room = got, far = _room(plan, option, resource, amount, ps, result, oracle)
            rooms.append(room)
            if mode == _FIT and got == _FIT:
                level = max(level, far)
            elif _better(plan, mode, level, got, far):
                mode, level = got, far
            if mode == _NO_FIT:
                break
        if not _goes_on(plan, mode, level):
            best = option, mode, level, rooms
            break
        if _better(plan, mode, level, best_mode, best_level):
            best = option, mode, level, rooms
            best_mode, best_level = mode, level
    if best is None:
        return None
    return (*best, -1 if index >= last else index)


def _is_eligible(
    option: Option, shape: RequestShape, ps: PodSetRequests, result: Assignment
) -> bool:
    kind, reason = reasons.NO_MATCHING_FLAVOR, ""
    if not option.exists:
        reason = f"flavor {option.flavor} not found"
    elif shape.allowed is not None and option.flavor not in shape.allowed:
        reason = f"flavor {option.flavor} is not among the allowed ones"
    elif (
        option.taints
        and (taint := untolerated(option.taints, ps.tolerations, option.tolerations)) is not None
    ):
        reason = f"untolerated taint {taint.key} in flavor {option.flavor}"
    elif (
        option.labels
        and (ps.node_selector or ps.terms)
        and not matches_node(option.labels, dict(ps.node_selector), ps.terms)
    ):
        reason = f"flavor {option.flavor} doesn't match node affinity"
    elif result.avoided and _is_avoided(option, ps, result.avoided):
        return False
    elif option.rivals and (rival := _rival(option, result)) is not None:
        result.clashes.append((ps.name, rival))
        key = option.rivals[rival]
        reason = (
            f"flavor {option.flavor} has another value of node label {key} than flavor {rival} "
            "of the same pods"
        )
    elif option.checks and (pair := _conflict(option, result)) is not None:
        kind = reasons.CONFLICTING_ADMISSION_CHECKS
        name, other = pair
        result.clashes.append(other)
        reason = f"flavor {option.flavor} has check {name} of the same controller as check {other}"
    if not reason:
        return True
    result.obstacles.append(Obstacle(ps.name, option.flavor, "", kind, reason))
    return False


def _is_avoided(option: Option, ps: PodSetRequests, avoided: frozenset[Choice]) -> bool:
    return (ps.name, option.flavor) in avoided or any(name in avoided for _, name in option.checks)


def _rival(option: Option, result: Assignment) -> str | None:
    """Returns the flavor chosen earlier for the pod set that has another value of a node label;
    None: there is none."""
    return next((chosen for chosen in result.chosen.values() if chosen in option.rivals), None)


def _conflict(option: Option, result: Assignment) -> tuple[str, str] | None:
    """Returns two different checks of one controller: a check of the flavor ``option``, and a check
    of a flavor chosen earlier; None: there is no such pair."""
    for controller, name in option.checks:
        other = result.checks.get(controller, name)
        if other != name:
            return name, other
    return None


def _room(
    plan: FlavorPlan,
    option: Option,
    resource: str,
    amount: int,
    ps: PodSetRequests,
    result: Assignment,
    oracle: Oracle | None = None,
) -> tuple[int, int]:
    """Returns mode and borrowing level of one resource in one flavor;
    `docs/spec/scheduling.md#5.3`."""
    cell = option.cells[resource]
    before = result.usage.get(cell, 0)
    wanted = lacking = before + amount
    free = available(cell)
    if result.family_quota is not None:
        lacking = max(0, wanted - result.family_quota.reliable(cell))
    if lacking <= (free if free > 0 else 0):
        within = cell.usage + lacking <= cell.subtree
        return _FIT, 0 if within else borrow_level(cell, lacking)[0]
    most = potential(cell)
    if wanted > most:
        result.obstacles.append(
            Obstacle(
                ps.name,
                option.flavor,
                resource,
                reasons.EXCEEDS_MAX_QUOTA,
                "",
                amount,
                most,
                before,
            )
        )
        return _NO_FIT, 0
    result.obstacles.append(
        Obstacle(
            ps.name,
            option.flavor,
            resource,
            reasons.WAITING_FOR_QUOTA,
            "",
            amount,
            # For a variant, the mode is computed as if its family had given back the quota that it
            # holds.
            max(0, free) + wanted - lacking,
            before,
        )
    )
    level, reclaimable = borrow_level(cell, lacking)
    if cell.nominal >= wanted or reclaimable or plan.borrow_preempts:
        return (_NO_CANDIDATES, level) if oracle is None else oracle(cell, lacking)
    return _NO_FIT, level


def _better(plan: FlavorPlan, mode: int, level: int, other: int, other_level: int) -> bool:
    """Returns whether (mode, level) is better than (other, other_level);
    `docs/spec/scheduling.md#5.4`."""
    if mode == _NO_FIT:
        return False
    if other == _NO_FIT:
        return True
    if (mode == _NO_CANDIDATES) != (other == _NO_CANDIDATES):
        return other == _NO_CANDIDATES
    if plan.preemption_first:
        return level < other_level if level != other_level else mode > other
    return mode > other if mode != other else level < other_level


def _goes_on(plan: FlavorPlan, mode: int, level: int) -> bool:
    """Returns whether the scan continues with the next flavor after a flavor with this mode and
    borrowing level."""
    if mode <= _NO_CANDIDATES:
        return True
    if mode <= _RECLAIM and plan.preempt_next:
        return True
    return level > 0 and plan.borrow_next
