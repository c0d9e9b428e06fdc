"""Which revision a write notes as its own: by direct calls."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta
from admittance.control.workloads import with_own_revision
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import a_condition


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
