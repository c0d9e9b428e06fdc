"""Parts of a verdict without effect: each stands in the row, and is one event."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.events.codec import decode
from admittance.workload.change import FactOutcome
from admittance.workload.phase import Phase
from support.builders import Around
from support.cores.tracked_workload import TrackedWorkload

HOUR = {"requeueAfterSeconds": 3600}
LABELS = [{"name": "main", "labels": {"a": "b"}}]
DELAY = "requeueAfterSeconds has an effect only with Retry, not with {}"
UPDATES = "podSetUpdates have an effect only with Ready, not with {}"
REASON = "reason PreemptionRequired has an effect only with Pending, not with {}"
TIME = "the time in the verdict has no effect: the time at which it is read counts"
TOO_LATE = "its additions to the pods come after their start"


def says(tracked: TrackedWorkload, state: str, **fields: Any) -> TrackedWorkload:
    """The check c1 sends a verdict, as JSON."""
    cycle = tracked.status.admission_cycle
    named = {"namespace": "ns", "name": "w", "check": "c1", "cycle": cycle, "state": state}
    data = msgspec.json.encode({**named, "message": "so", **fields})
    return tracked.happens(decode("admit.check.reported.ctl-c1.ns.w", data))


def message(tracked: TrackedWorkload) -> str:
    return next(row.message for row in tracked.status.admission_checks if row.name == "c1")


@pytest.mark.parametrize(
    ("state", "fields", "event", "remark"),
    [
        ("Pending", {"requeueAfterSeconds": 60}, "VerdictPartIgnored", DELAY),
        ("Ready", {"requeueAfterSeconds": 60}, "VerdictPartIgnored", DELAY),
        ("Ready", {"requeueAfterSeconds": "8m0s"}, "VerdictPartIgnored", DELAY),
        ("Rejected", {"requeueAfterSeconds": 60}, "VerdictPartIgnored", DELAY),
        ("Pending", {"podSetUpdates": LABELS}, "VerdictPartIgnored", UPDATES),
        ("Retry", {**HOUR, "podSetUpdates": LABELS}, "VerdictPartIgnored", UPDATES),
        ("Rejected", {"podSetUpdates": LABELS}, "VerdictPartIgnored", UPDATES),
        ("Ready", {"reason": "PreemptionRequired"}, "UnknownReason", REASON),
        ("Retry", {**HOUR, "reason": "BookCapacity"}, "UnknownReason", REASON),
        ("Rejected", {"reason": "PreemptionRequired"}, "UnknownReason", REASON),
        ("Pending", {"time": "2020-01-01T00:00:00Z"}, "VerdictPartIgnored", TIME),
        ("Ready", {"time": "2099-01-01T00:00:00"}, "VerdictPartIgnored", TIME),
        ("Retry", {**HOUR, "time": "2020-01-01T00:00:00Z"}, "VerdictPartIgnored", TIME),
    ],
)
@pytest.mark.parametrize("admitted", [False, True], ids=["reserved", "admitted"])
def test_a_part_without_effect_is_noted_in_the_row_and_once_as_an_event(
    state: str, fields: dict[str, Any], event: str, remark: str, admitted: bool
) -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned()
    if admitted and state != "Ready":  # a Ready about a Ready check changes nothing
        tracked = TrackedWorkload(Around(["c1", "c2"])).admitted()
    says(tracked, state, **fields)
    assert message(tracked) == f"so; {remark.format(state)}"
    noted = tracked.noted()
    noted.pop("AdmissionCheckUpdated", None)
    assert noted == {event: f'AdmissionCheck "c1": {remark.format(state)}'}
    says(tracked, state, **fields)
    assert tracked.noted() == {}


@pytest.mark.parametrize(
    ("written", "whole"), [(1.5, 2), (0.25, 1), ("1.5s", 2), ("250ms", 1), (7.000_001, 8)]
)
def test_a_delay_with_a_fraction_is_rounded_up_and_noted(written: float | str, whole: int) -> None:
    tracked = says(TrackedWorkload(Around(["c1"])).assigned(), "Retry", requeueAfterSeconds=written)
    assert (tracked.phase, tracked.wait) == (Phase.BACKOFF, whole)
    said = f"requeueAfterSeconds {written} counts as {whole} whole seconds"
    assert message(tracked) == f"so; {said}"
    assert tracked.noted() == {"VerdictPartIgnored": f'AdmissionCheck "c1": {said}'}


@pytest.mark.parametrize("written", [1e300, -0.5, 2**31 - 0.5])
def test_a_delay_with_a_fraction_has_the_limits_of_any_delay(written: float) -> None:
    tracked = says(TrackedWorkload(Around(["c1"])).assigned(), "Retry", requeueAfterSeconds=written)
    assert (tracked.outcome, tracked.reason) == (FactOutcome.REFUSED, "BadDelay")


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        ("Ready", {"requeueAfterSeconds": 0}),
        ("Ready", {"podSetUpdates": LABELS}),
        ("Retry", {"requeueAfterSeconds": 60.0}),
        ("Retry", {"requeueAfterSeconds": "8m0s"}),
        ("Pending", {"reason": "BookCapacity"}),
    ],
)
def test_a_verdict_with_all_its_effects_has_no_remark(state: str, fields: dict[str, Any]) -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned()
    near = tracked.now - timedelta(seconds=50)
    says(tracked, state, **fields, time=near.isoformat())
    assert message(tracked) == "so"
    assert "VerdictPartIgnored" not in tracked.noted()


def test_additions_to_the_pods_of_a_started_job_are_noted_in_the_row() -> None:
    tracked = says(TrackedWorkload(Around(["c1"])).assigned(), "Ready", podSetUpdates=LABELS)
    tracked.confirmed()
    says(tracked, "Ready", podSetUpdates=LABELS)
    assert (tracked.outcome, message(tracked)) == (FactOutcome.IGNORED, "so")
    more = [{"name": "main", "labels": {"a": "b", "c": "d"}}]
    says(tracked, "Ready", podSetUpdates=more)
    assert message(tracked) == f"so; {TOO_LATE}"
    assert tracked.noted() == {"PodSetUpdatesTooLate": f'AdmissionCheck "c1": {TOO_LATE}'}
    says(tracked, "Ready", podSetUpdates=more)
    assert (tracked.outcome, tracked.phase) == (FactOutcome.IGNORED, Phase.ADMITTED)
