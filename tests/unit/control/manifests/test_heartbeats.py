"""The effects of heartbeats, and of their absence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
from admittance.api.meta import ObjectMeta
from admittance.control.manifests.heartbeats import (
    INSTANCES_MAX,
    RIVALS,
    Heartbeats,
    active_of,
    with_active,
)
from admittance.events import reasons
from admittance.events.system import EVERY_CALL_FAILS, CheckActive, CheckAlive
from support.builders import NOON

CONTROLLER = "example.com/budget"


class Listening:
    """Heartbeats every 10 s, and one AdmissionCheck that is written as soon as it differs."""

    def __init__(self, name: str = "budget") -> None:
        self.beats = Heartbeats(10.0)
        self.written: float | None = None
        self.writes = 0
        self.check = AdmissionCheck(
            metadata=ObjectMeta(name=name, generation=3),
            spec=AdmissionCheckSpec(controller_name=CONTROLLER),
        )

    def observe(self, now: float, beat: CheckAlive | None = None) -> bool:
        """Whether the heartbeat changed something; the resulting condition is written."""
        changed = self.beats.record(CONTROLLER, beat or CheckAlive(), now)
        if changed:
            self.look(now)
        return changed

    def look(self, now: float) -> tuple[str, str] | None:
        """Status and reason of the condition, once it is as it should be."""
        clock = NOON + timedelta(seconds=now)
        condition = self.beats.condition(self.check, now, clock, self.written)
        if condition is not None:
            self.check = with_active(self.check, condition)
            self.written = now
            self.writes += 1
        activity = active_of(self.check)
        return None if activity is None else (activity.status, activity.reason)

    @property
    def message(self) -> str:
        activity = active_of(self.check)
        return "" if activity is None else activity.message


@pytest.fixture
def listening() -> Listening:
    return Listening()


def test_nothing_is_written_for_a_controller_without_heartbeats(listening: Listening) -> None:
    assert listening.look(1_000.0) is None
    assert listening.beats.next_loss(1_000.0) is None


def test_the_first_heartbeat_makes_the_check_active(listening: Listening) -> None:
    listening.observe(5.0)
    activity = active_of(listening.check)
    assert activity is not None
    assert (activity.status, activity.reason) == ("True", "Active")
    assert activity.last_transition_time == NOON + timedelta(seconds=5)
    assert activity.observed_generation == 3


def test_a_heartbeat_without_changes_is_not_written(listening: Listening) -> None:
    for second in range(1_000):
        beat = CheckAlive(instance="a", time=NOON + timedelta(seconds=second))
        assert listening.observe(float(second), beat) == (second == 0)
    assert listening.writes == 1


@pytest.mark.scenario("A19")
@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(29.9, ("True", "Active"), id="two missing are no loss"),
        pytest.param(30.0, ("False", reasons.CONTROLLER_LOST), id="three missing are"),
    ],
)
def test_a_controller_is_lost_when_three_in_a_row_are_missing(
    listening: Listening, now: float, want: tuple[str, str]
) -> None:
    listening.observe(0.0)
    assert listening.beats.next_loss(0.0) == 30.0
    assert listening.look(now) == want


def test_a_lost_controller_is_active_with_its_next_heartbeat(listening: Listening) -> None:
    listening.observe(0.0)
    listening.look(30.0)
    assert listening.observe(300.0)
    assert listening.look(300.0) == ("True", "Active")
    assert listening.writes == 3


def test_the_time_of_the_transition_moves_only_with_the_status(listening: Listening) -> None:
    listening.observe(0.0, CheckAlive(active=False, reason="BadParametersRef"))
    listening.observe(1.0, CheckAlive(active=False, reason="NoConnection"))
    activity = active_of(listening.check)
    assert activity is not None
    assert (activity.reason, activity.last_transition_time) == ("NoConnection", NOON)


def test_a_controller_reports_why_it_cannot_evaluate_a_check() -> None:
    budget, other = Listening("budget"), Listening("other")
    why = CheckActive(active=False, reason="BadParametersRef", message="no Budget b")
    beat = CheckAlive(checks={"budget": why})
    budget.observe(0.0, beat)
    other.observe(0.0, beat)
    assert budget.look(0.0) == ("False", "BadParametersRef")
    assert budget.message == "no Budget b"
    assert other.look(0.0) == ("True", "Active")


@pytest.mark.parametrize(
    "reason",
    ["", "no good", "x" * 5_000, "Ünfug", "-Dash"],
    ids=["none", "with spaces", "endless", "not ASCII", "a dash first"],
)
def test_an_invalid_reason_is_replaced(listening: Listening, reason: str) -> None:
    listening.observe(0.0, CheckAlive(active=False, reason=reason, message="m" * 100_000))
    assert listening.look(0.0) == ("False", "Inactive")
    assert len(listening.message) == 1024


def test_one_replica_that_can_evaluate_is_enough(listening: Listening) -> None:
    listening.observe(0.0, CheckAlive(instance="a", active=False, reason="Starting"))
    assert listening.look(0.0) == ("False", "Starting")
    listening.observe(1.0, CheckAlive(instance="b"))
    assert listening.look(1.0) == ("True", "Active")
    # The one that could is gone; the other one still lives, and still cannot.
    listening.observe(20.0, CheckAlive(instance="a", active=False, reason="Starting"))
    assert listening.beats.next_loss(20.0) == 31.0
    assert listening.look(31.0) == ("False", "Starting")


def test_two_programs_under_one_controller_name_are_reported(listening: Listening) -> None:
    listening.observe(0.0, CheckAlive(instance="a", program="budget"))
    listening.observe(1.0, CheckAlive(instance="b", program="approval"))
    assert listening.look(1.0) == ("True", "Active")
    assert listening.message == f"{RIVALS} approval, budget"
    assert listening.beats.rivals(CONTROLLER, 1.0) == ("approval", "budget")
    for second in (10.0, 20.0, 30.0):
        listening.observe(second, CheckAlive(instance="a", program="budget"))
    listening.look(31.0)
    assert listening.message == "The admission check is active"


def test_replicas_of_one_program_are_not_reported_as_rivals(listening: Listening) -> None:
    listening.observe(0.0, CheckAlive(instance="a", program="budget"))
    listening.observe(0.0, CheckAlive(instance="b", program="budget"))
    listening.observe(0.0, CheckAlive(instance="c"))
    assert listening.beats.rivals(CONTROLLER, 0.0) == ()


def test_a_message_that_changes_all_the_time_is_written_seldom(listening: Listening) -> None:
    for second in range(600):
        listening.observe(float(second), CheckAlive(message=f"spent {second}"))
    assert 9 <= listening.writes <= 11


def test_a_check_with_only_failed_calls_is_written_at_once(listening: Listening) -> None:
    failing = CheckAlive(message=f"{EVERY_CALL_FAILS} (KeyError)")
    for second, beat in enumerate((CheckAlive(), failing, CheckAlive(), failing)):
        listening.observe(float(second), beat)
    assert (listening.message, listening.writes) == (failing.message, 2)


def test_the_number_of_remembered_replicas_is_bounded(listening: Listening) -> None:
    for number in range(10_000):
        listening.beats.record(CONTROLLER, CheckAlive(instance=str(number)), number / 1000)
    assert len(listening.beats._controllers[CONTROLLER].replicas) == INSTANCES_MAX


class TestATakeover:
    """Nothing is known but what stands in the conditions."""

    @pytest.fixture
    def later(self, listening: Listening) -> Listening:
        listening.observe(0.0)
        listening.beats = Heartbeats(10.0)
        listening.beats.expect([CONTROLLER], 500.0)
        return listening

    def test_a_controller_with_a_history_has_30_s_to_speak(self, later: Listening) -> None:
        assert later.look(529.0) == ("True", "Active")
        assert later.look(530.0) == ("False", reasons.CONTROLLER_LOST)

    def test_a_stored_reason_stays_until_the_controller_sends_a_heartbeat(
        self, later: Listening
    ) -> None:
        bad = CheckAlive(active=False, reason="BadParametersRef")
        later.observe(0.0, bad)
        later.beats = Heartbeats(10.0)
        later.beats.expect([CONTROLLER], 500.0)
        assert later.look(501.0) == ("False", "BadParametersRef")
        later.observe(502.0)
        assert later.look(502.0) == ("True", "Active")

    def test_no_controller_is_lost_while_the_leader_received_nothing(
        self, later: Listening
    ) -> None:
        later.observe(505.0)
        later.beats.expect_all(600.0)
        assert later.look(601.0) == ("True", "Active")
        assert later.look(630.0) == ("False", reasons.CONTROLLER_LOST)


def test_a_check_applied_while_its_controller_beats_is_active_at_once() -> None:
    listening = Listening()
    listening.observe(0.0)
    listening.check = replace(listening.check, status=None)
    assert listening.look(1.0) == ("True", "Active")


def test_a_controller_that_no_check_names_is_forgotten(listening: Listening) -> None:
    assert not listening.beats.knows(CONTROLLER)
    listening.observe(0.0)
    listening.beats.forget({CONTROLLER})
    assert listening.beats.knows(CONTROLLER)
    listening.beats.forget(set())
    assert not listening.beats.knows(CONTROLLER)
    assert listening.beats.next_loss(0.0) is None
