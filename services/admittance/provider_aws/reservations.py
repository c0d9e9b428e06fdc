"""Capacity reservations: phases of one, and the answers, revocations and cancellations that follow
from a listing of EC2. Pure; time is an argument, in seconds of a monotonic clock.

EC2 is eventually consistent: a new reservation may be missing in listings for minutes. So a
reservation counts as gone only after it was missing for long, and reservations of a cancelled
request are looked for as long as the store remembers the cancellation."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from admittance.provider_aws.parameters import token_of
from admittance.providers import CapacityRevoked, Failed, Provisioned, Status
from admittance.providers.builtin import REQUEST
from admittance.providers.status_store import CANCELLED, FINAL_STATUSES, StoredStatus

RESERVATION: Final = "capacityReservationId"
COUNT: Final = "instanceCount"


class ReservationPhase(enum.Enum):
    """The meaning of a reservation's state. An unknown state counts as COMING, so that a state new
    in EC2 neither starts nor stops a job."""

    COMING = enum.auto()
    HERE = enum.auto()
    GONE = enum.auto()


_STANDINGS: Final = {
    "active": ReservationPhase.HERE,
    "cancelled": ReservationPhase.GONE,
    "cancelling": ReservationPhase.GONE,
    "expired": ReservationPhase.GONE,
    "failed": ReservationPhase.GONE,
    "payment-failed": ReservationPhase.GONE,
    "unavailable": ReservationPhase.GONE,
    "unsupported": ReservationPhase.GONE,
}


class Reservation(NamedTuple):
    """``token``: of its request; "": it is not ours. ``total``: number of instances."""

    id: str
    token: str
    state: str
    total: int
    instance_type: str = ""
    zone: str = ""

    @property
    def standing(self) -> ReservationPhase:
        """The phase of its state."""
        return _STANDINGS.get(self.state, ReservationPhase.COMING)

    @property
    def costs(self) -> bool:
        """Whether it costs money, and so must be cancelled when it is not needed."""
        return self.standing is not ReservationPhase.GONE or self.state == "unavailable"


def reservation_of(described: Mapping[str, Any]) -> Reservation:
    """The reservation of an entry of DescribeCapacityReservations, or of the answer of
    CreateCapacityReservation."""
    tags = {tag.get("Key"): tag.get("Value", "") for tag in described.get("Tags", ())}
    return Reservation(
        id=str(described.get("CapacityReservationId", "")),
        token=str(tags.get(REQUEST, "")),
        state=str(described.get("State", "")),
        total=int(described.get("TotalInstanceCount", 0)),
        instance_type=str(described.get("InstanceType", "")),
        zone=str(described.get("AvailabilityZone", "")),
    )


def initial_answer(found: Reservation) -> Provisioned | Failed | None:
    """The answer to a request that waits for the reservation; None: not yet."""
    match found.standing:
        case ReservationPhase.COMING:
            return None
        case ReservationPhase.HERE:
            details = {
                RESERVATION: found.id,
                "availabilityZone": found.zone,
                "instanceType": found.instance_type,
                COUNT: str(found.total),
            }
            many = f"{found.total} {found.instance_type} in {found.zone}"
            return Provisioned(f"capacity reservation {found.id}: {many}", details)
        case ReservationPhase.GONE:
            return Failed(_told(found), retryable=found.state != "unsupported")


def revocation(found: Reservation, count: int) -> CapacityRevoked | None:
    """The revocation of a reservation provisioned with ``count`` instances; None: it is intact.

    The message is always the same, so repetitions are recognized."""
    if found.standing is ReservationPhase.GONE:
        return CapacityRevoked(_told(found))
    if found.total < count:
        told = f"capacity reservation {found.id} has {found.total} instances, not {count}"
        return CapacityRevoked(told)
    return None


def _told(found: Reservation) -> str:
    return f"capacity reservation {found.id} is {found.state}"


TAKEN_BACK: Final = FINAL_STATUSES | {CANCELLED}


class Booking(NamedTuple):
    """One of our reservations. ``instances``: the number promised."""

    request_id: str
    reservation: str
    instances: int


class Observation(NamedTuple):
    """What follows from a listing: ``answers`` for waiting requests, ``revoked`` ones to report,
    and reservations to ``cancel``."""

    answers: list[tuple[str, Status]]
    revoked: list[tuple[str, CapacityRevoked]]
    cancel: list[Reservation]


class TrackedReservations:
    """Bookings by token of their requests. ``unseen_seconds``: a reservation that was not listed
    for this long is gone."""

    def __init__(self, unseen_seconds: float) -> None:
        self._unseen = unseen_seconds
        self.waiting: dict[str, Booking] = {}
        self.here: dict[str, Booking] = {}
        self.over: set[str] = set()
        """Tokens of cancelled or failed requests."""
        self._seen: dict[str, float] = {}
        self._keys: dict[str, str] = {}
        self._freed = float("-inf")

    def waits(self, booking: Booking, now: float) -> None:
        """The reservation was made and has to become active."""
        token = token_of(booking.request_id)
        self.waiting[token] = booking
        self._seen[token] = now

    def waits_no_more(self, request_id: str) -> None:
        """The request does not wait for its reservation any more."""
        token = token_of(request_id)
        self.waiting.pop(token, None)
        if token not in self.here:
            self._seen.pop(token, None)

    def is_over(self, request_id: str, now: float) -> None:
        """The request was cancelled."""
        token = token_of(request_id)
        self.waits_no_more(request_id)
        self.here.pop(token, None)
        self._seen.pop(token, None)
        self.over.add(token)
        self._freed = now

    def kept(self, key: str, said: StoredStatus | None, now: float) -> None:
        """The stored status at ``key`` changed to this; None: it was deleted."""
        if said is None:
            self.over.discard(self._keys.pop(key, ""))
            return
        token = self._keys[key] = token_of(said.id)
        if said.status in TAKEN_BACK:
            self.is_over(said.id, now)
        elif said.status == "provisioned" and token not in self.over:
            count = said.details.get(COUNT, "")
            self.here[token] = Booking(
                said.id, said.details.get(RESERVATION, ""), int(count) if count.isdecimal() else 0
            )
            self._seen.setdefault(token, now)

    def is_busy(self, now: float) -> bool:
        """Whether EC2 must be listed often: requests wait or hold reservations, or one was
        cancelled recently."""
        return bool(self.waiting or self.here) or now - self._freed < self._unseen

    def look(self, listed: Iterable[Reservation], now: float) -> Observation:
        """What follows from a listing of EC2."""
        found: dict[str, Reservation] = {}
        look = Observation([], [], [])
        for one in listed:
            if not one.token:
                continue
            if one.token in self.over:
                if one.costs:
                    look.cancel.append(one)
                continue
            known = found.get(one.token)
            if known is None or known.standing is ReservationPhase.GONE:
                found[one.token] = one
            if one.token in self._seen:
                self._seen[one.token] = now
        for token, booking in self.waiting.items():
            reservation = found.get(token)
            answer = initial_answer(reservation) if reservation is not None else None
            if reservation is None and self._is_lost(token, now):
                answer = Failed(f"EC2 does not list capacity reservation {booking.reservation}")
            if answer is not None:
                look.answers.append((booking.request_id, answer))
        for token, booking in self.here.items():
            reservation = found.get(token)
            revoked = (
                revocation(reservation, booking.instances) if reservation is not None else None
            )
            if reservation is None and self._is_lost(token, now):
                told = f"EC2 does not list capacity reservation {booking.reservation} any more"
                revoked = CapacityRevoked(told)
            if revoked is not None:
                look.revoked.append((booking.request_id, revoked))
        return look

    def _is_lost(self, token: str, now: float) -> bool:
        return now - self._seen.get(token, now) > self._unseen
