"""Checks that delay a workload: the table of checks, and the next attempt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.workload import CheckState, RequeueState
from admittance.cli.show.sections import (
    check_table,
    check_values,
    next_attempt,
    pods_ready_evictions,
)
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON

AT_1010 = NOON.replace(hour=10, minute=10)
LATER = AT_1010 + timedelta(minutes=20)
UNTIL = AT_1010 + timedelta(seconds=50_400)


def row(name: str, state: str, minute: int, after: int | None = None, **more: Any) -> CheckState:
    return CheckState(
        name=name,
        state=state,
        last_transition_time=AT_1010 + timedelta(minutes=minute),
        requeue_after_seconds=after,
        **more,
    )


@pytest.fixture
def put_off() -> StoredWorkload:
    """The example of KEP-3258."""
    rows = (
        row("budget-check", "Retry", 0, 50_400, message="daily budget exhausted", retry_count=3),
        row("gpu", "Retry", 1, 480, message="no A100"),
        row("license", "Retry", 10),
        row("other", "Pending", 0, reason="PreemptionRequired"),
    )
    status = WorkloadStatus(admission_checks=rows, requeue_state=RequeueState(requeue_at=UNTIL))
    return StoredWorkload(api_version="v", kind="Workload", status=status)


@pytest.mark.scenario("L15")
def test_a_delay_shows_its_end_the_rest_and_the_deciding_check(put_off: StoredWorkload) -> None:
    attempt = next_attempt(put_off, LATER)
    assert attempt == '2026-01-02T00:10:00Z (in 13h40m, set by "budget-check")'


@pytest.mark.scenario("L15")
def test_each_check_shows_its_state_retries_and_delay(put_off: StoredWorkload) -> None:
    shown = [
        (line[0], line[1], line[2], line[4], line[5], line[6])
        for line in check_table(put_off, LATER).rows
    ]
    assert shown == [
        ("budget-check", "Retry", "-", "3", "13h40m (decides)", "daily budget exhausted"),
        ("gpu", "Retry", "-", "0", "over", "no A100"),
        ("license", "Retry", "-", "0", "-", "-"),
        ("other", "Pending", "PreemptionRequired", "0", "-", "-"),
    ]


def test_delays_of_checks_are_in_the_json(put_off: StoredWorkload) -> None:
    rows = msgspec.to_builtins(put_off.status.admission_checks)
    first, second, third, fourth = check_values(list(rows), put_off)
    assert (first["type"], first["status"], first["reason"]) == ("budget-check", "False", "Retry")
    assert (first["retryCount"], first["requeueAfterSeconds"]) == (3, 50_400)
    assert (first["notBefore"], first["decides"]) == ("2026-01-02T00:10:00Z", True)
    assert second["decides"] is False
    assert "notBefore" not in third
    assert (fourth["status"], fourth["reason"]) == ("Unknown", "PreemptionRequired")


def test_a_backoff_after_a_pods_ready_timeout_is_named(put_off: StoredWorkload) -> None:
    state = RequeueState(count=2, requeue_at=UNTIL + timedelta(hours=1))
    later = replace(put_off, status=replace(put_off.status, requeue_state=state))
    assert "set by the backoff after PodsReadyTimeout" in next_attempt(later, LATER)
    assert pods_ready_evictions(later) == "2"
    assert pods_ready_evictions(put_off) == ""


def test_a_workload_without_a_delay_has_no_next_attempt() -> None:
    bare = StoredWorkload(api_version="v", kind="Workload")
    assert next_attempt(bare, LATER) == ""
    assert check_table(bare, LATER).rows == []
