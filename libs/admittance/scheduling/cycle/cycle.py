"""One scheduling cycle of one domain, in five steps: heads, nominate, order, process, requeue.

Source: `docs/spec/scheduling.md#4`. The cycle of one domain does not depend on other domains."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from admittance.events import reasons
from admittance.events.shapes import Refusal, Scan
from admittance.quota.catalog import Catalog
from admittance.scheduling import families
from admittance.scheduling.cycle.decisions import HEADS_MAX, CycleDecisions, Decided, head
from admittance.scheduling.cycle.nominate import (
    Nominator,
    Search,
    nomination_of,
    remember_search,
    still_waits,
)
from admittance.scheduling.cycle.process import (
    CycleEntry,
    EntryProcessor,
    EntryStatus,
    park_behind_gate,
)
from admittance.scheduling.cycle.promises import KeptPromise, Promises
from admittance.scheduling.cycle.refusals import block_head, refusal_of
from admittance.scheduling.cycle.user_limits import limit_refusal, still_limited
from admittance.scheduling.fairsharing.fair_sharing_iterator import in_turn
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.state.assignment import NO_FIT, Cursor
from admittance.scheduling.state.equivalence import SavedCursor, ScanRecord
from admittance.scheduling.state.object_errors import set_aside
from admittance.scheduling.state.queue import enqueue, park_class, park_workload, wake_class
from admittance.scheduling.state.scheduler_state import WAITS_FOR_PODS_READY, SchedulerState
from admittance.scheduling.state.workload_info import Domain, Nomination, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import Inadmissible


class CycleResult(NamedTuple):
    """The decisions of a cycle, which the scheduler's state assumes already, and whether the cycle
    made progress: decided or parked something."""

    decisions: list[Decided]
    has_progress: bool


class Cycle:
    """Runs scheduling cycles and counts them in ``number``."""

    def __init__(self, state: SchedulerState) -> None:
        self.catalog = state.catalog
        self.number = 0
        self._state = state
        self._loops = LoopGuard(state)
        self._nominator = Nominator(state, self._loops)
        self.promises = Promises(state, self._nominator)
        self._fair_sharing = state.config.fair_sharing is not None
        self._as_kueue = state.config.as_kueue

    def run(self, domain: Domain, *, now: datetime) -> CycleResult:
        """Runs one cycle of the domain."""
        domain.seen = self._state.seen
        self._nominator.now = now
        domain.is_settled = False
        domain.scan_cursors.clear()
        domain.unlogged_heads.clear()
        if domain.flush:
            flush(domain, self.catalog, now)
        if self._state.backfill_queues or domain.promise is not None:
            self.promises.update(domain, now)
        # 1. Heads: one workload of each queue, unless a decision about that workload is in flight.
        heads = self._heads(domain, now)
        if not heads:
            domain.is_settled = True
            return CycleResult([], False)
        before = [(queue.preemptor, workload.cursor) for queue, workload in heads]
        # 2. Nominate: what each head would get if no other head competed. A head that fits into no
        # flavor is parked.
        entries, has_progress = self._nominate(domain, heads, now)
        # 3. Order: least borrowing first, then priority, then age; with fair sharing by shares.
        ordered: Iterable[CycleEntry] = entries
        if len(entries) > 1:
            if self._fair_sharing:
                ordered = in_turn(entries)
            else:
                entries.sort(key=_order)
        # 4. Process and requeue: each entry sees the quota and victims that earlier entries of the
        # cycle took.
        decisions = CycleDecisions(self._state, domain, now)
        if entries:
            promise = self.promises.kept(domain, now) if domain.promise is not None else None
            processor = EntryProcessor(self._state, domain, self._nominator, promise)
            processed: list[WorkloadInfo] = []
            if promise is not None:
                decisions.promise = promise.recorded()
            try:
                for entry in ordered:
                    try:
                        status = processor.process(entry)
                        self._note_spared(domain, entry)
                    except Exception as error:
                        # The other entries are tried in the next cycle: the quota that was held
                        # back for earlier entries is given back now.
                        processor.end()
                        set_aside(
                            self._state, domain, entry.queue, entry.workload, "try", error, now
                        )
                        has_progress = True
                        break
                    self._state.at_work = "decide about", entry.workload
                    status = _carry_out(decisions, entry, status)
                    processor.end_entry()
                    if self._counts_for_replay(status):
                        domain.unlogged_heads.append(entry.workload)
                    if promise is not None:
                        if status is EntryStatus.HELD_BACK:
                            scan = self._scan_of(domain, promise, processed, now)
                            has_progress |= self._hold_back(domain, entry, promise, scan, now)
                            continue
                        processed.append(entry.workload)
                    has_progress |= self.requeue(domain, entry, status, now)
                    self._state.at_work = None
            finally:
                processor.end()
        # 5. Make the first competing workload of each queue its next head.
        for queue, _ in heads:
            domain.update_queue(queue)
        # If a head has a saved cursor, the next cycle begins with another flavor, so the domain's
        # next cycle may have another result.
        domain.is_settled = not has_progress and all(
            cursor is None and workload.cursor is None and queue.preemptor is preemptor
            for (preemptor, cursor), (queue, workload) in zip(before, heads, strict=True)
        )
        return CycleResult(decisions.made, has_progress)

    def _heads(self, domain: Domain, now: datetime) -> list[tuple[Queue, WorkloadInfo]]:
        heads = [
            (queue, workload)
            for queue in domain.ready
            if (workload := queue.head()) is not None and not workload.in_flight
        ]
        if not (self._state.families or self._state.limited_queues):
            return heads
        return [
            (queue, first)
            for queue, workload in heads
            if (first := self._first_eligible(domain, queue, workload, now)) is not None
        ]

    def _first_eligible(
        self, domain: Domain, queue: Queue, head: WorkloadInfo, now: datetime
    ) -> WorkloadInfo | None:
        """Returns the first workload of the queue, from its head on, that its family allows to be
        tried and of which the person may hold more quota; None: there is none. Workloads before the
        returned one are parked, so that they do not block the queue: variants without a refusal,
        and workloads over the limit of their person with all others of their class."""
        workload: WorkloadInfo | None = head
        while workload is not None and not workload.in_flight:
            inadmissible = families.why_not_tried(self._state, queue, workload)
            if inadmissible is not None:
                park_workload(queue, workload, inadmissible, now)
                families.wake_on_policy_change(self._state, queue, workload)
            elif (refusal := self._over_limit(queue, workload)) is None:
                return workload
            else:
                cls = workload.cls
                assert cls is not None, "it is a head"
                cls.scan = ScanRecord(domain.seen, now, workload, None)
                park_class(queue, cls, refusal, now)
            workload = queue.head()
        domain.update_queue(queue)
        return None

    def _over_limit(self, queue: Queue, workload: WorkloadInfo) -> Refusal | None:
        """Returns why the workload may not be tried because of a limit on what its person may hold;
        None: it may be tried."""
        if queue.limits is None or workload.problem is not None:
            return None
        return limit_refusal(queue.limits, workload)

    def _nominate(
        self, domain: Domain, heads: Iterable[tuple[Queue, WorkloadInfo]], now: datetime
    ) -> tuple[list[CycleEntry], bool]:
        """Nominates the heads. Returns the entries to process, and whether the cycle parked
        a head."""
        has_progress = False
        entries: list[CycleEntry] = []
        for queue, workload in heads:
            try:
                entry = self._nominate_head(domain, queue, workload, now)
            except Exception as error:
                set_aside(self._state, domain, queue, workload, "nominate", error, now)
                entry = None
            if entry is not None:
                self._note_spared(domain, entry)
            if entry is None:
                has_progress = True
            elif entry.assignment.mode == NO_FIT and not (
                self._fair_sharing and is_below_a_subcohort(queue)
            ):
                has_progress |= self._park(domain, entry, now)
            else:
                entries.append(entry)
        return entries, has_progress

    def _nominate_head(
        self, domain: Domain, queue: Queue, workload: WorkloadInfo, now: datetime
    ) -> CycleEntry | None:
        """Nominates one head; returns None if the head is parked without a nomination."""
        inadmissible = self._why_not_nominated(queue, workload)
        if inadmissible is not None:
            park_workload(queue, workload, inadmissible, now)
            if inadmissible.reason == reasons.PREEMPTION_LOOP:
                self._loops.wait(workload)
            return None
        cursor = None
        if workload.cursor is not None:
            cursor = self._cursor(domain, queue, workload, self.number)
            if cursor is not None:
                domain.scan_cursors[workload] = cursor
        saved = workload.saved_search
        waiting = still_waits(queue, workload, saved) if saved is not None else None
        return CycleEntry(
            queue, workload, waiting or nomination_of(self._nominator, queue, workload, cursor)
        )

    def _note_spared(self, domain: Domain, entry: CycleEntry) -> None:
        """Lets parked workloads of the domain compete again when the first workload that was too
        young to be a victim of the entry has run long enough."""
        until = entry.assignment.spared_until
        # A saved search for victims that are stopping may be older than that.
        if until is not None and until > self._nominator.now:
            self._state.flush_at(domain, until)

    def consider(
        self, queue: Queue, workload: WorkloadInfo
    ) -> tuple[Inadmissible | None, Nomination, Search]:
        """Returns what the next cycle would do with the workload if it were the first head.

        The result is the reason why the workload would not be tried (None: it would be), the
        workload's nomination, and a `Search`, with which the caller can ask how well preemption
        would serve further amounts. Changes nothing."""
        self._nominator.now = self._state.now
        search = self._nominator.search(queue, workload)
        inadmissible = self._why_not_nominated(queue, workload)
        if inadmissible is None and workload.family is not None:
            inadmissible = families.why_not_tried(self._state, queue, workload)
        if inadmissible is None and (over := self._over_limit(queue, workload)) is not None:
            inadmissible = Inadmissible(over.reason, over.message)
        domain = queue.domain
        cursor = None
        if inadmissible is None and domain is not None and queue in domain.ready:
            cursor = self._cursor(domain, queue, workload, self.number + 1)
        return (
            inadmissible,
            self._nominator.nominate(queue, workload, cursor, search=search),
            search,
        )

    def search(self, queue: Queue, workload: WorkloadInfo, now: datetime) -> Search:
        """Returns a `Search` for victims of a workload that holds quota of the queue."""
        self._nominator.now = now
        return self._nominator.search(queue, workload)

    def requeue(
        self, domain: Domain, entry: CycleEntry, status: EntryStatus, now: datetime
    ) -> bool:
        """Requeues or parks the workload of a processed entry according to the entry's status.
        Returns whether the cycle made progress."""
        if status in (EntryStatus.ACCEPTED, EntryStatus.PLANNED, EntryStatus.PREEMPTING):
            domain.version += 1
        entry.workload.saved_search = None
        if status in (EntryStatus.ACCEPTED, EntryStatus.PLANNED):
            return True
        if status is EntryStatus.INADMISSIBLE:
            return self._park(domain, entry, now)
        if status is EntryStatus.BLOCKED:
            entry.workload.cursor = None
            return self._park(domain, entry, now, WAITS_FOR_PODS_READY)
        entry.queue.blocked_head = None
        if status is EntryStatus.SKIPPED:
            self._save_cursor(domain, entry)
            return False
        if status is EntryStatus.UNCERTAIN:
            return False
        if status is EntryStatus.GATED:
            if entry.workload.family is not None:
                families.refuse_siblings_at_once(self._state, entry.workload.family)
            return park_behind_gate(entry, now)
        # The preemptor stays the head of its queue until it gets the quota that its victims leave.
        # A StrictFIFO queue keeps its head in any case.
        entry.workload.cursor = None
        entry.queue.preemptor = None if entry.queue.strict else entry.workload
        if not (self._as_kueue or self._fair_sharing):
            remember_search(entry.queue, entry.workload, entry.assignment, entry.victims)
        return status is EntryStatus.PREEMPTING

    def _counts_for_replay(self, status: EntryStatus) -> bool:
        """Returns whether a replay needs to know of an entry without a decision, because it
        affected the entries behind it: by usage that is held back for the entry, or, with fair
        sharing, by its place in the order."""
        if status is EntryStatus.INADMISSIBLE or status is EntryStatus.WAITING:
            return True
        return self._fair_sharing and status in (EntryStatus.SKIPPED, EntryStatus.GATED)

    def _why_not_nominated(self, queue: Queue, workload: WorkloadInfo) -> Inadmissible | None:
        """Returns why the cycle parks the head without nominating it; None: the cycle nominates the
        head."""
        if workload.problem is not None:
            return workload.problem
        if queue.in_cycle:
            return Inadmissible(
                reasons.SUSPENDED, f"ClusterQueue {queue.name} is in a cycle of cohorts"
            )
        namespace = workload.key[0]
        if not self.catalog.selects_namespace(queue.name, namespace):
            return namespace_mismatch(namespace)
        if workload.preemptions:
            return self._loops.why_waiting(workload)
        return None

    def _cursor(
        self, domain: Domain, queue: Queue, workload: WorkloadInfo, number: int
    ) -> Cursor | None:
        """Returns the cursor at which the workload's last scan of flavors stopped; None: no cursor
        is saved, or the saved one is outdated."""
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
        """Saves the cursor at which the entry's scan of flavors stopped, for its next scan. Returns
        whether flavors are left to try."""
        at = entry.assignment.cursor
        workload = entry.workload
        if at is None or workload.cls is None:
            workload.cursor = None
            return False
        generation = entry.queue.generation + domain.generation
        workload.cursor = SavedCursor(at, self.number, generation, workload.cls)
        return True

    def _park(
        self, domain: Domain, entry: CycleEntry, now: datetime, refusal: Refusal | None = None
    ) -> bool:
        """Parks the equivalence class of an entry that does not fit, unless flavors are left to
        try.

        ``refusal``: the reason for which the class is parked; None: the reason follows from the
        entry's assignment. Returns whether a workload or class was parked."""
        flavors_left = refusal is None and self._save_cursor(domain, entry)
        cls = entry.workload.cls
        if flavors_left or cls is None:
            return False
        scanned = ScanRecord(
            domain.seen, now, entry.workload, domain.scan_cursors.get(entry.workload)
        )
        if entry.queue.strict:
            block_head(entry.queue, entry.workload, entry.assignment, scanned, refusal)
            return False
        if self._loops.park(entry.queue, entry.workload, now):
            return True
        cls.scan = scanned
        why = refusal_of(entry.assignment, entry.workload.reported_flavors)
        park_class(entry.queue, cls, refusal or why, now)
        return True

    def _hold_back(
        self, domain: Domain, entry: CycleEntry, promise: KeptPromise, scan: Scan, now: datetime
    ) -> bool:
        """Parks the workload of an entry that would delay the promised start, without its class,
        since equal workloads may end earlier. Returns whether the workload was parked: the head of
        a StrictFIFO queue blocks its queue instead."""
        workload, queue = entry.workload, entry.queue
        domain.holds_back = True
        workload.cursor = workload.saved_search = None
        refusal = promise.refusal(queue, workload, entry.assignment)
        if queue.strict:
            scanned = ScanRecord(domain.seen, now, workload, None, scan)
            block_head(queue, workload, entry.assignment, scanned, refusal)
            return False
        alone = Inadmissible(refusal.reason, refusal.message, scan=scan)
        park_workload(queue, workload, alone, now)
        return True

    def _scan_of(
        self, domain: Domain, promise: KeptPromise, processed: list[WorkloadInfo], now: datetime
    ) -> Scan:
        """Returns what a replay of a refusal because of the promise needs."""
        lost = len(processed) > HEADS_MAX
        return Scan(
            seen=domain.seen,
            at=now,
            heads=()
            if lost
            else tuple([head(one, domain.scan_cursors.get(one)) for one in processed]),
            lost=lost,
            promise=promise.recorded(),
        )


