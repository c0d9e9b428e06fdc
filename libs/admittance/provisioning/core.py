"""Keeps exactly one capacity request for each reservation that needs one. Pure.

Steps follow from the stored state and not from the messages received, so lost, repeated and late
messages do no harm. A new leader continues where the old leader stopped. docs/spec/lifecycle.md#5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from heapq import heappop
from typing import Final, TypeAlias

from admittance.events.provisioning import ProvisioningCancelled, ProvisioningStatus
from admittance.provisioning.next_step import SlotDecider, is_admitted
from admittance.provisioning.observed_state import Name, ObservedState
from admittance.provisioning.records import Record, State, apply_status, with_note
from admittance.provisioning.steps import (
    BlockedStep,
    Memory,
    ReportedVerdict,
    RequestSlot,
    Step,
    Write,
    ignored_updates,
    updates_of,
)

BUSY: Final = "busy"
"""Reason to ignore an answer now: a step of its slot is in flight, so the answer must be applied
again later.
"""
OnError: TypeAlias = Callable[[RequestSlot, Exception], None]
ADMITTED: Final = "the workload is admitted, and only CapacityRevoked stops it"


class AnswerIntake:
    """Applies answers of providers to capacity requests."""

    def __init__(self, observed: ObservedState, memory: Memory) -> None:
        self._observed = observed
        self._memory = memory

    def apply(self, fact: ProvisioningStatus, now: datetime) -> tuple[Step | None, str]:
        """Returns the step that stores the answer, or the reason to ignore the answer, with a step
        that notes a new reason on the request. (None, "") means that another writer deleted the
        record; it will be written again together with the answer.
        """
        observed = self._observed
        workload = fact.namespace, fact.name
        slots = observed.slots_of(workload)
        for slot in slots:
            record = observed.records[slot].record
            if record.spec.id == fact.id:
                return self._apply(slot, record, fact, now)
        if self._is_being_written(fact):
            return None, BUSY
        lost = observed.lost_slot(workload, fact.id)
        if lost is not None:
            return self._apply(lost, observed.lost_records[lost][-1], fact, now)
        why = f"no request {fact.id} of {fact.namespace}/{fact.name} is open"
        if not slots or not self.has_foreign_id(fact):
            return None, why
        return self._note(slots[0], observed.records[slots[0]].record, fact, why, now)

    def _apply(
        self, slot: RequestSlot, record: Record, fact: ProvisioningStatus, now: datetime
    ) -> tuple[Step | None, str]:
        requested_from = record.spec.provisioning_class_name
        if requested_from != fact.provisioning_class:
            why = f"{fact.id} was requested from {requested_from}"
            return self._note(slot, record, fact, why, now)
        uid = record.spec.uid
        if fact.uid not in ("", uid):
            why = f"{fact.id} belongs to the workload with the uid {uid}, not {fact.uid}"
            return self._note(slot, record, fact, why, now)
        if slot in self._memory.in_flight:
            return None, BUSY
        applied = apply_status(record, fact, now)
        if applied.contradicts:
            return self._note(slot, record, fact, applied.ignored, now)
        if applied.ignored:
            return None, applied.ignored
        new = applied.record
        config = self._observed.config_of(slot.check)
        if config is not None and new.status.state is State.PROVISIONED:
            for name in updates_of(new, config)[1]:
                new = with_note(new, f"the provider reported no detail {name!r}: left out", now)
        for text in ignored_updates(new) if fact.pod_set_updates else ():
            new = with_note(new, text, now)
        if new.status.state is State.FAILED and self._is_admitted(slot):
            new = with_note(new, _ignored(fact, ADMITTED), now)
        return self._store(slot, record, new), ""

    def note_unreadable(
        self, workload: Name, provisioning_class: str, why: str, now: datetime
    ) -> Step | None:
        """The step that notes an undecodable answer of the class on the workload's request; None if
        the class has no request for the workload, the note exists, or a step is in flight.
        """
        for slot in self._observed.slots_of(workload):
            record = self._observed.records[slot].record
            of_class = record.spec.provisioning_class_name == provisioning_class
            if not of_class or slot in self._memory.in_flight:
                continue
            text = f"an answer of class {provisioning_class} cannot be decoded: {why}"
            new = with_note(record, text, now)
            if new is not record:
                return self._store(slot, record, new)
        return None

    def has_foreign_id(self, fact: ProvisioningStatus) -> bool:
        """Whether no version of this service can have made the answer's request id."""
        work = self._observed.workloads.get((fact.namespace, fact.name))
        uid = fact.id.partition("/")[0]
        if fact.uid and fact.uid != uid:
            return True
        if work is None:
            return fact.id.count("/") < 3
        return uid != work.metadata.uid and not fact.uid

    def _is_being_written(self, fact: ProvisioningStatus) -> bool:
        """Whether the write of the answer's record is in flight: a provider may answer before the
        write of a whole batch of records is acknowledged."""
        work = self._observed.workloads.get((fact.namespace, fact.name))
        for row in work.status.admission_checks if work is not None else ():
            step = self._memory.in_flight.get(RequestSlot(fact.namespace, fact.name, row.name))
            write = step.write if step is not None else None
            if write is not None and write.record is not None and write.record.spec.id == fact.id:
                return True
        return False

    def _note(
        self, slot: RequestSlot, record: Record, fact: ProvisioningStatus, why: str, now: datetime
    ) -> tuple[Step | None, str]:
        """Notes an ignored answer on the request, once, because users look at the request for the
        reason.
        """
        if slot in self._memory.in_flight:
            return None, BUSY
        new = with_note(record, _ignored(fact, why), now)
        return (None if new is record else self._store(slot, record, new)), why

    def _is_admitted(self, slot: RequestSlot) -> bool:
        work = self._observed.workloads.get((slot.namespace, slot.workload))
        return work is not None and is_admitted(work)

    def _store(self, slot: RequestSlot, old: Record, new: Record) -> Step | None:
        kept = self._observed.records.get(slot)
        if kept is None or kept.record is not old:
            self._observed.replace_lost(slot, new)
            return None
        step = Step(slot, Write(new.metadata.name, new, kept.revision))
        self._memory.in_flight[slot] = step
        return step


