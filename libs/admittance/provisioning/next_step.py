"""Decides the next step of a slot (one check of one workload). Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.reading.canonical import spec_of
from admittance.api.workload import CheckState
from admittance.provisioning import answers
from admittance.provisioning.answers import Answer, answer
from admittance.provisioning.new_record import RecordBuilder
from admittance.provisioning.observed_state import ObservedState, StoredRecord, is_open
from admittance.provisioning.records import Record, State, size_error, with_note
from admittance.provisioning.request_content import (
    Unanswerable,
    cancelled,
    parameters_error,
    parameters_of,
    pod_sets_to_provision,
    requested,
    uses_managed_resource,
)
from admittance.provisioning.steps import (
    Memory,
    ReservationRef,
    SentVerdict,
    Slot,
    Step,
    Tell,
    Write,
)
from admittance.workload.check_rows import row_of
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.moves.check_verdicts import is_reserved_anew
from admittance.workload.stored import StoredWorkload, head

CAUSED: Final = "DeactivatedDueTo"
"""Prefix of the cause in the reason of an eviction."""


def cancel_reason(
    record: Record, work: StoredWorkload | None, row: CheckState | None, finished: str | None = None
) -> str:
    """Why the request is not needed any more; "": it is needed. ``finished``: the uid of the
    finished workload of that name, if there is one."""
    if finished == record.spec.uid:
        return "the workload has finished"
    if work is None or work.metadata.uid != record.spec.uid:
        return "the workload was deleted"
    if not is_of_current_cycle(record, work) or not is_reserved_anew(work):
        return _unreserved(work)
    if row is None:
        return "the check is not required any more"
    return "" if row.state in ("Pending", "Ready") else f"the check is {row.state}"


def _unreserved(work: StoredWorkload) -> str:
    evicted = find(work, Type.EVICTED)
    reason = evicted.reason if evicted is not None and evicted.status == "True" else ""
    if not head(work).active:
        _, _, cause = reason.partition(CAUSED)
        return "the workload was deactivated" + (f": {cause}" if cause else "")
    if reason:
        return f"the workload was evicted: {reason}"
    if is_reserved_anew(work):
        return "the workload holds another reservation by now"
    return "the workload holds no quota any more"


def is_of_current_cycle(record: Record, work: StoredWorkload) -> bool:
    """Whether the request belongs to the workload's current admission cycle."""
    spec = record.spec
    return (spec.uid, spec.cycle) == (work.metadata.uid, work.status.admission_cycle)


def cancelled_record(record: Record, why: str) -> Record:
    """The record, cancelled for that reason."""
    return replace(record, status=replace(record.status, cancelled=why))


def is_marked_for_deletion(record: Record) -> bool:
    """Whether a user has asked to delete the request."""
    return record.metadata.deletion_timestamp is not None


def differs_from_config(
    record: Record, config: ProvisioningRequestConfigSpec, work: StoredWorkload
) -> bool:
    """Whether the configuration's class or parameters differ from the request's."""
    return (
        record.spec.provisioning_class_name != config.provisioning_class_name
        or record.spec.parameters != parameters_of(config, work.metadata.annotations)
    )


def is_admitted(work: StoredWorkload) -> bool:
    """Whether the workload is admitted. With all checks Ready it may still wait, for instance for a
    sibling that has to stop."""
    return is_true(work, Type.ADMITTED)


def is_late(record: Record, now: datetime) -> bool:
    """Whether the deadline has passed without a final answer."""
    deadline = record.spec.deadline
    return deadline is not None and deadline <= now and is_open(record)


def is_needed(work: StoredWorkload, config: ProvisioningRequestConfigSpec) -> bool:
    """Whether a pod set of the workload uses a managed resource; edits of the config may change
    that."""
    if not config.managed_resources:
        return True
    pod_sets = spec_of(work.spec).pod_sets
    return any(
        one.count > 0 and uses_managed_resource(one, config.managed_resources) for one in pod_sets
    )


class SlotView(NamedTuple):
    """All that is known of a slot now. ``row``: the workload's row of the check; None: it has no
    such row, or the check is not ours any more."""

    slot: Slot
    kept: StoredRecord | None
    work: StoredWorkload | None
    row: CheckState | None
    now: datetime


class ReservationView(NamedTuple):
    """A reservation that the check has to answer, or has answered."""

    slot: Slot
    work: StoredWorkload
    row: CheckState
    now: datetime


