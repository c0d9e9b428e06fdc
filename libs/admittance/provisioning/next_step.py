"""Decides the next step of a slot (one check of one workload). Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.meta import APPLIED_BY
from admittance.api.reading.canonical import spec_of
from admittance.api.workload import CheckState
from admittance.events import reasons
from admittance.provisioning import steps
from admittance.provisioning.new_request import (
    IncompleteReservation,
    RecordBuilder,
    cancelled_fact,
    parameters_error,
    parameters_of,
    pod_sets_to_provision,
    requested_fact,
    uses_managed_resource,
)
from admittance.provisioning.observed_state import ObservedState, StoredRecord, is_open
from admittance.provisioning.records import Record, State, size_error, with_note
from admittance.provisioning.steps import (
    CheckVerdict,
    Memory,
    ReportedVerdict,
    RequestSlot,
    ReservationRef,
    Step,
    VerdictReport,
    Write,
    verdict_of_request,
)
from admittance.workload.checks.rows import row_of
from admittance.workload.conditions import Type, find_true, is_true
from admittance.workload.moves.counted_verdicts import is_under_check
from admittance.workload.stored import StoredWorkload, head


def cancel_reason(
    record: Record, work: StoredWorkload | None, row: CheckState | None, finished: str | None = None
) -> str:
    """Why the request is not needed any more; "" if it is needed. ``finished``: the uid of the
    finished workload with the request's workload name; None if there is none.
    """
    if finished == record.spec.uid:
        return "the workload has finished"
    if work is None or work.metadata.uid != record.spec.uid:
        return "the workload was deleted"
    if not is_of_current_cycle(record, work) or not is_under_check(work):
        return _unreserved(work)
    if row is None:
        return "the check is not required any more"
    return "" if row.state in ("Pending", "Ready") else f"the check is {row.state}"


def _unreserved(work: StoredWorkload) -> str:
    """Why the request's reservation is not the workload's current one; "" if it is."""
    evicted = find_true(work, Type.EVICTED)
    reason = evicted.reason if evicted is not None else ""
    if not head(work).active:
        _, _, cause = reason.partition(reasons.DEACTIVATED_DUE_TO)
        return "the workload was deactivated" + (f": {cause}" if cause else "")
    if reason:
        return f"the workload was evicted: {reason}"
    if is_under_check(work):
        return "the workload has a newer reservation"
    return "the workload has lost its reservation"


def is_of_current_cycle(record: Record, work: StoredWorkload) -> bool:
    """Whether the request belongs to the workload's current admission cycle."""
    spec = record.spec
    return (spec.uid, spec.cycle) == (work.metadata.uid, work.status.admission_cycle)


def cancelled_record(record: Record, why: str) -> Record:
    """The record with ``why`` as the reason of its cancellation."""
    return replace(record, status=replace(record.status, cancelled=why))


def is_marked_for_deletion(record: Record) -> bool:
    """Whether a user has asked to delete the capacity request."""
    return record.metadata.deletion_timestamp is not None


def deletion_reason(record: Record) -> str:
    """Why the deleted request is cancelled, with the user that deleted it, if that is known."""
    user = record.metadata.annotations.get(APPLIED_BY, "")
    return f"{steps.DELETED} by {user}" if user else steps.DELETED


def differs_from_config(
    record: Record, config: ProvisioningRequestConfigSpec, work: StoredWorkload
) -> bool:
    """Whether the class or the parameters of the request are not those of the configuration."""
    return (
        record.spec.provisioning_class_name != config.provisioning_class_name
        or record.spec.parameters != parameters_of(config, work.metadata.annotations)
    )


def is_admitted(work: StoredWorkload) -> bool:
    """Whether the workload is admitted. A workload with all checks Ready may still wait, for
    instance until another variant has stopped."""
    return is_true(work, Type.ADMITTED)


def is_late(record: Record, now: datetime) -> bool:
    """Whether the request's deadline has passed without a final answer."""
    deadline = record.spec.deadline
    return deadline is not None and deadline <= now and is_open(record)


def is_needed(work: StoredWorkload, config: ProvisioningRequestConfigSpec) -> bool:
    """Whether a pod set of the workload uses a managed resource of the configuration."""
    if not config.managed_resources:
        return True
    pod_sets = spec_of(work.spec).pod_sets
    return any(
        pod_set.count > 0 and uses_managed_resource(pod_set, config.managed_resources)
        for pod_set in pod_sets
    )


class SlotView(NamedTuple):
    """The current facts about a slot (one check of one workload). ``row``: the check's state in the
    workload; None if the workload does not have the check, or the check has another controller now.
    """

    slot: RequestSlot
    kept: StoredRecord | None
    work: StoredWorkload | None
    row: CheckState | None
    now: datetime


class ReservationView(NamedTuple):
    """A reservation of a workload with a check that is Pending or Ready."""

    slot: RequestSlot
    work: StoredWorkload
    row: CheckState
    now: datetime


