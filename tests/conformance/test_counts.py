"""Nearly all of Kueue's cases are answered as Kueue does; every other one has its reason."""

from __future__ import annotations

from pathlib import Path

from conformance.counts import UNPLAYED, counts, reasons
from conformance.differences import CACHE, ENTRIES, PENDING
from conformance.tables import needs_data, read

LEAST = 0.97


@needs_data
def test_of_the_cases_in_scope_nearly_all_are_answered_as_kueue_does() -> None:
    rows = counts()
    in_scope = sum(row.in_scope for row in rows)
    same = sum(row.same for row in rows)
    assert in_scope > 500
    assert same >= LEAST * in_scope, f"{same} of {in_scope}"


@needs_data
def test_every_table_in_scope_is_played_by_some_test() -> None:
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    for row in counts():
        name = row.table.partition("/")[2]
        assert row.table in UNPLAYED or f"{name}" in tests, row.table


@needs_data
def test_every_listed_difference_names_an_existing_case() -> None:
    names = {case["name"] for row in counts() for case in read(row.table)}
    named = {case for _, case in reasons()} | set(PENDING) | set(ENTRIES) | set(CACHE)
    assert named <= names, named - names