class SlotDecider:
    """``patience``: see `RecordBuilder`."""

    def __init__(self, observed: ObservedState, memory: Memory, patience: timedelta | None) -> None:
        self._observed = observed
        self._memory = memory
        self._making = RecordBuilder(observed, memory, patience)

    def row(self, slot: Slot) -> CheckState | None:
        """The workload's row of the check, whichever controller the check has."""
        work = self._observed.workloads.get((slot.namespace, slot.workload))
        return row_of(work.status.admission_checks, slot.check) if work is not None else None

    def step(self, slot: Slot, now: datetime) -> Step | None:
        """The next step; None: nothing is left to do."""
        observed = self._observed
        kept = observed.records.get(slot)
        work = observed.workloads.get((slot.namespace, slot.workload))
        row = self.row(slot) if slot.check in observed.checks else None
        look = SlotView(slot, kept, work, row, now)
        if kept is not None:
            why = self._cancel_reason(look, kept.record)
            if kept.record.status.cancelled or why:
                return self._end(look, kept, why)
            if is_marked_for_deletion(kept.record):
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
        return self._serve(ReservationView(slot, work, row, now), kept)

    def note(self, slot: Slot, text: str, now: datetime) -> Step | None:
        """The step that notes the text on the request, or on a Pending check; None: it is noted."""
        kept = self._observed.records.get(slot)
        if kept is not None:
            new = with_note(kept.record, text, now)
            write = Write(new.metadata.name, new, kept.revision)
            return Step(slot, write) if new is not kept.record else None
        work = self._observed.workloads.get((slot.namespace, slot.workload))
        row = self.row(slot) if slot.check in self._observed.checks else None
        if work is None or row is None or row.state != "Pending" or not is_reserved_anew(work):
            return None
        return self._tell(ReservationView(slot, work, row, now), Answer("Pending", text))

    def _cancel_reason(self, look: SlotView, record: Record) -> str:
        slot = look.slot
        finished = self._observed.finished.get((slot.namespace, slot.workload))
        return cancel_reason(record, look.work, look.row, finished)

    # Requests that are deleted or not needed. ------------------------------------------

    def _lost(self, look: SlotView) -> Step | None:
        """A step for records that were deleted or overwritten by another writer: a request that is
        still needed is written again as it was; the others are cancelled at the provider."""
        observed, memory = self._observed, self._memory
        slot, kept = look.slot, look.kept
        while slot in observed.lost:
            record = observed.lost[slot][-1]
            ended = record.status.cancelled or is_marked_for_deletion(record)
            wanted = not ended and not self._cancel_reason(look, record)
            if wanted and kept is None and not self._is_ready(look):
                expected = observed.expected(slot, record.metadata.name)
                return Step(slot, Write(record.metadata.name, record, expected))
            stands = kept is not None and kept.record.spec.id == record.spec.id
            if not stands and record.spec.id not in memory.freed:
                # Even if publishing fails, the request stays cancelled: its provider may have
                # received it.
                record = cancelled_record(record, record.status.cancelled or answers.DELETED)
                observed.replace_lost(slot, record)
                return Step(slot, fact=cancelled(record))
            if not stands:
                memory.forget(record)
            observed.settle_lost(slot, record)
            memory.ended(slot, record)
        return None

    def _end(self, look: SlotView, kept: StoredRecord, why: str) -> Step | None:
        """Ends a request: marks the record as cancelled, sends `cancelled` to the provider, then
        deletes the record or replaces it by a new request. ``why`` "": the request is cancelled,
        but a new one is needed."""
        slot, work, row = look.slot, look.work, look.row
        record = kept.record
        if not record.status.cancelled:
            return self._cancel(slot, kept, why)
        if record.spec.id not in self._memory.freed:
            return Step(slot, fact=cancelled(record))
        if work is not None and row is not None and not why and is_reserved_anew(work):
            step = self._serve(ReservationView(slot, work, row, look.now), kept)
            if step is not None:
                return step
        judged = row is not None and row.state in ("Retry", "Rejected")
        reserved = work is not None and is_of_current_cycle(record, work) and is_reserved_anew(work)
        if reserved and not judged and not is_marked_for_deletion(record):
            # The record stays until the reservation ends: a new request needs another id.
            return None
        self._memory.forget(record)
        return Step(slot, Write(record.metadata.name, None, kept.revision))

    def _cancel(self, slot: Slot, kept: StoredRecord, why: str) -> Step:
        record = cancelled_record(kept.record, why)
        return Step(slot, Write(record.metadata.name, record, kept.revision))

    # Requests that are needed. ------------------------------------------------------------------

    def _is_ready(self, look: SlotView | ReservationView) -> bool:
        """Whether the check is Ready, or Ready was reported and the row does not show it yet."""
        work, row = look.work, look.row
        if work is None or row is None or row.state == "Ready":
            return row is not None
        said = self._memory.told.get(look.slot)
        return (
            said is not None
            and said.tell.answer.state == "Ready"
            and said.tell.about == ReservationRef(work.metadata.uid, work.status.admission_cycle)
            and (said.state, said.since) == (row.state, row.last_transition_time)
        )

    def _serve(self, look: ReservationView, kept: StoredRecord | None) -> Step | None:
        slot, work = look.slot, look.work
        config = self._observed.config_of(slot.check)
        open_ = kept if kept is not None and not kept.record.status.cancelled else None
        if self._is_ready(look):
            # A change of the configuration does not revoke Ready. A request deleted by hand is not
            # made again.
            if open_ is None:
                return None
            given = config or ProvisioningRequestConfigSpec()
            return self._tell(look, answer(open_.record, given, admitted=is_admitted(work)))
        if config is None:
            if open_ is not None:
                return self._cancel(slot, open_, answers.NOT_ACTIVE)
            return self._tell(look, Answer("Pending", answers.NOT_ACTIVE))
        if open_ is None:
            return self._ask(look, kept, config)
        record = open_.record
        if self._observed.answers_read and is_late(record, look.now):
            return self._too_late(slot, open_)
        if record.status.state is not State.PROVISIONED and differs_from_config(
            record, config, work
        ):
            return self._cancel(slot, open_, "the configuration changed")
        if not is_needed(work, config):
            return self._cancel(slot, open_, answers.NOT_NEEDED)
        if record.spec.id not in self._memory.asked and is_open(record):
            return Step(slot, fact=requested(record))
        if record.status.state is State.BOOKING_EXPIRED and is_true(work, Type.ADMITTED):
            return None  # It runs already; the check was added later.
        return self._tell(look, answer(record, config, admitted=False))

    def _ask(
        self,
        look: ReservationView,
        before: StoredRecord | None,
        config: ProvisioningRequestConfigSpec,
    ) -> Step | None:
        """``before``: the cancelled request that the new one replaces."""
        slot, work = look.slot, look.work
        flavors = self._observed.flavors
        try:
            wanted = pod_sets_to_provision(
                spec_of(work.spec).pod_sets, work.status.admission, config, flavors.get
            )
        except Unanswerable as error:
            return self._tell(look, Answer("Pending", str(error)))
        if not wanted:
            return self._tell(look, Answer("Ready", answers.NOT_NEEDED))
        wrong = parameters_error(parameters_of(config, work.metadata.annotations))
        if wrong:
            # Every attempt would fail the same way.
            return self._tell(look, Answer("Rejected", wrong))
        record = self._making.record(slot, work, look.row, before, config, wanted, look.now)
        wrong = size_error(record)
        if wrong:
            return self._tell(look, Answer("Rejected", wrong))
        expected = self._observed.expected(slot, record.metadata.name)
        if before is not None:
            if before.record.metadata.name != record.metadata.name:
                return Step(slot, Write(before.record.metadata.name, None, before.revision))
            expected = before.revision
        return Step(slot, Write(record.metadata.name, record, expected), requested(record))

    def _too_late(self, slot: Slot, kept: StoredRecord) -> Step:
        record = kept.record
        message = f"not provisioned by {record.spec.deadline:%Y-%m-%dT%H:%M:%SZ}"
        late = replace(record.status, state=State.FAILED, message=message)
        return Step(slot, Write(record.metadata.name, replace(record, status=late), kept.revision))

    def _tell(self, look: ReservationView, found: Answer | None) -> Step | None:
        row, work = look.row, look.work
        if found is None or (found.state == row.state and found.message == row.message):
            return None
        tell = Tell(ReservationRef(work.metadata.uid, work.status.admission_cycle), found)
        said = SentVerdict(tell, row.state, row.last_transition_time)
        return None if self._memory.told.get(look.slot) == said else Step(look.slot, tell=tell)
