"""Decides about the entries (nominated heads) of one cycle, one after the other. Each decision
takes account of the earlier decisions of the cycle.

Source: `docs/spec/scheduling.md#4.4`. Usage that is held back for an entry during the rest of the
cycle is given back at the end of the cycle; only an accepted assignment stays charged."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import IntEnum, unique

from admittance.api.checks import PREEMPTS_AFTER_CHECK
from admittance.events import reasons
from admittance.quota.catalog import Catalog
from admittance.quota.cell import Cell
from admittance.scheduling import families
from admittance.scheduling.cycle.nominate import Nominator
from admittance.scheduling.cycle.promises import KeptPromise
from admittance.scheduling.preemption.room import fits
from admittance.scheduling.state.assignment import FIT, NO_FIT, Assignment, admission_of
from admittance.scheduling.state.assumption import without_handover
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.held.shared_quota import (
    WithoutUsage,
    remove_usage,
    restore_usage,
)
from admittance.scheduling.state.queue import park_workload
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, Nomination, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import Inadmissible


@unique
class RequiredChecks(IntEnum):
    """The kind of admission checks that an assignment must pass before the workload is admitted.
    NONE: no checks. PREEMPT_AFTER: at least one of the checks must be Ready before any workload is
    preempted. PREEMPT_ANYTIME: no check delays preemption."""

    NONE = 0
    PREEMPT_ANYTIME = 1
    PREEMPT_AFTER = 2


def required_checks(catalog: Catalog, queue: Queue, assignment: Assignment) -> RequiredChecks:
    """Returns which kind of admission checks the assignment must pass in the ClusterQueue."""
    required = catalog.checks_to_pass(queue.name, admission_of(queue.name, assignment))
    if not required:
        return RequiredChecks.NONE
    if any(check.spec.preemption_policy == PREEMPTS_AFTER_CHECK for check in required.values()):
        return RequiredChecks.PREEMPT_AFTER
    return RequiredChecks.PREEMPT_ANYTIME


class CycleEntry:
    """An entry of a cycle: the head of a queue, its assignment, and the victims that must stop
    before the head can start."""

    __slots__ = ("assignment", "queue", "victims", "workload")

    def __init__(self, queue: Queue, workload: WorkloadInfo, nomination: Nomination) -> None:
        self.queue = queue
        self.workload = workload
        self.assignment, self.victims = nomination


@unique
class EntryStatus(IntEnum):
    """The outcome of an entry in a cycle.

    ACCEPTED: the entry gets its assignment; if it has victims, their quota is handed over to it at
    once. PLANNED: the entry gets its assignment, and its victims are preempted later. PREEMPTING:
    the victims of the entry are preempted now. WAITING: the entry waits for victims that were
    preempted before, or for another entry, and stays the head of its queue. INADMISSIBLE: no flavor
    fits, or there are no candidates for preemption. SKIPPED: earlier entries took the quota; in its
    next cycle the entry's scan continues with the next flavor. GATED: the entry needs preemption,
    and a preemption gate of its workload is closed. BLOCKED: no workload gets new quota until the
    pods of admitted workloads are ready. UNCERTAIN: whether the entry has room depends on decisions
    in flight, so the next cycle tries it again. HELD_BACK: the entry would delay the start that is
    promised to an older workload."""

    ACCEPTED = 0
    PLANNED = 1
    PREEMPTING = 2
    WAITING = 3
    INADMISSIBLE = 4
    SKIPPED = 5
    GATED = 6
    BLOCKED = 7
    UNCERTAIN = 8
    HELD_BACK = 9


class EntryProcessor:
    """Decides about the entries of one cycle, taking account of the quota and victims that earlier
    entries took.

    The processor itself charges only usage that is held back for entries until the end of the
    cycle. The cycle must carry out each decision before it calls `process` for the next entry.

    Once an entry is tried without the usage of the victims of earlier entries, that usage stays
    subtracted for the next entries, so that a cycle with many preemptors subtracts it once, not
    once per preemptor. With fair sharing the usage of these victims is restored after each entry,
    because the order of the next entries depends on it.

    ``promise``: the promise of a start that the cycle keeps; None: there is none."""

    def __init__(
        self,
        state: SchedulerState,
        domain: Domain,
        nominator: Nominator,
        promise: KeptPromise | None,
    ) -> None:
        self.promise = promise
        self._state = state
        self._domain = domain
        self._nominator = nominator
        self._as_kueue = state.config.as_kueue
        self._fair_sharing = state.config.fair_sharing is not None
        self._held: list[tuple[Cell, int]] = []
        self._victims: dict[WorkloadInfo, None] = {}
        self._victims_removed = False
        self._handed_over: CycleEntry | None = None
        self._accepted: list[WorkloadInfo] = []

    def process(self, entry: CycleEntry) -> EntryStatus:
        """Processes the next entry of the cycle; returns its outcome. May nominate the
        entry again."""
        assignment = entry.assignment
        if assignment.mode == FIT and not self._victims and not self._handed_over:
            if not fits(assignment.added_usage(), borrowing=True):
                return EntryStatus.SKIPPED
            return self._accept(entry)
        waits = any(victim.workload in self._victims for victim in entry.victims)
        if waits or self._needs_handed_over_quota(entry):
            self._nominate_again(entry)
            assignment = entry.assignment
            waits = waits and assignment.mode == FIT
        if assignment.mode == NO_FIT:
            return EntryStatus.INADMISSIBLE
        if assignment.mode != FIT and not entry.victims:
            # The entry may need this quota later but has no victims to preempt for it, so no other
            # entry may take the quota in this cycle. A queue with ``reclaimWithinCohort: Any`` can
            # reclaim the quota anyway, so nothing is held back for its head, unless workloads are
            # too young to give it back.
            assert entry.queue.plan is not None
            if entry.queue.plan.policy.reclaim != "Any" or assignment.spared_until is not None:
                self._restore_victims()
                held = held_back(assignment)
                self._hold(held)
                if self.promise is not None and self.promise.head is entry.workload:
                    self.promise.held = held
            return EntryStatus.INADMISSIBLE
        if assignment.mode != FIT and entry.workload.closed_gate:
            return EntryStatus.GATED
        if waits:
            self._hold(assignment.added_usage().items())
            return EntryStatus.WAITING
        if not self._fits(entry):
            return EntryStatus.SKIPPED
        if assignment.mode == FIT:
            return self._accept(entry) if self._fits_now(entry) else EntryStatus.UNCERTAIN
        checks = RequiredChecks.NONE
        if not self._as_kueue:
            checks = required_checks(self._state.catalog, entry.queue, assignment)
        if checks is not RequiredChecks.PREEMPT_AFTER and self._may_hand_over(entry, checks):
            if self._handed_over is not None:
                return EntryStatus.UNCERTAIN
            if self._fits_now(entry):
                return self._accept(entry, hands_over=True)
        if checks is not RequiredChecks.NONE and charging.may_plan(entry.queue.domain):
            return self._plan(entry)
        if not self._keeps_promise(entry):
            return EntryStatus.HELD_BACK
        for victim in entry.victims:
            if victim.workload not in self._victims:
                self._victims[victim.workload] = None
                if self._victims_removed:
                    remove_usage(victim.workload)
        self._hold(assignment.added_usage().items())
        return EntryStatus.PREEMPTING

    def end_entry(self) -> None:
        """Ends the processing of an entry. Must be called after the cycle has carried out the
        decision about the entry."""
        if self._fair_sharing:
            self._restore_victims()

    def end(self) -> None:
        """Ends the cycle: frees the quota that was held back for entries of the cycle."""
        self._restore_victims()
        for cell, amount in self._held:
            cell.charge(-amount)
        self._held.clear()

    def _remove_victims(self) -> None:
        """Subtracts the usage of all victims that the entries of the cycle have taken so far."""
        if not self._victims_removed:
            self._victims_removed = True
            for workload in self._victims:
                remove_usage(workload)

    def _restore_victims(self) -> None:
        """Undoes `_remove_victims`: restores the usage of the victims."""
        if self._victims_removed:
            self._victims_removed = False
            for workload in self._victims:
                restore_usage(workload)

    def _plan(self, entry: CycleEntry) -> EntryStatus:
        """Reserves quota for the entry before its victims have stopped, so that its admission
        checks come before the preemption or run at the same time."""
        in_flight = [victim.workload for victim in entry.victims if victim.workload.in_flight]
        for workload in in_flight:
            # A decision about the victim is in flight, so it is not certain whether the victim
            # holds quota. When the decision about the victim is stored, the domain gets a cycle.
            workload.preemptor_waits = True
        if in_flight or not self._fits_now(entry):
            return EntryStatus.UNCERTAIN
        return self._accept(entry, EntryStatus.PLANNED)

    def _accept(
        self,
        entry: CycleEntry,
        status: EntryStatus = EntryStatus.ACCEPTED,
        *,
        hands_over: bool = False,
    ) -> EntryStatus:
        self._restore_victims()
        if entry.workload.family is not None and not families.may_reserve(entry.workload):
            # An earlier decision of this cycle makes the family busy: for example, a sibling was
            # preempted or admitted.
            return EntryStatus.UNCERTAIN
        if self._state.pods_ready.blocks(self._domain):
            return EntryStatus.BLOCKED
        if not self._keeps_promise(entry):
            return EntryStatus.HELD_BACK
        if self.promise is not None:
            victims = [victim.workload for victim in entry.victims] if hands_over else []
            self.promise.note_start(entry.queue, entry.workload, entry.assignment, victims)
        if hands_over:
            self._handed_over = entry
        self._accepted.append(entry.workload)
        return status

    def _keeps_promise(self, entry: CycleEntry) -> bool:
        """Returns whether the entry may start beside the promise of the domain."""
        if self.promise is None:
            return True
        were_removed = self._victims_removed
        self._restore_victims()
        victims = [victim.workload for victim in entry.victims]
        keeps = self.promise.allows(entry.queue, entry.workload, entry.assignment, victims)
        if were_removed:
            self._remove_victims()
        return keeps

    def _hold(self, amounts: Iterable[tuple[Cell, int]]) -> None:
        for cell, amount in amounts:
            cell.charge(amount)
            self._held.append((cell, amount))

    def _fits(self, entry: CycleEntry) -> bool:
        """Returns whether the entry fits once its victims and the victims of earlier entries have
        stopped."""
        if not (self._victims or self._accepted or self._held):
            # No usage has changed since the search in which the entry's victims were enough.
            return True
        self._remove_victims()
        with WithoutUsage(
            [victim.workload for victim in entry.victims if victim.workload not in self._victims]
        ):
            return fits(entry.assignment.added_usage(), borrowing=True)

    def _fits_now(self, entry: CycleEntry) -> bool:
        """Returns whether the entry fits once its own victims have stopped, while the victims of
        earlier entries still hold their quota, and also if the handover of quota in this cycle
        fails."""
        if self._as_kueue:
            return True
        self._restore_victims()
        for cell, amount in self._held:
            cell.charge(-amount)
        with WithoutUsage([victim.workload for victim in entry.victims]):
            has_room = fits(entry.assignment.added_usage(), borrowing=True)
            if has_room and self._domain.handover is not None:
                with without_handover(self._domain.handover):
                    has_room = fits(entry.assignment.added_usage(), borrowing=True)
        for cell, amount in self._held:
            cell.charge(amount)
        return has_room

    def _needs_handed_over_quota(self, entry: CycleEntry) -> bool:
        """Returns whether a victim of the entry hands its quota over to an earlier entry of this
        cycle."""
        if self._handed_over is None:
            return False
        givers = {victim.workload for victim in self._handed_over.victims}
        return any(victim.workload in givers for victim in entry.victims)

    def _may_hand_over(self, entry: CycleEntry, checks: RequiredChecks) -> bool:
        """Returns whether the quota of the entry's victims can be handed over to it at once: no
        victim is admitted, and no decision about a victim is in flight. A variant that waits until
        its sibling's job has stopped cannot take handed-over quota."""
        family = entry.workload.family
        if family is not None and checks is RequiredChecks.NONE and family.admitted() is not None:
            return False
        return not self._as_kueue and all(
            victim.workload.state == "QuotaReserved" and not victim.workload.in_flight
            for victim in entry.victims
        )

    def _nominate_again(self, entry: CycleEntry) -> None:
        """Nominates an entry again after an earlier entry took some of its victims, without these
        victims and only for the flavors of its first nomination."""
        only = [place.flavors for place in entry.assignment.places]
        self._remove_victims()
        self._nominator.gone.update(self._victims, self._accepted)
        entry.assignment, entry.victims = self._nominator.nominate(
            entry.queue, entry.workload, only=only
        )
        self._nominator.gone.clear()