class SlotDecider:
    """``time_limit``: for requests without a time limit in their parameters; None means no
    limit.
    """

    def __init__(
        self, observed: ObservedState, memory: Memory, time_limit: timedelta | None
    ) -> None:
        self._observed = observed
        self._memory = memory
        self._builder = RecordBuilder(observed, memory, time_limit)

    def row(self, slot: RequestSlot) -> CheckState | None:
        """The check's state in the workload, also if the check has another controller."""
        work = self._observed.workloads.get((slot.namespace, slot.workload))
        return row_of(work.status.admission_checks, slot.check) if work is not None else None

    def step(self, slot: RequestSlot, now: datetime) -> Step | None:
        """The next step of the slot; None if the slot needs no step."""
        observed = self._observed
        kept = observed.records.get(slot)
        work = observed.workloads.get((slot.namespace, slot.workload))
        row = self.row(slot) if slot.check in observed.checks else None
        view = SlotView(slot, kept, work, row, now)
        if kept is not None:
            why = self._cancel_reason(view, kept.record)
            if kept.record.status.cancelled or why:
                return self._end(view, kept, why)
            if is_marked_for_deletion(kept.record):
                return self._cancel(slot, kept, deletion_reason(kept.record))
        step = self._step_for_lost(view)
        if step is not None:
            return step
        if work is None or row is None or not is_under_check(work):
            self._memory.reported.pop(slot, None)
            if work is None:
                self._memory.last_requests.pop(slot, None)
                self._memory.blocked.pop(slot, None)
            return None
        if row.state not in ("Pending", "Ready"):
            return None
        return self._fulfil(ReservationView(slot, work, row, now), kept)

    def note(self, slot: RequestSlot, text: str, now: datetime) -> Step | None:
        """The step that writes the text on the request, or on a Pending check without a request;
        None if the text is there already, or there is neither a request nor a Pending check.
        """
        kept = self._observed.records.get(slot)
        if kept is not None:
            new = with_note(kept.record, text, now)
            write = Write(new.metadata.name, new, kept.revision)
            return Step(slot, write) if new is not kept.record else None
        work = self._observed.workloads.get((slot.namespace, slot.workload))
        row = self.row(slot) if slot.check in self._observed.checks else None
        if work is None or row is None or row.state != "Pending" or not is_under_check(work):
            return None
        return self._report(ReservationView(slot, work, row, now), CheckVerdict("Pending", text))

    def _cancel_reason(self, view: SlotView, record: Record) -> str:
        slot = view.slot
        finished = self._observed.finished.get((slot.namespace, slot.workload))
        return cancel_reason(record, view.work, view.row, finished)

    # Requests that are deleted or not needed. ------------------------------------------

    def _step_for_lost(self, view: SlotView) -> Step | None:
        """A step for records that another writer deleted or overwrote. If the request of such a
        record is still needed, the record is written again unchanged; otherwise the request is
        cancelled at the provider.
        """
        observed, memory = self._observed, self._memory
        slot, kept = view.slot, view.kept
        while slot in observed.lost_records:
            record = observed.lost_records[slot][-1]
            unwanted = (
                record.status.cancelled
                or is_marked_for_deletion(record)
                or self._cancel_reason(view, record)
            )
            if not unwanted and kept is None and not self._is_ready(view):
                expected = observed.expected(slot, record.metadata.name)
                return Step(slot, Write(record.metadata.name, record, expected))
            is_stored = kept is not None and kept.record.spec.id == record.spec.id
            if not is_stored and record.spec.id not in memory.cancelled:
                # If publishing the request fails, the provider may have received it all the same,
                # so the request stays cancelled.
                record = cancelled_record(
                    record, record.status.cancelled or deletion_reason(record)
                )
                observed.replace_lost(slot, record)
                return Step(slot, fact=cancelled_fact(record))
            if not is_stored:
                memory.forget(record)
            observed.settle_lost(slot, record)
            memory.ended(slot, record)
        return None

    def _end(self, view: SlotView, kept: StoredRecord, why: str) -> Step | None:
        """Ends a request: marks the record as cancelled, sends `cancelled` to the provider, then
        deletes the record or replaces it by a new request. ``why``: the reason to cancel; "" if the
        record is marked already, and the reservation needs a new request.
        """
        slot, work, row = view.slot, view.work, view.row
        record = kept.record
        if not record.status.cancelled:
            return self._cancel(slot, kept, why)
        if record.spec.id not in self._memory.cancelled:
            return Step(slot, fact=cancelled_fact(record))
        if work is not None and row is not None and not why and is_under_check(work):
            step = self._fulfil(ReservationView(slot, work, row, view.now), kept)
            if step is not None:
                return step
        has_final_verdict = row is not None and row.state in ("Retry", "Rejected")
        reserved = work is not None and is_of_current_cycle(record, work) and is_under_check(work)
        if reserved and not has_final_verdict and not is_marked_for_deletion(record):
            # The record stays until the reservation ends, so that the id of its request is not used
            # again.
            return None
        self._memory.forget(record)
        return Step(slot, Write(record.metadata.name, None, kept.revision))

    def _cancel(self, slot: RequestSlot, kept: StoredRecord, why: str) -> Step:
        record = cancelled_record(kept.record, why)
        return Step(slot, Write(record.metadata.name, record, kept.revision))

    # Requests that are needed. ------------------------------------------------------------------

    def _is_ready(self, view: SlotView | ReservationView) -> bool:
        """Whether the check is Ready, or Ready was reported and the workload does not show it
        yet.
        """
        work, row = view.work, view.row
        if work is None or row is None or row.state == "Ready":
            return row is not None
        last = self._memory.reported.get(view.slot)
        return (
            last is not None
            and last.report.verdict.state == "Ready"
            and last.report.reservation
            == ReservationRef(work.metadata.uid, work.status.admission_cycle)
            and (last.state, last.since) == (row.state, row.last_transition_time)
        )

    def _fulfil(self, view: ReservationView, kept: StoredRecord | None) -> Step | None:
        slot, work = view.slot, view.work
        config = self._observed.config_of(slot.check)
        open_ = kept if kept is not None and not kept.record.status.cancelled else None
        if self._is_ready(view):
            # A change of the configuration does not revoke Ready, and a request that a user deleted
            # after Ready is not created again.
            if open_ is None:
                return None
            known = config or ProvisioningRequestConfigSpec()
            return self._report(
                view, verdict_of_request(open_.record, known, admitted=is_admitted(work))
            )
        if config is None:
            if open_ is not None:
                return self._cancel(slot, open_, steps.NOT_ACTIVE)
            return self._report(view, CheckVerdict("Pending", steps.NOT_ACTIVE))
        if open_ is None:
            return self._request(view, kept, config)
        record = open_.record
        if self._observed.answers_read and is_late(record, view.now):
            return self._fail_overdue(slot, open_)
        if record.status.state is not State.PROVISIONED and differs_from_config(
            record, config, work
        ):
            return self._cancel(slot, open_, "the configuration changed")
        if not is_needed(work, config):
            return self._cancel(slot, open_, steps.NOT_NEEDED)
        if record.spec.id not in self._memory.sent and is_open(record):
            return Step(slot, fact=requested_fact(record))
        if record.status.state is State.BOOKING_EXPIRED and is_true(work, Type.ADMITTED):
            return None  # The check was added to a workload that was admitted already.
        return self._report(view, verdict_of_request(record, config, admitted=False))

    def _request(
        self,
        view: ReservationView,
        before: StoredRecord | None,
        config: ProvisioningRequestConfigSpec,
    ) -> Step | None:
        """The step that makes a new request. ``before``: the cancelled request that the new one
        replaces.
        """
        slot, work = view.slot, view.work
        flavors = self._observed.flavors
        try:
            wanted = pod_sets_to_provision(
                spec_of(work.spec).pod_sets, work.status.admission, config, flavors.get
            )
        except IncompleteReservation as incomplete:
            return self._report(view, CheckVerdict("Pending", str(incomplete)))
        if not wanted:
            return self._report(view, CheckVerdict("Ready", steps.NOT_NEEDED))
        error = parameters_error(parameters_of(config, work.metadata.annotations))
        if error:
            # Every further attempt of the request would fail in the same way.
            return self._report(view, CheckVerdict("Rejected", error))
        record = self._builder.record(slot, work, view.row, before, config, wanted, view.now)
        error = size_error(record)
        if error:
            return self._report(view, CheckVerdict("Rejected", error))
        expected = self._observed.expected(slot, record.metadata.name)
        if before is not None:
            if before.record.metadata.name != record.metadata.name:
                return Step(slot, Write(before.record.metadata.name, None, before.revision))
            expected = before.revision
        return Step(slot, Write(record.metadata.name, record, expected), requested_fact(record))

    def _fail_overdue(self, slot: RequestSlot, kept: StoredRecord) -> Step:
        record = kept.record
        message = f"not provisioned by {record.spec.deadline:%Y-%m-%dT%H:%M:%SZ}"
        late = replace(record.status, state=State.FAILED, message=message)
        return Step(slot, Write(record.metadata.name, replace(record, status=late), kept.revision))

    def _report(self, view: ReservationView, verdict: CheckVerdict | None) -> Step | None:
        """The step that reports the verdict; None if the workload shows the verdict or it was
        reported already.
        """
        row, work = view.row, view.work
        if verdict is None or (verdict.state == row.state and verdict.message == row.message):
            return None
        reservation = ReservationRef(work.metadata.uid, work.status.admission_cycle)
        report = VerdictReport(reservation, verdict)
        reported = ReportedVerdict(report, row.state, row.last_transition_time)
        if self._memory.reported.get(view.slot) == reported:
            return None
        return Step(view.slot, report=report)
