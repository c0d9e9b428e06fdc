"""The plug-in for Snakemake: what a job of a workflow asks for, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from admittance.events import facts
from admittance_snakemake import arguments_of, end_of
from support.builders import Around
from support.cores.tracked_workload import ME, TrackedWorkload


@pytest.mark.parametrize(
    ("resources", "arguments"),
    [
        pytest.param({}, {}, id="threads alone"),
        pytest.param({"mem_mb": 200, "gpu": 2}, {"memory": "200M", "gpu": 2}, id="amounts"),
        pytest.param({"mem_mb": "<TBD>", "gpu": 0}, {}, id="amounts that are not known or none"),
        pytest.param({"runtime": 10}, {"max_seconds": 600}, id="minutes"),
        pytest.param(
            {"queue": "q", "priority_class": "high", "disk_mb": 9, "tmpdir": "/tmp"},
            {"queue": "q", "priority_class": "high"},
            id="names, and what is of Snakemake alone",
        ),
    ],
)
def test_threads_and_resources_become_arguments_of_a_submission(
    resources: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert arguments_of(3, resources) == {"cpu": 3, **arguments}


def ended(succeeded: bool) -> Callable[[TrackedWorkload], TrackedWorkload]:
    fact = facts.Renewed(**ME, ended=True, succeeded=succeeded, message="no room")
    return lambda w: w.admitted().happens(fact)


ENDS: dict[str, tuple[Callable[[TrackedWorkload], TrackedWorkload], str | None]] = {
    "it waits": (lambda w: w, None),
    "it may run": (lambda w: w.admitted(), None),
    "it was stopped": (lambda w: w.off(), "Deactivated: The workload is deactivated"),
    "it succeeded": (ended(True), ""),
    "it failed": (ended(False), "Failed: no room"),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_job_ends_with_its_workload(case: str) -> None:
    happens, end = ENDS[case]
    assert end_of(happens(TrackedWorkload(Around(["a"]), leaseDurationSeconds=60)).stored) == end


def test_a_job_without_a_workload_has_failed() -> None:
    assert end_of(None) == "its workload was deleted"