def _carry_out(decisions: CycleDecisions, entry: CycleEntry, status: EntryStatus) -> EntryStatus:
    """Makes the decisions that follow from the status of a processed entry. Returns the entry's
    final status: WAITING in place of PREEMPTING if the call preempted no victim."""
    if status is EntryStatus.ACCEPTED or status is EntryStatus.PLANNED:
        decisions.accept(entry, plans=status is EntryStatus.PLANNED)
    elif status is EntryStatus.WAITING:
        decisions.preempt(entry)
    elif status is EntryStatus.PREEMPTING and not decisions.preempt(entry):
        return EntryStatus.WAITING
    return status


def is_below_a_subcohort(queue: Queue) -> bool:
    """Returns whether the queue's cohort is below another cohort.

    Under fair sharing a head that does not fit still matters in a cohort below another cohort: the
    cohort sends one head, and that head decides when the next head of the cohort has its turn.
    Without fair sharing, and in cohorts that are roots, `docs/spec/scheduling.md#8.1` point 7
    holds."""
    node = queue.node
    return node is not None and node.parent is not None and node.parent.parent is not None


def namespace_mismatch(namespace: str) -> Inadmissible:
    """Returns why a workload is inadmissible if its ClusterQueue does not accept workloads of its
    namespace."""
    return Inadmissible(
        reasons.MISCONFIGURED, f"Workload namespace {namespace} doesn't match ClusterQueue selector"
    )


