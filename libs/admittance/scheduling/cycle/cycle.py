"""One scheduling cycle of one domain: heads, nominate, order, process, requeue.

Source: `docs/spec/scheduling.md#4`. Domains are independent of each other within a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from admittance.events.shapes import Refusal
from admittance.quota.catalog import Catalog
from admittance.scheduling import families
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
    CycleEntry,
    EntryOutcome,
    Preempt,
    Turn,
    park_behind_gate,
)
from admittance.scheduling.cycle.reasons import refusal_of
from admittance.scheduling.cycle.refusals import stand
from admittance.scheduling.fairsharing.fair_sharing_iterator import in_turn
from admittance.scheduling.preemption.loop_guard import REASON as LOOP
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.state.assignment import NO_FIT, Assignment, Cursor, admission_of
from admittance.scheduling.state.equivalence import ScanRecord
from admittance.scheduling.state.in_flight import WAITS_FOR_PODS_READY
from admittance.scheduling.state.queue import enqueue, park_class, park_workload, wake_class
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import (
    Domain,
    Inadmissible,
    Nomination,
    Queue,
    SavedCursor,
    WorkloadInfo,
)

DEFERS: Final = "AfterCheckPassedOrOnDemand"
"""The preemptionPolicy of a check that wants nobody preempted before it has passed."""


class Cycle:
    """What a cycle needs to know, and its number."""

    def __init__(self, state: SchedulerState) -> None:
        config = state.config
        self.catalog = state.catalog
        self.number = 0
        self._state = state
        self._loops = LoopGuard(state)
        self._joint_of = state.handover_of
        self._nominator = Nominator(state.queues, config, self._loops)
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
        domain.is_settled = False
        if domain.flush:
            flush(domain, self.catalog, now)
        domain.scan_cursors.clear()
        domain.unlogged_heads.clear()
        # 1. One head of each queue, whatever it holds.
        heads = [
            (queue, workload)
            for queue in domain.ready
            if (workload := queue.head()) is not None and not workload.in_flight
        ]
        if any(workload.family is not None for _, workload in heads):
            heads = [
                (queue, first)
                for queue, workload in heads
                if (first := self._first_that_may(domain, queue, workload, now)) is not None
            ]
        if not heads:
            domain.is_settled = True
            return False
        # 2. What each would get, as if it were alone.
        moved = False
        before = [(queue.preemptor, workload.cursor) for queue, workload in heads]
        entries: list[CycleEntry] = []
        for queue, workload in heads:
            hindrance = self._hindrance(queue, workload)
            if hindrance is not None:
                park_workload(queue, workload, hindrance, now)
                if hindrance.reason == LOOP:
                    self._loops.wait(workload)
                moved = True
                continue
            cursor = self._cursor(domain, queue, workload, self.number)
            if cursor is not None:
                domain.scan_cursors[workload] = cursor
            found = still_waits(queue, workload) if workload.saved_search is not None else None
            entry = CycleEntry(
                queue, workload, found or nominated(self._nominator, queue, workload, cursor)
            )
            if entry.assignment.mode == NO_FIT and not (self._shares_count and in_bracket(queue)):
                moved |= self._rest(domain, entry, now)
            else:
                entries.append(entry)
        # 3. Who borrows least, then who matters most, then who waited longest; or by shares.
        ordered: Iterable[CycleEntry] = entries
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
                families.may_reserve,
                as_kueue=self._as_kueue,
                by_shares=self._shares_count,
            )
            try:
                for entry in ordered:
                    outcome = turn.take(entry)
                    if self._leaves_a_mark(outcome):
                        domain.unlogged_heads.append(entry.workload)
                    moved |= self.settle(domain, entry, outcome, now)
            finally:
                turn.end()
        # 5. The next head of each queue.
        for queue, _ in heads:
            domain.update_queue(queue)
        # A cursor that stays goes round, so that the next cycle would begin elsewhere.
        domain.is_settled = not moved and all(
            cursor is None and workload.cursor is None and queue.preemptor is preemptor
            for (preemptor, cursor), (queue, workload) in zip(before, heads, strict=True)
        )
        return moved

    def consider(
        self, queue: Queue, workload: WorkloadInfo
    ) -> tuple[Inadmissible | None, Nomination, Search]:
        """What the next cycle would make of the workload if it looked at it, and nobody before it:
        why it would not, else what it would get. Nothing is changed. ``Search``: to ask more."""
        search = self._nominator.search(queue, workload)
        hindrance = self._hindrance(queue, workload)
        if hindrance is None and workload.family is not None:
            hindrance = families.why_not_tried(self._state, queue, workload)
        domain = queue.domain
        cursor = None
        if hindrance is None and domain is not None and queue in domain.ready:
            cursor = self._cursor(domain, queue, workload, self.number + 1)
        return hindrance, self._nominator.nominate(queue, workload, cursor, search=search), search

    def search(self, queue: Queue, workload: WorkloadInfo) -> Search:
        """The searches for victims of somebody that holds quota there."""
        return self._nominator.search(queue, workload)

    def _checks_of(self, queue: Queue, assignment: Assignment) -> Checks:
        """What an assignment would have to pass before it is an admission."""
        required = self.catalog.checks_to_pass(queue.name, admission_of(queue.name, assignment))
        if not required:
            return Checks.NONE
        defers = any(one.spec.preemption_policy == DEFERS for one in required.values())
        return Checks.DEFER if defers else Checks.ANYTIME

    def settle(
        self, domain: Domain, entry: CycleEntry, outcome: EntryOutcome, now: datetime
    ) -> bool:
        """Where the entry waits from now on, if it still does. True: that is news."""
        if outcome in (EntryOutcome.ACCEPTED, EntryOutcome.PREEMPTS):
            domain.version += 1
        entry.workload.saved_search = None
        if outcome is EntryOutcome.ACCEPTED:
            return True
        if outcome is EntryOutcome.NOTHING:
            return self._rest(domain, entry, now)
        if outcome is EntryOutcome.BLOCKED:
            entry.workload.cursor = None
            return self._rest(domain, entry, now, WAITS_FOR_PODS_READY)
        entry.queue.blocked_head = None
        if outcome is EntryOutcome.SKIPPED:
            self._save_cursor(domain, entry)
            return False
        if outcome is EntryOutcome.LATER:
            return False
        if outcome is EntryOutcome.GATED:
            if entry.workload.family is not None:
                families.refuse_siblings_at_once(self._state, entry.workload.family)
            return park_behind_gate(entry, now)
        keep_place(entry)
        if not (self._as_kueue or self._shares_count):
            remember_search(entry.queue, entry.workload, entry.assignment, entry.victims)
        return outcome is EntryOutcome.PREEMPTS

    def _leaves_a_mark(self, outcome: EntryOutcome) -> bool:
        """Nothing need have been stated of it, and yet it means something to those behind it: by
        the room that is held for it, or, where shares count, by whom it kept back."""
        if outcome is EntryOutcome.NOTHING or outcome is EntryOutcome.WAITS:
            return True
        return self._shares_count and outcome in (EntryOutcome.SKIPPED, EntryOutcome.GATED)

    def _hindrance(self, queue: Queue, workload: WorkloadInfo) -> Inadmissible | None:
        """Why the head is not even considered; None: it is."""
        if workload.problem is not None:
            return workload.problem
        if queue.in_cycle:
            return Inadmissible("Suspended", f"ClusterQueue {queue.name} is in a cycle of cohorts")
        namespace = workload.key[0]
        if not self.catalog.selects_namespace(queue.name, namespace):
            return namespace_mismatch(namespace)
        if workload.preemptions:
            return self._loops.hindrance(workload)
        return None

    def _first_that_may(
        self, domain: Domain, queue: Queue, head: WorkloadInfo, now: datetime
    ) -> WorkloadInfo | None:
        """The head, or the first behind it that its family lets try. The others are set aside
        without a word, so that they keep nobody back."""
        found: WorkloadInfo | None = head
        while found is not None and not found.in_flight:
            hindrance = families.why_not_tried(self._state, queue, found)
            if hindrance is None:
                return found
            park_workload(queue, found, hindrance, now)
            families.wake_on_policy_change(self._state, queue, found)
            found = queue.head()
        domain.update_queue(queue)
        return None

    def _cursor(
        self, domain: Domain, queue: Queue, workload: WorkloadInfo, number: int
    ) -> Cursor | None:
        """Where the workload's last scan stopped, if that still counts."""
        saved = workload.cursor
        if (
            saved is not None
            and saved.owner is workload.cls
            and (
                saved.cycle >= number - 1
                or saved.generation == queue.generation + domain.generation
            )
        ):
            return saved.at
        return None

    def _save_cursor(self, domain: Domain, entry: CycleEntry) -> bool:
        """Remembers where the scan stopped. True: there are flavors left to try."""
        at = entry.assignment.cursor
        workload = entry.workload
        if at is None or workload.cls is None:
            workload.cursor = None
            return False
        generation = entry.queue.generation + domain.generation
        workload.cursor = SavedCursor(at, self.number, generation, workload.cls)
        return True

    def _rest(
        self, domain: Domain, entry: CycleEntry, now: datetime, refusal: Refusal | None = None
    ) -> bool:
        """After a scan that gave nothing, or (``refusal``) whose outcome it may not have now. True:
        the class is parked for it."""
        pending = refusal is None and self._save_cursor(domain, entry)
        cls = entry.workload.cls
        if pending or cls is None:
            return False
        scanned = ScanRecord(
            domain.seen, now, entry.workload, domain.scan_cursors.get(entry.workload)
        )
        if entry.queue.strict:
            stand(entry.queue, entry.workload, entry.assignment, scanned, refusal)
            return False
        if self._loops.park(entry.queue, entry.workload, now):
            return True
        cls.scan = scanned
        told = refusal_of(entry.assignment, entry.workload.reported_flavors)
        park_class(entry.queue, cls, refusal or told, now)
        return True


