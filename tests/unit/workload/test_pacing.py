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

from lives import ME, Life

MINUTE = Limits(pacing_max=timedelta(seconds=60))


def a_life(*checks: str, limits: Limits = MINUTE) -> Life:
    return Life(Around(checks or ("c",), limits=limits))


def retries(life: Life, times: int, check: str = "c") -> list[float | None]:
    """The waits of a workload after each of ``times`` verdicts Retry without a delay."""
    waits = []
    for _ in range(times):
        life.assigned().verdict(check, "Retry", message="no room")
        waits.append(life.wait)
        if life.wait is not None:
            life.later(life.wait).due()
        assert life.phase is Phase.PENDING
    return waits


def test_from_the_third_retry_on_each_wait_is_longer() -> None:
    life = a_life()
    assert retries(life, 11) == [None, None, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert life.counts == {"c": 11}


def test_row_and_conditions_explain_the_wait() -> None:
    life = a_life()
    retries(life, 3)
    life.assigned().verdict("c", "Retry", message="no room")
    said = "no room; 4 Retries without a delay in a row: it waits 2 s"
    assert life.status.admission_checks[0].message == said
    assert said in life.message("Requeued")
    assert "Next attempt not before 2026-01-01T12:00:03Z" in life.message("Requeued")


@pytest.mark.parametrize("zero", [None, 0])
def test_a_delay_of_0_counts_as_no_delay(zero: int | None) -> None:
    life = a_life()
    for _ in range(3):
        life.assigned().verdict("c", "Retry", zero)
    assert life.wait == 1


def test_a_deployment_sets_the_longest_wait_or_switches_it_off() -> None:
    assert retries(a_life(limits=Limits(pacing_max=timedelta(seconds=3))), 6)[2:] == [1, 2, 3, 3]
    assert retries(a_life(limits=Limits()), 9) == [None] * 9


def test_a_repeated_retry_counts_once() -> None:
    life = a_life("c")
    retries(life, 2)
    life.assigned().verdict("c", "Retry")
    life.later(0.5).verdict("c", "Retry")
    assert (life.reason, life.wait) == ("Repeated", 0.5)


def test_each_check_is_counted_on_its_own() -> None:
    life = a_life("c", "d")
    assert retries(life, 2) == [None, None]
    assert retries(life, 3, "d") == [None, None, 1]
    assert retries(life, 1) == [1]


@pytest.mark.parametrize("how", ["Ready", "delay", "admitted", "activated", "priority", "queue"])
def test_the_count_of_retries_is_reset(how: str) -> None:
    life = a_life("c", "d")
    retries(life, 4)
    life.assigned()
    match how:
        case "Ready":
            life.verdict("c", "Ready").verdict("d", "Retry")
        case "delay":
            life.verdict("c", "Retry", 7).later(7).due()
        case "admitted":
            life.verdict("c", "Ready").verdict("d", "Ready").confirmed()
            life.preempted().stopped()
        case "activated":
            life.off().on()
        case "priority":
            life.happens(facts.Reprioritized(**ME, priority=7)).verdict("c", "Retry")
            assert life.wait is None
        case "queue":
            life.around.edited = "anew"
            life.verdict("c", "Retry")
            assert life.wait is None
    done = 1 if how in ("priority", "queue") else 0
    assert retries(life, 3)[2 - done :][0] == 1


def test_a_preemption_does_not_reset_the_count() -> None:
    life = a_life()
    retries(life, 2)
    life.assigned().preempted()
    assert retries(life, 1) == [1]


def test_a_late_retry_without_a_delay_stays_stale() -> None:
    life = a_life()
    retries(life, 4)
    life.assigned().verdict("c", "Retry", ago=1)
    assert (life.reason, life.phase) == ("Stale", Phase.QUOTA_RESERVED)


def test_the_count_is_stored() -> None:
    life = a_life()
    retries(life, 3)
    life.workload = stored.decode(stored.encode(life.stored))
    assert retries(life, 1) == [2]
    plain = msgspec.json.decode(stored.encode(life.stored))
    assert plain["status"]["immediateRetries"]["c"]["count"] == 4
