"""A check that is listed while a workload is admitted is asked about it, and may stop it."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.facts import CheckRequested, CheckWithdrawn
from support.cores.families.family_cores import cores_with_families
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

GROUPS = groups(default="9")


def configured_cores(**queue: Any) -> SteppedCores:
    """w is admitted in cq, which lists no check yet; there is a check c."""
    cores = SteppedCores()
    cores.check("c")
    cores.queue("cq", resourceGroups=GROUPS)
    cores.submit("w", "cq", "1")
    cores.settle()
    assert cores.phase("w") == "Admitted"
    return cores


def on_flavors(*flavors: str) -> dict[str, Any]:
    return {"admissionChecks": [{"name": "c", "onFlavors": list(flavors)}]}


def asked(cores: SteppedCores) -> list[tuple[str, str]]:
    """The messages to checks, and the check of each."""
    kinds = {CheckRequested: "asked", CheckWithdrawn: "withdrawn"}
    return [(kinds[type(fact)], fact.check) for fact in cores.check_facts]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "lists",
    [{"admissionChecks": ["c"]}, {"admissionChecksStrategy": on_flavors("default")}],
    ids=["of the queue", "of its flavor"],
)
@pytest.mark.parametrize(
    ("state", "becomes"),
    [
        ("Pending", "Admitted"),
        ("Ready", "Admitted"),
        ("Retry", "Backoff"),
        ("Rejected", "Rejected"),
    ],
)
def test_a_check_listed_after_admission_is_requested(
    lists: dict[str, Any], state: str, becomes: str
) -> None:
    cores = configured_cores()
    cores.queue("cq", resourceGroups=GROUPS, **lists)
    assert asked(cores) == [("asked", "c")]
    assert cores.phase("w") == "Admitted"
    delay = {"requeue_after_seconds": 60} if state == "Retry" else {}
    cores.verdict("w", "c", state, **delay)
    assert cores.phase("w") == becomes


def test_a_check_of_another_flavor_is_not_requested() -> None:
    cores = configured_cores()
    both = groups(default="9", spot="9")
    cores.put("ResourceFlavor", "spot")
    cores.queue("cq", resourceGroups=both, admissionChecksStrategy=on_flavors("spot"))
    assert asked(cores) == []


def test_a_check_removed_and_listed_again_is_withdrawn_then_requested() -> None:
    cores = configured_cores()
    for listed in (["c"], [], ["c"]):
        cores.queue("cq", resourceGroups=GROUPS, admissionChecks=listed)
    assert asked(cores) == [("asked", "c"), ("withdrawn", "c"), ("asked", "c")]
    cores.verdict("w", "c", "Ready")
    rows = [(row.name, row.state) for row in cores.stored("w").status.admission_checks]
    assert (cores.phase("w"), rows) == ("Admitted", [("c", "Ready")])


def test_a_check_created_after_it_was_listed_is_requested_then() -> None:
    cores = configured_cores()
    cores.queue("cq", resourceGroups=GROUPS, admissionChecks=["later"])
    assert asked(cores) == []
    cores.check("later")
    assert asked(cores) == [("asked", "later")]


def test_an_edit_found_only_in_the_log_is_followed_after_a_takeover() -> None:
    cores = configured_cores()
    cores.announces_objects = False  # The leader dies before it reads about its own edit.
    cores.queue("cq", resourceGroups=GROUPS, admissionChecks=["c"])
    assert asked(cores) == []
    cores.announces_objects = True
    cores.queue("cq", resourceGroups=GROUPS, admissionChecks=["c"])
    assert asked(cores) == [("asked", "c")]


def test_a_check_listed_after_admission_is_requested_for_variants() -> None:
    cores = cores_with_families({"reservation": 4, "spot": 4})
    cores.put("AdmissionCheck", "c", {"controllerName": "ctl-c"})
    cores.job()
    cores.go()
    name = cores.stored("j").status.admitted_variant
    assert name
    before = len(cores.check_facts)
    cores.offer({"reservation": 4, "spot": 4}, checks={"reservation": ["c"], "spot": ["c"]})
    cores.go()
    requests = cores.check_facts[before:]
    assert [(type(fact), fact.name) for fact in requests] == [(CheckRequested, name)]
    cores.verdict(name, "c", "Rejected", controller="ctl-c")
    assert cores.phase(name) in ("Evicting", "Rejected")
