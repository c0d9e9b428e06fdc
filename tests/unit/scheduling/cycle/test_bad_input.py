"""Mistaken and usual edits of the configuration while workloads run.

The rows "Quota" of SCHEDULING 9 on the live core, and what is to come of bad input: never a crash,
never a queue that is stuck.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from admittance.events import facts
from admittance.quota.cell import available, potential
from admittance.scheduling.state.config import Config, FairSharing
from support.cores.scheduling_story import Story, groups, quota

from living import NS, Life

ANY: dict[str, Any] = {"reclaimWithinCohort": "Any"}
LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}
CHECKED: dict[str, Any] = {"admissionChecks": ["c"]}
UNLIMITED = 2**63 - 1


def a_life(**spec: Any) -> Life:
    """One queue with a quota of 10; its workloads wait for a check."""
    life = Life()
    life.check("c")
    life.queue(
        "cq", resourceGroups=groups(default="10"), **{**CHECKED, "preemption": LOWER, **spec}
    )
    return life


def admitted(life: Life, name: str, queue: str = "cq", cpu: str = "1", **spec: Any) -> None:
    """A workload that runs."""
    life.submit(name, queue, cpu, **spec)
    life.settle()
    if life.phase(name) == "QuotaReserved":
        life.verdict(name, "c", "Ready")
        life.settle()
    assert life.phase(name) == "Admitted"


def usage(life: Life | Story, queue: str) -> int:
    """Whole cpus that are used of the flavor."""
    return life.core.catalog.tree.queues[queue].cell(("default", "cpu")).usage // 1000


# SCHEDULING 9, Quota: 1 to 4, and the rest of 6. ----------------------------------------------


def case_1() -> Story:
    story = Story()
    story.put("Cohort", "co", {"resourceGroups": groups(default="10")})
    story.queue("a", "co", resourceGroups=groups(default="10"))
    story.queue("b", "co", resourceGroups=groups(default=quota("10", borrow="2")))
    story.queue("c", "co", resourceGroups=groups(default=quota("10", lend="5")))
    for queue, cpu in (("a", "20"), ("b", "10"), ("c", "6")):
        story.submit(f"in-{queue}", queue, cpu)
        assert story.settle() == [f"in-{queue}"]
    return story


def case_2() -> Story:
    story = Story()
    story.put("Cohort", "left", {"parentName": "root", "resourceGroups": groups(default="10")})
    story.put("Cohort", "right", {"parentName": "root", "resourceGroups": groups(default="10")})
    story.queue("a", "left", resourceGroups=groups(default="10"))
    story.queue("b", "right", resourceGroups=groups(default=quota("10", lend="0")))
    for queue, cpu in (("a", "10"), ("b", "5")):
        story.submit(f"in-{queue}", queue, cpu)
        assert story.settle() == [f"in-{queue}"]
    return story


def case_3() -> Story:
    story = Story()
    story.put("Cohort", "co", {"resourceGroups": groups(default="31")})
    story.queue("a", "co", resourceGroups=groups(default="10"))
    story.queue("b", "co", resourceGroups=groups(default=quota("10", borrow="0", lend="0")))
    story.submit("in-a", "a", "31")
    story.settle()
    story.put("Cohort", "co", {"resourceGroups": groups(default="10")})
    return story


def case_4() -> Story:
    story = Story()
    limited = groups(default=quota("10", borrow="5"))
    story.put("Cohort", "left", {"parentName": "root", "resourceGroups": limited})
    story.put("Cohort", "right", {"parentName": "root", "resourceGroups": groups(default="10")})
    story.queue("a", "left", resourceGroups=groups(default="10"))
    story.queue("b", "left", resourceGroups=groups(default=quota("10", borrow="5")))
    story.queue("c", "right", resourceGroups=groups(default="10"))
    return story


@pytest.mark.parametrize(
    ("build", "now", "most"),
    [
        pytest.param(case_1, {"a": 4, "b": 2, "c": 4}, {"a": 35, "b": 12, "c": 40}, id="1"),
        pytest.param(case_2, {"a": 20, "b": 25}, {"a": 30, "b": 40}, id="2"),
        pytest.param(case_3, {"a": 0, "b": 0}, {}, id="3"),
        pytest.param(case_4, {"a": 35, "b": 15, "c": 50}, {}, id="4"),
    ],
)
def test_01_to_04_available_quota_is_exact(
    build: Any, now: Mapping[str, int], most: Mapping[str, int]
) -> None:
    story = build()
    for queue, cpu in now.items():
        cell = story.core.catalog.tree.queues[queue].cell(("default", "cpu"))
        assert max(0, available(cell)) == cpu * 1000
        if queue in most:
            assert potential(cell) == most[queue] * 1000
        story.submit(f"much-{queue}", queue, str(cpu + 1))
        assert story.settle() == []
        if cpu:
            story.submit(f"all-{queue}", queue, str(cpu), priority=1)
            assert story.settle() == [f"all-{queue}"]
            story.finish(f"all-{queue}")


def test_06_usage_above_a_reduced_quota_can_be_reclaimed() -> None:
    life = Life()
    life.queue("a", "co", resourceGroups=groups(default="10"))
    life.queue("b", "co", resourceGroups=groups(default="0"), preemption=ANY)
    admitted(life, "runs", "a", "10")
    life.queue("a", "co", resourceGroups=groups(default="5"))
    life.queue("b", "co", resourceGroups=groups(default="5"), preemption=ANY)
    life.settle()
    assert life.phase("runs") == "Admitted"
    life.submit("due", "b", "5")
    life.settle()
    assert life.preempted() == [("runs", "due")]
    assert life.phase("due") == "Admitted"


# Cycles. ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ring", [("up",), ("up", "co"), ("up", "co", "far")])
def test_a_cycle_of_cohorts_stops_its_queues_until_it_is_broken(ring: tuple[str, ...]) -> None:
    life = Life()
    life.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    life.put("Cohort", "co", {"parentName": "up"})
    life.queue("cq", "co", resourceGroups=groups(default="0"))
    life.queue("alone", resourceGroups=groups(default="1"))
    admitted(life, "runs", "cq", "4")
    for name, parent in zip(ring, (*ring[1:], ring[0]), strict=True):
        shared = groups(default="10") if name == "up" else []
        life.put("Cohort", name, {"parentName": parent, "resourceGroups": shared})
    if "co" not in ring:
        life.put("Cohort", "co", {"parentName": "up"})
    life.submit("waits", "cq", "4")
    life.submit("elsewhere", "alone", "1")
    life.settle()
    assert life.phases("runs", "waits", "elsewhere") == ["Admitted", "Pending", "Admitted"]
    if life.core.catalog.in_cycle("cq"):
        assert life.reason("waits", "QuotaReserved") == "False: Suspended"
    life.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    life.put("Cohort", "co", {"parentName": "up"})
    life.settle()
    assert life.phases("runs", "waits") == ["Admitted", "Admitted"]
    assert usage(life, "cq") == 8


def test_a_workload_that_ends_during_a_cycle_frees_its_quota() -> None:
    life = Life()
    life.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    life.put("Cohort", "co", {"parentName": "up"})
    life.queue("cq", "co", resourceGroups=groups(default="0"))
    admitted(life, "runs", "cq", "10")
    life.put("Cohort", "up", {"parentName": "co", "resourceGroups": groups(default="10")})
    life.finish("runs")
    life.submit("next", "cq", "10")
    life.settle()
    life.delete("Cohort", "co")
    life.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    life.put("Cohort", "co", {"parentName": "up"})
    life.settle()
    assert life.phase("next") == "Admitted"


# Limits below usage. ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "limited"),
    [
        pytest.param("borrower", quota("2", borrow="1"), id="borrowing"),
        pytest.param("lender", quota("10", lend="1"), id="lending"),
        pytest.param("lender", "1", id="nominal"),
    ],
)
def test_a_limit_below_usage_stops_only_what_is_new(queue: str, limited: Any) -> None:
    life = Life()
    life.queue("lender", "co", resourceGroups=groups(default="10"))
    life.queue("borrower", "co", resourceGroups=groups(default="2"))
    admitted(life, "runs", "borrower", "8")
    life.queue(queue, "co", resourceGroups=groups(default=limited))
    life.submit("next", "borrower", "1")
    life.settle()
    assert life.phases("runs", "next") == ["Admitted", "Pending"]
    life.finish("runs")
    life.settle()
    assert life.phase("next") == "Admitted"


# Flavors. ---------------------------------------------------------------------------------------


def test_a_deleted_flavor_stops_its_queue_and_running_jobs_count() -> None:
    life = a_life()
    admitted(life, "runs", cpu="6")
    life.submit("reserved", "cq", "2")
    life.settle()
    life.delete("ResourceFlavor", "default")
    life.submit("waits", "cq", "2")
    life.settle()
    assert life.phases("runs", "reserved", "waits") == ["Admitted", "QuotaReserved", "Pending"]
    assert usage(life, "cq") == 8
    life.verdict("reserved", "c", "Ready")
    life.settle()
    assert life.phase("reserved") == "QuotaReserved"
    life.put("ResourceFlavor", "default")
    life.settle()
    assert life.phases("reserved", "waits") == ["Admitted", "QuotaReserved"]


def test_a_stopped_queue_lends_quota_and_none_of_it_is_preempted() -> None:
    life = Life()
    life.put("ResourceFlavor", "gone")
    life.queue("a", "co", resourceGroups=groups(default="5", gone="1"))
    life.queue("b", "co", resourceGroups=groups(default="5"), preemption=ANY)
    admitted(life, "runs", "a", "6")
    life.delete("ResourceFlavor", "gone")
    life.submit("due", "b", "5")
    life.settle()
    assert life.phases("runs", "due") == ["Admitted", "Pending"]
    life.put("ResourceFlavor", "gone")
    life.settle()
    assert life.phases("runs", "due") == ["Pending", "Admitted"]


# Priorities, in the middle of a preemption. -----------------------------------------------------


def about_to_preempt() -> tuple[Life, facts.Decision]:
    """high preempts low; the decision is not stored yet."""
    life = a_life(admissionChecks=[])
    admitted(life, "low", cpu="8", priority=-1)
    life.submit("high", "cq", "8", priority=1)
    told = life.cycle(apply=False)
    (decision,) = [one for one in told if isinstance(one, facts.Preempted)]
    for one in told:
        if one is not decision:
            life.apply(one)
    return life, decision


def test_a_victim_whose_priority_rose_before_eviction_is_spared() -> None:
    life, decision = about_to_preempt()
    life.say(facts.Reprioritized, "low", priority=5)
    life.apply(decision)
    life.settle()
    assert life.phases("low", "high") == ["Admitted", "Pending"]


def test_a_preemptor_with_lowered_priority_keeps_its_decision() -> None:
    life, decision = about_to_preempt()
    life.say(facts.Reprioritized, "high", priority=-5)
    life.apply(decision)
    life.settle()
    assert "Admitted" in life.phases("low", "high")


@pytest.mark.parametrize(("low", "high"), [(5, 1), (-1, -5), (5, -5), (0, 0)])
def test_the_higher_priority_gets_the_quota_after_the_victim_stopped(low: int, high: int) -> None:
    life, decision = about_to_preempt()
    life.stubborn.add("low")
    life.apply(decision)
    assert life.phase("low") == "Evicting"
    life.say(facts.Reprioritized, "low", priority=low)
    life.say(facts.Reprioritized, "high", priority=high)
    life.settle()
    assert life.phase("low") == "Evicting"
    life.stop("low")
    life.settle()
    assert sorted(life.phases("low", "high")) == ["Admitted", "Pending"]
    assert life.phase("low" if low > high else "high") == "Admitted"


@pytest.mark.parametrize("deleted", ["low", "high"])
@pytest.mark.parametrize("how", [facts.Deleted, facts.Deactivated, facts.Finished])
def test_no_workload_is_stuck_when_victim_or_preemptor_is_deleted(deleted: str, how: Any) -> None:
    life, decision = about_to_preempt()
    life.stubborn.add("low")
    life.apply(decision)
    life.say(how, deleted)
    life.submit("next", "cq", "1", priority=-9)
    life.settle()
    if life.has("low") and life.phase("low") in ("Evicting", "Deactivated"):
        life.stop("low")
    life.settle()
    other = "high" if deleted == "low" else "low"
    assert life.phases(other, "next") == ["Admitted", "Admitted"]
    assert usage(life, "cq") == 9


def test_a_changed_priority_class_applies_to_all_its_workloads() -> None:
    life = a_life()
    life.put("WorkloadPriorityClass", "p", value=5)
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"}
    admitted(life, "runs", cpu="8", priority=5, priorityClassRef=ref)
    life.submit("waits", "cq", "8", priority=0)
    life.settle()
    assert life.phase("waits") == "Pending"
    life.put("WorkloadPriorityClass", "p", value=-5)
    life.settle()
    assert life.preempted() == [("runs", "waits")]
    assert life.phase("waits") == "QuotaReserved"


# Queues that move, stop and go. -----------------------------------------------------------------


def test_a_queue_that_changes_cohort_takes_its_usage_along() -> None:
    life = Life()
    life.queue("moves", "one", resourceGroups=groups(default="0"))
    life.queue("stays", "one", resourceGroups=groups(default="10"))
    life.queue("other", "two", resourceGroups=groups(default="10"), preemption=ANY)
    admitted(life, "runs", "moves", "8")
    life.submit("waits", "stays", "8")
    life.settle()
    assert life.phase("waits") == "Pending"
    life.queue("moves", "two", resourceGroups=groups(default="0"))
    life.submit("due", "other", "8")
    life.settle()
    assert life.phase("waits") == "Admitted"
    assert life.preempted() == [("runs", "due")]
    assert life.phases("runs", "due") == ["Pending", "Admitted"]


def test_a_decision_from_before_the_move_is_void_and_made_again() -> None:
    life = Life()
    life.queue("moves", "one", resourceGroups=groups(default="0"))
    life.queue("lender", "one", resourceGroups=groups(default="10"))
    life.queue("other", "two", resourceGroups=groups(default="10"))
    life.submit("w", "moves", "8")
    (decision,) = life.cycle(apply=False)
    life.queue("moves", "two", resourceGroups=groups(default="0"))
    life.apply(decision)
    assert life.phase("w") == "Pending"
    life.settle()
    assert life.phase("w") == "Admitted"
    assert usage(life, "moves") == 8


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
@pytest.mark.parametrize(
    ("policy", "running", "reason"),
    [
        pytest.param("Hold", "Admitted", "", id="hold"),
        pytest.param("HoldAndDrain", "Backoff", "True: {kind}Stopped", id="hold and drain"),
    ],
)
def test_stop_policies(kind: str, policy: str, running: str, reason: str) -> None:
    life = a_life()
    admitted(life, "runs", cpu="4")
    life.submit("reserved", "cq", "4")
    life.settle()
    life.submit("waits", "cq", "4")
    life.settle()

    def stop(how: str) -> None:
        if kind == "ClusterQueue":
            ten = groups(default="10")
            life.queue("cq", resourceGroups=ten, preemption=LOWER, stopPolicy=how, **CHECKED)
        else:
            life.put("LocalQueue", "cq", {"clusterQueue": "cq", "stopPolicy": how}, NS)
        life.settle()

    stop(policy)
    assert life.phases("runs", "reserved", "waits") == [running, "Pending", "Pending"]
    assert life.reason("runs", "Evicted") == reason.format(kind=kind)
    assert life.reason("reserved", "Evicted") == ""
    assert life.reason("reserved", "QuotaReserved") == "False: Suspended"
    assert life.reason("waits", "QuotaReserved") == "False: Suspended"
    assert usage(life, "cq") == (4 if running == "Admitted" else 0)
    stop("None")
    assert life.reason("runs", "Requeued") in ("", f"True: {kind}Restarted")
    assert life.phases("runs", "reserved", "waits") in (
        ["Admitted", "QuotaReserved", "Pending"],
        ["QuotaReserved", "QuotaReserved", "Pending"],
    )


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_a_deleted_queue_keeps_running_jobs_and_drops_waiting_ones(kind: str) -> None:
    life = a_life()
    admitted(life, "runs", cpu="4")
    life.submit("reserved", "cq", "4")
    life.settle()
    life.submit("waits", "cq", "4")
    life.settle()
    life.delete(kind, "cq", NS if kind == "LocalQueue" else "")
    life.settle()
    assert life.phases("runs", "reserved", "waits") == ["Admitted", "Pending", "Pending"]
    for name in ("reserved", "waits"):
        assert life.reason(name, "QuotaReserved") == "False: Misconfigured"
    assert life.stored("reserved").status.admission is None
    if kind == "ClusterQueue":
        life.queue("cq", resourceGroups=groups(default="10"), **CHECKED)
    else:
        life.put("LocalQueue", "cq", {"clusterQueue": "cq"}, NS)
    life.settle()
    assert life.phases("runs", "reserved", "waits") == ["Admitted", "QuotaReserved", "Pending"]
    assert usage(life, "cq") == 8


def test_a_workload_that_ends_while_its_queue_is_deleted_is_free() -> None:
    life = a_life()
    admitted(life, "runs", cpu="10")
    life.delete("ClusterQueue", "cq")
    life.finish("runs")
    life.queue("cq", resourceGroups=groups(default="10"))
    admitted(life, "next", cpu="10")
    assert usage(life, "cq") == 10


def test_a_local_queue_recreated_elsewhere_moves_its_waiting_workloads() -> None:
    life = a_life()
    life.queue("other", resourceGroups=groups(default="10"))
    admitted(life, "runs", cpu="10")
    life.submit("waits", "cq", "10")
    life.settle()
    life.delete("LocalQueue", "cq", NS)
    life.put("LocalQueue", "cq", {"clusterQueue": "other"}, NS)
    life.settle()
    assert life.phases("runs", "waits") == ["Admitted", "Admitted"]
    assert (usage(life, "cq"), usage(life, "other")) == (10, 10)


def test_namespace_labels_affect_only_pending_workloads() -> None:
    life = a_life(namespaceSelector={"matchLabels": {"team": "x"}})
    life.put("Namespace", NS, metadata={"labels": {"team": "x"}})
    admitted(life, "runs", cpu="4")
    life.submit("reserved", "cq", "4")
    life.settle()
    life.put("Namespace", NS, metadata={"labels": {"team": "y"}})
    life.submit("waits", "cq", "2")
    life.settle()
    assert life.phases("runs", "reserved", "waits") == ["Admitted", "QuotaReserved", "Pending"]
    assert life.reason("waits", "QuotaReserved") == "False: Misconfigured"
    life.finish("runs")
    life.settle()
    assert life.phase("waits") == "Pending"
    life.put("Namespace", NS, metadata={"labels": {"team": "x"}})
    life.settle()
    assert life.phase("waits") == "QuotaReserved"


# Weights of 0. ----------------------------------------------------------------------------------


def sharing(weights: Mapping[str, int]) -> Life:
    life = Life(Config(fair_sharing=FairSharing()))
    for name, weight in weights.items():
        life.queue(
            name,
            "co",
            resourceGroups=groups(default="3"),
            preemption={**ANY, **LOWER},
            fairSharing={"weight": weight},
        )
    return life


def test_with_weights_of_0_everywhere_quota_is_still_used() -> None:
    life = sharing({"a": 0, "b": 0, "c": 0})
    for n in range(9):
        life.submit(f"w{n}", "abc"[n % 3], "1")
    life.settle()
    assert life.phases(*(f"w{n}" for n in range(9))) == ["Admitted"] * 9


def test_a_queue_of_weight_0_keeps_its_nominal_quota() -> None:
    life = sharing({"a": 1, "b": 0, "c": 1})
    for n in range(9):
        admitted(life, f"b{n}", "b", "1")
    for n in range(6):
        life.submit(f"a{n}", "a", "1")
    life.settle()
    assert (usage(life, "a"), usage(life, "b")) == (6, 3)
    life.put("Cohort", "co", {"fairSharing": {"weight": 0}})
    life.submit("c0", "c", "1")
    life.settle()
    assert life.phase("c0") == "Admitted"


# Numbers beyond 64 bits. ------------------------------------------------------------------------


@pytest.mark.parametrize("nominal", [str(2**63 - 1), str(2**63), str(2**80), "16E", "9000P"])
def test_quota_beyond_64_bits_is_unlimited_and_sums_do_not_wrap_around(nominal: str) -> None:
    story = Story()
    for name in ("a", "b"):
        story.queue(name, "co", resourceGroups=groups(default=nominal))
    story.put("Cohort", "co", {"resourceGroups": groups(default=nominal)})
    for n in range(3):
        story.submit(f"w{n}", "a", "1000")
    assert story.settle() == ["w0", "w1", "w2"]
    assert usage(story, "a") == 3000
    for n in range(3):
        story.finish(f"w{n}")
    assert usage(story, "a") == 0


def test_a_request_beyond_64_bits_waits_and_blocks_no_other() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("huge", "cq", pods=[{"requests": {"cpu": str(2**62)}, "count": 100}], age=9)
    story.submit("small", "cq", "1")
    assert story.settle() == ["small"]
    assert story.why("huge").reason == "ExceedsMaxQuota"


def test_a_saturated_amount_is_released_as_it_was_charged() -> None:
    story = Story()
    story.queue("cq", "co", resourceGroups=groups(default=str(2**70)))
    story.queue("other", "co", resourceGroups=groups(default="5"))
    for n in range(3):
        story.submit(f"w{n}", "cq", pods=[{"requests": {"cpu": str(2**61)}, "count": 3}], age=9 - n)
    story.settle()
    for n in range(3):
        story.finish(f"w{n}")
    assert usage(story, "cq") == 0
    story.submit("next", "other", "5")
    assert story.settle() == ["next"]
