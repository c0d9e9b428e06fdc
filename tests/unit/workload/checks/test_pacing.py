"""Repeated verdicts Retry without a delay are paced."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from admittance.events import facts
from admittance.workload import stored
from admittance.workload.limits import Limits
from admittance.workload.phase import Phase
from support.builders import Around
from support.cores.tracked_workload import ME, TrackedWorkload

MINUTE = Limits(pacing_max=timedelta(seconds=60))


def a_tracked_workload(*checks: str, limits: Limits = MINUTE) -> TrackedWorkload:
    return TrackedWorkload(Around(checks or ("c",), limits=limits))


def retries(tracked: TrackedWorkload, times: int, check: str = "c") -> list[float | None]:
    """The waits of a workload after each of ``times`` verdicts Retry without a delay."""
    waits = []
    for _ in range(times):
        tracked.assigned().verdict(check, "Retry", message="no room")
        waits.append(tracked.wait)
        if tracked.wait is not None:
            tracked.later(tracked.wait).due()
        assert tracked.phase is Phase.PENDING
    return waits


def test_from_the_third_retry_on_each_wait_is_longer() -> None:
    tracked = a_tracked_workload()
    assert retries(tracked, 11) == [None, None, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert tracked.counts == {"c": 11}


def test_row_and_conditions_explain_the_wait() -> None:
    tracked = a_tracked_workload()
    retries(tracked, 3)
    tracked.assigned().verdict("c", "Retry", message="no room")
    said = "no room; 4 Retries without a delay in a row: it waits 2 s"
    assert tracked.status.admission_checks[0].message == said
    assert said in tracked.message("Requeued")
    assert "Next attempt not before 2026-01-01T12:00:03Z" in tracked.message("Requeued")


@pytest.mark.parametrize("zero", [None, 0])
def test_a_delay_of_0_counts_as_no_delay(zero: int | None) -> None:
    tracked = a_tracked_workload()
    for _ in range(3):
        tracked.assigned().verdict("c", "Retry", zero)
    assert tracked.wait == 1


def test_a_deployment_sets_the_longest_wait_or_switches_it_off() -> None:
    assert retries(a_tracked_workload(limits=Limits(pacing_max=timedelta(seconds=3))), 6)[2:] == [
        1,
        2,
        3,
        3,
    ]
    assert retries(a_tracked_workload(limits=Limits()), 9) == [None] * 9


def test_a_repeated_retry_counts_once() -> None:
    tracked = a_tracked_workload("c")
    retries(tracked, 2)
    tracked.assigned().verdict("c", "Retry")
    tracked.later(0.5).verdict("c", "Retry")
    assert (tracked.reason, tracked.wait) == ("Repeated", 0.5)


def test_each_check_is_counted_on_its_own() -> None:
    tracked = a_tracked_workload("c", "d")
    assert retries(tracked, 2) == [None, None]
    assert retries(tracked, 3, "d") == [None, None, 1]
    assert retries(tracked, 1) == [1]


@pytest.mark.parametrize("how", ["Ready", "delay", "admitted", "activated", "priority", "queue"])
def test_the_count_of_retries_is_reset(how: str) -> None:
    tracked = a_tracked_workload("c", "d")
    retries(tracked, 4)
    tracked.assigned()
    match how:
        case "Ready":
            tracked.verdict("c", "Ready").verdict("d", "Retry")
        case "delay":
            tracked.verdict("c", "Retry", 7).later(7).due()
        case "admitted":
            tracked.verdict("c", "Ready").verdict("d", "Ready").confirmed()
            tracked.preempted().stopped()
        case "activated":
            tracked.off().on()
        case "priority":
            tracked.happens(facts.Reprioritized(**ME, priority=7)).verdict("c", "Retry")
            assert tracked.wait is None
        case "queue":
            tracked.around.edited = "anew"
            tracked.verdict("c", "Retry")
            assert tracked.wait is None
    done = 1 if how in ("priority", "queue") else 0
    assert retries(tracked, 3)[2 - done :][0] == 1


def test_a_preemption_does_not_reset_the_count() -> None:
    tracked = a_tracked_workload()
    retries(tracked, 2)
    tracked.assigned().preempted()
    assert retries(tracked, 1) == [1]


def test_a_late_retry_without_a_delay_stays_stale() -> None:
    tracked = a_tracked_workload()
    retries(tracked, 4)
    tracked.assigned().verdict("c", "Retry", ago=1)
    assert (tracked.reason, tracked.phase) == ("Stale", Phase.QUOTA_RESERVED)


def test_the_count_is_stored() -> None:
    tracked = a_tracked_workload()
    retries(tracked, 3)
    tracked.workload = stored.decode(stored.encode(tracked.stored))
    assert retries(tracked, 1) == [2]
    plain = msgspec.json.decode(stored.encode(tracked.stored))
    assert plain["status"]["immediateRetries"]["c"]["count"] == 4
