"""The answers, revocations and cancellations that follow from a listing of EC2."""

from __future__ import annotations

from admittance.provider_aws.parameters import token_of
from admittance.provider_aws.reservations import Booking, Reservation, TrackedReservations
from admittance.providers import CapacityRevoked, Failed, Provisioned
from admittance.providers.status_store import StoredStatus

UNSEEN = 300.0


def listed(request_id: str, state: str = "active", total: int = 2) -> Reservation:
    return Reservation(f"cr-{request_id}", token_of(request_id), state, total, "m5.large", "a")


def said(request_id: str, status: str) -> StoredStatus:
    details = {"capacityReservationId": f"cr-{request_id}", "instanceCount": "2"}
    return StoredStatus(
        id=request_id, namespace="ns", name="w", status=status, seq=1, details=details
    )


def booked(*provisioned: str) -> TrackedReservations:
    tracked = TrackedReservations(UNSEEN)
    for request_id in provisioned:
        tracked.status_changed(f"key-{request_id}", said(request_id, "provisioned"), 0.0)
    return tracked


def test_a_waiting_request_is_answered_when_its_reservation_is_active() -> None:
    all_ = booked()
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)

    assert all_.observe([listed("a", "pending")], 1.0).answers == []
    ((request_id, answer),) = all_.observe([listed("a"), listed("b")], 2.0).answers

    assert request_id == "a"
    assert isinstance(answer, Provisioned)


def test_a_waiting_request_fails_when_its_reservation_is_gone() -> None:
    all_ = booked()
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)
    ((_, answer),) = all_.observe([listed("a", "failed")], 1.0).answers
    assert answer == Failed("capacity reservation cr-a is failed")


def test_a_reservation_missing_for_a_short_time_is_not_gone() -> None:
    all_ = booked("b")
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)

    look = all_.observe([], UNSEEN)
    assert (look.answers, look.revoked) == ([], [])

    look = all_.observe([], UNSEEN + 1)
    assert [id_ for id_, _ in look.answers] == ["a"]
    assert look.revoked == [
        ("b", CapacityRevoked("EC2 does not list capacity reservation cr-b any more"))
    ]


def test_a_listing_restarts_the_time_that_a_reservation_may_be_missing() -> None:
    all_ = booked("a")
    all_.observe([listed("a")], 200.0)
    assert all_.observe([], 200.0 + UNSEEN).revoked == []
    assert all_.observe([], 201.0 + UNSEEN).revoked


def test_a_provisioned_reservation_is_revoked_when_it_goes_or_shrinks() -> None:
    all_ = booked("a", "b", "c")
    look = all_.observe([listed("a"), listed("b", "cancelled"), listed("c", total=1)], 1.0)
    assert [id_ for id_, _ in look.revoked] == ["b", "c"]


def test_a_published_revocation_is_not_repeated() -> None:
    all_ = booked("a")
    all_.status_changed("key-a", said("a", "capacity_revoked"), 1.0)
    assert all_.observe([listed("a", "cancelled")], 2.0).revoked == []


def test_reservations_of_ended_requests_are_cancelled() -> None:
    all_ = booked()
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)
    all_.end("a", 1.0)
    all_.status_changed("key-b", said("b", "cancelled"), 1.0)
    all_.status_changed("key-c", said("c", "failed"), 1.0)

    assert all_.observe([], 2.0).cancel == []
    look = all_.observe([listed("a", "pending"), listed("b"), listed("c"), listed("d")], 60.0)

    assert [reservation.id for reservation in look.cancel] == ["cr-a", "cr-b", "cr-c"]
    assert look.answers == []


def test_a_cancelled_reservation_is_not_cancelled_again() -> None:
    all_ = booked()
    all_.end("a", 1.0)
    assert all_.observe([listed("a", "cancelled"), listed("a", "expired")], 2.0).cancel == []


def test_reservations_of_unknown_requests_are_left_alone() -> None:
    """Reservations of another installation with the same class, and untagged ones."""
    look = booked().observe([listed("theirs"), Reservation("cr-x", "", "active", 1)], 1e6)
    assert look == ([], [], [], [])


def test_an_older_status_does_not_revive_a_cancelled_request() -> None:
    all_ = booked()
    all_.end("a", 1.0)
    all_.status_changed("key-a", said("a", "provisioned"), 1.0)
    assert all_.here == {}


def test_ec2_is_listed_often_while_a_request_is_open() -> None:
    all_ = booked()
    assert not all_.is_busy(0.0)
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)
    assert all_.is_busy(0.0)
    all_.end_waiting("a")
    assert not all_.is_busy(0.0)
    all_.status_changed("key-a", said("a", "provisioned"), 0.0)
    assert all_.is_busy(0.0)
    all_.status_changed("key-a", said("a", "cancelled"), 0.0)
    assert all_.is_busy(UNSEEN - 1)
    assert not all_.is_busy(UNSEEN)


def test_a_status_that_was_deleted_is_forgotten() -> None:
    all_ = booked()
    all_.status_changed("key-a", said("a", "cancelled"), 0.0)
    assert all_.over == {token_of("a")}
    all_.status_changed("key-a", None, 1.0)
    assert all_.over == set()