def in_bracket(queue: Queue) -> bool:
    """The queue's cohort is below another, so that under fair sharing even a head without room
    counts: as the one that its cohort sends in, it decides when the next of the cohort has its
    turn. `docs/spec/scheduling.md#8.1` point 7 holds without fair sharing, and in cohorts that are
    roots."""
    node = queue.node
    return node is not None and node.parent is not None and node.parent.parent is not None


def keep_place(entry: CycleEntry) -> None:
    """It is the head of its queue until it gets the room that others leave for it. A StrictFIFO
    queue needs no such help."""
    entry.workload.cursor = None
    entry.queue.preemptor = None if entry.queue.strict else entry.workload


def namespace_mismatch(namespace: str) -> Inadmissible:
    """The ClusterQueue does not take workloads of the namespace."""
    return Inadmissible(
        "Misconfigured", f"Workload namespace {namespace} doesn't match ClusterQueue selector"
    )


def _order(entry: CycleEntry) -> tuple[int, int, datetime, str]:
    workload = entry.workload
    stamp = workload.queued_at
    assert stamp is not None
    return entry.assignment.level, -workload.priority, stamp, workload.uid


def flush(domain: Domain, catalog: Catalog, now: datetime) -> None:
    """What was parked in the domain competes again, but for what waits for something of its own."""
    domain.flush = False
    for queue in list(domain.parked_queues):
        for cls in list(queue.parked_classes):
            wake_class(queue, cls)
        queue.parked_classes.clear()
        for workload in list(queue.parked_workloads):
            if workload.inadmissible is not None and workload.inadmissible.ignores_flush:
                continue
            if workload.is_due(now) and catalog.selects_namespace(queue.name, workload.key[0]):
                enqueue(queue, workload, now)
        domain.update_queue(queue)


def refusal_for(workload: WorkloadInfo) -> Refusal | None:
    """Why the workload is parked; None: it is not, or what it waits for is in its status."""
    if workload.inadmissible is not None:
        return Refusal(reason=workload.inadmissible.reason, message=workload.inadmissible.message)
    if workload.cls is not None and workload.cls.parked is not None:
        return workload.cls.parked
    return None
