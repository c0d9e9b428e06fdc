"""What is to be done about a request, as values: written first, then asked, then told."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from admittance.events.provisioning import ProvisioningFact
from admittance.provisioning.answers import Answer
from admittance.provisioning.records import Record


class Slot(NamedTuple):
    """One check of one workload: there is one request at a time for it."""

    namespace: str
    workload: str
    check: str


class ReservationRef(NamedTuple):
    """The reservation that an answer is about."""

    uid: str
    cycle: int


class Write(NamedTuple):
    """Keep the record at its key, where ``expected`` is the revision there (0: nothing is); None:
    there is to be no record any more."""

    name: str
    record: Record | None
    expected: int


class Tell(NamedTuple):
    """A verdict to the workload."""

    about: ReservationRef
    answer: Answer


class Step(NamedTuple):
    """One step of one slot: to be done in this order, and answered by `Capacity.done` or `failed`.
    ``fact`` is for the provider."""

    slot: Slot
    write: Write | None = None
    fact: ProvisioningFact | None = None
    tell: Tell | None = None


class SentVerdict(NamedTuple):
    """What a check was told, and the row that showed something else then: a row that is made anew
    is told anew. ``last`` False: something else may have been told since."""

    tell: Tell
    state: str
    since: datetime | None
    last: bool = True


class LastRequest(NamedTuple):
    """The last request of a slot that was there and is gone: its id is used up."""

    uid: str
    cycle: int
    generation: int


class BlockedStep(NamedTuple):
    """What could not be done, or not even be decided (None), and why. ``told``: that is said where
    people look; ``note`` says it."""

    step: Step | None
    why: str
    told: bool = False
    note: Step | None = None


class Memory:
    """``flying``: steps under way, one for a slot. ``asked``: ids that were said to providers since
    we lead; ``freed``: those that were taken back. ``aside``: what cannot be done, by
    slot."""

    def __init__(self) -> None:
        self.flying: dict[Slot, Step] = {}
        self.asked: set[str] = set()
        self.freed: set[str] = set()
        self.told: dict[Slot, SentVerdict] = {}
        self.past: dict[Slot, LastRequest] = {}
        self.aside: dict[Slot, BlockedStep] = {}

    def ended(self, slot: Slot, record: Record) -> None:
        """The record is gone."""
        spec = record.spec
        self.past[slot] = LastRequest(spec.uid, spec.cycle, record.metadata.generation)

    def forget(self, record: Record) -> None:
        """Nobody will ask about its id any more."""
        self.asked.discard(record.spec.id)
        self.freed.discard(record.spec.id)
