"""Quota in a planned preemption counts once, and in full as soon as the plan ends
(docs/spec/lifecycle.md#2.7)."""

from __future__ import annotations

from typing import Any

from admittance.scheduling.state.config import CohortFairSharing, Config
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}


def used(cores: SteppedCores, queue: str) -> int:
    return cores.scheduler.catalog.tree.queues[queue].cell(("default", "cpu")).usage // 1000


def test_an_unneeded_victim_is_not_preempted_for_others() -> None:
    cores = SteppedCores()
    cores.put("AdmissionCheck", "c", {"controllerName": "ctl-c"})
    checked: dict[str, Any] = {"resourceGroups": groups(default="4"), "preemption": LOWER}
    cores.queue("cq", **checked)
    for name, cpu, priority in (("v", "1", -1), ("f", "2", 5)):
        cores.submit(name, "cq", cpu, priority=priority)
        cores.settle()
    cores.slow_jobs.add("v")
    cores.queue("cq", **checked, admissionChecks=["c"])
    cores.submit("p", "cq", "2", priority=1)
    cores.settle()
    assert cores.phases("p", "v") == ["QuotaReserved", "Evicting"]
    # Now there is room for p beside its victim, which still runs; and no more.
    cores.finish("f")
    cores.verdict("p", "c", "Ready")
    cores.submit("n", "cq", "2", priority=-1)
    cores.settle()
    assert cores.phases("p", "n", "v") == ["Admitted", "Pending", "Evicting"]
    assert used(cores, "cq") == 3


def test_several_plans_with_one_victim_leave_quota_for_every_plan() -> None:
    """Quota that a queue does not lend must not hide the quota that its own planners will take."""
    cores = SteppedCores()
    cores.put(
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
    cores.queue("a", "co", resourceGroups=groups(default="4"), **more)
    cores.queue("b", "co", resourceGroups=groups(default="3"), **more)
    cores.submit("v", "a", "6", priority=-2)
    cores.settle()
    cores.submit("p1", "b", "3", priority=0)
    cores.settle()
    for name in ("p2", "p3"):
        cores.submit(name, "a", "2", priority=2)
        cores.settle()
    cores.queue("a", "co", resourceGroups=lends, **more)
    cores.settle()
    assert cores.phases("v", "p1", "p2", "p3") == ["QuotaReserved"] * 4
    cores.submit("n", "b", "1", priority=-3)
    cores.settle()
    assert cores.phase("n") == "Pending"


def test_plans_that_share_a_victim_leave_nothing_of_it_to_a_third() -> None:
    cores = SteppedCores(Config(preemption=True, fair_sharing=CohortFairSharing()))
    cores.put(
        "AdmissionCheck",
        "c",
        {"controllerName": "ctl-c", "preemptionPolicy": "AfterCheckPassedOrOnDemand"},
    )
    cores.queue("a", "co", resourceGroups=groups(default="1"))
    cores.queue(
        "b",
        "co",
        resourceGroups=groups(default="3"),
        preemption=LOWER | {"reclaimWithinCohort": "Any"},
        admissionChecks=["c"],
    )
    cores.slow_jobs |= {"one", "three"}
    for name, cpu, priority in (("one", "1", 3), ("three", "3", -1)):
        cores.submit(name, "a", cpu, priority=priority)
        cores.settle()
    for name, cpu, priority in (("early", "1", 0), ("large", "3", 2), ("late", "1", 2)):
        cores.submit(name, "b", cpu, priority=priority)
        cores.settle()
    assert cores.phases("early", "large", "late") == ["QuotaReserved"] * 3
    # When both victims are gone, there is room for the large and the late one.
    cores.verdict("late", "c", "Ready")
    cores.settle()
    assert cores.phases("early", "large", "late") == ["Pending", "QuotaReserved", "QuotaReserved"]
