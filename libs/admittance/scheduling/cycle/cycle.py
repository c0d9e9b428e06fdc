"""One scheduling cycle of one domain: heads, nominate, order, process, requeue.

Source: `docs/spec/scheduling.md#4`. Domains are independent of each other within a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from admittance.events.shapes import Refusal
from admittance.quota.catalog import Catalog
from admittance.scheduling.cycle.nominate import (
    Nominator,
    Search,
    nominated,
    remember_search,
    still_waits,
)
from admittance.scheduling.cycle.process import (
    Accept,
    Checks,
    Entry,
    Outcome,
    Preempt,
    Turn,
    park_behind_gate,
)
from admittance.scheduling.cycle.reasons import refusal_of
from admittance.scheduling.cycle.refusals import stand
from admittance.scheduling.fairsharing.fair_sharing_iterator import in_turn
from admittance.scheduling.families import migration, siblings
from admittance.scheduling.preemption.loop_guard import REASON as LOOP
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.state.assignment import NO_FIT, Assignment, Cursor, admission_of
from admittance.scheduling.state.equivalence import Scanned
from admittance.scheduling.state.in_flight import WAITS_FOR_PODS_READY
from admittance.scheduling.state.queue import Domain, Queue
from admittance.scheduling.state.state import SchedulerState
from admittance.scheduling.state.workload_info import (
    Inadmissible,
    Nomination,
    SavedCursor,
    WorkloadInfo,
)

DEFERS: Final = "AfterCheckPassedOrOnDemand"
"""The preemptionPolicy of a check that wants nobody preempted before it has passed."""


class Cycle:
    """What a cycle needs to know, and its number."""

    def __init__(self, world: SchedulerState) -> None:
        config = world.config
        self.catalog = world.catalog
        self.number = 0
        self._world = world
        self._loops = LoopGuard(world)
        self._joint_of = world.joint_of
        self._nominator = Nominator(world.queues, config, self._loops)
        self._shares_count = config.fair_sharing is not None
        self._as_kueue = config.as_kueue

    def run(
        self,
        domain: Domain,
        accept: Accept,
        preempt: Preempt,
        is_blocked: Callable[[], bool],
        *,
        now: datetime,
    ) -> bool:
        """One cycle. True: something came of it."""
        domain.still = False
        if domain.flush:
            flush(domain, self.catalog, now)
        domain.began.clear()
        domain.beside.clear()
        # 1. One head of each queue, whatever it holds.
        heads = [
            (queue, member)
            for queue in domain.ready
            if (member := queue.head()) is not None and not member.inflight
        ]
        if any(member.family is not None for _, member in heads):
            heads = [
                (queue, first)
                for queue, member in heads
                if (first := self._first_that_may(domain, queue, member, now)) is not None
            ]
        if not heads:
            domain.still = True
            return False
        # 2. What each would get, as if it were alone.
        moved = False
        before = [(queue.preemptor, member.cursor) for queue, member in heads]
        entries: list[Entry] = []
        for queue, member in heads:
            hindrance = self._hindrance(queue, member)
            if hindrance is not None:
                queue.set_aside(member, hindrance, now)
                if hindrance.reason == LOOP:
                    self._loops.wait(member)
                moved = True
                continue
            cursor = self._cursor(domain, queue, member, self.number)
            if cursor is not None:
                domain.began[member] = cursor
            found = still_waits(queue, member) if member.patience is not None else None
            entry = Entry(queue, member, found or nominated(self._nominator, queue, member, cursor))
            if entry.assignment.mode == NO_FIT and not (self._shares_count and in_bracket(queue)):
                moved |= self._rest(domain, entry, now)
            else:
                entries.append(entry)
        # 3. Who borrows least, then who matters most, then who waited longest; or by shares.
        ordered: Iterable[Entry] = entries
        if len(entries) > 1:
            if self._shares_count:
                ordered = in_turn(entries)
            else:
                entries.sort(key=_order)
        # 4. One after the other, each seeing what the ones before it took.
        if entries:
            turn = Turn(
                self._nominator,
                accept,
                preempt,
                is_blocked,
                self._checks_of,
                self._joint_of,
                migration.may_begin,
                as_kueue=self._as_kueue,
                by_shares=self._shares_count,
            )
            try:
                for entry in ordered:
                    outcome = turn.take(entry)
                    if self._leaves_a_mark(outcome):
                        domain.beside.append(entry.member)
                    moved |= self.settle(domain, entry, outcome, now)
            finally:
                turn.end()
        # 5. The next head of each queue.
        for queue, _ in heads:
            domain.note(queue)
        # A cursor that stays goes round, so that the next cycle would begin elsewhere.
        domain.still = not moved and all(
            cursor is None and member.cursor is None and queue.preemptor is preemptor
            for (preemptor, cursor), (queue, member) in zip(before, heads, strict=True)
        )
        return moved

    def consider(
        self, queue: Queue, member: WorkloadInfo
    ) -> tuple[Inadmissible | None, Nomination, Search]:
        """What the next cycle would make of the member if it looked at it, and nobody before it:
        why it would not, else what it would get. Nothing is changed. ``Search``: to ask more."""
        search = self._nominator.search(queue, member)
        hindrance = self._hindrance(queue, member)
        if hindrance is None and member.family is not None:
            hindrance = siblings.hindrance(self._world, queue, member)
        domain = queue.domain
        cursor = None
        if hindrance is None and domain is not None and queue in domain.ready:
            cursor = self._cursor(domain, queue, member, self.number + 1)
        return hindrance, self._nominator.nominate(queue, member, cursor, search=search), search

    def search(self, queue: Queue, member: WorkloadInfo) -> Search:
        """The searches for victims of somebody that holds quota there."""
        return self._nominator.search(queue, member)

    def _checks_of(self, queue: Queue, assignment: Assignment) -> Checks:
        """What an assignment would have to pass before it is an admission."""
        required = self.catalog.checks_to_pass(queue.name, admission_of(queue.name, assignment))
        if not required:
            return Checks.NONE
        defers = any(one.spec.preemption_policy == DEFERS for one in required.values())
        return Checks.DEFER if defers else Checks.ANYTIME

    def settle(self, domain: Domain, entry: Entry, outcome: Outcome, now: datetime) -> bool:
        """Where the entry waits from now on, if it still does. True: that is news."""
        if outcome in (Outcome.ACCEPTED, Outcome.PREEMPTS):
            domain.version += 1
        entry.member.patience = None
        if outcome is Outcome.ACCEPTED:
            return True
        if outcome is Outcome.NOTHING:
            return self._rest(domain, entry, now)
        if outcome is Outcome.BLOCKED:
            entry.member.cursor = None
            return self._rest(domain, entry, now, WAITS_FOR_PODS_READY)
        entry.queue.standing = None
        if outcome is Outcome.SKIPPED:
            self._save_cursor(domain, entry)
            return False
        if outcome is Outcome.LATER:
            return False
        if outcome is Outcome.GATED:
            if entry.member.family is not None:
                siblings.hurry(self._world, entry.member.family)
            return park_behind_gate(entry, now)
        keep_place(entry)
        if not (self._as_kueue or self._shares_count):
            remember_search(entry.queue, entry.member, entry.assignment, entry.victims)
        return outcome is Outcome.PREEMPTS

    def _leaves_a_mark(self, outcome: Outcome) -> bool:
        """Nothing need have been stated of it, and yet it means something to those behind it: by
        the room that is held for it, or, where shares count, by whom it kept back."""
        if outcome is Outcome.NOTHING or outcome is Outcome.WAITS:
            return True
        return self._shares_count and outcome in (Outcome.SKIPPED, Outcome.GATED)

    def _hindrance(self, queue: Queue, member: WorkloadInfo) -> Inadmissible | None:
        """Why the head is not even considered; None: it is."""
        if member.problem is not None:
            return member.problem
        if queue.in_cycle:
            return Inadmissible("Suspended", f"ClusterQueue {queue.name} is in a cycle of cohorts")
        namespace = member.key[0]
        if not self.catalog.selects_namespace(queue.name, namespace):
            return namespace_mismatch(namespace)
        if member.preemptions:
            return self._loops.hindrance(member)
        return None

    def _first_that_may(
        self, domain: Domain, queue: Queue, head: WorkloadInfo, now: datetime
    ) -> WorkloadInfo | None:
        """The head, or the first behind it that its family lets try. The others are set aside
        without a word, so that they keep nobody back."""
        found: WorkloadInfo | None = head
        while found is not None and not found.inflight:
            hindrance = siblings.hindrance(self._world, queue, found)
            if hindrance is None:
                return found
            queue.set_aside(found, hindrance, now)
            siblings.wait(self._world, queue, found)
            found = queue.head()
        domain.note(queue)
        return None

    def _cursor(
        self, domain: Domain, queue: Queue, member: WorkloadInfo, number: int
    ) -> Cursor | None:
        """Where the member's last scan stopped, if that still counts."""
        saved = member.cursor
        if (
            saved is not None
            and saved.owner is member.cls
            and (
                saved.cycle >= number - 1
                or saved.generation == queue.generation + domain.generation
            )
        ):
            return saved.at
        return None

    def _save_cursor(self, domain: Domain, entry: Entry) -> bool:
        """Remembers where the scan stopped. True: there are flavors left to try."""
        at = entry.assignment.cursor
        member = entry.member
        if at is None or member.cls is None:
            member.cursor = None
            return False
        generation = entry.queue.generation + domain.generation
        member.cursor = SavedCursor(at, self.number, generation, member.cls)
        return True

    def _rest(
        self, domain: Domain, entry: Entry, now: datetime, refusal: Refusal | None = None
    ) -> bool:
        """After a scan that gave nothing, or (``refusal``) whose outcome it may not have now. True:
        the class is parked for it."""
        pending = refusal is None and self._save_cursor(domain, entry)
        cls = entry.member.cls
        if pending or cls is None:
            return False
        scanned = Scanned(domain.seen, now, entry.member, domain.began.get(entry.member))
        if entry.queue.strict:
            stand(entry.queue, entry.member, entry.assignment, scanned, refusal)
            return False
        if self._loops.park(entry.queue, entry.member, now):
            return True
        cls.scanned = scanned
        told = refusal_of(entry.assignment, entry.member.told_of)
        entry.queue.park_class(cls, refusal or told, now)
        return True


