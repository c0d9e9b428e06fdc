"""The steps of one capacity request as values, and the record of the steps that this leader has
taken."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from admittance.events.provisioning import ProvisioningFact
from admittance.provisioning.records import Record
from admittance.provisioning.verdicts import CheckVerdict


class RequestSlot(NamedTuple):
    """One check of one workload. A slot has at most one capacity request at a time."""

    namespace: str
    workload: str
    check: str


class ReservationRef(NamedTuple):
    """Identifies a quota reservation: the workload's uid and admission cycle."""

    uid: str
    cycle: int


class Write(NamedTuple):
    """Stores the record at its key if the revision there is ``expected`` (0 if there is no record).
    If ``record`` is None, the write deletes the stored record.
    """

    name: str
    record: Record | None
    expected: int


class VerdictReport(NamedTuple):
    """Reports a verdict of the check."""

    reservation: ReservationRef
    verdict: CheckVerdict


class Step(NamedTuple):
    """One step of one slot, performed in the order of its fields: store the record, send ``fact``
    to the provider, report the check's verdict. After the step, the caller tells `ProvisioningCore`
    the outcome with `done`, `failed` or `cannot`.
    """

    slot: RequestSlot
    write: Write | None = None
    fact: ProvisioningFact | None = None
    report: VerdictReport | None = None


class ReportedVerdict(NamedTuple):
    """The last verdict reported, with the state that the check had in the workload at that time. If
    the check's state has changed since, the verdict is reported again. ``last`` False: another
    verdict may have been reported after this one.
    """

    report: VerdictReport
    state: str
    since: datetime | None
    last: bool = True


class LastRequest(NamedTuple):
    """The last request of a slot that has no record now. The id of this request must not be used
    again.
    """

    uid: str
    cycle: int
    generation: int


class BlockedStep(NamedTuple):
    """A step that cannot be performed, and why; the step is None if deciding it raised. ``noted``:
    whether the step ``note``, which writes the reason on the request, is done; ``note`` is None if
    there is no such step.
    """

    step: Step | None
    why: str
    noted: bool = False
    note: Step | None = None


class Memory:
    """Keeps what this leader has done so far about requests."""

    def __init__(self) -> None:
        self.in_flight: dict[RequestSlot, Step] = {}
        """For each slot the step that this leader is performing."""
        self.sent: set[str] = set()
        """Ids of the requests sent to providers."""
        self.cancelled: set[str] = set()
        """Ids of the requests cancelled at providers."""
        self.reported: dict[RequestSlot, ReportedVerdict] = {}
        self.last_requests: dict[RequestSlot, LastRequest] = {}
        self.blocked: dict[RequestSlot, BlockedStep] = {}

    def ended(self, slot: RequestSlot, record: Record) -> None:
        """Records that the slot's record was deleted."""
        spec = record.spec
        self.last_requests[slot] = LastRequest(spec.uid, spec.cycle, record.metadata.generation)

    def forget(self, record: Record) -> None:
        """Forgets that the request was sent and cancelled, because no later step is about that
        request."""
        self.sent.discard(record.spec.id)
        self.cancelled.discard(record.spec.id)
