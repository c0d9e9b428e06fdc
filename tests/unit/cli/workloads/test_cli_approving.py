"""`admit approve` and `deny`: which check a verdict is for, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.client.errors import BadInput, RequestFailed
from admittance.client.requests.workloads.changes import (
    chosen_row,
    refuse_without_quota,
    user_of,
)
from admittance.control.user_requests.people import verdict_message
from admittance.events.subjects import APPROVAL_CONTROLLER as APPROVAL
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON

CONTROLLERS = {"approval": APPROVAL, "second": APPROVAL, "budget": "example.com/budget"}


def rows(**states: str) -> list[CheckState]:
    return [CheckState(name=name, state=state) for name, state in states.items()]


VERDICT_CHOOSES_CASES: dict[str, tuple[dict[str, str], str | None, str]] = {
    "the only one": ({"approval": "Pending"}, None, "approval"),
    "of several pending ones the approval": (
        {"budget": "Pending", "approval": "Pending"},
        None,
        "approval",
    ),
    "the only pending one, of any controller": (
        {"budget": "Pending", "approval": "Ready"},
        None,
        "budget",
    ),
    "the named one": ({"budget": "Pending", "approval": "Pending"}, "budget", "budget"),
    "a named one may be overruled": ({"approval": "Rejected"}, "approval", "approval"),
}


@pytest.mark.parametrize("case", VERDICT_CHOOSES_CASES)
def test_a_verdict_chooses_its_check(case: str) -> None:
    states, check, want = VERDICT_CHOOSES_CASES[case]
    assert chosen_row("w", rows(**states), CONTROLLERS, check, "Ready", "--check ").name == want


VERDICT_CASES: dict[str, tuple[dict[str, str], str | None, str]] = {
    "no checks": ({}, None, 'workload "w" has no checks'),
    "no such check": (
        {"budget": "Pending"},
        "approval",
        'has no check "approval"; it has budget (Pending)',
    ),
    "approved already": (
        {"approval": "Ready"},
        "approval",
        'check "approval" of workload "w" is Ready already',
    ),
    "none is pending": ({"approval": "Ready", "budget": "Ready"}, None, "no check of workload"),
    "several approvals": (
        {"approval": "Pending", "second": "Pending", "budget": "Pending"},
        None,
        "choose one with --check NAME: approval, second",
    ),
    "several others": (
        {"budget": "Pending", "gone": "Pending"},
        None,
        "choose one with --check NAME: budget, gone",
    ),
}


@pytest.mark.parametrize("case", VERDICT_CASES)
def test_a_verdict_that_fits_no_check_is_refused_with_the_reason(case: str) -> None:
    states, check, why = VERDICT_CASES[case]
    with pytest.raises(RequestFailed) as caught:
        chosen_row("w", rows(**states), CONTROLLERS, check, "Ready", "--check ")
    assert why in str(caught.value)


def test_a_verdict_on_a_workload_without_quota_is_refused() -> None:
    workload = StoredWorkload(api_version="v", kind="Workload")
    workload = replace(workload, status=WorkloadStatus(admission_checks=tuple(rows(a="Pending"))))
    with pytest.raises(RequestFailed, match="has no quota reserved"):
        refuse_without_quota(workload, NOON)


def test_the_message_of_a_verdict_has_user_and_time() -> None:
    assert verdict_message("approved", "ada", "", NOON) == "approved by ada at 2026-01-01T12:00:00Z"
    assert verdict_message("denied", "ada", "too big", NOON).endswith("Z: too big")


def test_the_user_of_a_verdict_can_be_named(monkeypatch: Any) -> None:
    monkeypatch.setenv("ADMIT_USER", "grace")
    assert user_of(None) == "grace"
    assert user_of("ada") == "ada"
    with pytest.raises(BadInput):
        user_of("  ")
