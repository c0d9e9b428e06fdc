"""Classes of equal workloads that wait, and when they are told why.

Workloads of one shape and priority share a class, and only a class has a place in the running
order: at that of its first member. What cannot be placed parks the class, whatever its size.
Source: SCHEDULING 8.1 points 5 and 6.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from admittance.events.shapes import Refusal
from admittance.scheduling.cycle.flavor_assigner import FIT, Cursor
from admittance.scheduling.fairsharing.lanes import ClassKey, Item
from admittance.scheduling.state.flavor_plan import Plan
from admittance.scheduling.state.workload_info import Entry, Member

if TYPE_CHECKING:
    from admittance.scheduling.cycle.nominate import Nomination, Nominator
    from admittance.scheduling.state.queue import Queue


class Memo(NamedTuple):
    """A nomination, and what must not have changed for it to be the same again. ``version``: of
    the domain; ``stamp``: the age of the workload where it decides whom it may preempt."""

    version: int
    plan: Plan
    cursor: Cursor | None
    stamp: datetime | None
    nomination: Nomination


def nominated(
    nominator: Nominator, queue: Queue, member: Member, cursor: Cursor | None
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


class Loud:
    """When somebody parked is to be told why, soonest first: a class (at most once), or a single
    workload, and since when it had been parked then. An item that is out of date says nothing."""

    __slots__ = ("_number", "items")

    def __init__(self) -> None:
        self.items: list[tuple[datetime, int, EqClass | Member]] = []
        self._number = 0

    def put(self, since: datetime, who: EqClass | Member) -> None:
        """Somebody is parked, and its status does not say why."""
        self._number += 1
        if isinstance(who, EqClass):
            who.listed = True
        heappush(self.items, (since, self._number, who))

    def pop(self) -> EqClass | Member:
        """Whose turn it is."""
        who = heappop(self.items)[2]
        if isinstance(who, EqClass):
            who.listed = False
        return who


class Scanned(NamedTuple):
    """When a head was looked at, what the picture had seen then, and where its scan began."""

    seen: int
    at: datetime
    head: Member
    cursor: Cursor | None


class EqClass:
    """The waiting workloads of one queue that are equal but for their age.

    ``members`` are sorted, from ``start`` on. ``parked``: why none of them can be placed; None:
    they compete. ``said``: all members but those that are just being told, by the reason that their
    status gives for waiting, and since when each has been here with it. ``listed``: it has an item
    in `Loud`. ``scanned``: how it came to be parked. ``memo``: what its first member would have got
    when it was last looked at.
    """

    __slots__ = (
        "item",
        "key",
        "listed",
        "members",
        "memo",
        "parked",
        "said",
        "scanned",
        "since",
        "start",
    )

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.members: list[Entry] = []
        self.start = 0
        self.item: Item | None = None
        self.parked: Refusal | None = None
        self.since: datetime | None = None
        self.scanned: Scanned | None = None
        self.said: dict[str, dict[Member, datetime]] = {}
        self.listed = False
        self.memo: Memo | None = None

    @property
    def is_of_variants(self) -> bool:
        """They are variants of families."""
        return isinstance(self.key[1], tuple)

    @property
    def live(self) -> int:
        """How many there are."""
        return len(self.members) - self.start

    def first(self) -> Entry | None:
        """The oldest member's entry; None: the class is empty."""
        return self.members[self.start] if self.start < len(self.members) else None

    def insert(self, entry: Entry) -> None:
        """Takes a member in, at its place."""
        insort(self.members, entry, self.start)

    def delete(self, entry: Entry) -> None:
        """Takes a member out. Heads go most often, so they only move the start."""
        members = self.members
        at = bisect_left(members, entry, self.start)
        if at != self.start:
            del members[at]
            return
        self.start += 1
        if self.start > 64 and self.start * 2 > len(members):
            del members[: self.start]
            self.start = 0

    def before(self, place: tuple[datetime, str, tuple[str, str]]) -> int:
        """How many are older than that place."""
        return bisect_left(self.members, place, self.start) - self.start

    def waiting(self) -> Iterator[Member]:
        """All members, oldest first."""
        return (entry[3] for entry in self.members[self.start :])

    def file(self, member: Member, now: datetime) -> None:
        """Notes what the member's status says, so that parking need not ask everybody."""
        group = self.said.get(member.said)
        if group is None:
            group = self.said[member.said] = {}
        if member.filed is not group:
            unfile(member)
            group[member] = now
            member.filed = group

    def untold(self, latest: datetime) -> Iterator[Member]:
        """Who has been parked since latest or longer, and has a status that does not say why.
        Nobody may be filed while this is read."""
        if self.parked is None or self.since is None or self.since > latest:
            return
        for reason, group in self.said.items():
            if reason != self.parked.reason:
                # In the order in which they came.
                for member, joined in group.items():
                    if joined > latest:
                        break
                    yield member

    def loud_since(self) -> datetime | None:
        """Since when the longest parked of the untold has been; None: all know. No look at each."""
        if self.parked is None or self.since is None:
            return None
        firsts = [
            next(iter(group.values()))
            for reason, group in self.said.items()
            if group and reason != self.parked.reason
        ]
        return max(min(firsts), self.since) if firsts else None


def unfile(member: Member) -> None:
    """Nothing is noted about what the member's status says."""
    if member.filed is not None:
        del member.filed[member]
        member.filed = None
