"""Mistaken and usual edits of the configuration while workloads run.

The rows "Quota" of docs/spec/scheduling.md#9 on the live core, and what is to come of bad input:
never a crash, never a queue that is stuck.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from admittance.events import facts
from admittance.quota.cell import available, potential
from admittance.scheduling.state.config import CohortFairSharing, Config
from support.cores.configured_system import NS
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota

ANY: dict[str, Any] = {"reclaimWithinCohort": "Any"}
LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}
CHECKED: dict[str, Any] = {"admissionChecks": ["c"]}
UNLIMITED = 2**63 - 1


def configured_cores(**spec: Any) -> SteppedCores:
    """One queue with a quota of 10; its workloads wait for a check."""
    cores = SteppedCores()
    cores.check("c")
    cores.queue(
        "cq", resourceGroups=groups(default="10"), **{**CHECKED, "preemption": LOWER, **spec}
    )
    return cores


def admitted(
    cores: SteppedCores, name: str, queue: str = "cq", cpu: str = "1", **spec: Any
) -> None:
    """A workload that runs."""
    cores.submit(name, queue, cpu, **spec)
    cores.settle()
    if cores.phase(name) == "QuotaReserved":
        cores.verdict(name, "c", "Ready")
        cores.settle()
    assert cores.phase(name) == "Admitted"


def usage(cores: SteppedCores | SteppedScheduler, queue: str) -> int:
    """Whole cpus that are used of the flavor."""
    core = cores.scheduler if isinstance(cores, SteppedCores) else cores.core
    return core.catalog.tree.queues[queue].cell(("default", "cpu")).usage // 1000


# docs/spec/scheduling.md#9, Quota: cases 1 to 4, and the rest of 6. ---------------------------


def case_1() -> SteppedScheduler:
    scheduler = SteppedScheduler()
    scheduler.put("Cohort", "co", {"resourceGroups": groups(default="10")})
    scheduler.queue("a", "co", resourceGroups=groups(default="10"))
    scheduler.queue("b", "co", resourceGroups=groups(default=quota("10", borrow="2")))
    scheduler.queue("c", "co", resourceGroups=groups(default=quota("10", lend="5")))
    for queue, cpu in (("a", "20"), ("b", "10"), ("c", "6")):
        scheduler.submit(f"in-{queue}", queue, cpu)
        assert scheduler.settle() == [f"in-{queue}"]
    return scheduler


def case_2() -> SteppedScheduler:
    scheduler = SteppedScheduler()
    scheduler.put("Cohort", "left", {"parentName": "root", "resourceGroups": groups(default="10")})
    scheduler.put("Cohort", "right", {"parentName": "root", "resourceGroups": groups(default="10")})
    scheduler.queue("a", "left", resourceGroups=groups(default="10"))
    scheduler.queue("b", "right", resourceGroups=groups(default=quota("10", lend="0")))
    for queue, cpu in (("a", "10"), ("b", "5")):
        scheduler.submit(f"in-{queue}", queue, cpu)
        assert scheduler.settle() == [f"in-{queue}"]
    return scheduler


def case_3() -> SteppedScheduler:
    scheduler = SteppedScheduler()
    scheduler.put("Cohort", "co", {"resourceGroups": groups(default="31")})
    scheduler.queue("a", "co", resourceGroups=groups(default="10"))
    scheduler.queue("b", "co", resourceGroups=groups(default=quota("10", borrow="0", lend="0")))
    scheduler.submit("in-a", "a", "31")
    scheduler.settle()
    scheduler.put("Cohort", "co", {"resourceGroups": groups(default="10")})
    return scheduler


def case_4() -> SteppedScheduler:
    scheduler = SteppedScheduler()
    limited = groups(default=quota("10", borrow="5"))
    scheduler.put("Cohort", "left", {"parentName": "root", "resourceGroups": limited})
    scheduler.put("Cohort", "right", {"parentName": "root", "resourceGroups": groups(default="10")})
    scheduler.queue("a", "left", resourceGroups=groups(default="10"))
    scheduler.queue("b", "left", resourceGroups=groups(default=quota("10", borrow="5")))
    scheduler.queue("c", "right", resourceGroups=groups(default="10"))
    return scheduler


@pytest.mark.parametrize(
    ("build", "now", "most"),
    [
        pytest.param(case_1, {"a": 4, "b": 2, "c": 4}, {"a": 35, "b": 12, "c": 40}, id="1"),
        pytest.param(case_2, {"a": 20, "b": 25}, {"a": 30, "b": 40}, id="2"),
        pytest.param(case_3, {"a": 0, "b": 0}, {}, id="3"),
        pytest.param(case_4, {"a": 35, "b": 15, "c": 50}, {}, id="4"),
    ],
)
def test_cases_01_to_04_available_quota_is_exact(
    build: Any, now: Mapping[str, int], most: Mapping[str, int]
) -> None:
    scheduler = build()
    for queue, cpu in now.items():
        cell = scheduler.core.catalog.tree.queues[queue].cell(("default", "cpu"))
        assert max(0, available(cell)) == cpu * 1000
        if queue in most:
            assert potential(cell) == most[queue] * 1000
        scheduler.submit(f"much-{queue}", queue, str(cpu + 1))
        assert scheduler.settle() == []
        if cpu:
            scheduler.submit(f"all-{queue}", queue, str(cpu), priority=1)
            assert scheduler.settle() == [f"all-{queue}"]
            scheduler.finish(f"all-{queue}")


def test_case_06_usage_above_a_reduced_quota_can_be_reclaimed() -> None:
    cores = SteppedCores()
    cores.queue("a", "co", resourceGroups=groups(default="10"))
    cores.queue("b", "co", resourceGroups=groups(default="0"), preemption=ANY)
    admitted(cores, "runs", "a", "10")
    cores.queue("a", "co", resourceGroups=groups(default="5"))
    cores.queue("b", "co", resourceGroups=groups(default="5"), preemption=ANY)
    cores.settle()
    assert cores.phase("runs") == "Admitted"
    cores.submit("due", "b", "5")
    cores.settle()
    assert cores.preempted() == [("runs", "due")]
    assert cores.phase("due") == "Admitted"


# Cycles. ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ring", [("up",), ("up", "co"), ("up", "co", "far")])
def test_a_cycle_of_cohorts_stops_its_queues_until_it_is_broken(ring: tuple[str, ...]) -> None:
    cores = SteppedCores()
    cores.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    cores.put("Cohort", "co", {"parentName": "up"})
    cores.queue("cq", "co", resourceGroups=groups(default="0"))
    cores.queue("alone", resourceGroups=groups(default="1"))
    admitted(cores, "runs", "cq", "4")
    for name, parent in zip(ring, (*ring[1:], ring[0]), strict=True):
        shared = groups(default="10") if name == "up" else []
        cores.put("Cohort", name, {"parentName": parent, "resourceGroups": shared})
    if "co" not in ring:
        cores.put("Cohort", "co", {"parentName": "up"})
    cores.submit("waits", "cq", "4")
    cores.submit("elsewhere", "alone", "1")
    cores.settle()
    assert cores.phases("runs", "waits", "elsewhere") == ["Admitted", "Pending", "Admitted"]
    if cores.scheduler.catalog.in_cycle("cq"):
        assert cores.reason("waits", "QuotaReserved") == "False: Suspended"
    cores.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    cores.put("Cohort", "co", {"parentName": "up"})
    cores.settle()
    assert cores.phases("runs", "waits") == ["Admitted", "Admitted"]
    assert usage(cores, "cq") == 8


def test_a_workload_that_ends_during_a_cycle_frees_its_quota() -> None:
    cores = SteppedCores()
    cores.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    cores.put("Cohort", "co", {"parentName": "up"})
    cores.queue("cq", "co", resourceGroups=groups(default="0"))
    admitted(cores, "runs", "cq", "10")
    cores.put("Cohort", "up", {"parentName": "co", "resourceGroups": groups(default="10")})
    cores.finish("runs")
    cores.submit("next", "cq", "10")
    cores.settle()
    cores.delete("Cohort", "co")
    cores.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    cores.put("Cohort", "co", {"parentName": "up"})
    cores.settle()
    assert cores.phase("next") == "Admitted"


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
    cores = SteppedCores()
    cores.queue("lender", "co", resourceGroups=groups(default="10"))
    cores.queue("borrower", "co", resourceGroups=groups(default="2"))
    admitted(cores, "runs", "borrower", "8")
    cores.queue(queue, "co", resourceGroups=groups(default=limited))
    cores.submit("next", "borrower", "1")
    cores.settle()
    assert cores.phases("runs", "next") == ["Admitted", "Pending"]
    cores.finish("runs")
    cores.settle()
    assert cores.phase("next") == "Admitted"


# Flavors. ---------------------------------------------------------------------------------------


def test_a_deleted_flavor_stops_its_queue_and_running_jobs_count() -> None:
    cores = configured_cores()
    admitted(cores, "runs", cpu="6")
    cores.submit("reserved", "cq", "2")
    cores.settle()
    cores.delete("ResourceFlavor", "default")
    cores.submit("waits", "cq", "2")
    cores.settle()
    assert cores.phases("runs", "reserved", "waits") == ["Admitted", "QuotaReserved", "Pending"]
    assert usage(cores, "cq") == 8
    cores.verdict("reserved", "c", "Ready")
    cores.settle()
    assert cores.phase("reserved") == "QuotaReserved"
    cores.put("ResourceFlavor", "default")
    cores.settle()
    assert cores.phases("reserved", "waits") == ["Admitted", "QuotaReserved"]


def test_a_stopped_queue_lends_quota_and_none_of_it_is_preempted() -> None:
    cores = SteppedCores()
    cores.put("ResourceFlavor", "gone")
    cores.queue("a", "co", resourceGroups=groups(default="5", gone="1"))
    cores.queue("b", "co", resourceGroups=groups(default="5"), preemption=ANY)
    admitted(cores, "runs", "a", "6")
    cores.delete("ResourceFlavor", "gone")
    cores.submit("due", "b", "5")
    cores.settle()
    assert cores.phases("runs", "due") == ["Admitted", "Pending"]
    cores.put("ResourceFlavor", "gone")
    cores.settle()
    assert cores.phases("runs", "due") == ["Pending", "Admitted"]


# Priorities, in the middle of a preemption. -----------------------------------------------------


def about_to_preempt() -> tuple[SteppedCores, facts.Decision]:
    """high preempts low; the decision is not stored yet."""
    cores = configured_cores(admissionChecks=[])
    admitted(cores, "low", cpu="8", priority=-1)
    cores.submit("high", "cq", "8", priority=1)
    decisions = cores.cycle(apply=False)
    (decision,) = [
        preemption for preemption in decisions if isinstance(preemption, facts.Preempted)
    ]
    for other in decisions:
        if other is not decision:
            cores.apply(other)
    return cores, decision


def test_a_victim_with_a_priority_raised_before_eviction_is_spared() -> None:
    cores, decision = about_to_preempt()
    cores.publish(facts.Reprioritized, "low", priority=5)
    cores.apply(decision)
    cores.settle()
    assert cores.phases("low", "high") == ["Admitted", "Pending"]


def test_a_preemptor_with_lowered_priority_keeps_its_decision() -> None:
    cores, decision = about_to_preempt()
    cores.publish(facts.Reprioritized, "high", priority=-5)
    cores.apply(decision)
    cores.settle()
    assert "Admitted" in cores.phases("low", "high")


@pytest.mark.parametrize(("low", "high"), [(5, 1), (-1, -5), (5, -5), (0, 0)])
def test_the_higher_priority_gets_the_quota_after_the_victim_stopped(low: int, high: int) -> None:
    cores, decision = about_to_preempt()
    cores.slow_jobs.add("low")
    cores.apply(decision)
    assert cores.phase("low") == "Evicting"
    cores.publish(facts.Reprioritized, "low", priority=low)
    cores.publish(facts.Reprioritized, "high", priority=high)
    cores.settle()
    assert cores.phase("low") == "Evicting"
    cores.stop("low")
    cores.settle()
    assert sorted(cores.phases("low", "high")) == ["Admitted", "Pending"]
    assert cores.phase("low" if low > high else "high") == "Admitted"


@pytest.mark.parametrize("deleted", ["low", "high"])
@pytest.mark.parametrize("how", [facts.Deleted, facts.Deactivated, facts.Finished])
def test_no_workload_is_stuck_when_victim_or_preemptor_is_deleted(deleted: str, how: Any) -> None:
    cores, decision = about_to_preempt()
    cores.slow_jobs.add("low")
    cores.apply(decision)
    cores.publish(how, deleted)
    cores.submit("next", "cq", "1", priority=-9)
    cores.settle()
    if cores.has("low") and cores.phase("low") in ("Evicting", "Deactivated"):
        cores.stop("low")
    cores.settle()
    other = "high" if deleted == "low" else "low"
    assert cores.phases(other, "next") == ["Admitted", "Admitted"]
    assert usage(cores, "cq") == 9


def test_a_changed_priority_class_applies_to_all_its_workloads() -> None:
    cores = configured_cores()
    cores.put("WorkloadPriorityClass", "p", value=5)
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"}
    admitted(cores, "runs", cpu="8", priority=5, priorityClassRef=ref)
    cores.submit("waits", "cq", "8", priority=0)
    cores.settle()
    assert cores.phase("waits") == "Pending"
    cores.put("WorkloadPriorityClass", "p", value=-5)
    cores.settle()
    assert cores.preempted() == [("runs", "waits")]
    assert cores.phase("waits") == "QuotaReserved"


# Queues that move, stop and go. -----------------------------------------------------------------


def test_a_queue_that_changes_cohort_takes_its_usage_along() -> None:
    cores = SteppedCores()
    cores.queue("moves", "one", resourceGroups=groups(default="0"))
    cores.queue("stays", "one", resourceGroups=groups(default="10"))
    cores.queue("other", "two", resourceGroups=groups(default="10"), preemption=ANY)
    admitted(cores, "runs", "moves", "8")
    cores.submit("waits", "stays", "8")
    cores.settle()
    assert cores.phase("waits") == "Pending"
    cores.queue("moves", "two", resourceGroups=groups(default="0"))
    cores.submit("due", "other", "8")
    cores.settle()
    assert cores.phase("waits") == "Admitted"
    assert cores.preempted() == [("runs", "due")]
    assert cores.phases("runs", "due") == ["Pending", "Admitted"]


def test_a_decision_from_before_the_move_is_void_and_made_again() -> None:
    cores = SteppedCores()
    cores.queue("moves", "one", resourceGroups=groups(default="0"))
    cores.queue("lender", "one", resourceGroups=groups(default="10"))
    cores.queue("other", "two", resourceGroups=groups(default="10"))
    cores.submit("w", "moves", "8")
    (decision,) = cores.cycle(apply=False)
    cores.queue("moves", "two", resourceGroups=groups(default="0"))
    cores.apply(decision)
    assert cores.phase("w") == "Pending"
    cores.settle()
    assert cores.phase("w") == "Admitted"
    assert usage(cores, "moves") == 8


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
@pytest.mark.parametrize(
    ("policy", "running", "reason"),
    [
        pytest.param("Hold", "Admitted", "", id="hold"),
        pytest.param("HoldAndDrain", "Backoff", "True: {kind}Stopped", id="hold and drain"),
    ],
)
def test_stop_policies(kind: str, policy: str, running: str, reason: str) -> None:
    cores = configured_cores()
    admitted(cores, "runs", cpu="4")
    cores.submit("reserved", "cq", "4")
    cores.settle()
    cores.submit("waits", "cq", "4")
    cores.settle()

    def stop(how: str) -> None:
        if kind == "ClusterQueue":
            ten = groups(default="10")
            cores.queue("cq", resourceGroups=ten, preemption=LOWER, stopPolicy=how, **CHECKED)
        else:
            cores.put("LocalQueue", "cq", {"clusterQueue": "cq", "stopPolicy": how}, NS)
        cores.settle()

    stop(policy)
    assert cores.phases("runs", "reserved", "waits") == [running, "Pending", "Pending"]
    assert cores.reason("runs", "Evicted") == reason.format(kind=kind)
    assert cores.reason("reserved", "Evicted") == ""
    assert cores.reason("reserved", "QuotaReserved") == "False: Suspended"
    assert cores.reason("waits", "QuotaReserved") == "False: Suspended"
    assert usage(cores, "cq") == (4 if running == "Admitted" else 0)
    stop("None")
    assert cores.reason("runs", "Requeued") in ("", f"True: {kind}Restarted")
    assert cores.phases("runs", "reserved", "waits") in (
        ["Admitted", "QuotaReserved", "Pending"],
        ["QuotaReserved", "QuotaReserved", "Pending"],
    )


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_a_deleted_queue_keeps_running_jobs_and_drops_waiting_ones(kind: str) -> None:
    cores = configured_cores()
    admitted(cores, "runs", cpu="4")
    cores.submit("reserved", "cq", "4")
    cores.settle()
    cores.submit("waits", "cq", "4")
    cores.settle()
    cores.delete(kind, "cq", NS if kind == "LocalQueue" else "")
    cores.settle()
    assert cores.phases("runs", "reserved", "waits") == ["Admitted", "Pending", "Pending"]
    for name in ("reserved", "waits"):
        assert cores.reason(name, "QuotaReserved") == "False: Misconfigured"
    assert cores.stored("reserved").status.admission is None
    if kind == "ClusterQueue":
        cores.queue("cq", resourceGroups=groups(default="10"), **CHECKED)
    else:
        cores.put("LocalQueue", "cq", {"clusterQueue": "cq"}, NS)
    cores.settle()
    assert cores.phases("runs", "reserved", "waits") == ["Admitted", "QuotaReserved", "Pending"]
    assert usage(cores, "cq") == 8


def test_a_workload_that_ends_while_its_queue_is_deleted_is_free() -> None:
    cores = configured_cores()
    admitted(cores, "runs", cpu="10")
    cores.delete("ClusterQueue", "cq")
    cores.finish("runs")
    cores.queue("cq", resourceGroups=groups(default="10"))
    admitted(cores, "next", cpu="10")
    assert usage(cores, "cq") == 10


def test_a_local_queue_recreated_elsewhere_moves_its_waiting_workloads() -> None:
    cores = configured_cores()
    cores.queue("other", resourceGroups=groups(default="10"))
    admitted(cores, "runs", cpu="10")
    cores.submit("waits", "cq", "10")
    cores.settle()
    cores.delete("LocalQueue", "cq", NS)
    cores.put("LocalQueue", "cq", {"clusterQueue": "other"}, NS)
    cores.settle()
    assert cores.phases("runs", "waits") == ["Admitted", "Admitted"]
    assert (usage(cores, "cq"), usage(cores, "other")) == (10, 10)


def test_namespace_labels_affect_only_pending_workloads() -> None:
    cores = configured_cores(namespaceSelector={"matchLabels": {"team": "x"}})
    cores.put("Namespace", NS, metadata={"labels": {"team": "x"}})
    admitted(cores, "runs", cpu="4")
    cores.submit("reserved", "cq", "4")
    cores.settle()
    cores.put("Namespace", NS, metadata={"labels": {"team": "y"}})
    cores.submit("waits", "cq", "2")
    cores.settle()
    assert cores.phases("runs", "reserved", "waits") == ["Admitted", "QuotaReserved", "Pending"]
    assert cores.reason("waits", "QuotaReserved") == "False: Misconfigured"
    cores.finish("runs")
    cores.settle()
    assert cores.phase("waits") == "Pending"
    cores.put("Namespace", NS, metadata={"labels": {"team": "x"}})
    cores.settle()
    assert cores.phase("waits") == "QuotaReserved"


# Weights of 0. ----------------------------------------------------------------------------------


def sharing(weights: Mapping[str, int]) -> SteppedCores:
    cores = SteppedCores(Config(fair_sharing=CohortFairSharing()))
    for name, weight in weights.items():
        cores.queue(
            name,
            "co",
            resourceGroups=groups(default="3"),
            preemption={**ANY, **LOWER},
            fairSharing={"weight": weight},
        )
    return cores


def test_with_weights_of_0_everywhere_quota_is_still_used() -> None:
    cores = sharing({"a": 0, "b": 0, "c": 0})
    for n in range(9):
        cores.submit(f"w{n}", "abc"[n % 3], "1")
    cores.settle()
    assert cores.phases(*(f"w{n}" for n in range(9))) == ["Admitted"] * 9


def test_a_queue_of_weight_0_keeps_its_nominal_quota() -> None:
    cores = sharing({"a": 1, "b": 0, "c": 1})
    for n in range(9):
        admitted(cores, f"b{n}", "b", "1")
    for n in range(6):
        cores.submit(f"a{n}", "a", "1")
    cores.settle()
    assert (usage(cores, "a"), usage(cores, "b")) == (6, 3)
    cores.put("Cohort", "co", {"fairSharing": {"weight": 0}})
    cores.submit("c0", "c", "1")
    cores.settle()
    assert cores.phase("c0") == "Admitted"


# Numbers beyond 64 bits. ------------------------------------------------------------------------


@pytest.mark.parametrize("nominal", [str(2**63 - 1), str(2**63), str(2**80), "16E", "9000P"])
def test_quota_beyond_64_bits_is_unlimited_and_sums_do_not_wrap_around(nominal: str) -> None:
    scheduler = SteppedScheduler()
    for name in ("a", "b"):
        scheduler.queue(name, "co", resourceGroups=groups(default=nominal))
    scheduler.put("Cohort", "co", {"resourceGroups": groups(default=nominal)})
    for n in range(3):
        scheduler.submit(f"w{n}", "a", "1000")
    assert scheduler.settle() == ["w0", "w1", "w2"]
    assert usage(scheduler, "a") == 3000
    for n in range(3):
        scheduler.finish(f"w{n}")
    assert usage(scheduler, "a") == 0


def test_a_request_beyond_64_bits_waits_and_blocks_no_other() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("huge", "cq", pods=[{"requests": {"cpu": str(2**62)}, "count": 100}], age=9)
    scheduler.submit("small", "cq", "1")
    assert scheduler.settle() == ["small"]
    assert scheduler.why("huge").reason == "ExceedsMaxQuota"


def test_a_saturated_amount_is_released_as_it_was_charged() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", "co", resourceGroups=groups(default=str(2**70)))
    scheduler.queue("other", "co", resourceGroups=groups(default="5"))
    for n in range(3):
        scheduler.submit(
            f"w{n}", "cq", pods=[{"requests": {"cpu": str(2**61)}, "count": 3}], age=9 - n
        )
    scheduler.settle()
    for n in range(3):
        scheduler.finish(f"w{n}")
    assert usage(scheduler, "cq") == 0
    scheduler.submit("next", "other", "5")
    assert scheduler.settle() == ["next"]
