"""Reservations that plan which workloads they will preempt, read from stored workloads so that the
next leader continues. Source: `docs/spec/lifecycle.md#2.7`, `docs/decisions/0016-…`.

A reservation may come before its victims have gone, so that its checks can judge it first. It
counts
as usage, and what it will take over from its victims counts once: see `shared_quota.Tie`. Ties are
made again when a plan, the quota of a planner or victim, or the tree changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from admittance.events.shapes import PendingPreemption, PlannedVictim
from admittance.quota.cell import Cell
from admittance.scheduling.state.shared_quota import Level, Tie, put_back, take_out
from admittance.scheduling.state.workload_info import Victim, WorkloadInfo

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Domain
    from admittance.scheduling.state.state import SchedulerState


def keep(world: SchedulerState, planner: WorkloadInfo, pending: PendingPreemption | None) -> None:
    """These have to go for the planner, which is charged for its reservation; None: nobody."""
    if pending is not None and not pending.victims:
        pending = None
    before = planner.pending
    if before == pending:
        return
    if before is not None:
        for one in before.victims:
            planners = world.planned[one.namespace, one.name]
            planners.pop(planner, None)
            if not planners:
                del world.planned[one.namespace, one.name]
    planner.pending = pending
    if pending is not None:
        for one in pending.victims:
            world.planned.setdefault((one.namespace, one.name), {})[planner] = None
    charge = planner.charge
    domain = charge.queue.domain if charge is not None else None
    if domain is not None:
        enlist(world, domain, planner)
        settle(world, domain)
        world.moved(domain)


def suppose(
    world: SchedulerState, planner: WorkloadInfo, pending: PendingPreemption | None
) -> None:
    """The same, as long as nothing else is heard: it is on its way to be written."""
    if planner.pending is not None:
        world.replanned[planner] = planner.pending
        keep(world, planner, pending)


def enlist(world: SchedulerState, domain: Domain, member: WorkloadInfo) -> None:
    """The member holds quota in the domain, with a plan or without."""
    if member.pending is not None:
        domain.planners[member] = None
        world.planning[domain] = None
    else:
        strike(world, domain, member)


def strike(world: SchedulerState, domain: Domain, member: WorkloadInfo) -> None:
    """The member plans nothing in the domain any more."""
    domain.planners.pop(member, None)
    if not domain.planners:
        world.planning.pop(domain, None)


def may_plan(domain: Domain | None) -> bool:
    """Reservations may come before their victims have gone there. Not below a lending limit: what
    a cohort sees of a queue depends there on the order in which workloads come and go, so that no
    number holds for every way in which plans may end. There victims go first, as in Kueue."""
    if domain is None:
        return False
    if domain.private is None or domain.private[0] != domain.generation:
        domain.private = domain.generation, _keeps_for_itself(domain)
    return not domain.private[1]


def _keeps_for_itself(domain: Domain) -> bool:
    """Some queue or cohort does not lend all that it has."""
    for queue in domain.queues:
        for cell in queue.node.cells.values() if queue.node is not None else ():
            here = cell
            while here.parent is not None:
                if here.guaranteed:
                    return True
                here = here.parent
    return False


def plan_of(victims: Iterable[Victim], *, issued: bool) -> PendingPreemption:
    """The plan to preempt these, as it is written."""
    return PendingPreemption(
        victims=tuple(
            [
                PlannedVictim(
                    namespace=one.member.key[0],
                    name=one.member.key[1],
                    uid=one.member.uid,
                    since=one.member.reserved_at,
                    reason=one.reason,
                )
                for one in victims
            ]
        ),
        issued=issued,
    )


def outstanding(world: SchedulerState, planner: WorkloadInfo) -> Iterator[WorkloadInfo]:
    """Those of the plan that still hold the quota which they are to give up."""
    for one in planner.pending.victims if planner.pending is not None else ():
        member = world.members.get((one.namespace, one.name))
        if member is None or member.charge is None or member is planner:
            continue
        if member.uid == one.uid and one.since in (None, member.reserved_at):
            yield member


# What counts once. --------------------------------------------------------------------------


def settle(world: SchedulerState, domain: Domain, absent: WorkloadInfo | None = None) -> None:
    """Makes the ties of the domain anew, from what its members hold now. ``absent``: who is taken
    out of the picture."""
    dissolve(domain)
    domain.bent = False
    for planner in sorted(domain.planners, key=_oldest_first):
        if planner.charge is not None:
            victims = [one for one in outstanding(world, planner) if one is not absent]
            for cell, _ in planner.charge.cells if victims else ():
                _tie(domain, planner, cell, victims)


def without(world: SchedulerState, domain: Domain, planner: WorkloadInfo) -> None:
    """As if the planner held nothing and had no plan; to be undone by `with_it`."""
    assert planner.charge is not None
    dissolve(domain)
    domain.planners.pop(planner, None)
    take_out(planner)
    settle(world, domain, absent=planner)


def with_it(world: SchedulerState, domain: Domain, planner: WorkloadInfo) -> None:
    """Undoes `without`."""
    dissolve(domain)
    put_back(planner)
    enlist(world, domain, planner)
    settle(world, domain)


def dissolve(domain: Domain) -> None:
    """Everybody counts in full."""
    for tie in domain.ties:
        tie.loosen(tie.planner)
        for one in (tie.planner, *tie.victims):
            one.ties = [one.overlap] if one.overlap is not None else None
    domain.ties.clear()


def dissolve_all(world: SchedulerState) -> None:
    """Before the tree itself changes; `settle_all` when it has."""
    for domain in world.planning:
        dissolve(domain)


def settle_all(world: SchedulerState) -> None:
    """Undoes `dissolve_all`, on the tree as it is now."""
    for domain in list(world.planning):
        settle(world, domain)


def _oldest_first(planner: WorkloadInfo) -> tuple[float, str]:
    since = planner.reserved_at
    return (since.timestamp() if since is not None else float("inf")), planner.uid


def _tie(domain: Domain, planner: WorkloadInfo, cell: Cell, victims: list[WorkloadInfo]) -> None:
    """What the planner has of one flavor and resource, and what its victims have of it. Tried out:
    how much less would be used without the one side, and without the other."""
    way: list[Cell] = []
    here: Cell | None = cell
    while here is not None:
        way.append(here)
        here = here.parent
    met = {one: at for one in victims if (at := _meeting(domain, way, one)) is not None}
    if not met:
        return
    among = list(met)
    cells = way[min(met.values()) :]
    before = [tie for tie in domain.ties if tie.levels[-1].cell is way[-1]] if domain.bent else []
    # What is private takes in what others leave of it: of two planners, or of the victims of both,
    # each may seem to bring what they bring together.
    others = list(dict.fromkeys(one.planner for one in before if one.planner not in met))
    mine = _falls(cells, [*(one for one in others if one is not planner), planner])[-1]
    if not any(mine):
        return
    others = list(dict.fromkeys(one for tie in before for one in tie.victims if one not in met))
    falls = _falls(cells, [*(one for one in others if one is not planner), *among])[-len(among) :]
    levels = [
        Level(one, mine[at], {who: fell[at] for who, fell in zip(among, falls, strict=True)})
        for at, one in enumerate(cells)
    ]
    tie = Tie(planner, among, levels)
    domain.ties.append(tie)
    for member in (planner, *among):
        member.ties = [*(member.ties or ()), tie]


def _meeting(domain: Domain, way: list[Cell], victim: WorkloadInfo) -> int | None:
    """Where on the way the victim's own way joins it; None: it holds nothing of the kind."""
    assert victim.charge is not None
    there = next((cell for cell, _ in victim.charge.cells if cell.fr == way[0].fr), None)
    private = False
    while there is not None and there not in way:
        private = private or bool(there.guaranteed)
        there = there.parent
    if there is None:
        return None
    at = way.index(there)
    domain.bent = domain.bent or private or any(cell.guaranteed for cell in way[:-1])
    return at


def _falls(cells: list[Cell], members: list[WorkloadInfo]) -> list[list[int]]:
    """By how much less is used at the cells without each of the members, the ones before it gone.
    All are put back."""
    found: list[list[int]] = []
    for one in members:
        used = [cell.usage for cell in cells]
        take_out(one)
        found.append([was - cell.usage for was, cell in zip(used, cells, strict=True)])
    for one in reversed(members):
        put_back(one)
    return found
