"""What an answer of a provider leads to: a record that keeps it, a note, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from admittance.events.provisioning import ProvisioningStatus
from admittance.provisioning import answers
from admittance.provisioning.picture import Kept, Name, Picture
from admittance.provisioning.records import Record, State, noted, take
from admittance.provisioning.slots import Slots
from admittance.provisioning.standing import runs
from admittance.provisioning.steps import Aside, Memory, Slot, Step, Write

BUSY: Final = "busy"
"""A step of its slot is under way: it is to be said again."""
RUNS: Final = "it runs, and only CapacityRevoked ends that"


def is_foreign(picture: Picture, fact: ProvisioningStatus) -> bool:
    """It is about no request that we can have made: not merely late."""
    work = picture.works.get((fact.namespace, fact.name))
    uid = fact.id.partition("/")[0]
    if fact.uid and fact.uid != uid:
        return True
    if work is None:
        return fact.id.count("/") < 3
    return uid != work.metadata.uid and not fact.uid


def heard(
    picture: Picture, memory: Memory, fact: ProvisioningStatus, now: datetime
) -> tuple[Step | None, str]:
    """A step that keeps the answer, or why it counts for nothing, and then perhaps a step that
    notes that."""
    of = [(slot, picture.records[slot]) for slot in picture.slots_of((fact.namespace, fact.name))]
    found = next((one for one in of if one[1].record.spec.id == fact.id), None)
    if found is None:
        why = f"no request {fact.id} of {fact.namespace}/{fact.name} is open"
        if not of or not is_foreign(picture, fact):
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
    taken = take(kept.record, fact, now)
    if taken.contradicts:
        return _note(memory, slot, kept, fact, taken.ignored, now)
    if taken.ignored:
        return None, taken.ignored
    record = taken.record
    config = picture.config_of(slot.check)
    if config is not None and record.status.state is State.PROVISIONED:
        for name in answers.updates_of(record, config)[1]:
            record = noted(record, f"the provider told no detail {name!r}: left out", now)
    for text in answers.unheeded(record) if fact.pod_set_updates else ():
        record = noted(record, text, now)
    if record.status.state is State.FAILED and _runs(picture, slot):
        record = noted(record, _uncounted(fact, RUNS), now)
    return _keeps(memory, slot, kept, record), ""


def unread(
    picture: Picture,
    memory: Memory,
    workload: Name,
    provisioning_class: str,
    why: str,
    now: datetime,
) -> Step | None:
    """A step that notes that nobody can read what the class said of that workload; None: it was
    asked nothing there, it is noted, or there is a step under way."""
    for slot in picture.slots_of(workload):
        kept = picture.records[slot]
        if kept.record.spec.provisioning_class_name != provisioning_class or slot in memory.flying:
            continue
        text = f"an answer of class {provisioning_class} is not understood: {why}"
        record = noted(kept.record, text, now)
        if record is not kept.record:
            return _keeps(memory, slot, kept, record)
    return None


def _note(
    memory: Memory, slot: Slot, kept: Kept, fact: ProvisioningStatus, why: str, now: datetime
) -> tuple[Step | None, str]:
    """What does not count is noted where people look for it, once."""
    if slot in memory.flying:
        return None, BUSY
    record = noted(kept.record, _uncounted(fact, why), now)
    return (None if record is kept.record else _keeps(memory, slot, kept, record)), why


def _uncounted(fact: ProvisioningStatus, why: str) -> str:
    return f"{type(fact).__name__} of class {fact.provisioning_class} does not count: {why}"


def _runs(picture: Picture, slot: Slot) -> bool:
    work = picture.works.get((slot.namespace, slot.workload))
    return work is not None and runs(work)


def _keeps(memory: Memory, slot: Slot, kept: Kept, record: Record) -> Step:
    step = Step(slot, Write(record.metadata.name, record, kept.revision))
    memory.flying[slot] = step
    return step


class LeavingAside:
    """``troubled``: as of `Capacity`."""

    def __init__(
        self, slots: Slots, memory: Memory, troubled: Callable[[Slot, Exception], None] | None
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
            self._memory.aside[step.slot] = Aside(step, sentence_of(error))

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
        aside[slot] = Aside(None, why, told=True, note=note)
        return note


def sentence_of(error: Exception) -> str:
    """What is wrong, for people."""
    return f"left aside, since it cannot be done: {error or type(error).__name__}"
