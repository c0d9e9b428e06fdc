"""One slot: what is to be done next for one check of one workload. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.reading.canonical import spec_of
from admittance.api.workload import CheckState
from admittance.provisioning import answers
from admittance.provisioning.answers import Answer, answer
from admittance.provisioning.asking import (
    Unanswerable,
    asked,
    cancelled,
    parameters_of,
    requested,
    too_much,
)
from admittance.provisioning.making import Making
from admittance.provisioning.picture import Kept, Picture, is_open
from admittance.provisioning.records import Record, State, noted, too_large
from admittance.provisioning.standing import (
    differs,
    is_late,
    is_marked,
    is_needed,
    is_of,
    runs,
    taken_back,
    unwanted,
)
from admittance.provisioning.steps import About, Memory, Said, Slot, Step, Tell, Write
from admittance.workload.check_rows import row_of
from admittance.workload.conditions import Type, is_true
from admittance.workload.moves.check_verdicts import is_reserved_anew
from admittance.workload.stored import StoredWorkload


class Look(NamedTuple):
    """All that is known of a slot at a moment. ``row``: what the workload shows of the check; None:
    it has none of that name, or the check is not ours any more."""

    slot: Slot
    kept: Kept | None
    work: StoredWorkload | None
    row: CheckState | None
    now: datetime


class Judged(NamedTuple):
    """A reservation that the check has to judge, or has judged."""

    slot: Slot
    work: StoredWorkload
    row: CheckState
    now: datetime


class Slots:
    """``patience``: as of `Making`."""

    def __init__(self, picture: Picture, memory: Memory, patience: timedelta | None) -> None:
        self._picture = picture
        self._memory = memory
        self._making = Making(picture, memory, patience)

    def row(self, slot: Slot) -> CheckState | None:
        """What the workload shows of the check, whosever it is."""
        work = self._picture.works.get((slot.namespace, slot.workload))
        return row_of(work.status.admission_checks, slot.check) if work is not None else None

    def step(self, slot: Slot, now: datetime) -> Step | None:
        """The next step; None: all is as it should be."""
        picture = self._picture
        kept = picture.records.get(slot)
        work = picture.works.get((slot.namespace, slot.workload))
        row = self.row(slot) if slot.check in picture.checks else None
        look = Look(slot, kept, work, row, now)
        if kept is not None:
            why = self._unwanted(look, kept.record)
            if kept.record.status.cancelled or why:
                return self._end(look, kept, why)
            if is_marked(kept.record):
                return self._cancel(slot, kept, answers.DELETED)
        lost = self._lost(look)
        if lost is not None:
            return lost
        if work is None or row is None or not is_reserved_anew(work):
            self._memory.told.pop(slot, None)
            if work is None and kept is None:
                self._memory.past.pop(slot, None)
                self._memory.aside.pop(slot, None)
            return None
        if row.state not in ("Pending", "Ready"):
            return None
        return self._serve(Judged(slot, work, row, now), kept)

    def note(self, slot: Slot, text: str, now: datetime) -> Step | None:
        """A step that says so beside the request, or the check that waits for one; None: it is."""
        kept = self._picture.records.get(slot)
        if kept is not None:
            new = noted(kept.record, text, now)
            write = Write(new.metadata.name, new, kept.revision)
            return Step(slot, write) if new is not kept.record else None
        work = self._picture.works.get((slot.namespace, slot.workload))
        row = self.row(slot) if slot.check in self._picture.checks else None
        if work is None or row is None or row.state != "Pending" or not is_reserved_anew(work):
            return None
        return self._tell(Judged(slot, work, row, now), Answer("Pending", text))

    def _unwanted(self, look: Look, record: Record) -> str:
        slot = look.slot
        finished = self._picture.finished.get((slot.namespace, slot.workload))
        return unwanted(record, look.work, look.row, finished)

    # What is not there any more, or should not be. ------------------------------------------

    def _lost(self, look: Look) -> Step | None:
        """Of requests that somebody else deleted, or wrote another over: the one that is waited for
        is written again as it was; what others have booked is freed."""
        picture, memory = self._picture, self._memory
        slot, kept = look.slot, look.kept
        while slot in picture.lost:
            record = picture.lost[slot][-1]
            wanted = not record.status.cancelled and not self._unwanted(look, record)
            if wanted and kept is None and not self._is_ready(look):
                expected = picture.expected(slot, record.metadata.name)
                return Step(slot, Write(record.metadata.name, record, expected))
            stands = kept is not None and kept.record.spec.id == record.spec.id
            if not stands and record.spec.id not in memory.freed:
                # Whatever becomes of saying so, it is not wanted again: its provider may know.
                ended = taken_back(record, record.status.cancelled or answers.DELETED)
                picture.lost[slot][-1] = ended
                return Step(slot, fact=cancelled(ended))
            if not stands:
                memory.forget(record)
            picture.found(slot, record)
            memory.ended(slot, record)
        return None

    def _end(self, look: Look, kept: Kept, why: str) -> Step | None:
        """Nobody needs the request: it is written that it is taken back, the provider is told, and
        then it is gone, unless another one takes its place. ``why`` "": it was taken back, and is
        needed all the same."""
        slot, work, row = look.slot, look.work, look.row
        record = kept.record
        if not record.status.cancelled:
            return self._cancel(slot, kept, why)
        if record.spec.id not in self._memory.freed:
            return Step(slot, fact=cancelled(record))
        if work is not None and row is not None and not why and is_reserved_anew(work):
            step = self._serve(Judged(slot, work, row, look.now), kept)
            if step is not None:
                return step
        judged = row is not None and row.state in ("Retry", "Rejected")
        reserved = work is not None and is_of(record, work) and is_reserved_anew(work)
        if reserved and not judged and not is_marked(record):
            # It stays until the reservation ends: who asks for it again has to use another id.
            return None
        self._memory.forget(record)
        return Step(slot, Write(record.metadata.name, None, kept.revision))

    def _cancel(self, slot: Slot, kept: Kept, why: str) -> Step:
        record = taken_back(kept.record, why)
        return Step(slot, Write(record.metadata.name, record, kept.revision))

    # What is to be judged. ------------------------------------------------------------------

    def _is_ready(self, look: Look | Judged) -> bool:
        """The check is Ready, or was told so and does not show it yet."""
        work, row = look.work, look.row
        if work is None or row is None or row.state == "Ready":
            return row is not None
        said = self._memory.told.get(look.slot)
        return (
            said is not None
            and said.tell.answer.state == "Ready"
            and said.tell.about == About(work.metadata.uid, work.status.admission_cycle)
            and (said.state, said.since) == (row.state, row.last_transition_time)
        )

    def _serve(self, look: Judged, kept: Kept | None) -> Step | None:
        slot, work = look.slot, look.work
        config = self._picture.config_of(slot.check)
        open_ = kept if kept is not None and not kept.record.status.cancelled else None
        if self._is_ready(look):
            # Whatever becomes of the configuration, it keeps what it has; what is deleted by hand
            # is not made anew.
            if open_ is None:
                return None
            given = config or ProvisioningRequestConfigSpec()
            return self._tell(look, answer(open_.record, given, admitted=runs(work)))
        if config is None:
            if open_ is not None:
                return self._cancel(slot, open_, answers.NOT_ACTIVE)
            return self._tell(look, Answer("Pending", answers.NOT_ACTIVE))
        if open_ is None:
            return self._ask(look, kept, config)
        record = open_.record
        if self._picture.heard and is_late(record, look.now):
            return self._too_late(slot, open_)
        if record.status.state is not State.PROVISIONED and differs(record, config, work):
            return self._cancel(slot, open_, "the configuration changed")
        if not is_needed(work, config):
            return self._cancel(slot, open_, answers.NOT_NEEDED)
        if record.spec.id not in self._memory.asked and is_open(record):
            return Step(slot, fact=requested(record))
        if record.status.state is State.BOOKING_EXPIRED and is_true(work, Type.ADMITTED):
            return None  # It runs, and got the check only then.
        return self._tell(look, answer(record, config, admitted=False))

    def _ask(
        self, look: Judged, before: Kept | None, config: ProvisioningRequestConfigSpec
    ) -> Step | None:
        """``before``: the request that was taken back and whose place a new one takes."""
        slot, work = look.slot, look.work
        flavors = self._picture.flavors
        try:
            wanted = asked(spec_of(work.spec).pod_sets, work.status.admission, config, flavors.get)
        except Unanswerable as error:
            return self._tell(look, Answer("Pending", str(error)))
        if not wanted:
            return self._tell(look, Answer("Ready", answers.NOT_NEEDED))
        wrong = too_much(parameters_of(config, work.metadata.annotations))
        if wrong:
            # It would be so at every attempt.
            return self._tell(look, Answer("Rejected", wrong))
        record = self._making.record(slot, work, look.row, before, config, wanted, look.now)
        wrong = too_large(record)
        if wrong:
            return self._tell(look, Answer("Rejected", wrong))
        expected = self._picture.expected(slot, record.metadata.name)
        if before is not None:
            if before.record.metadata.name != record.metadata.name:
                return Step(slot, Write(before.record.metadata.name, None, before.revision))
            expected = before.revision
        return Step(slot, Write(record.metadata.name, record, expected), requested(record))

    def _too_late(self, slot: Slot, kept: Kept) -> Step:
        record = kept.record
        message = f"not provisioned by {record.spec.deadline:%Y-%m-%dT%H:%M:%SZ}"
        late = replace(record.status, state=State.FAILED, message=message)
        return Step(slot, Write(record.metadata.name, replace(record, status=late), kept.revision))

    def _tell(self, look: Judged, found: Answer | None) -> Step | None:
        row, work = look.row, look.work
        if found is None or (found.state == row.state and found.message == row.message):
            return None
        tell = Tell(About(work.metadata.uid, work.status.admission_cycle), found)
        said = Said(tell, row.state, row.last_transition_time)
        return None if self._memory.told.get(look.slot) == said else Step(look.slot, tell=tell)
