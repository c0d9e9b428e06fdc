"""Reservations that plan whom they will preempt: read from what is written, so that whoever leads
next goes on. Source: LIFECYCLE 2.7, `docs/decisions/0016-…`.

A reservation may come before its victims have gone, where checks are to judge it first. It counts
as usage, and what it will have of its victims counts once: see `ties`. Ties are made anew whenever
what they are made of changes: a plan, what a planner or a victim holds, the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from admittance.events.shapes import PendingPreemption, PlannedVictim
from admittance.quota.cell import Cell
from admittance.scheduler.picture import Member
from admittance.scheduler.ties import Tie, meeting
from admittance.scheduler.victims import Victim, put_back, take_out

if TYPE_CHECKING:
    from admittance.scheduler.domain import Domain
    from admittance.scheduler.world import World


def keep(world: World, planner: Member, pending: PendingPreemption | None) -> None:
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


def enlist(world: World, domain: Domain, member: Member) -> None:
    """The member holds quota in the domain, with a plan or without."""
    if member.pending is not None:
        domain.planners[member] = None
        world.planning[domain] = None
    else:
        domain.planners.pop(member, None)


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


def outstanding(world: World, planner: Member) -> Iterator[Member]:
    """Those of the plan that still hold the quota which they are to give up."""
    for one in planner.pending.victims if planner.pending is not None else ():
        member = world.members.get((one.namespace, one.name))
        if member is None or member.charge is None or member is planner:
            continue
        if member.uid == one.uid and one.since in (None, member.reserved_at):
            yield member


# What counts once. --------------------------------------------------------------------------


def settle(world: World, domain: Domain) -> None:
    """Makes the ties of the domain anew, from what its members hold now."""
    dissolve(domain)
    domain.bent = False
    if not domain.planners:
        world.planning.pop(domain, None)
        return
    found = [
        (cell, planner, among)
        for planner in sorted(domain.planners, key=_oldest_first)
        if planner.charge is not None
        for cell, among in _meetings(world, domain, planner)
    ]
    # The nearest first, of all of them: what somebody holds of a queue counts once from there on,
    # and only what is left over arrives above.
    for cell, planner, among in sorted(found, key=_nearest_first):
        _tie(domain, planner, cell, among)


def dissolve(domain: Domain) -> None:
    """Everybody counts in full."""
    for tie in domain.ties:
        tie.loosen(tie.planner)
        tie.planner.ties = None
        for victim in tie.loads:
            victim.ties = None
    domain.ties.clear()


def dissolve_all(world: World) -> None:
    """Before the tree itself changes; `settle_all` when it has."""
    for domain in world.planning:
        dissolve(domain)


def settle_all(world: World) -> None:
    """Undoes `dissolve_all`, on the tree as it is now."""
    for domain in list(world.planning):
        settle(world, domain)


def _nearest_first(one: tuple[Cell, Member, list[Member]]) -> tuple[bool, int]:
    return one[0].node.is_cohort, one[0].node.height


def _oldest_first(planner: Member) -> tuple[float, str]:
    since = planner.reserved_at
    return (since.timestamp() if since is not None else float("inf")), planner.uid


def _meetings(world: World, domain: Domain, planner: Member) -> list[tuple[Cell, list[Member]]]:
    """Where its way meets those of its victims, for each flavor and resource that both hold."""
    assert planner.charge is not None
    found: dict[Cell, list[Member]] = {}
    for victim in outstanding(world, planner):
        assert victim.charge is not None
        theirs = {cell.fr: cell for cell, _ in victim.charge.cells}
        for cell, _ in planner.charge.cells:
            other = theirs.get(cell.fr)
            met, bent = meeting(cell, other) if other is not None else (None, False)
            if met is not None:
                found.setdefault(met, []).append(victim)
                domain.bent = domain.bent or bent
    return list(found.items())


def _tie(domain: Domain, planner: Member, cell: Cell, among: list[Member]) -> None:
    """Tried out: by how much less is used there without the one side, and without the other."""
    used = cell.usage
    take_out(planner)
    mine = used - cell.usage
    put_back(planner)
    if mine <= 0:
        return
    loads: dict[Member, int] = {}
    for victim in among:
        before = cell.usage
        take_out(victim)
        loads[victim] = before - cell.usage
    for victim in reversed(among):
        put_back(victim)
    tie = Tie(cell, planner, mine, loads)
    domain.ties.append(tie)
    for member in (planner, *among):
        member.ties = [*(member.ties or ()), tie]