def held_back(assignment: Assignment) -> list[tuple[Cell, int]]:
    """Returns the quota that is held back from later entries for an entry that needs preemption and
    has no victims; amounts may be negative.

    Source: `docs/spec/scheduling.md#4.4`, reserve_amount."""
    held: list[tuple[Cell, int]] = []
    for cell, use in assignment.added_usage().items():
        if assignment.level > 0:
            if cell.borrow is None:
                amount = use
            else:
                amount = min(use, cell.nominal + cell.borrow - cell.usage)
        else:
            amount = max(0, min(use, cell.nominal - cell.usage))
        held.append((cell, amount))
    return held


def park_behind_gate(entry: CycleEntry, now: datetime) -> bool:
    """Parks the workload of an entry that needs preemption while its preemption gate is closed.

    The workload is parked alone, without its class, since equal workloads may have no gate. In a
    StrictFIFO queue the workload is not parked and stays the head. Returns whether the queue has
    another head now. Source: `docs/spec/scheduling.md#6.8`."""
    workload, queue = entry.workload, entry.queue
    workload.cursor = None
    if queue.strict:
        return False
    message = f"It needs preemption, and its preemption gate {workload.closed_gate} is closed"
    park_workload(queue, workload, Inadmissible(reasons.ADMISSION_GATED, message), now)
    return True
