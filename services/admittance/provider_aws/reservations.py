"""The phases of a capacity reservation, and the answers, revocations and cancellations that follow
from a listing of EC2. This module is pure; times are seconds of a monotonic clock.

EC2 is eventually consistent: for minutes, its listings may lack a new reservation. So a reservation
counts as gone only after EC2 has not listed it for a long time, and listings are searched for
reservations of a cancelled request for as long as the store of requests has the cancellation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from admittance.object_errors import ObjectError
from admittance.provider_aws.parameters import token_of
from admittance.providers import CapacityRevoked, Failed, Provisioned, Status
from admittance.providers.builtin import REQUEST
from admittance.providers.status_store import CANCELLED, FINAL_STATUSES, StoredStatus

RESERVATION: Final = "capacityReservationId"
COUNT: Final = "instanceCount"


class ReservationPhase(enum.Enum):
    """The phase of a reservation, derived from its state at EC2. An unknown state means COMING, so
    that a state that EC2 introduces later neither starts nor stops a job.
    """

    COMING = enum.auto()
    HERE = enum.auto()
    GONE = enum.auto()


_PHASES: Final = {
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
    """A capacity reservation at EC2. ``token``: the token of the request that the reservation is
    for; "" if this provider did not make the reservation. ``total``: the number of reserved
    instances.
    """

    id: str
    token: str
    state: str
    total: int
    instance_type: str = ""
    zone: str = ""

    @property
    def phase(self) -> ReservationPhase:
        """The reservation's phase, derived from its state at EC2."""
        return _PHASES.get(self.state, ReservationPhase.COMING)

    @property
    def costs(self) -> bool:
        """Whether the reservation costs money, so that it must be cancelled when no request needs
        it."""
        return self.phase is not ReservationPhase.GONE or self.state == "unavailable"


def reservation_of(described: Mapping[str, Any]) -> Reservation:
    """The reservation described by an entry of DescribeCapacityReservations, or by the answer of
    CreateCapacityReservation.
    """
    tags = {tag.get("Key"): tag.get("Value", "") for tag in described.get("Tags", ())}
    return Reservation(
        id=str(described.get("CapacityReservationId", "")),
        token=str(tags.get(REQUEST, "")),
        state=str(described.get("State", "")),
        total=int(described.get("TotalInstanceCount", 0)),
        instance_type=str(described.get("InstanceType", "")),
        zone=str(described.get("AvailabilityZone", "")),
    )


def initial_answer(reservation: Reservation) -> Provisioned | Failed | None:
    """The answer to a request that waits for the reservation; None if the request has to wait
    longer.
    """
    match reservation.phase:
        case ReservationPhase.COMING:
            return None
        case ReservationPhase.HERE:
            details = {
                RESERVATION: reservation.id,
                "availabilityZone": reservation.zone,
                "instanceType": reservation.instance_type,
                COUNT: str(reservation.total),
            }
            size = f"{reservation.total} {reservation.instance_type} in {reservation.zone}"
            return Provisioned(f"capacity reservation {reservation.id}: {size}", details)
        case ReservationPhase.GONE:
            return Failed(_gone_message(reservation), retryable=reservation.state != "unsupported")


def revocation(reservation: Reservation, count: int) -> CapacityRevoked | None:
    """The revocation of a reservation that was provisioned with ``count`` instances; None if the
    reservation still has them. Repeated revocations of a reservation have the same message, so that
    duplicates are recognised.
    """
    if reservation.phase is ReservationPhase.GONE:
        return CapacityRevoked(_gone_message(reservation))
    if reservation.total < count:
        message = (
            f"capacity reservation {reservation.id} has {reservation.total} instances, not {count}"
        )
        return CapacityRevoked(message)
    return None


def _gone_message(reservation: Reservation) -> str:
    return f"capacity reservation {reservation.id} is {reservation.state}"


ENDED: Final = FINAL_STATUSES | {CANCELLED}


class Booking(NamedTuple):
    """The reservation made for a request. ``reservation``: the id of the reservation;
    ``instances``: the number of instances promised to the request.
    """

    request_id: str
    reservation: str
    instances: int


class Observation(NamedTuple):
    """What the provider must do after a listing of EC2: give ``answers`` to waiting requests and
    report revocations, both with their request ids, and cancel reservations. ``errors``: exceptions
    that concerned one request each.
    """

    answers: list[tuple[str, Status]]
    revoked: list[tuple[str, CapacityRevoked]]
    cancel: list[Reservation]
    errors: list[ObjectError]


