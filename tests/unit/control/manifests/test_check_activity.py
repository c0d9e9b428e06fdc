"""The Active condition of a check with missing parameters or a status of its controller."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from admittance.api.checks import AdmissionCheck
from admittance.api.reading.manifest import decode_object
from admittance.control.manifests.heartbeats import (
    Heartbeats,
    active_of,
    reports_missing_parameters,
    with_new_condition,
)
from admittance.control.manifests.objects import Objects, StoredObject, key_of
from admittance.events.system import CheckAlive
from support.builders import NOON

API = "kueue.x-k8s.io/v1beta2"
BUDGET = {"apiVersion": "example.com/v1", "kind": "Budget", "metadata": {"name": "main"}}
VALUE = msgspec.json.encode(BUDGET)
KEY = key_of(decode_object(VALUE).manifest)
BAD = ("False", "BadParametersRef", "Budget.example.com main doesn't exist")
ALIVE = ("True", "Active", "The admission check is active")


class Watched:
    """AdmissionCheck c with the parameters Budget main, written when its condition changes."""

    def __init__(self) -> None:
        named = {"apiGroup": "example.com", "kind": "Budget", "name": "main"}
        value = {
            "apiVersion": API,
            "kind": "AdmissionCheck",
            "metadata": {"name": "c", "generation": 1},
            "spec": {"controllerName": "ctl", "parameters": named},
        }
        check = decode_object(msgspec.json.encode(value)).manifest
        assert isinstance(check, AdmissionCheck)
        self.check = check
        self.objects = Objects()
        self.beats = Heartbeats(10.0)

    def there(self, *, there: bool = True) -> None:
        if not there:
            self.objects.gone(KEY, 9)
            return
        self.objects.keep(KEY, StoredObject(decode_object(VALUE).manifest, VALUE, 1))

    def look(self, now: float = 0.0) -> tuple[str, str, str] | None:
        """The condition, once it is as it should be: looking again changes nothing."""
        for _ in range(2):
            clock = NOON + timedelta(seconds=now)
            new = with_new_condition(self.check, self.objects, self.beats, now, clock)
            if new is None:
                break
            self.check = new
        assert new is None
        activity = active_of(self.check)
        return None if activity is None else (activity.status, activity.reason, activity.message)


def test_a_check_without_parameters_is_inactive_without_a_heartbeat_too() -> None:
    watched = Watched()
    assert watched.look() == BAD
    watched.there()
    assert watched.look() is None
    watched.there(there=False)
    assert watched.look() == BAD


def test_missing_parameters_outweigh_a_controllers_heartbeat() -> None:
    watched = Watched()
    watched.beats.record("ctl", CheckAlive(), 0.0)
    assert watched.look() == BAD
    watched.there()
    assert watched.look() == ALIVE
    watched.there(there=False)
    assert watched.look(60.0) == BAD


def test_a_controller_that_falls_silent_meanwhile_counts_as_lost_then() -> None:
    watched = Watched()
    watched.beats.record("ctl", CheckAlive(), 0.0)
    assert watched.look() == BAD
    watched.there()
    activity = watched.look(60.0)
    assert activity is not None
    assert activity[:2] == ("False", "ControllerLost")


def test_a_new_leader_does_not_take_the_condition_for_a_heartbeat() -> None:
    watched = Watched()
    watched.look()
    assert reports_missing_parameters(watched.check)
    watched.beats = Heartbeats(10.0)  # after a takeover
    watched.there()
    assert watched.look(100.0) is None


def test_parameters_that_are_applied_together_with_the_check_are_there() -> None:
    watched = Watched()
    beats, clock = watched.beats, NOON
    assert (
        with_new_condition(watched.check, watched.objects, beats, 0.0, clock, coming={KEY}) is None
    )