def _ignored(fact: ProvisioningStatus, why: str) -> str:
    return f"{type(fact).__name__} of class {fact.provisioning_class} does not count: {why}"


class BlockedSlots:
    """Slots with a next step that can never succeed. A blocked slot is skipped until a different
    step follows for it.

    ``on_error`` is called with an exception raised while a slot is decided, as in
    `ProvisioningCore`."""

    def __init__(
        self,
        slots: SlotDecider,
        memory: Memory,
        on_error: OnError | None,
    ) -> None:
        self._slots = slots
        self._memory = memory
        self._on_error = on_error

    def step(self, slot: RequestSlot, now: datetime) -> Step | None:
        """The next step of the slot; None if there is none, or the slot is blocked."""
        blocked = self._memory.blocked
        try:
            if slot in blocked and not blocked[slot].noted:
                note = self._slots.note(slot, blocked[slot].why, now)
                blocked[slot] = blocked[slot]._replace(noted=True, note=note)
                if note is not None:
                    return note
            step = self._slots.step(slot, now)
            if slot not in blocked:
                return step
            if step is None or step == blocked[slot].step:
                return None
        except Exception as error:
            if self._on_error is None:
                raise
            return self._block_undecided(slot, error, self._on_error, now)
        del blocked[slot]
        return step

    def cannot(self, step: Step, error: Exception) -> None:
        """Blocks the slot of a step that can never succeed."""
        known = self._memory.blocked.get(step.slot)
        if known is None or known.note is not step:
            # If writing the note itself failed, the blocked step keeps its first reason.
            self._memory.blocked[step.slot] = BlockedStep(step, note_of(error))

    def _block_undecided(
        self, slot: RequestSlot, error: Exception, on_error: OnError, now: datetime
    ) -> Step | None:
        """Blocks a slot because deciding its next step raised an error. Returns the step that notes
        the error on the request.
        """
        blocked, why = self._memory.blocked, note_of(error)
        known = blocked.get(slot)
        if known is not None and known.noted and known.why == why:
            return None
        on_error(slot, error)
        try:
            note = self._slots.note(slot, why, now)
        except Exception as note_error:
            on_error(slot, note_error)
            note = None
        blocked[slot] = BlockedStep(None, why, noted=True, note=note)
        return note


def note_of(error: Exception) -> str:
    """The text of the error as a note for users."""
    return f"skipped, because it cannot succeed: {error or type(error).__name__}"