class TrackedReservations:
    """The bookings of one provisioning class. ``unseen_seconds``: a reservation that EC2 has not
    listed for this long counts as gone.
    """

    def __init__(self, unseen_seconds: float) -> None:
        self._unseen_seconds = unseen_seconds
        self.waiting: dict[str, Booking] = {}
        """The bookings without an active reservation yet, by the request's token."""
        self.here: dict[str, Booking] = {}
        """The bookings that were reported as provisioned, by the request's token."""
        self.over: set[str] = set()
        """Tokens of requests that were cancelled or have failed."""
        self._seen_at: dict[str, float] = {}
        self._keys: dict[str, str] = {}
        self._ended_at = float("-inf")

    def begin_waiting(self, booking: Booking, now: float) -> None:
        """Records that a request waits for the booked reservation, which was made but is not active
        yet."""
        token = token_of(booking.request_id)
        self.waiting[token] = booking
        self._seen_at[token] = now

    def end_waiting(self, request_id: str) -> None:
        """Records that the request has stopped waiting for its reservation."""
        token = token_of(request_id)
        self.waiting.pop(token, None)
        if token not in self.here:
            self._seen_at.pop(token, None)

    def end(self, request_id: str, now: float) -> None:
        """Records that the request was cancelled."""
        token = token_of(request_id)
        self.end_waiting(request_id)
        self.here.pop(token, None)
        self._seen_at.pop(token, None)
        self.over.add(token)
        self._ended_at = now

    def status_changed(self, key: str, status: StoredStatus | None, now: float) -> None:
        """Applies the new status of a request that is stored at ``key``; ``status`` None: the
        status was deleted."""
        if status is None:
            self.over.discard(self._keys.pop(key, ""))
            return
        token = self._keys[key] = token_of(status.id)
        if status.status in ENDED:
            self.end(status.id, now)
        elif status.status == "provisioned" and token not in self.over:
            count = status.details.get(COUNT, "")
            self.here[token] = Booking(
                status.id,
                status.details.get(RESERVATION, ""),
                int(count) if count.isdecimal() else 0,
            )
            self._seen_at.setdefault(token, now)

    def is_busy(self, now: float) -> bool:
        """Whether the provider must list EC2's reservations often: requests wait for reservations
        or hold them, or a request has ended recently."""
        return bool(self.waiting or self.here) or now - self._ended_at < self._unseen_seconds

    def observe(self, listed: Iterable[Reservation], now: float) -> Observation:
        """Compares the bookings with ``listed``, the reservations that EC2 lists; returns what the
        provider must do."""
        reservations: dict[str, Reservation] = {}
        observation = Observation([], [], [], [])
        for reservation in listed:
            if not reservation.token:
                continue
            if reservation.token in self.over:
                if reservation.costs:
                    observation.cancel.append(reservation)
                continue
            known = reservations.get(reservation.token)
            if known is None or known.phase is ReservationPhase.GONE:
                reservations[reservation.token] = reservation
            if reservation.token in self._seen_at:
                self._seen_at[reservation.token] = now
        for step, bookings, compare in (
            ("compare a coming reservation", self.waiting, self._add_answer),
            ("compare a reservation", self.here, self._add_revocation),
        ):
            for token, booking in bookings.items():
                try:
                    compare(
                        observation, booking, reservations.get(token), self._is_lost(token, now)
                    )
                except Exception as error:
                    about = f"request {booking.request_id}"
                    observation.errors.append(ObjectError(step, about, error))
        return observation

    @staticmethod
    def _add_answer(
        observation: Observation, booking: Booking, reservation: Reservation | None, is_lost: bool
    ) -> None:
        answer = initial_answer(reservation) if reservation is not None else None
        if reservation is None and is_lost:
            answer = Failed(f"EC2 does not list capacity reservation {booking.reservation}")
        if answer is not None:
            observation.answers.append((booking.request_id, answer))

    @staticmethod
    def _add_revocation(
        observation: Observation, booking: Booking, reservation: Reservation | None, is_lost: bool
    ) -> None:
        revoked = revocation(reservation, booking.instances) if reservation is not None else None
        if reservation is None and is_lost:
            message = f"EC2 does not list capacity reservation {booking.reservation} any more"
            revoked = CapacityRevoked(message)
        if revoked is not None:
            observation.revoked.append((booking.request_id, revoked))

    def _is_lost(self, token: str, now: float) -> bool:
        return now - self._seen_at.get(token, now) > self._unseen_seconds
