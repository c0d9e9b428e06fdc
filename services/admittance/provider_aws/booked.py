"""What we know of all our reservations, and what a look at EC2 makes of it. Pure; time, in seconds
of any clock that does not go back, is an argument.

EC2 is eventually consistent: what was made may be missing from lists for minutes. So one that is
missing counts as gone only when it has not been seen for long, and one that has to go is looked for
for as long as it is remembered that its request was taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from admittance.provider_aws.parameters import token_of
from admittance.provider_aws.reservations import (
    COUNT,
    RESERVATION,
    Reservation,
    Standing,
    after,
    before,
)
from admittance.providers import CapacityRevoked, Failed, Status
from admittance.providers.saying import OVER
from admittance.providers.store import CANCELLED, Said

TAKEN_BACK: Final = OVER | {CANCELLED}


class Booking(NamedTuple):
    """One reservation of ours. ``instances``: so many were promised."""

    request_id: str
    reservation: str
    instances: int


class Look(NamedTuple):
    """What follows from a look: ``answers`` for those who wait, ``revoked`` ones to report, and
    what to ``cancel``."""

    answers: list[tuple[str, Status]]
    revoked: list[tuple[str, CapacityRevoked]]
    cancel: list[Reservation]


class Booked:
    """Bookings by the tokens of their requests. ``unseen_seconds``: after so long without being
    listed a reservation is gone."""

    def __init__(self, unseen_seconds: float) -> None:
        self._unseen = unseen_seconds
        self.waiting: dict[str, Booking] = {}
        self.here: dict[str, Booking] = {}
        self.over: set[str] = set()
        """Requests that need nothing any more: taken back, or failed."""
        self._seen: dict[str, float] = {}
        self._keys: dict[str, str] = {}
        self._freed = float("-inf")

    def waits(self, booking: Booking, now: float) -> None:
        """It was asked for, and has to become active."""
        token = token_of(booking.request_id)
        self.waiting[token] = booking
        self._seen[token] = now

    def waits_no_more(self, request_id: str) -> None:
        """Nobody waits for it."""
        token = token_of(request_id)
        self.waiting.pop(token, None)
        if token not in self.here:
            self._seen.pop(token, None)

    def is_over(self, request_id: str, now: float) -> None:
        """Its request was taken back."""
        token = token_of(request_id)
        self.waits_no_more(request_id)
        self.here.pop(token, None)
        self._seen.pop(token, None)
        self.over.add(token)
        self._freed = now

    def kept(self, key: str, said: Said | None, now: float) -> None:
        """The store of statuses says so under ``key`` from now on; None: it has forgotten."""
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
        """EC2 has to be looked at often: somebody waits, or runs, or has just gone."""
        return bool(self.waiting or self.here) or now - self._freed < self._unseen

    def look(self, listed: Iterable[Reservation], now: float) -> Look:
        """What follows from what EC2 lists."""
        found: dict[str, Reservation] = {}
        look = Look([], [], [])
        for one in listed:
            if not one.token:
                continue
            if one.token in self.over:
                if one.costs:
                    look.cancel.append(one)
                continue
            known = found.get(one.token)
            if known is None or known.standing is Standing.GONE:
                found[one.token] = one
            if one.token in self._seen:
                self._seen[one.token] = now
        for token, booking in self.waiting.items():
            reservation = found.get(token)
            answer = before(reservation) if reservation is not None else None
            if reservation is None and self._is_lost(token, now):
                answer = Failed(f"EC2 knows no capacity reservation {booking.reservation}")
            if answer is not None:
                look.answers.append((booking.request_id, answer))
        for token, booking in self.here.items():
            reservation = found.get(token)
            revoked = after(reservation, booking.instances) if reservation is not None else None
            if reservation is None and self._is_lost(token, now):
                told = f"EC2 knows no capacity reservation {booking.reservation} any more"
                revoked = CapacityRevoked(told)
            if revoked is not None:
                look.revoked.append((booking.request_id, revoked))
        return look

    def _is_lost(self, token: str, now: float) -> bool:
        return now - self._seen.get(token, now) > self._unseen