def _order(entry: CycleEntry) -> tuple[int, int, datetime, str]:
    workload = entry.workload
    queued_at = workload.queued_at
    assert queued_at is not None
    return entry.assignment.level, -workload.priority, queued_at, workload.uid


def flush(domain: Domain, catalog: Catalog, now: datetime) -> None:
    """Lets the parked workloads of the domain compete again, except workloads that freed quota does
    not help."""
    domain.flush = False
    for queue in list(domain.parked_queues):
        limited = still_limited(domain, queue, now) if queue.limits is not None else ()
        for cls in list(queue.parked_classes):
            if cls not in limited:
                del queue.parked_classes[cls]
                wake_class(queue, cls)
        for workload in list(queue.parked_workloads):
            if workload.inadmissible is not None and workload.inadmissible.ignores_flush:
                continue
            if workload.is_due(now) and catalog.selects_namespace(queue.name, workload.key[0]):
                enqueue(queue, workload, now)
        domain.update_queue(queue)


def refusal_for(workload: WorkloadInfo) -> Refusal | None:
    """Returns the refusal that says why the workload is parked; None: the workload is not
    parked."""
    if workload.inadmissible is not None:
        return Refusal(reason=workload.inadmissible.reason, message=workload.inadmissible.message)
    if workload.cls is not None and workload.cls.parked is not None:
        return workload.cls.parked
    return None
