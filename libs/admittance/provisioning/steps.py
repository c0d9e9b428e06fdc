"""Steps for one request, as values. Order: write the record, send to the provider, report to the
check."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from admittance.events.provisioning import ProvisioningFact
from admittance.provisioning.answers import Answer
from admittance.provisioning.records import Record


class Slot(NamedTuple):
    """One check of one workload. It has at most one request at a time."""

    namespace: str
    workload: str
    check: str


class ReservationRef(NamedTuple):
    """The reservation that a verdict is about: the workload's uid and admission cycle."""

    uid: str
    cycle: int


class Write(NamedTuple):
    """Store the record at its key if the revision there is ``expected`` (0: no record). ``record``
    None: delete it."""

    name: str
    record: Record | None
    expected: int


class Tell(NamedTuple):
    """Report a verdict of the check."""

    about: ReservationRef
    answer: Answer


class Step(NamedTuple):
    """One step of one slot, performed in the order of its fields. The performer answers with
    `done`, `failed` or `cannot` of `ProvisioningCore`. ``fact`` goes to the provider."""

    slot: Slot
    write: Write | None = None
    fact: ProvisioningFact | None = None
    tell: Tell | None = None


class SentVerdict(NamedTuple):
    """The last verdict reported, with the check's row as it was then. A row that has changed since
    gets the verdict again. ``last`` False: another verdict may have been reported since."""

    tell: Tell
    state: str
    since: datetime | None
    last: bool = True


class LastRequest(NamedTuple):
    """The last request of a slot without a record: its id must not be used again."""

    uid: str
    cycle: int
    generation: int


class BlockedStep(NamedTuple):
    """The step that cannot be performed (None: the decision raised), and why. ``told``: the reason
    is noted on the request by the step ``note``."""

    step: Step | None
    why: str
    told: bool = False
    note: Step | None = None


class Memory:
    """What this leader has done so far. ``flying``: the step in flight of each slot. ``asked``: ids
    of the requests sent to providers; ``freed``: ids of the requests cancelled there. ``aside``:
    blocked slots."""

    def __init__(self) -> None:
        self.flying: dict[Slot, Step] = {}
        self.asked: set[str] = set()
        self.freed: set[str] = set()
        self.told: dict[Slot, SentVerdict] = {}
        self.past: dict[Slot, LastRequest] = {}
        self.aside: dict[Slot, BlockedStep] = {}

    def ended(self, slot: Slot, record: Record) -> None:
        """The slot's record was deleted."""
        spec = record.spec
        self.past[slot] = LastRequest(spec.uid, spec.cycle, record.metadata.generation)

    def forget(self, record: Record) -> None:
        """The request's id is not needed any more."""
        self.asked.discard(record.spec.id)
        self.freed.discard(record.spec.id)
