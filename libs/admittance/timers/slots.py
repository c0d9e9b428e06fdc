"""What is spoken of: slots on the stream of timers, what is wanted there, and orders."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, TypeAlias

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.names import plain


class Name(NamedTuple):
    """A workload's, plain."""

    namespace: str
    name: str


def name_of(key: str) -> Name:
    """The workload behind a key of the bucket. Raises BadToken, or ValueError for another key."""
    kind, namespace, name = key.split(".")
    if kind != "workload":
        raise ValueError(f"{key} is no workload's key")
    return Name(plain(namespace), plain(name))


class Slot(NamedTuple):
    """A place for one schedule: the bus keeps one for each kind and workload."""

    kind: str
    namespace: str
    name: str


class Want(NamedTuple):
    """The schedule that a slot should have. ``revision``: of the workload as it asks for it."""

    at: datetime
    uid: str
    revision: int = 0

    @property
    def stands(self) -> Stands:
        """How it looks on the bus."""
        return Stands(self.at, self.uid)


class Stands(NamedTuple):
    """The schedule that a slot has. ``at`` None: it says no time that can be read."""

    at: datetime | None
    uid: str


class SetTimer(NamedTuple):
    """To be put where it belongs, in place of what stands there."""

    slot: Slot
    want: Want


class Cancel(NamedTuple):
    """To be taken away."""

    slot: Slot


Order: TypeAlias = SetTimer | Cancel


def due(order: SetTimer) -> bytes:
    """The fact that the workload-controller hears when the time has come."""
    slot, want = order
    fact = facts.TimerDue(
        namespace=slot.namespace,
        name=slot.name,
        uid=want.uid,
        kind=slot.kind,
        at=want.at,
        revision=want.revision,
    )
    return encode(fact)
