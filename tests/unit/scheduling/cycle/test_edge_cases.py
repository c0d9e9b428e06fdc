"""The edge cases of `docs/spec/scheduling.md#9` without preemption, by their numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.api.workload import CheckState, ReclaimablePod, RequeueState
from support.cores.stepped_scheduler import NOON, SteppedScheduler, groups, quota

HUGE = str(2**62)


def test_case_05_a_lending_limit_bounds_what_a_borrower_may_be_given() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("lender", "co", resourceGroups=groups(default=quota("10", lend="3")))
    scheduler.queue("borrower", "co", resourceGroups=groups(default="5"))
    scheduler.submit("holds", "borrower", "5", age=9)
    scheduler.submit("four", "borrower", "4", age=8)
    assert scheduler.settle() == ["holds"]
    assert scheduler.parked() == ["four"]
    scheduler.queue("lender", "co", resourceGroups=groups(default=quota("10", lend="5")))
    scheduler.submit("five", "borrower", "5", priority=1)
    assert scheduler.settle() == ["five"]


def test_case_06_a_quota_below_usage_evicts_and_admits_no_workload() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("runs", "cq", "8")
    assert scheduler.settle() == ["runs"]
    scheduler.queue("cq", resourceGroups=groups(default="5"))
    scheduler.submit("next", "cq", "1")
    assert scheduler.settle() == []
    assert scheduler.parked() == ["next"]
    scheduler.finish("runs")
    assert scheduler.settle() == ["next"]


def test_case_07_an_unlisted_resource_fits_only_with_amount_zero() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("asks", "cq", pods=[{"requests": {"cpu": "1", "gpu": "1"}}], age=1)
    scheduler.submit("asks-none", "cq", pods=[{"requests": {"cpu": "1", "gpu": "0"}}])
    assert scheduler.settle() == ["asks-none"]
    assert scheduler.flavors("asks-none") == [{"cpu": "default"}]
    assert scheduler.why("asks").reason == "NoMatchingFlavor"


def test_case_07_pods_are_counted_whatever_a_pod_set_requests() -> None:
    scheduler = SteppedScheduler()
    offered = [{"name": "cpu", "nominalQuota": "9"}, {"name": "pods", "nominalQuota": "2"}]
    flavors = [{"name": "default", "resources": offered}]
    scheduler.queue(
        "cq", resourceGroups=[{"coveredResources": ["cpu", "pods"], "flavors": flavors}]
    )
    scheduler.submit("w", "cq", pods=[{"count": 2, "requests": {"cpu": "1", "pods": "7"}}])
    assert scheduler.settle() == ["w"]
    admission = scheduler.admission("w")
    assert admission is not None
    assert admission.pod_set_assignments[0].resource_usage == {"cpu": "2", "pods": "2"}


def test_case_08_requests_beyond_64_bits_saturate() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default=HUGE))
    pods = [{"requests": {"cpu": HUGE}, "count": 2}, {"requests": {"cpu": HUGE}, "count": 2}]
    scheduler.queue("small", resourceGroups=groups(default="10"))
    scheduler.submit("w", "small", pods=pods)
    assert scheduler.settle() == []
    assert scheduler.why("w").reason == "ExceedsMaxQuota"


def test_case_09_a_strict_head_that_does_not_fit_blocks_all_flavors() -> None:
    scheduler = SteppedScheduler()
    scheduler.flavor("other")
    two = [
        {"coveredResources": [resource], "flavors": [
            {"name": flavor, "resources": [{"name": resource, "nominalQuota": "10"}]}
        ]}
        for resource, flavor in (("cpu", "default"), ("gpu", "other"))
    ]  # fmt: skip
    scheduler.queue("cq", queueingStrategy="StrictFIFO", resourceGroups=two)
    scheduler.submit("head", "cq", "20", age=2)
    scheduler.submit("behind", "cq", pods=[{"requests": {"gpu": "1"}}])
    assert scheduler.settle() == []
    assert scheduler.active() == ["behind", "head"]
    scheduler.submit("again", "cq", "1")
    assert scheduler.settle() == []


def test_case_10_a_best_effort_head_is_parked_with_all_of_its_shape() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("big-1", "cq", "20", age=9)
    scheduler.submit("big-2", "cq", "20", age=8)
    scheduler.submit("small", "cq", "1", age=7)
    assert scheduler.cycle() == []
    assert scheduler.parked() == ["big-1", "big-2"]
    assert scheduler.cycle() == ["small"]
    scheduler.submit("big-3", "cq", "20")
    assert scheduler.parked() == ["big-1", "big-2", "big-3"]


def test_case_11_a_refused_decision_competes_again_after_a_flush() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("runs", "cq", "5", age=9)
    scheduler.settle()
    scheduler.submit("w", "cq", "5")
    scheduler.cycle(confirm=False)
    scheduler.finish("runs")
    scheduler.core.forget("ns", "w", scheduler.decided[0].revision)
    assert scheduler.active() == ["w"]
    assert scheduler.settle() == ["w"]


@pytest.mark.parametrize(
    ("status", "due"),
    [
        pytest.param(
            {"requeue_state": RequeueState(count=1, requeue_at=NOON + timedelta(seconds=60))},
            True,
            id="12 a time in the future is waited for",
        ),
        pytest.param(
            {"conditions": {"Requeued": (False, "PodsReadyTimeout")}},
            False,
            id="12 a workload that must not be requeued waits for its own change",
        ),
    ],
)
def test_case_12_a_flush_does_not_wake_workloads_in_backoff(
    status: dict[str, Any], due: bool
) -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("runs", "cq", "10", age=9)
    scheduler.settle()
    scheduler.submit("w", "cq", "5")
    scheduler.change("w", **status)
    scheduler.finish("runs")
    assert scheduler.settle() == []
    assert scheduler.parked() == ["w"]
    assert scheduler.core.next_wake() == (NOON + timedelta(seconds=60) if due else None)
    scheduler.now += timedelta(seconds=61)
    if due:
        assert scheduler.cycle() == ["w"]
    else:
        assert scheduler.cycle() == []
        scheduler.change("w", conditions={"Requeued": (True, "BackoffFinished")})
        assert scheduler.settle() == ["w"]


def test_case_13_an_update_without_relevant_change_leaves_it_parked() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("w", "cq", pods=[{"requests": {"cpu": "4"}, "count": 3}])
    scheduler.settle()
    scheduler.change("w", conditions={"QuotaReserved": (False, "ExceedsMaxQuota")})
    assert scheduler.parked() == ["w"]
    assert not scheduler.core.has_work()
    scheduler.change("w", reclaimable_pods=(ReclaimablePod(name="main", count=1),))
    assert scheduler.settle() == ["w"]


def test_case_13_an_update_of_the_spec_lets_it_compete_again() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("w", "cq", "20")
    scheduler.settle()
    scheduler.respec("w", priority=5)
    assert scheduler.active() == ["w"]


def test_case_14_a_workload_of_a_wrong_namespace_is_parked_when_strict() -> None:
    scheduler = SteppedScheduler()
    selector = {"matchLabels": {"team": "a"}}
    scheduler.queue(
        "cq",
        queueingStrategy="StrictFIFO",
        namespaceSelector=selector,
        resourceGroups=groups(default="10"),
    )
    scheduler.put("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="good")
    scheduler.put("Namespace", "good", metadata={"labels": {"team": "a"}})
    scheduler.submit("w", "cq", "1", age=9)
    scheduler.submit("other", "cq", "1", namespace="good")
    assert scheduler.settle() == ["other"]
    assert scheduler.why("w").reason == "Misconfigured"
    scheduler.finish("other")
    assert scheduler.settle() == []
    assert scheduler.parked() == ["w"]
    scheduler.put("Namespace", "ns", metadata={"labels": {"team": "a"}})
    assert scheduler.settle() == ["w"]


def test_case_15_of_two_heads_that_fit_only_alone_one_is_tried_again() -> None:
    scheduler = SteppedScheduler()
    for name in ("a", "b"):
        scheduler.queue(name, "co", resourceGroups=groups(default="5"))
    scheduler.submit("first", "a", "7", priority=1)
    scheduler.submit("second", "b", "7")
    assert scheduler.cycle() == ["first"]
    assert scheduler.active() == ["second"]
    assert scheduler.cycle() == []
    assert scheduler.parked() == ["second"]


def test_case_17_one_cycle_admits_two_heads_that_borrow_other_resources() -> None:
    scheduler = SteppedScheduler()
    for name in ("a", "b", "lender"):
        nominal = "10" if name == "lender" else "0"
        resources = [{"name": resource, "nominalQuota": nominal} for resource in ("cpu", "memory")]
        group = {"coveredResources": ["cpu", "memory"]}
        offered = [{"name": "default", "resources": resources}]
        scheduler.queue(name, "co", resourceGroups=[{**group, "flavors": offered}])
    scheduler.submit("x", "a", "10")
    scheduler.submit("y", "b", pods=[{"requests": {"memory": "10"}}])
    assert sorted(scheduler.cycle()) == ["x", "y"]


def test_case_24_the_entry_that_borrows_at_a_lower_level_goes_first() -> None:
    scheduler = SteppedScheduler()
    scheduler.put("Cohort", "root", {"resourceGroups": groups(default="10")})
    scheduler.put("Cohort", "left", {"parentName": "root"})
    scheduler.put("Cohort", "right", {"parentName": "root"})
    scheduler.queue("near", "left", resourceGroups=groups(default="0"))
    scheduler.queue("sibling", "left", resourceGroups=groups(default="10"))
    scheduler.queue("far", "right", resourceGroups=groups(default="0"))
    scheduler.submit("from-afar", "far", "15", priority=10, age=9)
    scheduler.submit("from-near", "near", "10")
    assert scheduler.cycle() == ["from-near"]


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_case_25_a_workload_with_a_check_that_failed_is_not_evaluated(state: str) -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("w", "cq", "1")
    scheduler.change("w", admission_checks=(CheckState(name="c", state=state),))
    assert scheduler.settle() == []
    assert scheduler.why("w").reason == "PendingEvaluation"
    scheduler.change("w", admission_checks=(CheckState(name="c"),))
    assert scheduler.settle() == ["w"]


def test_case_26_a_reservation_counts_while_its_checks_are_pending() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    scheduler.submit("w", "cq", "7", age=1)
    scheduler.cycle(confirm=False)
    scheduler.change(
        "w",
        conditions={"QuotaReserved": (True, "QuotaReserved")},
        admission=scheduler.decided[0].admission,
        admission_checks=(CheckState(name="c"),),
    )
    scheduler.submit("next", "cq", "7")
    assert scheduler.settle() == []
    scheduler.evict("w", "AdmissionCheck")
    assert scheduler.settle() == ["next"]


def _two_flavors(**spec: Any) -> SteppedScheduler:
    scheduler = SteppedScheduler()
    scheduler.flavor("one", nodeLabels={"type": "one"})
    scheduler.flavor("two", nodeLabels={"type": "two"})
    scheduler.queue("cq", resourceGroups=groups(one="10", two="10"), **spec)
    return scheduler


@pytest.mark.parametrize(
    ("pod", "flavor"),
    [
        pytest.param({"nodeSelector": {"zone": "x"}}, "one", id="27 an unknown key is ignored"),
        pytest.param({"nodeSelector": {"type": "two"}}, "two", id="27 a known key decides"),
        pytest.param(
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [
                                    {"key": "type", "operator": "In", "values": ["two"]}]},
                                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                            ]
                        }
                    }
                }
            },
            "one",
            id="28 a term on foreign keys alone matches every flavor",
        ),
    ],
)  # fmt: skip
def test_cases_27_and_28_selectors_use_only_labels_that_a_flavor_has(
    pod: dict[str, Any], flavor: str
) -> None:
    scheduler = _two_flavors()
    scheduler.submit("w", "cq", "1", pod=pod)
    scheduler.settle()
    assert scheduler.flavors("w") == [{"cpu": flavor}]


def test_case_29_a_taint_that_the_flavor_tolerates_excludes_no_workload() -> None:
    scheduler = SteppedScheduler()
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    scheduler.flavor("kept", nodeTaints=[taint])
    scheduler.flavor(
        "open", nodeTaints=[taint], tolerations=[{"key": "spot", "operator": "Exists"}]
    )
    scheduler.queue("cq", resourceGroups=groups(kept="10", open="10"))
    scheduler.submit("w", "cq", "1")
    scheduler.settle()
    assert scheduler.flavors("w") == [{"cpu": "open"}]


@pytest.mark.parametrize(
    ("policy", "second", "flavor"),
    [
        pytest.param("MayStopSearch", "10", "one", id="30 borrowing in the first flavor may do"),
        pytest.param("TryNextFlavor", "10", "two", id="30 the next flavor fits without borrowing"),
        pytest.param("TryNextFlavor", "2", "one", id="30 the next flavor cannot hold it"),
    ],
)
def test_case_30_when_can_borrow(policy: str, second: str, flavor: str) -> None:
    scheduler = SteppedScheduler()
    scheduler.flavor("one")
    scheduler.flavor("two")
    scheduler.queue("lender", "co", resourceGroups=groups(one="10", two="0"))
    scheduler.queue(
        "cq",
        "co",
        resourceGroups=groups(one="5", two=second),
        flavorFungibility={"whenCanBorrow": policy},
    )
    scheduler.submit("w", "cq", "8")
    scheduler.settle()
    assert scheduler.flavors("w") == [{"cpu": flavor}]


def test_case_34_requests_of_two_pod_sets_are_added_up() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="4"))
    scheduler.submit("w", "cq", pods=[{"requests": {"cpu": "2"}}, {"requests": {"cpu": "10"}}])
    assert scheduler.settle() == []
    why = scheduler.why("w")
    assert why.reason == "ExceedsMaxQuota"
    assert "previously considered 2 + 10 > 4" in why.message


def test_case_37_a_borrowing_limit_is_not_capacity() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", "co", resourceGroups=groups(default=quota("0", borrow="12")))
    scheduler.queue("lender", "co", resourceGroups=groups(default="11"))
    scheduler.submit("w", "cq", "12")
    assert scheduler.settle() == []
    assert scheduler.why("w").reason == "ExceedsMaxQuota"


def test_a_refusal_names_the_equal_workload_that_was_tried_for_it() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="4"))
    for age, name in enumerate(("second", "first", "holds"), 1):
        scheduler.submit(name, "cq", "4", age=age)
    assert scheduler.settle() == ["holds"]
    scheduler.now += timedelta(minutes=1)
    heads = {
        refusal.name: refusal.scan.head if refusal.scan is not None else None
        for refusal in scheduler.core.refusals(now=scheduler.now)
    }
    assert heads == {"first": "", "second": "ns/first"}
