"""A provider that has begun anew is asked what became of its requests, however fast it was."""

from __future__ import annotations

from datetime import timedelta

from admittance.events.system import ProviderAlive
from admittance.provisioning.observed_state import INSTANCES_MAX, ProviderHeartbeats

from builders import NOON


def test_who_begins_anew_within_three_heartbeats_is_asked() -> None:
    providing = ProviderHeartbeats(10.0)
    first = ProviderAlive(instance="a", since=NOON)
    assert providing.hear("class", first, 0.0)
    assert not providing.hear("class", first, 10.0)
    later = ProviderAlive(instance="a", since=NOON + timedelta(seconds=12))
    assert providing.hear("class", later, 13.0)
    assert not providing.hear("class", later, 20.0)


def test_replicas_that_take_turns_with_their_heartbeats_are_asked_once_each() -> None:
    providing = ProviderHeartbeats(10.0)
    replicas = [ProviderAlive(instance=name, since=NOON) for name in "ab"]
    assert [providing.hear("class", one, 0.0) for one in replicas] == [True, True]
    assert [providing.hear("class", one, 1.0) for one in replicas] == [False, False]


def test_who_does_not_tell_when_it_began_is_asked_when_it_was_away() -> None:
    providing = ProviderHeartbeats(10.0)
    assert providing.hear("class", ProviderAlive(), 0.0)
    assert not providing.hear("class", ProviderAlive(), 29.0)
    assert providing.hear("class", ProviderAlive(), 59.0)


def test_any_number_of_instances_needs_little_room() -> None:
    providing = ProviderHeartbeats(10.0)
    for number in range(3 * INSTANCES_MAX):
        providing.hear("class", ProviderAlive(instance=str(number), since=NOON), 0.0)
    assert len(providing._started["class"]) <= INSTANCES_MAX
