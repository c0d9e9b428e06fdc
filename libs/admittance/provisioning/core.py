"""Keeps exactly one capacity request for each reservation that needs one. Pure.

Steps follow from what is stored, not from the messages received. A lost, repeated or late message
changes nothing, and a new leader continues from the stored state. docs/spec/lifecycle.md#5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from heapq import heappop
from typing import Final

from admittance.events.provisioning import ProvisioningCancelled, ProvisioningStatus
from admittance.provisioning import answers
from admittance.provisioning.next_step import SlotDecider, is_admitted
from admittance.provisioning.observed_state import Name, ObservedState, StoredRecord
from admittance.provisioning.records import Record, State, apply_status, with_note
from admittance.provisioning.steps import BlockedStep, Memory, SentVerdict, Slot, Step, Write

BUSY: Final = "busy"
"""A step of the slot is in flight: apply the answer again later."""
RUNS: Final = "the workload runs, and only CapacityRevoked stops that"


def is_about_no_request(observed: ObservedState, fact: ProvisioningStatus) -> bool:
    """Whether the request id of the answer cannot be one of ours (not merely an old one)."""
    work = observed.workloads.get((fact.namespace, fact.name))
    uid = fact.id.partition("/")[0]
    if fact.uid and fact.uid != uid:
        return True
    if work is None:
        return fact.id.count("/") < 3
    return uid != work.metadata.uid and not fact.uid


def apply_provider_status(
    observed: ObservedState, memory: Memory, fact: ProvisioningStatus, now: datetime
) -> tuple[Step | None, str]:
    """The step that stores the answer; or the reason to ignore it, with a step that notes the
    reason on the request if there is one."""
    of = [(slot, observed.records[slot]) for slot in observed.slots_of((fact.namespace, fact.name))]
    found = next((one for one in of if one[1].record.spec.id == fact.id), None)
    if found is None:
        why = f"no request {fact.id} of {fact.namespace}/{fact.name} is open"
        if not of or not is_about_no_request(observed, fact):
            return None, why
        return _note(memory, *of[0], fact, why, now)
    slot, kept = found
    asked_of = kept.record.spec.provisioning_class_name
    if asked_of != fact.provisioning_class:
        return _note(memory, slot, kept, fact, f"{fact.id} was asked of {asked_of}", now)
    uid = kept.record.spec.uid
    if fact.uid not in ("", uid):
        why = f"{fact.id} is of the workload with the uid {uid}, not {fact.uid}"
        return _note(memory, slot, kept, fact, why, now)
    if slot in memory.flying:
        return None, BUSY
    taken = apply_status(kept.record, fact, now)
    if taken.contradicts:
        return _note(memory, slot, kept, fact, taken.ignored, now)
    if taken.ignored:
        return None, taken.ignored
    record = taken.record
    config = observed.config_of(slot.check)
    if config is not None and record.status.state is State.PROVISIONED:
        for name in answers.updates_of(record, config)[1]:
            record = with_note(record, f"the provider reported no detail {name!r}: left out", now)
    for text in answers.ignored_updates(record) if fact.pod_set_updates else ():
        record = with_note(record, text, now)
    if record.status.state is State.FAILED and _runs(observed, slot):
        record = with_note(record, _uncounted(fact, RUNS), now)
    return _keeps(memory, slot, kept, record), ""


def note_unreadable(
    observed: ObservedState,
    memory: Memory,
    workload: Name,
    provisioning_class: str,
    why: str,
    now: datetime,
) -> Step | None:
    """A step that notes an undecodable answer of the class on the workload's request; None: the
    class has no request there, the note exists, or a step is in flight."""
    for slot in observed.slots_of(workload):
        kept = observed.records[slot]
        if kept.record.spec.provisioning_class_name != provisioning_class or slot in memory.flying:
            continue
        text = f"an answer of class {provisioning_class} cannot be decoded: {why}"
        record = with_note(kept.record, text, now)
        if record is not kept.record:
            return _keeps(memory, slot, kept, record)
    return None


def _note(
    memory: Memory,
    slot: Slot,
    kept: StoredRecord,
    fact: ProvisioningStatus,
    why: str,
    now: datetime,
) -> tuple[Step | None, str]:
    """Notes an ignored answer on the request, once; users look there."""
    if slot in memory.flying:
        return None, BUSY
    record = with_note(kept.record, _uncounted(fact, why), now)
    return (None if record is kept.record else _keeps(memory, slot, kept, record)), why


def _uncounted(fact: ProvisioningStatus, why: str) -> str:
    return f"{type(fact).__name__} of class {fact.provisioning_class} does not count: {why}"


def _runs(observed: ObservedState, slot: Slot) -> bool:
    work = observed.workloads.get((slot.namespace, slot.workload))
    return work is not None and is_admitted(work)


def _keeps(memory: Memory, slot: Slot, kept: StoredRecord, record: Record) -> Step:
    step = Step(slot, Write(record.metadata.name, record, kept.revision))
    memory.flying[slot] = step
    return step


class BlockedSlots:
    """Slots with a step that failed for good. They are skipped until a different step follows.

    ``troubled``: see `ProvisioningCore`."""

    def __init__(
        self, slots: SlotDecider, memory: Memory, troubled: Callable[[Slot, Exception], None] | None
    ) -> None:
        self._slots = slots
        self._memory = memory
        self._troubled = troubled

    def step(self, slot: Slot, now: datetime) -> Step | None:
        """The next step of the slot; None: there is none, or the slot is blocked."""
        aside = self._memory.aside
        try:
            if slot in aside and not aside[slot].told:
                note = self._slots.note(slot, aside[slot].why, now)
                aside[slot] = aside[slot]._replace(told=True, note=note)
                if note is not None:
                    return note
            step = self._slots.step(slot, now)
            if slot not in aside:
                return step
            if step is None or step == aside[slot].step:
                return None
        except Exception as error:
            if self._troubled is None:
                raise
            return self._undecided(slot, error, now)
        del aside[slot]
        return step

    def cannot(self, step: Step, error: Exception) -> None:
        """The step failed for good."""
        known = self._memory.aside.get(step.slot)
        if known is None or known.note is not step:
            # If the note itself failed, the first reason stays.
            self._memory.aside[step.slot] = BlockedStep(step, sentence_of(error))

    def _undecided(self, slot: Slot, error: Exception, now: datetime) -> Step | None:
        aside, why = self._memory.aside, sentence_of(error)
        known = aside.get(slot)
        if known is not None and known.told and known.why == why:
            return None
        if self._troubled is not None:
            self._troubled(slot, error)
        try:
            note = self._slots.note(slot, why, now)
        except Exception as worse:  # The note cannot be made either.
            if self._troubled is not None:
                self._troubled(slot, worse)
            note = None
        aside[slot] = BlockedStep(None, why, told=True, note=note)
        return note


def sentence_of(error: Exception) -> str:
    """The error as a note for users."""
    return f"left aside, since it cannot be done: {error or type(error).__name__}"


class ProvisioningCore:
    """All requests and the steps that bring them to the desired state.

    ``patience``: the provider's time limit if the parameters set none; None: no limit. ``troubled``
    is called if deciding a slot raised: the slot is skipped, the others continue. None: the
    exception propagates."""

    def __init__(
        self,
        patience: timedelta | None,
        troubled: Callable[[Slot, Exception], None] | None = None,
    ) -> None:
        self.observed = ObservedState()
        self._memory = Memory()
        self._slots = SlotDecider(self.observed, self._memory, patience)
        self._aside = BlockedSlots(self._slots, self._memory, troubled)

    # Steps. --------------------------------------------------------------------

    def steps(self, now: datetime) -> Iterator[Step]:
        """The steps to perform now, at most one for each slot. The caller answers each with `done`,
        `failed` or `cannot`."""
        observed, flying = self.observed, self._memory.flying
        for slot in list(observed.dirty):
            if slot in flying:
                continue
            del observed.dirty[slot]
            step = self._aside.step(slot, now)
            if step is not None:
                flying[slot] = step
                yield step

    def done(self, step: Step, revision: int = 0) -> None:
        """The step was performed completely; ``revision``: of the record that it wrote."""
        slot, memory = step.slot, self._memory
        memory.flying.pop(slot, None)
        if step.write is not None:
            name = slot.namespace, step.write.name
            kept = self.observed.records.get(slot)
            if step.write.record is None and kept is not None:
                memory.ended(slot, kept.record)
            self.observed.wrote(slot, name, step.write.record, revision)
        if isinstance(step.fact, ProvisioningCancelled):
            memory.freed.add(step.fact.id)
        elif step.fact is not None:
            memory.asked.add(step.fact.id)
        if step.tell is not None:
            row = self._slots.row(slot)
            if row is not None:
                memory.told[slot] = SentVerdict(step.tell, row.state, row.last_transition_time)
        self.observed.dirty[slot] = None

    def failed(self, step: Step) -> None:
        """The write conflicted or its outcome is unknown: the slot is decided again after the
        bucket's next update."""
        memory = self._memory
        memory.flying.pop(step.slot, None)
        if step.tell is not None and step.slot in memory.told:
            memory.told[step.slot] = memory.told[step.slot]._replace(last=False)
        self.observed.dirty[step.slot] = None

    def cannot(self, step: Step, error: Exception) -> None:
        """The step can never succeed. This is noted on the request, and the slot is skipped until a
        different step follows for it."""
        self._memory.flying.pop(step.slot, None)
        self._aside.cannot(step, error)
        self.observed.dirty[step.slot] = None

    def due(self, now: datetime) -> None:
        """Marks the slots of overdue requests as dirty."""
        deadlines = self.observed.deadlines
        while self.observed.answers_read and deadlines and deadlines[0][0] <= now:
            self.observed.dirty[heappop(deadlines)[1]] = None

    def wake(self) -> datetime | None:
        """The next deadline; None: no open request has one, or answers are still being read."""
        deadlines = self.observed.deadlines
        return deadlines[0][0] if deadlines and self.observed.answers_read else None

    @property
    def is_busy(self) -> bool:
        """Whether a step is in flight or a slot is dirty."""
        return bool(self._memory.flying or self.observed.dirty)

    # Answers of providers. --------------------------------------------------------------------

    def apply_status(self, fact: ProvisioningStatus, now: datetime) -> tuple[Step | None, str]:
        """The step that stores a provider's answer; or the reason to ignore it, with a step that
        notes the reason on the request if there is one. The reason `BUSY` means that a step of the
        slot is in flight: call again later."""
        return apply_provider_status(self.observed, self._memory, fact, now)

    def note_unreadable(
        self, workload: Name, provisioning_class: str, why: str, now: datetime
    ) -> Step | None:
        """See `note_unreadable`."""
        return note_unreadable(self.observed, self._memory, workload, provisioning_class, why, now)

    def is_about_no_request(self, fact: ProvisioningStatus) -> bool:
        """Whether the request id of the answer cannot be one of ours (not merely an old one)."""
        return is_about_no_request(self.observed, fact)

    def records_of_class(self, provisioning_class: str) -> list[Record]:
        """The requests of that class that are not cancelled."""
        return [
            kept.record
            for kept in self.observed.records.values()
            if kept.record.spec.provisioning_class_name == provisioning_class
            and not kept.record.status.cancelled
        ]

    def send_again(self, slot: Slot, record_id: str) -> None:
        """The provider does not know the slot's request: it is sent once more."""
        self._memory.asked.discard(record_id)
        kept = self.observed.records.get(slot)
        if kept is not None and kept.record.spec.id == record_id:
            self.observed.dirty[slot] = None
