"""A provider that has restarted is queried for its requests."""

from __future__ import annotations

from datetime import timedelta

from admittance.events.system import ProviderAlive
from admittance.provisioning.observed_state import INSTANCES_MAX, ProviderHeartbeats
from support.builders import NOON


def test_a_provider_that_restarts_within_three_heartbeats_is_queried() -> None:
    providing = ProviderHeartbeats(10.0)
    first = ProviderAlive(instance="a", since=NOON)
    assert providing.record("class", first, 0.0)
    assert not providing.record("class", first, 10.0)
    later = ProviderAlive(instance="a", since=NOON + timedelta(seconds=12))
    assert providing.record("class", later, 13.0)
    assert not providing.record("class", later, 20.0)


def test_replicas_with_alternating_heartbeats_are_queried_once_each() -> None:
    providing = ProviderHeartbeats(10.0)
    replicas = [ProviderAlive(instance=name, since=NOON) for name in "ab"]
    assert [providing.record("class", replica, 0.0) for replica in replicas] == [True, True]
    assert [providing.record("class", replica, 1.0) for replica in replicas] == [False, False]


def test_a_provider_without_a_start_time_is_queried_after_silence() -> None:
    providing = ProviderHeartbeats(10.0)
    assert providing.record("class", ProviderAlive(), 0.0)
    assert not providing.record("class", ProviderAlive(), 29.0)
    assert providing.record("class", ProviderAlive(), 59.0)


def test_any_number_of_instances_needs_little_room() -> None:
    providing = ProviderHeartbeats(10.0)
    for number in range(3 * INSTANCES_MAX):
        providing.record("class", ProviderAlive(instance=str(number), since=NOON), 0.0)
    assert len(providing._started["class"]) <= INSTANCES_MAX


def test_a_class_counts_as_down_three_heartbeats_after_the_last() -> None:
    providing = ProviderHeartbeats(10.0)
    providing.record("class", ProviderAlive(), 0.0)
    assert [providing.next_loss(now) for now in (0.0, 29.0, 30.0)] == [30.0, 30.0, None]
    assert [providing.trouble("class", now) is None for now in (29.0, 30.0)] == [True, False]
    providing.record("other", ProviderAlive(), 5.0)
    assert [providing.next_loss(now) for now in (0.0, 30.0, 35.0)] == [30.0, 35.0, None]
