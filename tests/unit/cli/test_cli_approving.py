"""`admit approve` and `deny`: which check a verdict is for, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.client.errors import BadInput, RequestFailed
from admittance.client.requests.changes import (
    chosen_row,
    refuse_without_quota,
    user_of,
)
from admittance.control.people import verdict_message
from admittance.events.subjects import APPROVAL_CONTROLLER as APPROVAL
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON

CONTROLLERS = {"approval": APPROVAL, "second": APPROVAL, "budget": "example.com/budget"}


def rows(**states: str) -> list[CheckState]:
    return [CheckState(name=name, state=state) for name, state in states.items()]


@pytest.mark.parametrize(
    ("states", "check", "want"),
    [
        pytest.param({"approval": "Pending"}, None, "approval", id="the only one"),
        pytest.param(
            {"budget": "Pending", "approval": "Pending"},
            None,
            "approval",
            id="of several pending ones the approval",
        ),
        pytest.param(
            {"budget": "Pending", "approval": "Ready"},
            None,
            "budget",
            id="the only pending one, of any controller",
        ),
        pytest.param(
            {"budget": "Pending", "approval": "Pending"}, "budget", "budget", id="the named one"
        ),
        pytest.param(
            {"approval": "Rejected"}, "approval", "approval", id="a named one may be overruled"
        ),
    ],
)
def test_a_verdict_chooses_its_check(states: dict[str, str], check: str | None, want: str) -> None:
    assert chosen_row("w", rows(**states), CONTROLLERS, check, "Ready", "--check ").name == want


@pytest.mark.parametrize(
    ("states", "check", "why"),
    [
        pytest.param({}, None, 'workload "w" has no checks', id="no checks"),
        pytest.param(
            {"budget": "Pending"},
            "approval",
            'has no check "approval"; it has budget (Pending)',
            id="no such check",
        ),
        pytest.param(
            {"approval": "Ready"},
            "approval",
            'check "approval" of workload "w" is Ready already',
            id="approved already",
        ),
        pytest.param(
            {"approval": "Ready", "budget": "Ready"},
            None,
            "no check of workload",
            id="none is pending",
        ),
        pytest.param(
            {"approval": "Pending", "second": "Pending", "budget": "Pending"},
            None,
            "choose one with --check NAME: approval, second",
            id="several approvals",
        ),
        pytest.param(
            {"budget": "Pending", "gone": "Pending"},
            None,
            "choose one with --check NAME: budget, gone",
            id="several others",
        ),
    ],
)
def test_a_verdict_that_fits_no_check_is_refused_with_the_reason(
    states: dict[str, str], check: str | None, why: str
) -> None:
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
