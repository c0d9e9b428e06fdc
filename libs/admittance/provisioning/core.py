"""What is to be done so that every reservation has its request, and nobody else has one. Pure.

It follows from what is stored, and not from what was heard: a message that is lost, doubled or
late changes nothing, and whoever takes over goes on. LIFECYCLE 5.
"""

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
"""A step of its slot is under way: it is to be said again."""
RUNS: Final = "it runs, and only CapacityRevoked ends that"


def is_about_no_request(observed: ObservedState, fact: ProvisioningStatus) -> bool:
    """It is about no request that we can have made: not merely late."""
    work = observed.works.get((fact.namespace, fact.name))
    uid = fact.id.partition("/")[0]
    if fact.uid and fact.uid != uid:
        return True
    if work is None:
        return fact.id.count("/") < 3
    return uid != work.metadata.uid and not fact.uid


def apply_provider_status(
    observed: ObservedState, memory: Memory, fact: ProvisioningStatus, now: datetime
) -> tuple[Step | None, str]:
    """A step that keeps the answer, or why it counts for nothing, and then perhaps a step that
    notes that."""
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
            record = with_note(record, f"the provider told no detail {name!r}: left out", now)
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
    """A step that notes that nobody can read what the class said of that workload; None: it was
    asked nothing there, it is noted, or there is a step under way."""
    for slot in observed.slots_of(workload):
        kept = observed.records[slot]
        if kept.record.spec.provisioning_class_name != provisioning_class or slot in memory.flying:
            continue
        text = f"an answer of class {provisioning_class} is not understood: {why}"
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
    """What does not count is noted where people look for it, once."""
    if slot in memory.flying:
        return None, BUSY
    record = with_note(kept.record, _uncounted(fact, why), now)
    return (None if record is kept.record else _keeps(memory, slot, kept, record)), why


def _uncounted(fact: ProvisioningStatus, why: str) -> str:
    return f"{type(fact).__name__} of class {fact.provisioning_class} does not count: {why}"


def _runs(observed: ObservedState, slot: Slot) -> bool:
    work = observed.works.get((slot.namespace, slot.workload))
    return work is not None and is_admitted(work)


def _keeps(memory: Memory, slot: Slot, kept: StoredRecord, record: Record) -> Step:
    step = Step(slot, Write(record.metadata.name, record, kept.revision))
    memory.flying[slot] = step
    return step


class BlockedSlots:
    """``troubled``: as of `Capacity`."""

    def __init__(
        self, slots: SlotDecider, memory: Memory, troubled: Callable[[Slot, Exception], None] | None
    ) -> None:
        self._slots = slots
        self._memory = memory
        self._troubled = troubled

    def step(self, slot: Slot, now: datetime) -> Step | None:
        """The next step of the slot; None: there is none, or it is left aside."""
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
        """That step cannot be done."""
        known = self._memory.aside.get(step.slot)
        if known is None or known.note is not step:
            # Else there is nowhere to say it.
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
        except Exception as worse:  # Nor can anybody say so.
            if self._troubled is not None:
                self._troubled(slot, worse)
            note = None
        aside[slot] = BlockedStep(None, why, told=True, note=note)
        return note


def sentence_of(error: Exception) -> str:
    """What is wrong, for people."""
    return f"left aside, since it cannot be done: {error or type(error).__name__}"


class ProvisioningCore:
    """All requests, and what leads from what is stored to what should be.

    ``patience``: how long a provider may take where the parameters do not tell; None: for ever.
    ``troubled`` hears of a slot for which nobody can decide: it is left aside, and the others go
    on. None: that is raised.
    """

    def __init__(
        self,
        patience: timedelta | None,
        troubled: Callable[[Slot, Exception], None] | None = None,
    ) -> None:
        self.observed = ObservedState()
        self._memory = Memory()
        self._slots = SlotDecider(self.observed, self._memory, patience)
        self._aside = BlockedSlots(self._slots, self._memory, troubled)

    # What is to be done. --------------------------------------------------------------------

    def steps(self, now: datetime) -> Iterator[Step]:
        """What is to be done now, one step of a slot at a time; each to be answered by `done` or
        `failed`."""
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
        """All of it is on the bus; ``revision``: of what was written."""
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
        """Somebody else wrote, or nobody knows what became of it: the slot is looked at again, once
        the bucket has told."""
        memory = self._memory
        memory.flying.pop(step.slot, None)
        if step.tell is not None and step.slot in memory.told:
            memory.told[step.slot] = memory.told[step.slot]._replace(last=False)
        self.observed.dirty[step.slot] = None

    def cannot(self, step: Step, error: Exception) -> None:
        """It will never be done: neither now nor later. It is noted, and left aside until there is
        something else to be done for that slot."""
        self._memory.flying.pop(step.slot, None)
        self._aside.cannot(step, error)
        self.observed.dirty[step.slot] = None

    def due(self, now: datetime) -> None:
        """Requests whose time has come are looked at."""
        deadlines = self.observed.deadlines
        while self.observed.heard and deadlines and deadlines[0][0] <= now:
            self.observed.dirty[heappop(deadlines)[1]] = None

    def wake(self) -> datetime | None:
        """When the next request may be late; None: none has a deadline, or nobody can tell yet."""
        deadlines = self.observed.deadlines
        return deadlines[0][0] if deadlines and self.observed.heard else None

    @property
    def is_busy(self) -> bool:
        """Something is under way, or is to be looked at."""
        return bool(self._memory.flying or self.observed.dirty)

    # What providers say. --------------------------------------------------------------------

    def heard(self, fact: ProvisioningStatus, now: datetime) -> tuple[Step | None, str]:
        """What an answer of a provider leads to: a step that keeps it, or why it counts for
        nothing, and then perhaps a step that notes that. Nobody's answers are kept while a step of
        their slot is under way: then the reason is "busy", and it is to be said again."""
        return apply_provider_status(self.observed, self._memory, fact, now)

    def unread(
        self, workload: Name, provisioning_class: str, why: str, now: datetime
    ) -> Step | None:
        """What leads to a note that nobody can read what the class said of that workload."""
        return note_unreadable(self.observed, self._memory, workload, provisioning_class, why, now)

    def is_foreign(self, fact: ProvisioningStatus) -> bool:
        """It is about no request that we can have made: not merely late."""
        return is_about_no_request(self.observed, fact)

    def records_of_class(self, provisioning_class: str) -> list[Record]:
        """The requests of that class that were not taken back."""
        return [
            kept.record
            for kept in self.observed.records.values()
            if kept.record.spec.provisioning_class_name == provisioning_class
            and not kept.record.status.cancelled
        ]

    def unheard(self, slot: Slot, record_id: str) -> None:
        """The provider does not know that request of the slot: it is asked once more."""
        self._memory.asked.discard(record_id)
        kept = self.observed.records.get(slot)
        if kept is not None and kept.record.spec.id == record_id:
            self.observed.dirty[slot] = None
