"""A heartbeat says so when the function of a controller only raises errors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from admittance.checks.controller import FAILURES_MAX, CheckActivity
from admittance.control.manifests.heartbeats import Heartbeats, active_of, with_active
from admittance.events.system import EVERY_CALL_FAILS, CheckActive, CheckAlive
from admittance.sdk.program import ChangeSignal
from support.builders import NOON
from unit.doctor.test_doctor_alerts import a_check

FAIL, ANSWER = False, True


def beat_after(calls: Sequence[bool], check: str = "budget") -> CheckAlive:
    activity = CheckActivity(ChangeSignal())
    for answers in calls:
        if answers:
            activity.succeeded(check)
        else:
            activity.failed(check, KeyError("a secret"))
    return activity.beat("i", "p")


@pytest.mark.parametrize(
    ("calls", "fails"),
    [
        pytest.param([], False, id="no call"),
        pytest.param([FAIL] * (FAILURES_MAX - 1), False, id="too few to say"),
        pytest.param([FAIL] * FAILURES_MAX, True, id="every call"),
        pytest.param([ANSWER, *[FAIL] * FAILURES_MAX], True, id="every call since a good one"),
        pytest.param([*[FAIL] * 9, ANSWER], False, id="the last call gave a verdict"),
        pytest.param([FAIL, FAIL, ANSWER, FAIL, FAIL], False, id="some calls"),
    ],
)
def test_a_heartbeat_says_that_every_call_fails(calls: list[bool], fails: bool) -> None:
    beat = beat_after(calls)
    assert beat.active
    words = beat.checks.get("budget", CheckActive())
    assert words.active
    assert words.message.startswith(EVERY_CALL_FAILS) is fails
    assert "secret" not in words.message
    assert "another" not in beat.checks
    # What the controller says stands in the condition of its check, which `admit doctor` reads.
    beats = Heartbeats(10.0)
    beats.record("ctl", beat, 0.0)
    check = a_check("True", "Active", "before")
    condition = active_of(with_active(check, beats.condition(check, 1.0, NOON, None)))
    assert condition is not None
    assert (condition.status, EVERY_CALL_FAILS in condition.message) == ("True", fails)


def test_the_status_set_by_the_author_outweighs_failed_calls() -> None:
    activity = CheckActivity(ChangeSignal())
    for _ in range(FAILURES_MAX):
        activity.failed("budget", KeyError())
    activity.put("", CheckActive(active=False, message="the database is away"))
    assert not activity.beat("i", "p").checks
    activity.put("", CheckActive())
    activity.put("budget", CheckActive(active=False, message="closed"))
    assert not activity.beat("i", "p").checks["budget"].active
