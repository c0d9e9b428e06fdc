"""Quota that is planned with counts once, and in full as soon as the plan ends (LIFECYCLE 2.7)."""

from __future__ import annotations

from typing import Any

from support.cores.scheduling_story import groups

from living import Life

LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}


def used(life: Life, queue: str) -> int:
    return life.core.catalog.tree.queues[queue].cell(("default", "cpu")).usage // 1000


def test_an_unneeded_victim_is_not_preempted_for_others() -> None:
    life = Life()
    life.put("AdmissionCheck", "c", {"controllerName": "ctl-c"})
    checked: dict[str, Any] = {"resourceGroups": groups(default="4"), "preemption": LOWER}
    life.queue("cq", **checked)
    for name, cpu, priority in (("v", "1", -1), ("f", "2", 5)):
        life.submit(name, "cq", cpu, priority=priority)
        life.settle()
    life.stubborn.add("v")
    life.queue("cq", **checked, admissionChecks=["c"])
    life.submit("p", "cq", "2", priority=1)
    life.settle()
    assert life.phases("p", "v") == ["QuotaReserved", "Evicting"]
    # Now there is room for p beside its victim, which still runs; and no more.
    life.finish("f")
    life.verdict("p", "c", "Ready")
    life.submit("n", "cq", "2", priority=-1)
    life.settle()
    assert life.phases("p", "n", "v") == ["Admitted", "Pending", "Evicting"]
    assert used(life, "cq") == 3


def test_several_plans_with_one_victim_leave_room_for_all_of_them() -> None:
    """What one queue keeps to itself must not hide what its own planners will take."""
    life = Life()
    life.put(
        "AdmissionCheck",
        "c",
        {"controllerName": "ctl-c", "preemptionPolicy": "AfterCheckPassedOrOnDemand"},
    )
    more: dict[str, Any] = {
        "admissionChecks": ["c"],
        "preemption": LOWER | {"reclaimWithinCohort": "Any"},
    }
    lends: list[dict[str, Any]] = groups(default="4")
    lends[0]["flavors"][0]["resources"][0]["lendingLimit"] = "1"
    life.queue("a", "co", resourceGroups=groups(default="4"), **more)
    life.queue("b", "co", resourceGroups=groups(default="3"), **more)
    life.submit("v", "a", "6", priority=-2)
    life.settle()
    life.submit("p1", "b", "3", priority=0)
    life.settle()
    for name in ("p2", "p3"):
        life.submit(name, "a", "2", priority=2)
        life.settle()
    life.queue("a", "co", resourceGroups=lends, **more)
    life.settle()
    assert life.phases("v", "p1", "p2", "p3") == ["QuotaReserved"] * 4
    life.submit("n", "b", "1", priority=-3)
    life.settle()
    assert life.phase("n") == "Pending"