class ProvisioningCore:
    """All capacity requests and the steps that bring the requests to the desired state.

    ``time_limit``: for requests without a limit in their parameters; None means no limit.
    ``on_error`` is called with an exception raised while a slot is decided: that slot is skipped,
    the others continue. If ``on_error`` is None, the exception propagates.
    """

    def __init__(
        self,
        time_limit: timedelta | None,
        on_error: OnError | None = None,
    ) -> None:
        self.observed = ObservedState()
        self._memory = Memory()
        self._slots = SlotDecider(self.observed, self._memory, time_limit)
        self._blocked = BlockedSlots(self._slots, self._memory, on_error)
        self._intake = AnswerIntake(self.observed, self._memory)

    def counts(self) -> dict[tuple[str, ...], float]:
        """The number of capacity requests by provisioning class and state, for metrics, which read
        this number in another thread. A provisioning class with a request has a number for every
        state, most of them 0."""
        counts: dict[tuple[str, ...], float] = {}
        for stored in tuple(self.observed.records.values()):
            name = stored.record.spec.provisioning_class_name
            for state in State:
                counts.setdefault((name, state.value), 0)
            counts[name, stored.record.status.state.value] += 1
        return counts

    # Steps. --------------------------------------------------------------------

    def steps(self, now: datetime) -> Iterator[Step]:
        """The steps to perform now, at most one for each slot (one check of one workload). The
        caller reports the outcome of each step with `done`, `failed` or `cannot`.
        """
        observed, in_flight = self.observed, self._memory.in_flight
        for slot in list(observed.dirty):
            if slot in in_flight:
                continue
            del observed.dirty[slot]
            step = self._blocked.step(slot, now)
            if step is not None:
                in_flight[slot] = step
                yield step

    def done(self, step: Step, revision: int = 0) -> None:
        """Records that the step was performed completely. ``revision``: the revision of the record
        that the step wrote.
        """
        slot, memory = step.slot, self._memory
        memory.in_flight.pop(slot, None)
        if step.write is not None:
            name = slot.namespace, step.write.name
            kept = self.observed.records.get(slot)
            if step.write.record is None and kept is not None:
                memory.ended(slot, kept.record)
            self.observed.wrote(slot, name, step.write.record, revision)
        if isinstance(step.fact, ProvisioningCancelled):
            memory.cancelled.add(step.fact.id)
        elif step.fact is not None:
            memory.sent.add(step.fact.id)
        if step.report is not None:
            row = self._slots.row(slot)
            if row is not None:
                memory.reported[slot] = ReportedVerdict(
                    step.report, row.state, row.last_transition_time
                )
        self.observed.dirty[slot] = None

    def failed(self, step: Step) -> None:
        """Records that the write conflicted or its outcome is unknown: the slot is decided again
        after the bucket's next update.
        """
        memory = self._memory
        memory.in_flight.pop(step.slot, None)
        if step.report is not None and step.slot in memory.reported:
            memory.reported[step.slot] = memory.reported[step.slot]._replace(last=False)
        self.observed.dirty[step.slot] = None

    def cannot(self, step: Step, error: Exception) -> None:
        """Records that the step can never succeed. The error is noted on the request, and the slot
        is skipped until a different step follows for it.
        """
        self._memory.in_flight.pop(step.slot, None)
        self._blocked.cannot(step, error)
        self.observed.dirty[step.slot] = None

    def mark_overdue(self, now: datetime) -> None:
        """Marks the slots of overdue requests as dirty, so that their next steps are decided
        again."""
        deadlines = self.observed.deadlines
        while self.observed.answers_read and deadlines and deadlines[0][0] <= now:
            self.observed.dirty[heappop(deadlines)[1]] = None

    def next_deadline(self) -> datetime | None:
        """The next deadline of a request; None if no open request has a deadline, or the answers on
        the log are still being read.
        """
        deadlines = self.observed.deadlines
        return deadlines[0][0] if deadlines and self.observed.answers_read else None

    @property
    def is_busy(self) -> bool:
        """Whether a step is in flight or the next step of a slot must be decided again."""
        return bool(self._memory.in_flight or self.observed.dirty)

    # Answers of providers. --------------------------------------------------------------------

    def apply_status(self, fact: ProvisioningStatus, now: datetime) -> tuple[Step | None, str]:
        """Calls `AnswerIntake.apply`. With the reason `BUSY` a step of the slot is in flight, so
        call again later.
        """
        return self._intake.apply(fact, now)

    def note_unreadable(
        self, workload: Name, provisioning_class: str, why: str, now: datetime
    ) -> Step | None:
        """Calls `AnswerIntake.note_unreadable`."""
        return self._intake.note_unreadable(workload, provisioning_class, why, now)

    def has_foreign_id(self, fact: ProvisioningStatus) -> bool:
        """Calls `AnswerIntake.has_foreign_id`."""
        return self._intake.has_foreign_id(fact)

    def records_of_class(self, provisioning_class: str) -> list[Record]:
        """The requests of that provisioning class that are not cancelled."""
        return [
            kept.record
            for kept in self.observed.records.values()
            if kept.record.spec.provisioning_class_name == provisioning_class
            and not kept.record.status.cancelled
        ]

    def send_again(self, slot: RequestSlot, record_id: str) -> None:
        """Publishes the slot's capacity request once more, because the provider does not know the
        request."""
        self._memory.sent.discard(record_id)
        kept = self.observed.records.get(slot)
        if kept is not None and kept.record.spec.id == record_id:
            self.observed.dirty[slot] = None
