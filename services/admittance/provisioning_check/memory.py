"""What the one that leads remembers beside the picture: what is under way, and what it said. Pure.

Nothing of it is needed to be right: whoever takes over has none, says once more what is open, and
frees once more what is taken back.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from admittance.provisioning.records import Record
from admittance.provisioning_check.acts import Slot, Step, Tell


class Said(NamedTuple):
    """What a check was told, and the row that showed something else then: a row that is made anew
    is told anew. ``last`` False: something else may have been told since."""

    tell: Tell
    state: str
    since: datetime | None
    last: bool = True


class Past(NamedTuple):
    """The last request of a slot that was there and is gone: its id is used up."""

    uid: str
    cycle: int
    generation: int


class Aside(NamedTuple):
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
        self.told: dict[Slot, Said] = {}
        self.past: dict[Slot, Past] = {}
        self.aside: dict[Slot, Aside] = {}

    def ended(self, slot: Slot, record: Record) -> None:
        """The record is gone."""
        spec = record.spec
        self.past[slot] = Past(spec.uid, spec.cycle, record.metadata.generation)

    def forget(self, record: Record) -> None:
        """Nobody will ask about its id any more."""
        self.asked.discard(record.spec.id)
        self.freed.discard(record.spec.id)
