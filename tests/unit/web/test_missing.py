"""The page of a workload that is not there, and the manifest of one that is."""

from __future__ import annotations

import pytest

from admittance.web.views.accounts.log import LogRow
from admittance.web.views.details.manifest import manifest_of
from admittance.web.views.missing import missing_workload
from admittance.web.views.words import Link

DELETED = LogRow(sequence=9, time="12:00:00", what="deleted", about="", text="by ada")
SUBMITTED = LogRow(sequence=1, time="11:00:00", what="submitted", about="", text="to main")


@pytest.mark.parametrize(
    ("rows", "title", "text"),
    [
        ([], "Not found", "There is no workload w in namespace ns, or you may not see it."),
        (
            [DELETED, SUBMITTED],
            "Deleted",
            "The workload w of namespace ns was deleted at 12:00:00, by ada.",
        ),
        ([SUBMITTED], "Deleted", "The workload w of namespace ns was deleted."),
    ],
    ids=["never there, or hidden", "deleted", "deleted without a fact that says so"],
)
def test_a_deleted_workload_is_told_from_one_that_never_was(
    rows: list[LogRow], title: str, text: str
) -> None:
    view = missing_workload("ns", "w", rows, near=(Link("w-2", "/workloads/ns/w-2"),))
    assert (view.title, view.text, list(view.log)) == (title, text, rows)


def test_a_manifest_is_yaml_with_its_status_apart() -> None:
    stored = {"kind": "Workload", "spec": {"args": ["<b>\nx"]}, "status": {"log": {"fact": 3}}}
    view = manifest_of("ns", "w", stored)
    assert view.manifest == "kind: Workload\nspec:\n  args:\n  - |-\n    <b>\n    x\n"
    assert view.status == "status:\n  log:\n    fact: 3\n"
