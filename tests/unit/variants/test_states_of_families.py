"""The states in which families are counted."""

from __future__ import annotations

import pytest

from support.builders import a_condition, an_admission
from support.cores.families.stepped_variants import SteppedVariants, a_family


def counted(table: SteppedVariants) -> dict[str, int]:
    return {state: count for state, count in table.families.states().items() if count}


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        pytest.param(a_condition("QuotaReserved", False), "waiting", id="without a variant"),
        pytest.param(a_condition("Requeued", False), "backoff", id="delayed by a check"),
        pytest.param(a_condition("Finished", True), "ended", id="finished"),
    ],
)
def test_a_family_is_counted_by_the_conditions_of_its_parent(condition: object, state: str) -> None:
    table = a_family("a", "b").status("j", condition)  # type: ignore[arg-type]
    assert counted(table) == {state: 1}


def test_a_family_is_counted_as_admitted_until_its_job_stops_to_migrate() -> None:
    table = a_family("a", "b").admit("b")
    table.workload("k")
    assert counted(table) == {"admitted": 1, "waiting": 1}
    table.status("j", migrating_to="j-variant-a")
    assert counted(table) == {"migrating": 1, "waiting": 1}
    table.spec("k", active=False)
    assert counted(table) == {"migrating": 1, "inactive": 1}
    table.put("j", None).put("k", None)
    assert counted(table) == {}


def test_a_family_with_a_stopping_job_is_counted_as_stopping() -> None:
    table = a_family("a", "b").admit("b")
    table.status("j", a_condition("Evicted", True, "Preempted"), admission=an_admission())
    assert counted(table) == {"stopping": 1}


def test_queues_with_concurrent_admission_are_known_by_name() -> None:
    table = a_family("a", "b")
    assert table.families.queues() == ["cq"]
    table.offer(policy=False)
    assert table.families.queues() == []
