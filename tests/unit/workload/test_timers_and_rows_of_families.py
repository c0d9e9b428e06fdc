"""Timers and rows of a family: by direct calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta
from admittance.workload.due_times import TimerKind, due_times
from admittance.workload.families.parent_status import MESSAGE_MAX, summary_of
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON, Around, a_condition


def a_workload(**status: Any) -> StoredWorkload:
    return StoredWorkload(
        api_version="v1",
        kind="Workload",
        metadata=ObjectMeta(name="w", namespace="ns", uid="u"),
        spec=msgspec.Raw(b'{"queueName":"q"}'),
        status=msgspec.structs.replace(WorkloadStatus(), **status),
    )


@pytest.mark.parametrize(("finished", "expected"), [(False, True), (True, False)])
def test_a_family_has_a_timer_until_it_has_finished(finished: bool, expected: bool) -> None:
    conditions = (a_condition("Finished", finished),)
    later = NOON + timedelta(hours=1)
    times = due_times(a_workload(conditions=conditions, next_change_at=later), NOON, Around())
    assert times == ({TimerKind.FAMILY: later} if expected else {})
    assert due_times(a_workload(conditions=conditions), NOON, Around()) == {}


@pytest.mark.parametrize(
    ("length", "shown"), [(MESSAGE_MAX, "x" * MESSAGE_MAX), (MESSAGE_MAX + 1, None)]
)
def test_a_long_message_of_a_variant_is_cut_to_its_limit(length: int, shown: str | None) -> None:
    condition = msgspec.structs.replace(a_condition("QuotaReserved", False), message="x" * length)
    _, row = summary_of(a_workload(conditions=(condition,)))
    message = row.conditions[0].message
    assert len(message) == MESSAGE_MAX
    assert message == (shown or "x" * (MESSAGE_MAX - 3) + "...")
