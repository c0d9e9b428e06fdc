"""How a pool stands: which of its machines somebody has, and which of these are not there yet.

Pure. It follows from the manifest and from what is kept of bookings, so it is so also while nobody
keeps the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from admittance.provider_pool.booking import Booking
from admittance.provider_pool.manifests import Machine, Pool


class Standing(NamedTuple):
    """How many machines there are, how many of them somebody has, and how many of those boot."""

    machines: int
    booked: int
    booting: int

    @property
    def free(self) -> int:
        """Nobody has anything of them."""
        return self.machines - self.booked


def standing(pool: Pool, bookings: Iterable[Booking], now: datetime) -> Standing:
    """Of the whole pool."""
    each = list(standings(pool, bookings, now).values())
    return Standing(
        sum(one.machines for one in each),
        sum(one.booked for one in each),
        sum(one.booting for one in each),
    )


def standings(pool: Pool, bookings: Iterable[Booking], now: datetime) -> dict[str, Standing]:
    """Of each kind of machine. What is booked of machines that are no more is about to be taken
    away, and does not count."""
    ready: dict[str, dict[int, datetime]] = {one.name: {} for one in pool.machines}
    for booking in bookings:
        for held in booking.held:
            there = held.ready_at or booking.ready_at
            numbers = ready.get(held.kind, {})
            numbers[held.number] = min(there, numbers.get(held.number, there))
    return {one.name: _of(one, ready[one.name], now) for one in pool.machines}


def _of(kind: Machine, ready: dict[int, datetime], now: datetime) -> Standing:
    there = [at for number, at in ready.items() if number < kind.count]
    return Standing(kind.count, len(there), sum(at > now for at in there))
