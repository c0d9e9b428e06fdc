"""What an answer of a provider leads to: a record that keeps it, a note, or nothing. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.events.provisioning import ProvisioningStatus
from admittance.provisioning import answers
from admittance.provisioning.records import Record, State, noted, take
from admittance.provisioning_check.acts import Slot, Step, Write
from admittance.provisioning_check.memory import Memory
from admittance.provisioning_check.picture import Kept, Name, Picture
from admittance.provisioning_check.standing import runs

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
