"""The bookings of a pool's machines, and the counts of free and booked machines. Pure.

Either all pods of a request are booked, or none. Pods of several bookings may share a machine. The
machines of a kind are numbered; a pool that shrinks loses the machines with the highest numbers,
and with them their bookings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from admittance.api.workload import Kept
from admittance.events.reader import Reader, Unreadable, check_times
from admittance.provisioning.machine_pool import Machine, Pool, key_of, pool_of_key

Node = tuple[str, int]
"""A machine of a pool: the name of the machine's kind, and the machine's number in its kind."""


class Pods(NamedTuple):
    """A group of equal pods in a request. ``needs``: the resources of each pod; ``labels``: the
    labels that the machine of a pod must have.
    """

    pods: int
    needs: Mapping[str, int]
    labels: Mapping[str, str] = {}


class HeldPart(Kept, frozen=True, kw_only=True):
    """The part of a machine that a booking holds. ``ready_at``: when the machine is ready; None:
    the machine is ready when the booking is.
    """

    kind: str
    number: int
    amounts: dict[str, int]
    ready_at: datetime | None = None


class Booking(Kept, frozen=True, kw_only=True):
    """The machines that a request has booked in a pool. ``namespace`` and ``name``: the workload of
    the request. ``provisioning_class``: the provisioning class of the pool at the time of booking.
    ``ready_at``: when all machines of the booking are ready. ``expires_at``: when the booking
    expires; None: never.
    """

    id: str
    held: tuple[HeldPart, ...]
    ready_at: datetime
    expires_at: datetime | None = None
    provisioning_class: str = ""
    namespace: str = ""
    name: str = ""


_booking = Reader(Booking)


def read_booking(key: str, value: bytes) -> tuple[str, Booking]:
    """The booking at a key of the bucket of providers, and the name of its pool. Raises Unreadable
    if the key or the value is not valid.
    """
    booking = _booking(value)
    pool = pool_of_key(key)
    if pool is None or key != key_of(pool, booking.id):
        raise Unreadable("the key is not the key of a booking")
    check_times("booking", (booking.ready_at, booking.expires_at))
    check_times("held", (part.ready_at for part in booking.held))
    if any(amount < 0 for part in booking.held for amount in part.amounts.values()):
        raise Unreadable("the booking holds a negative amount")
    return pool, booking


class NoRoom(NamedTuple):
    """Why a request got no booking. ``ever``: whether the pool may have room after other bookings
    have ended.
    """

    message: str
    ever: bool


class Bookings:
    """The bookings of one pool of machines."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.known: dict[str, Booking] = {}
        self._used: dict[Node, dict[str, int]] = {}
        self._holders: Counter[Node] = Counter()
        self._ready: dict[Node, datetime] = {}
        """For each booked machine, the time when the machine is ready."""

    def restore(self, bookings: Iterable[Booking]) -> None:
        """Adds bookings that were read from the bucket."""
        for booking in bookings:
            self._keep(booking)

    def book(
        self,
        request_id: str,
        pods: Sequence[Pods],
        now: datetime,
        *,
        namespace: str = "",
        name: str = "",
    ) -> Booking | NoRoom:
        """Books machines for all pods of the request, or returns why the pool has no room. If the
        request has a booking already, returns this booking unchanged. ``namespace`` and ``name``:
        the workload of the request.
        """
        known = self.known.get(request_id)
        if known is not None:
            return known
        placed: dict[Node, dict[str, int]] = {}
        ready: dict[Node, datetime] = {}
        # The largest pods are placed first, so that small pods fill the gaps.
        for group in sorted(pods, key=lambda group: sorted(group.needs.values()), reverse=True):
            fitting = [kind for kind in self.pool.machines if _may_hold(kind, group)]
            if not fitting:
                return NoRoom(f"no machine of pool {self.pool.name} can hold such a pod", False)
            left = group.pods
            for kind in fitting:
                for number in range(kind.count):
                    if not left:
                        break
                    placed_pods = self._place(kind, number, group, left, placed)
                    left -= placed_pods
                    if placed_pods:
                        boots = now + timedelta(seconds=kind.boot_seconds)
                        ready[kind.name, number] = self._ready.get((kind.name, number), boots)
            if left:
                ever = group.pods <= sum(_most(kind, group) * kind.count for kind in fitting)
                message = f"pool {self.pool.name} has no room for {left} of {group.pods} pods"
                return NoRoom(message, ever)
        ready_at = max(now, *ready.values()) if ready else now
        kept_seconds = self.pool.booking_seconds
        booking = Booking(
            id=request_id,
            held=tuple(
                HeldPart(kind=kind, number=number, amounts=amounts, ready_at=ready[kind, number])
                for (kind, number), amounts in placed.items()
            ),
            ready_at=ready_at,
            expires_at=ready_at + timedelta(seconds=kept_seconds) if kept_seconds else None,
            provisioning_class=self.pool.provisioning_class,
            namespace=namespace,
            name=name,
        )
        self._keep(booking)
        return booking

    def free(self, request_id: str) -> Booking | None:
        """Removes the booking of the request and returns it; returns None if the request has no
        booking."""
        booking = self.known.pop(request_id, None)
        for held in booking.held if booking is not None else ():
            node = held.kind, held.number
            used = self._used[node]
            for resource, much in held.amounts.items():
                used[resource] -= much
            self._holders[node] -= 1
            if not self._holders[node]:
                # A machine without bookings is switched off, so the next booking boots it.
                for known in (self._used, self._holders, self._ready):
                    del known[node]
        return booking

    def change(self, pool: Pool) -> list[Booking]:
        """Applies a changed manifest of the pool. Frees and returns the bookings that lost
        machines. A new provisioning class of the pool ends all bookings of the old class.
        """
        self.pool = pool
        kinds = {kind.name: kind for kind in pool.machines}
        lost = [
            booking
            for booking in self.known.values()
            if booking.provisioning_class not in ("", pool.provisioning_class)
            or any(not _is_there(kinds.get(held.kind), held) for held in booking.held)
        ]
        # If a machine became too small for its bookings, it keeps the oldest bookings.
        lost += [booking for booking in self._exceeding(kinds) if booking not in lost]
        for booking in lost:
            self.free(booking.id)
        return lost

    def _exceeding(self, kinds: Mapping[str, Machine]) -> list[Booking]:
        exceeding: list[Booking] = []
        room: dict[Node, dict[str, int]] = {}
        for booking in self.known.values():
            fits = all(
                held.amounts[resource]
                <= room.setdefault(
                    (held.kind, held.number), dict(_resources_of(kinds.get(held.kind)))
                ).get(resource, 0)
                for held in booking.held
                for resource in held.amounts
            )
            if not fits:
                exceeding.append(booking)
                continue
            for held in booking.held:
                here = room[held.kind, held.number]
                for resource, much in held.amounts.items():
                    here[resource] -= much
        return exceeding

    def _keep(self, booking: Booking) -> None:
        self.known[booking.id] = booking
        for held in booking.held:
            used = self._used.setdefault((held.kind, held.number), {})
            for resource, much in held.amounts.items():
                used[resource] = used.get(resource, 0) + much
            self._holders[held.kind, held.number] += 1
            self._ready.setdefault((held.kind, held.number), held.ready_at or booking.ready_at)

    def _place(
        self,
        kind: Machine,
        number: int,
        group: Pods,
        count: int,
        placed: dict[Node, dict[str, int]],
    ) -> int:
        """Places at most ``count`` pods of the group on the machine. Returns how many pods were
        placed.
        """
        node = kind.name, number
        used, new = self._used.get(node, {}), placed.get(node, {})
        most = count
        for resource, much in group.needs.items():
            if much:
                free = kind.resources.get(resource, 0) - used.get(resource, 0)
                most = min(most, max(0, free - new.get(resource, 0)) // much)
        if most:
            here = placed.setdefault(node, {})
            for resource, much in group.needs.items():
                here[resource] = here.get(resource, 0) + most * much
        return most


def _may_hold(kind: Machine, group: Pods) -> bool:
    """Whether an empty machine of the kind can hold one pod of the group."""
    if any(kind.labels.get(key) != value for key, value in group.labels.items()):
        return False
    return all(much <= kind.resources.get(name, 0) for name, much in group.needs.items())


def _most(kind: Machine, group: Pods) -> int:
    """How many pods of the group an empty machine of the kind can hold."""
    fits = [kind.resources.get(name, 0) // much for name, much in group.needs.items() if much]
    return min(fits, default=group.pods)


def _resources_of(kind: Machine | None) -> Mapping[str, int]:
    return kind.resources if kind is not None else {}


def _is_there(kind: Machine | None, held: HeldPart) -> bool:
    return kind is not None and held.number < kind.count


class MachineCounts(NamedTuple):
    """How many machines a pool, or a kind of its machines, has; how many of them are booked; how
    many booked machines still boot."""

    machines: int
    booked: int
    booting: int

    @property
    def free(self) -> int:
        """The number of machines without a booking."""
        return self.machines - self.booked


def machine_counts(pool: Pool, bookings: Iterable[Booking], now: datetime) -> MachineCounts:
    """The machine counts of the whole pool. The counts follow from the pool's manifest and the
    stored bookings, so the CLI computes them without asking the pool provider.
    """
    each = list(machine_counts_by_kind(pool, bookings, now).values())
    return MachineCounts(
        sum(counts.machines for counts in each),
        sum(counts.booked for counts in each),
        sum(counts.booting for counts in each),
    )


def machine_counts_by_kind(
    pool: Pool, bookings: Iterable[Booking], now: datetime
) -> dict[str, MachineCounts]:
    """The machine counts of each kind in the pool. Bookings of removed machines do not count,
    because they are about to be revoked.
    """
    ready: dict[str, dict[int, datetime]] = {kind.name: {} for kind in pool.machines}
    for booking in bookings:
        for held in booking.held:
            there = held.ready_at or booking.ready_at
            numbers = ready.get(held.kind, {})
            numbers[held.number] = min(there, numbers.get(held.number, there))
    return {kind.name: _counts_of_kind(kind, ready[kind.name], now) for kind in pool.machines}


def _counts_of_kind(kind: Machine, ready: dict[int, datetime], now: datetime) -> MachineCounts:
    there = [at for number, at in ready.items() if number < kind.count]
    return MachineCounts(kind.count, len(there), sum(at > now for at in there))