def in_bracket(queue: Queue) -> bool:
    """The queue's cohort is below another, so that under fair sharing even a head without room
    counts: as the one that its cohort sends in, it decides when the next of the cohort has its
    turn. `docs/spec/scheduling.md#8.1` point 7 holds without fair sharing, and in cohorts that are
    roots."""
    node = queue.node
    return node is not None and node.parent is not None and node.parent.parent is not None


def keep_place(entry: Entry) -> None:
    """It is the head of its queue until it gets the room that others leave for it. A StrictFIFO
    queue needs no such help."""
    entry.member.cursor = None
    entry.queue.preemptor = None if entry.queue.strict else entry.member


def namespace_mismatch(namespace: str) -> Inadmissible:
    """The ClusterQueue does not take workloads of the namespace."""
    return Inadmissible(
        "Misconfigured", f"Workload namespace {namespace} doesn't match ClusterQueue selector"
    )


def _order(entry: Entry) -> tuple[int, int, datetime, str]:
    member = entry.member
    stamp = member.stamp
    assert stamp is not None
    return entry.assignment.level, -member.priority, stamp, member.uid


def flush(domain: Domain, catalog: Catalog, now: datetime) -> None:
    """What was parked in the domain competes again, but for what waits for something of its own."""
    domain.flush = False
    for queue in list(domain.resting):
        for cls in list(queue.parked):
            queue.wake(cls)
        queue.parked.clear()
        for member in list(queue.asides):
            if member.aside is not None and member.aside.stays:
                continue
            if member.is_due(now) and catalog.selects_namespace(queue.name, member.key[0]):
                queue.add(member, now)
        domain.note(queue)


def refusal_for(member: WorkloadInfo) -> Refusal | None:
    """Why the member is parked; None: it is not, or what it waits for is in its status."""
    if member.aside is not None:
        return Refusal(reason=member.aside.reason, message=member.aside.message)
    if member.cls is not None and member.cls.parked is not None:
        return member.cls.parked
    return None
