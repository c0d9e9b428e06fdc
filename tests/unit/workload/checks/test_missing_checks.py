"""A queue may name a check before it exists; its controller is asked when the check is created."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.facts import CheckRequested
from admittance.workload.checks.rows import row_of
from admittance.workload.phase import Phase
from admittance.workload.transition_context import CheckRules
from support.builders import Around
from support.cores.stepped_cores import SteppedCores
from support.cores.tracked_workload import TrackedWorkload


def asked(cores: SteppedCores) -> list[str]:
    return [fact.check for fact in cores.check_facts if isinstance(fact, CheckRequested)]


def message(cores: SteppedCores, check: str) -> str:
    row = row_of(cores.stored("w").status.admission_checks, check)
    assert row is not None
    return row.message


@pytest.mark.parametrize("of_flavor", [False, True], ids=["of the queue", "of a flavor"])
@pytest.mark.parametrize("checks_first", [False, True], ids=["submitted first", "created first"])
def test_two_late_checks_of_one_controller_have_rows_in_the_inactive_queue(
    of_flavor: bool, checks_first: bool
) -> None:
    cores = SteppedCores()
    both = ["x", "y"]
    flavor: dict[str, Any] = {
        "name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}],
        "admissionChecks": both if of_flavor else [],
    }  # fmt: skip
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    cores.queue("cq", resourceGroups=[group], admissionChecks=[] if of_flavor else both)
    if not checks_first:
        cores.submit("w", "cq")
    for name in both:
        cores.put("AdmissionCheck", name, {"controllerName": "example.com/one"})
    if checks_first:
        cores.submit("w", "cq")
    cores.settle()
    assert (cores.phase("w"), asked(cores)) == ("Pending", [])
    assert [message(cores, name) for name in both] == ["", ""]
    assert cores.scheduler.explain("ns", "w", now=cores.now).unblocked_by == (
        "ClusterQueue cq becoming active (ConflictingAdmissionChecks): removal of AdmissionCheck x "
        "or y, which have one controller",
    )


def test_a_row_says_that_its_check_is_not_asked_before_the_reservation() -> None:
    around = Around(["c1"])
    tracked = TrackedWorkload(around).assigned().preempted()
    around.rules["c1"] = CheckRules("c1", "ctl-c1", missing="Budget main does not exist")
    (row,) = tracked.queue_changed().status.admission_checks
    assert row.message == "AdmissionCheck c1 is not asked: Budget main does not exist"


def test_a_ready_that_answers_an_earlier_request_counts_without_the_parameters() -> None:
    around = Around(["c1", "c2"])
    tracked = TrackedWorkload(around).assigned()
    around.rules["c1"] = CheckRules("c1", "ctl-c1", missing="Budget main does not exist")
    tracked.queue_changed()
    row = tracked.status.admission_checks[0]
    assert row.message == "AdmissionCheck c1 is not asked: Budget main does not exist"
    tracked.verdict("c1", "Ready", message="within budget").verdict("c2", "Ready").confirmed()
    assert (tracked.phase, tracked.states) == (Phase.ADMITTED, {"c1": "Ready", "c2": "Ready"})
    assert tracked.status.admission_checks[0].message == "within budget"


def test_a_check_created_after_the_reservation_is_requested_then() -> None:
    cores = SteppedCores()
    cores.check("first")
    spec: dict[str, Any] = {
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
                ],
            }
        ]
    }
    cores.queue("cq", **spec, admissionChecks=["first"])
    cores.submit("w", "cq")
    cores.settle()
    assert asked(cores) == ["first"]
    cores.queue("cq", **spec, admissionChecks=["first", "later"])
    assert asked(cores) == ["first"]
    assert message(cores, "later") == "AdmissionCheck later doesn't exist"
    cores.check("later")
    assert asked(cores) == ["first", "later"]
    assert message(cores, "later") == ""
    # Once is enough, whatever else is changed.
    cores.check("later")
    cores.queue("cq", **spec, admissionChecks=["first", "later"])
    assert asked(cores) == ["first", "later"]
    for check in ("first", "later"):
        cores.verdict("w", check, "Ready")
    cores.settle()
    assert cores.phase("w") == "Admitted"
