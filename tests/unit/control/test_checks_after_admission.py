"""A check that is listed while a workload is admitted is asked about it, and may stop it."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.facts import CheckRequested, CheckWithdrawn
from support.cores.scheduling_story import groups

from family_living import a_family_life
from living import Life

GROUPS = groups(default="9")


def a_life(**queue: Any) -> Life:
    """w is admitted in cq, which lists no check yet; there is a check c."""
    life = Life()
    life.check("c")
    life.queue("cq", resourceGroups=GROUPS)
    life.submit("w", "cq", "1")
    life.settle()
    assert life.phase("w") == "Admitted"
    return life


def on_flavors(*flavors: str) -> dict[str, Any]:
    return {"admissionChecks": [{"name": "c", "onFlavors": list(flavors)}]}


def asked(life: Life) -> list[tuple[str, str]]:
    """The messages to checks, and the check of each."""
    kinds = {CheckRequested: "asked", CheckWithdrawn: "withdrawn"}
    return [(kinds[type(one)], one.check) for one in life.asked]  # type: ignore[attr-defined,index]


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
    life = a_life()
    life.queue("cq", resourceGroups=GROUPS, **lists)
    assert asked(life) == [("asked", "c")]
    assert life.phase("w") == "Admitted"
    delay = {"requeue_after_seconds": 60} if state == "Retry" else {}
    life.verdict("w", "c", state, **delay)
    assert life.phase("w") == becomes


def test_a_check_of_another_flavor_is_not_requested() -> None:
    life = a_life()
    both = groups(default="9", spot="9")
    life.put("ResourceFlavor", "spot")
    life.queue("cq", resourceGroups=both, admissionChecksStrategy=on_flavors("spot"))
    assert asked(life) == []


def test_a_check_removed_and_listed_again_is_withdrawn_then_requested() -> None:
    life = a_life()
    for listed in (["c"], [], ["c"]):
        life.queue("cq", resourceGroups=GROUPS, admissionChecks=listed)
    assert asked(life) == [("asked", "c"), ("withdrawn", "c"), ("asked", "c")]
    life.verdict("w", "c", "Ready")
    rows = [(row.name, row.state) for row in life.stored("w").status.admission_checks]
    assert (life.phase("w"), rows) == ("Admitted", [("c", "Ready")])


def test_a_check_created_after_it_was_listed_is_requested_then() -> None:
    life = a_life()
    life.queue("cq", resourceGroups=GROUPS, admissionChecks=["later"])
    assert asked(life) == []
    life.check("later")
    assert asked(life) == [("asked", "later")]


def test_an_edit_found_only_in_the_log_is_followed_after_a_takeover() -> None:
    life = a_life()
    life.deaf = True  # The leader dies before it reads of its own edit.
    life.queue("cq", resourceGroups=GROUPS, admissionChecks=["c"])
    assert asked(life) == []
    life.deaf = False
    life.queue("cq", resourceGroups=GROUPS, admissionChecks=["c"])
    assert asked(life) == [("asked", "c")]


def test_a_check_listed_after_admission_is_requested_for_variants() -> None:
    life = a_family_life({"reservation": 4, "spot": 4})
    life.put("AdmissionCheck", "c", {"controllerName": "ctl-c"})
    life.job()
    life.go()
    name = life.stored("j").status.admitted_variant
    assert name
    before = len(life.asked)
    life.offer({"reservation": 4, "spot": 4}, checks={"reservation": ["c"], "spot": ["c"]})
    life.go()
    told = life.asked[before:]
    assert [(type(one), one.name) for one in told] == [(CheckRequested, name)]
    life.verdict(name, "c", "Rejected", controller="ctl-c")
    assert life.phase(name) in ("Evicting", "Rejected")
