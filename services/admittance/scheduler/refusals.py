"""What is said to workloads that wait: only when the reason is new, and never in a hurry.

A workload is told after it has been parked without a break for `Config.refusal_delay`, so that in
a busy queue, where whatever is parked is woken again and again, nobody is told anything that is
untrue by the time it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop

from admittance.events.facts import Refused
from admittance.events.shapes import Refusal
from admittance.scheduler.picture import BACKOFF, Member, Say
from admittance.scheduler.queue import Domain, EqClass
from admittance.scheduler.world import World


def due(world: World, now: datetime) -> list[Refused]:
    """The refusals to be said now, marked as on their way. What is left over is due at once."""
    refused: list[Refused] = []
    loud = world.loud
    latest = now - world.config.refusal_delay
    while loud.items and loud.items[0][0] <= latest:
        if len(refused) >= world.config.refusals_per_call:
            break
        since, _, who = heappop(loud.items)
        for member, refusal in _untold(who, latest):
            if len(refused) >= world.config.refusals_per_call:
                loud.put(since, who)
                break
            domain = member.queue.domain if member.queue is not None else None
            if member.inflight or domain is None or not domain.owned:
                continue
            if member.cls is not None:
                member.cls.unsaid.pop(member, None)
            refused.append(_refused(world, member, domain, refusal, now))
    return refused


def _untold(who: EqClass | Member, latest: datetime) -> Iterator[tuple[Member, Refusal]]:
    """Who has been parked since then and not been told."""
    if isinstance(who, EqClass):
        if who.parked is not None and who.since is not None and who.since <= latest:
            for member in [one for one, since in who.unsaid.items() if since <= latest]:
                yield member, who.parked
        return
    aside = who.aside
    if aside is None or aside is BACKOFF or who.said == aside.reason:
        return
    if who.since is not None and who.since <= latest:
        yield who, Refusal(reason=aside.reason, message=aside.message)


def _refused(
    world: World, member: Member, domain: Domain, refusal: Refusal, now: datetime
) -> Refused:
    member.inflight = Say.REFUSED
    member.seen = world.seen
    domain.inflight[member] = None
    return Refused(
        namespace=member.key[0],
        name=member.key[1],
        uid=member.uid,
        time=now,
        revision=member.revision,
        seen=world.seen,
        domain=domain.name,
        refusal=refusal,
    )


def earliest(world: World) -> datetime | None:
    """When a refusal may be due next; None: there is none to say."""
    items = world.loud.items
    return items[0][0] + world.config.refusal_delay if items else None
