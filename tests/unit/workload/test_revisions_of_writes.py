"""Small parts of the workload-controller's core: by direct calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta
from admittance.control.workloads import with_own_revision
from admittance.lease import service_domain
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


@pytest.mark.parametrize(
    ("condition", "status", "before", "after"),
    [
        ("Admitted", True, (0, 0), (7, 0)),
        ("Admitted", True, (4, 0), (4, 0)),
        ("Admitted", False, (0, 0), (0, 0)),
        ("Evicted", True, (4, 0), (4, 7)),
        ("Evicted", True, (4, 5), (4, 5)),
        ("Evicted", False, (4, 0), (4, 0)),
    ],
)
def test_a_write_is_the_revision_of_a_new_admission_or_eviction(
    condition: str, status: bool, before: tuple[int, int], after: tuple[int, int]
) -> None:
    workload = a_workload(
        conditions=(a_condition(condition, status),),
        admitted_revision=before[0],
        evicted_revision=before[1],
    )
    written = with_own_revision(workload, 7)
    assert (written.status.admitted_revision, written.status.evicted_revision) == after
    assert (written is workload) is (before == after)


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


def test_a_part_of_a_service_has_a_domain_of_its_own() -> None:
    assert service_domain("timers") == "service-timers"
    assert service_domain("provisioning", "a") == "service-provisioning-a"
