"""The entries of one cycle, one after the other: each sees what the ones before it took.

Source: `docs/spec/scheduling.md#4.4`. What is held for the rest of the cycle is given back at its
end; only an accepted assignment stays charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Protocol

from admittance.quota.cell import Cell
from admittance.scheduling.cycle.nominate import Nominator
from admittance.scheduling.preemption.room import fits
from admittance.scheduling.state import planned
from admittance.scheduling.state.assignment import FIT, NO_FIT, Assignment
from admittance.scheduling.state.in_flight import QuotaHandover
from admittance.scheduling.state.queue import park_workload
from admittance.scheduling.state.shared_quota import (
    remove_all_usage,
    remove_usage,
    restore_all_usage,
    restore_usage,
)
from admittance.scheduling.state.workload_info import (
    Inadmissible,
    Nomination,
    Queue,
    Victim,
    WorkloadInfo,
)
from admittance.scheduling.state.workload_view import GATED


class Accept(Protocol):
    """Takes the assignment: charges it, and says so. What the victims hold is handed on with it;
    or, with plans, they are to give it up later."""

    def __call__(
        self,
        queue: Queue,
        workload: WorkloadInfo,
        assignment: Assignment,
        victims: Sequence[Victim],
        *,
        plans: bool = False,
    ) -> None: ...


class Checks(IntEnum):
    """What is required of an assignment before it is an admission. DEFER: some check wants nobody
    preempted before it has passed."""

    NONE = 0
    ANYTIME = 1
    DEFER = 2


ChecksOf = Callable[[Queue, Assignment], Checks]

Preempt = Callable[[Queue, WorkloadInfo, Sequence[Victim], Assignment], bool]
"""Tells the victims to go, those that have not been told yet, for what would be assigned; without
victims of its own it waits for those of others. True: there were any to tell."""


class CycleEntry:
    """A head with what it would get, and who has to go for it."""

    __slots__ = ("assignment", "queue", "victims", "workload")

    def __init__(self, queue: Queue, workload: WorkloadInfo, nomination: Nomination) -> None:
        self.queue = queue
        self.workload = workload
        self.assignment, self.victims = nomination


class EntryOutcome(IntEnum):
    """What becomes of an entry.

    NOTHING: no flavor, or nobody to preempt, so that it is parked unless there are flavors left to
    try. SKIPPED: the room went to somebody else; it goes on with the next flavor. WAITS: for those
    whom it, or another, preempts; its place at the head is kept. GATED: it would preempt, and a
    gate of its own is closed. BLOCKED: nobody may get quota afresh until pods are ready. LATER: it
    is not certain yet that there is room; it is looked at
    again as if it had not been.
    """

    ACCEPTED = 0
    NOTHING = 1
    SKIPPED = 2
    PREEMPTS = 3
    WAITS = 4
    GATED = 5
    LATER = 6
    BLOCKED = 7


class Turn:
    """What the entries of one cycle have taken so far: room, and victims.

    Victims stay out of the state from one entry that asks for room without them to the next, so
    that a cycle with many preemptors does not take all of them out for each. Unless ``by_shares``:
    then who is next is found between the turns, by what is in the state.
    """

    def __init__(
        self,
        nominator: Nominator,
        accept: Accept,
        preempt: Preempt,
        is_blocked: Callable[[], bool],
        checks_of: ChecksOf,
        joint_of: Mapping[WorkloadInfo, QuotaHandover],
        may_begin: Callable[[WorkloadInfo], bool],
        *,
        as_kueue: bool = False,
        by_shares: bool = False,
    ) -> None:
        self._joint_of = joint_of
        self._checks_of = checks_of
        self._may_begin = may_begin
        self._is_blocked = is_blocked
        self._nominator = nominator
        self._accept = accept
        self._preempt = preempt
        self._as_kueue = as_kueue
        self._held: list[tuple[Cell, int]] = []
        self._claimed: dict[WorkloadInfo, None] = {}
        self._out = False
        self._by_shares = by_shares
        self._handed_on: CycleEntry | None = None
        self._accepted: list[WorkloadInfo] = []

    def take(self, entry: CycleEntry) -> EntryOutcome:
        """The next entry takes what it can."""
        outcome = self._take(entry)
        if self._by_shares:
            self._put_back()
        return outcome

    def _take(self, entry: CycleEntry) -> EntryOutcome:
        assignment = entry.assignment
        if assignment.mode == FIT and not self._claimed and not self._handed_on:
            if not fits(assignment.takes(), borrowing=True):
                return EntryOutcome.SKIPPED
            return self._admit(entry)
        waits = any(one.workload in self._claimed for one in entry.victims)
        if waits or self._takes_what_is_given(entry):
            self._again(entry)
            assignment = entry.assignment
            waits = waits and assignment.mode == FIT
        if assignment.mode == NO_FIT:
            return EntryOutcome.NOTHING
        if assignment.mode != FIT and not entry.victims:
            # It is entitled to this room and cannot force anybody to leave it, so nobody else may
            # take it in this cycle. Who may reclaim it from anybody needs no such help.
            assert entry.queue.plan is not None
            if entry.queue.plan.policy.reclaim != "Any":
                self._put_back()
                self._hold(held_back(assignment))
            return EntryOutcome.NOTHING
        if assignment.mode != FIT and entry.workload.closed_gate:
            return EntryOutcome.GATED
        if waits:
            self._hold(assignment.takes().items())
            self._preempt(entry.queue, entry.workload, (), assignment)
            return EntryOutcome.WAITS
        if not self._fits(entry):
            return EntryOutcome.SKIPPED
        if assignment.mode == FIT:
            return self._admit(entry) if self._fits_now(entry) else EntryOutcome.LATER
        checks = Checks.NONE if self._as_kueue else self._checks_of(entry.queue, assignment)
        if checks is not Checks.DEFER and self._merely_reserved(entry, checks):
            if self._handed_on is not None:
                return EntryOutcome.LATER
            if self._fits_now(entry):
                return self._admit(entry, hands_on=True)
        if checks is not Checks.NONE and planned.may_plan(entry.queue.domain):
            return self._plan(entry)
        for one in entry.victims:
            if one.workload not in self._claimed:
                self._claimed[one.workload] = None
                if self._out:
                    remove_usage(one.workload)
        self._hold(assignment.takes().items())
        told = self._preempt(entry.queue, entry.workload, entry.victims, assignment)
        return EntryOutcome.PREEMPTS if told else EntryOutcome.WAITS

    def end(self) -> None:
        """Gives back what was held."""
        self._put_back()
        for cell, amount in self._held:
            cell.charge(-amount)

    def _take_out(self) -> None:
        """As if all victims so far had gone."""
        if not self._out:
            self._out = True
            for workload in self._claimed:
                remove_usage(workload)

    def _put_back(self) -> None:
        """Undoes `_take_out`: they hold what they hold."""
        if self._out:
            self._out = False
            for workload in self._claimed:
                restore_usage(workload)

    def _plan(self, entry: CycleEntry) -> EntryOutcome:
        """It is reserved before its victims have gone: its checks come first, or at the same
        time."""
        moving = [one.workload for one in entry.victims if one.workload.in_flight]
        for workload in moving:
            # Whether it holds quota, and since when, is not written yet. It stirs when it lands.
            workload.preemptor_waits = True
        if moving or not self._fits_now(entry):
            return EntryOutcome.LATER
        return self._admit(entry, plans=True)

    def _admit(
        self, entry: CycleEntry, *, plans: bool = False, hands_on: bool = False
    ) -> EntryOutcome:
        self._put_back()
        if entry.workload.family is not None and not self._may_begin(entry.workload):
            # Whom it would take over from was told to go since it was its turn.
            return EntryOutcome.LATER
        if self._is_blocked():
            return EntryOutcome.BLOCKED
        if hands_on:
            self._handed_on = entry
        self._accept(entry.queue, entry.workload, entry.assignment, entry.victims, plans=plans)
        self._accepted.append(entry.workload)
        return EntryOutcome.ACCEPTED

    def _hold(self, amounts: Iterable[tuple[Cell, int]]) -> None:
        for cell, amount in amounts:
            cell.charge(amount)
            self._held.append((cell, amount))

    def _fits(self, entry: CycleEntry) -> bool:
        """It has room once its victims and those of the entries before it have gone."""
        if not (self._claimed or self._accepted or self._held):
            # Nothing has moved since its victims were found to make room enough.
            return True
        self._take_out()
        going = [one.workload for one in entry.victims if one.workload not in self._claimed]
        held = remove_all_usage(going)
        has_room = fits(entry.assignment.takes(), borrowing=True)
        restore_all_usage(going, held)
        return has_room

    def _fits_now(self, entry: CycleEntry) -> bool:
        """It has room once its own victims have gone, while those of others still hold theirs; and
        that whether or not quota is handed on as it was decided in this cycle."""
        if self._as_kueue:
            return True
        self._put_back()
        for cell, amount in self._held:
            cell.charge(-amount)
        going = [one.workload for one in entry.victims]
        held = remove_all_usage(going)
        has_room = fits(entry.assignment.takes(), borrowing=True)
        handed_on = self._joint_of.get(self._handed_on.workload) if self._handed_on else None
        if has_room and handed_on is not None:
            handed_on.pretend_failed()
            has_room = fits(entry.assignment.takes(), borrowing=True)
            handed_on.pretend_failed(again=True)
        restore_all_usage(going, held)
        for cell, amount in self._held:
            cell.charge(amount)
        return has_room

    def _takes_what_is_given(self, entry: CycleEntry) -> bool:
        """One of its victims hands on what it held to somebody else."""
        if self._handed_on is None:
            return False
        given = {one.workload for one in self._handed_on.victims}
        return any(one.workload in given for one in entry.victims)

    def _merely_reserved(self, entry: CycleEntry, checks: Checks) -> bool:
        """None of its victims has started anything, and nothing is on its way to any of them: what
        they hold can be handed on at once. Not to whoever waits for its own sibling's job."""
        family = entry.workload.family
        if family is not None and checks is Checks.NONE and family.admitted() is not None:
            return False
        return not self._as_kueue and all(
            one.workload.state == "QuotaReserved" and not one.workload.in_flight
            for one in entry.victims
        )

    def _again(self, entry: CycleEntry) -> None:
        """Somebody before it took its victims: what it would get with them gone, in the flavors
        that it was nominated for."""
        only = [place.flavors for place in entry.assignment.places]
        self._take_out()
        self._nominator.gone.update(self._claimed, self._accepted)
        entry.assignment, entry.victims = self._nominator.nominate(
            entry.queue, entry.workload, only=only
        )
        self._nominator.gone.clear()


def held_back(assignment: Assignment) -> list[tuple[Cell, int]]:
    """The room that a head without victims keeps from others; an amount may be negative.
    Source: `docs/spec/scheduling.md#4.4`, reserve_amount."""
    held: list[tuple[Cell, int]] = []
    for cell, use in assignment.takes().items():
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
    """Parks an entry that would have to preempt while its preemption gate is closed.

    The workload waits alone, since equal workloads may have no gate; in a StrictFIFO queue it stays
    the head. Returns whether the queue has another head now. Source:
    `docs/spec/scheduling.md#6.8`.
    """
    workload, queue = entry.workload, entry.queue
    workload.cursor = None
    if queue.strict:
        return False
    message = (
        f"Others would have to go for it, and its preemption gate {workload.closed_gate} is closed"
    )
    park_workload(queue, workload, Inadmissible(GATED, message), now)
    return True
