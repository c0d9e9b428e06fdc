"""Kueue's own validation cases: the same objects are refused, for the same fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from admittance.api.fields.problems import Problem
from admittance.api.reading.manifest import ManifestError, accept, decode_object
from admittance.api.validation.validate import validate_update
from admittance.api.workload import Workload
from conformance.differences import VALIDATION
from conformance.manifests.status_rules import check_status, status_of
from conformance.manifests.workload_update_rules import check_workload_update

DATA = Path(__file__).resolve().parents[4] / "shared" / "conformance" / "validation"


def _cases() -> list[Any]:
    if not DATA.is_dir():
        reason = "the conformance data is not beside this tree"
        return [pytest.param("", {}, id="no data", marks=pytest.mark.skip(reason))]
    return [
        pytest.param(path.stem, case, id=f"{path.stem}: {case['name']}")
        for path in sorted(DATA.glob("*.json"))
        for case in json.loads(path.read_text())["cases"]
    ]


def _refused(given: dict[str, Any]) -> list[Problem]:
    try:
        accept(given)
    except ManifestError as error:
        return list(error.problems)
    return []


def _problems(given: dict[str, Any]) -> list[Problem]:
    """Our problems of the object, or of its update."""
    objects = [
        given[key]
        for key in ("oldClusterQueue", "newClusterQueue", "before", "after")
        if key in given
    ] or [given[key] for key in ("clusterQueue", "cohort", "rf", "workload") if key in given]
    try:
        manifests = [decode_object(manifest).manifest for manifest in objects]
    except ManifestError as error:
        return list(error.problems)
    new = manifests[-1]
    problems = _refused(objects[-1])
    old = manifests[0] if len(manifests) == 2 else None
    if isinstance(new, Workload):
        assert old is None or isinstance(old, Workload)
        problems += check_status(new, old)
    if isinstance(old, Workload) and isinstance(new, Workload):
        was = status_of(old)
        problems += check_workload_update(
            old, new, reserved=was.is_true("QuotaReserved"), admitted=was.is_true("Admitted")
        )
    elif old is not None:
        problems += validate_update(old, new)
    return problems


@pytest.mark.parametrize(("table", "case"), _cases())
def test_validation(table: str, case: dict[str, Any]) -> None:
    answer = {(problem.code, problem.field) for problem in _problems(case["given"])}
    want = {
        (error["type"].removeprefix("FieldValue"), error["field"]) for error in case["want"]["err"]
    }
    difference = VALIDATION.get((table, case["name"]))
    if difference is None:
        assert answer == want
    else:
        assert answer != want, "no difference any more: take it out of the table"
        assert answer == set(difference.answer)


def test_every_difference_is_a_case() -> None:
    if not DATA.is_dir():
        pytest.skip("the conformance data is not beside this tree")
    known = {
        (path.stem, case["name"])
        for path in DATA.glob("*.json")
        for case in json.loads(path.read_text())["cases"]
    }
    assert set(VALIDATION) <= known
