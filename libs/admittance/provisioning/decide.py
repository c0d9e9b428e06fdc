"""What is to be done so that every reservation has its request, and nobody else has one. Pure.

It follows from what is stored, and not from what was heard: a message that is lost, doubled or
late changes nothing, and whoever takes over goes on. LIFECYCLE 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from heapq import heappop

from admittance.events.provisioning import ProvisioningCancelled, ProvisioningStatus
from admittance.provisioning import heard
from admittance.provisioning.heard import LeavingAside
from admittance.provisioning.picture import Name, Picture
from admittance.provisioning.records import Record
from admittance.provisioning.slots import Slots
from admittance.provisioning.steps import Memory, Said, Slot, Step


class Capacity:
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
        self.picture = Picture()
        self._memory = Memory()
        self._slots = Slots(self.picture, self._memory, patience)
        self._aside = LeavingAside(self._slots, self._memory, troubled)

    # What is to be done. --------------------------------------------------------------------

    def steps(self, now: datetime) -> Iterator[Step]:
        """What is to be done now, one step of a slot at a time; each to be answered by `done` or
        `failed`."""
        picture, flying = self.picture, self._memory.flying
        for slot in list(picture.dirty):
            if slot in flying:
                continue
            del picture.dirty[slot]
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
            kept = self.picture.records.get(slot)
            if step.write.record is None and kept is not None:
                memory.ended(slot, kept.record)
            self.picture.wrote(slot, name, step.write.record, revision)
        if isinstance(step.fact, ProvisioningCancelled):
            memory.freed.add(step.fact.id)
        elif step.fact is not None:
            memory.asked.add(step.fact.id)
        if step.tell is not None:
            row = self._slots.row(slot)
            if row is not None:
                memory.told[slot] = Said(step.tell, row.state, row.last_transition_time)
        self.picture.dirty[slot] = None

    def failed(self, step: Step) -> None:
        """Somebody else wrote, or nobody knows what became of it: the slot is looked at again, once
        the bucket has told."""
        memory = self._memory
        memory.flying.pop(step.slot, None)
        if step.tell is not None and step.slot in memory.told:
            memory.told[step.slot] = memory.told[step.slot]._replace(last=False)
        self.picture.dirty[step.slot] = None

    def cannot(self, step: Step, error: Exception) -> None:
        """It will never be done: neither now nor later. It is noted, and left aside until there is
        something else to be done for that slot."""
        self._memory.flying.pop(step.slot, None)
        self._aside.cannot(step, error)
        self.picture.dirty[step.slot] = None

    def due(self, now: datetime) -> None:
        """Requests whose time has come are looked at."""
        deadlines = self.picture.deadlines
        while self.picture.heard and deadlines and deadlines[0][0] <= now:
            self.picture.dirty[heappop(deadlines)[1]] = None

    def wake(self) -> datetime | None:
        """When the next request may be late; None: none has a deadline, or nobody can tell yet."""
        deadlines = self.picture.deadlines
        return deadlines[0][0] if deadlines and self.picture.heard else None

    @property
    def is_busy(self) -> bool:
        """Something is under way, or is to be looked at."""
        return bool(self._memory.flying or self.picture.dirty)

    # What providers say. --------------------------------------------------------------------

    def heard(self, fact: ProvisioningStatus, now: datetime) -> tuple[Step | None, str]:
        """What an answer of a provider leads to: a step that keeps it, or why it counts for
        nothing, and then perhaps a step that notes that. Nobody's answers are kept while a step of
        their slot is under way: then the reason is "busy", and it is to be said again."""
        return heard.heard(self.picture, self._memory, fact, now)

    def unread(
        self, workload: Name, provisioning_class: str, why: str, now: datetime
    ) -> Step | None:
        """What leads to a note that nobody can read what the class said of that workload."""
        return heard.unread(self.picture, self._memory, workload, provisioning_class, why, now)

    def is_foreign(self, fact: ProvisioningStatus) -> bool:
        """It is about no request that we can have made: not merely late."""
        return heard.is_foreign(self.picture, fact)

    def records_of_class(self, provisioning_class: str) -> list[Record]:
        """The requests of that class that were not taken back."""
        return [
            kept.record
            for kept in self.picture.records.values()
            if kept.record.spec.provisioning_class_name == provisioning_class
            and not kept.record.status.cancelled
        ]

    def unheard(self, slot: Slot, record_id: str) -> None:
        """The provider does not know that request of the slot: it is asked once more."""
        self._memory.asked.discard(record_id)
        kept = self.picture.records.get(slot)
        if kept is not None and kept.record.spec.id == record_id:
            self.picture.dirty[slot] = None
