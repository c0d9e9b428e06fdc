"""Single calls of Kueue's workload controller, as facts that happen to a workload."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.lifecycle_differences import RECONCILE, TABLES, TABLES_UNPLAYED, UNPLAYED
from conformance.reconcile import Reconciled
from conformance.tables import cases, needs_data, read

CALLS = tuple(name for name in TABLES if name.rpartition("/")[2].startswith("TestReconcile")
              and "Sync" not in name)  # fmt: skip
OUT = RECONCILE | UNPLAYED


@needs_data
@pytest.mark.scenario("F1", "F2", "F3", "F7", "F8", "F9", "L10", "L11")
@pytest.mark.parametrize("case", [case for table in CALLS for case in cases(table, OUT)])
def test_a_reconcile_call_has_the_result_of_kueue(case: dict[str, Any]) -> None:
    played = Reconciled(case)
    assert played.ours() == played.theirs()


@needs_data
@pytest.mark.parametrize(
    "case", [case for table in CALLS for case in cases(table) if case.id in RECONCILE]
)
def test_listed_differences_do_differ(case: dict[str, Any]) -> None:
    played = Reconciled(case)
    assert played.ours() != played.theirs()


@needs_data
def test_listed_cases_exist_and_nearly_all_are_played() -> None:
    names = [case["name"] for table in CALLS for case in read(table)]
    assert set(names) >= set(OUT)
    assert len(names) == 92
    assert len([name for name in names if name not in OUT]) == 76


@needs_data
def test_tables_that_are_not_played_exist() -> None:
    for table in (*TABLES, *TABLES_UNPLAYED):
        assert read(table), table
