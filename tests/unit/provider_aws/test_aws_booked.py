"""What a look at EC2 makes of what we know: who has it, whose is gone, what nobody needs."""

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
    found = TrackedReservations(UNSEEN)
    for request_id in provisioned:
        found.status_changed(f"key-{request_id}", said(request_id, "provisioned"), 0.0)
    return found


def test_who_waits_is_answered_when_it_is_active_and_not_before() -> None:
    all_ = booked()
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)

    assert all_.observe([listed("a", "pending")], 1.0).answers == []
    ((request_id, answer),) = all_.observe([listed("a"), listed("b")], 2.0).answers

    assert request_id == "a"
    assert isinstance(answer, Provisioned)


def test_who_waits_for_what_is_gone_fails_and_may_try_again() -> None:
    all_ = booked()
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)
    ((_, answer),) = all_.observe([listed("a", "failed")], 1.0).answers
    assert answer == Failed("capacity reservation cr-a is failed")


def test_what_is_not_listed_for_a_while_is_not_gone() -> None:
    all_ = booked("b")
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)

    look = all_.observe([], UNSEEN)
    assert (look.answers, look.revoked) == ([], [])

    look = all_.observe([], UNSEEN + 1)
    assert [one for one, _ in look.answers] == ["a"]
    assert look.revoked == [
        ("b", CapacityRevoked("EC2 does not list capacity reservation cr-b any more"))
    ]


def test_what_was_listed_may_be_missing_as_long_again() -> None:
    all_ = booked("a")
    all_.observe([listed("a")], 200.0)
    assert all_.observe([], 200.0 + UNSEEN).revoked == []
    assert all_.observe([], 201.0 + UNSEEN).revoked


def test_what_was_provisioned_is_revoked_when_it_goes_or_shrinks() -> None:
    all_ = booked("a", "b", "c")
    look = all_.observe([listed("a"), listed("b", "cancelled"), listed("c", total=1)], 1.0)
    assert [one for one, _ in look.revoked] == ["b", "c"]


def test_a_revocation_is_not_repeated_once_it_was_said() -> None:
    all_ = booked("a")
    all_.status_changed("key-a", said("a", "capacity_revoked"), 1.0)
    assert all_.observe([listed("a", "cancelled")], 2.0).revoked == []


def test_what_nobody_needs_is_cancelled_whenever_it_is_listed() -> None:
    all_ = booked()
    all_.begin_waiting(Booking("a", "cr-a", 2), 0.0)
    all_.end("a", 1.0)
    all_.status_changed("key-b", said("b", "cancelled"), 1.0)
    all_.status_changed("key-c", said("c", "failed"), 1.0)

    assert all_.observe([], 2.0).cancel == []
    look = all_.observe([listed("a", "pending"), listed("b"), listed("c"), listed("d")], 60.0)

    assert [one.id for one in look.cancel] == ["cr-a", "cr-b", "cr-c"]
    assert look.answers == []


def test_what_is_cancelled_already_is_left_alone() -> None:
    all_ = booked()
    all_.end("a", 1.0)
    assert all_.observe([listed("a", "cancelled"), listed("a", "expired")], 2.0).cancel == []


def test_what_others_made_is_theirs() -> None:
    """Another installation in the same account, of the same class; and whoever tags nothing."""
    look = booked().observe([listed("theirs"), Reservation("cr-x", "", "active", 1)], 1e6)
    assert look == ([], [], [])


def test_one_that_was_taken_back_is_not_provisioned_by_an_older_status() -> None:
    all_ = booked()
    all_.end("a", 1.0)
    all_.status_changed("key-a", said("a", "provisioned"), 1.0)
    assert all_.here == {}


def test_ec2_is_looked_at_often_while_somebody_may_need_it() -> None:
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


def test_what_the_store_forgets_is_forgotten() -> None:
    all_ = booked()
    all_.status_changed("key-a", said("a", "cancelled"), 0.0)
    assert all_.over == {token_of("a")}
    all_.status_changed("key-a", None, 1.0)
    assert all_.over == set()
