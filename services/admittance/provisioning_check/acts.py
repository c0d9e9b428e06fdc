"""What is to be done about a request, as values: written first, then asked, then told."""

from __future__ import annotations

from typing import NamedTuple

from admittance.events.provisioning import ProvisioningFact
from admittance.provisioning.answers import Answer
from admittance.provisioning.records import Record


class Slot(NamedTuple):
    """One check of one workload: there is one request at a time for it."""

    namespace: str
    workload: str
    check: str


class About(NamedTuple):
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

    about: About
    answer: Answer


class Step(NamedTuple):
    """One step of one slot: to be done in this order, and answered by `Capacity.done` or `failed`.
    ``fact`` is for the provider."""

    slot: Slot
    write: Write | None = None
    fact: ProvisioningFact | None = None
    tell: Tell | None = None
