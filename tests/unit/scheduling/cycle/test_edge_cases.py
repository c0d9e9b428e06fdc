"""The edge cases of `docs/spec/scheduling.md#9` without preemption, by their numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.api.workload import CheckState, ReclaimablePod, RequeueState
from support.cores.scheduling_story import NOON, Story, groups, quota

HUGE = str(2**62)


def test_05_a_lending_limit_bounds_what_a_borrower_may_be_given() -> None:
    story = Story()
    story.queue("lender", "co", resourceGroups=groups(default=quota("10", lend="3")))
    story.queue("borrower", "co", resourceGroups=groups(default="5"))
    story.submit("holds", "borrower", "5", age=9)
    story.submit("four", "borrower", "4", age=8)
    assert story.settle() == ["holds"]
    assert story.parked() == ["four"]
    story.queue("lender", "co", resourceGroups=groups(default=quota("10", lend="5")))
    story.submit("five", "borrower", "5", priority=1)
    assert story.settle() == ["five"]


def test_06_a_quota_below_usage_evicts_and_admits_no_workload() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("runs", "cq", "8")
    assert story.settle() == ["runs"]
    story.queue("cq", resourceGroups=groups(default="5"))
    story.submit("next", "cq", "1")
    assert story.settle() == []
    assert story.parked() == ["next"]
    story.finish("runs")
    assert story.settle() == ["next"]


def test_07_an_unlisted_resource_fits_only_with_amount_zero() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("asks", "cq", pods=[{"requests": {"cpu": "1", "gpu": "1"}}], age=1)
    story.submit("asks-none", "cq", pods=[{"requests": {"cpu": "1", "gpu": "0"}}])
    assert story.settle() == ["asks-none"]
    assert story.flavors("asks-none") == [{"cpu": "default"}]
    assert story.why("asks").reason == "NoMatchingFlavor"


def test_08_requests_beyond_64_bits_saturate() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default=HUGE))
    pods = [{"requests": {"cpu": HUGE}, "count": 2}, {"requests": {"cpu": HUGE}, "count": 2}]
    story.queue("small", resourceGroups=groups(default="10"))
    story.submit("w", "small", pods=pods)
    assert story.settle() == []
    assert story.why("w").reason == "ExceedsMaxQuota"


def test_09_a_strict_head_that_does_not_fit_blocks_all_flavors() -> None:
    story = Story()
    story.flavor("other")
    two = [
        {"coveredResources": [resource], "flavors": [
            {"name": flavor, "resources": [{"name": resource, "nominalQuota": "10"}]}
        ]}
        for resource, flavor in (("cpu", "default"), ("gpu", "other"))
    ]  # fmt: skip
    story.queue("cq", queueingStrategy="StrictFIFO", resourceGroups=two)
    story.submit("head", "cq", "20", age=2)
    story.submit("behind", "cq", pods=[{"requests": {"gpu": "1"}}])
    assert story.settle() == []
    assert story.active() == ["behind", "head"]
    story.submit("again", "cq", "1")
    assert story.settle() == []


def test_10_a_best_effort_head_is_parked_with_all_of_its_shape() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("big-1", "cq", "20", age=9)
    story.submit("big-2", "cq", "20", age=8)
    story.submit("small", "cq", "1", age=7)
    assert story.cycle() == []
    assert story.parked() == ["big-1", "big-2"]
    assert story.cycle() == ["small"]
    story.submit("big-3", "cq", "20")
    assert story.parked() == ["big-1", "big-2", "big-3"]


def test_11_a_refused_decision_competes_again_after_a_flush_of_the_tree() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("runs", "cq", "5", age=9)
    story.settle()
    story.submit("w", "cq", "5")
    story.cycle(confirm=False)
    story.finish("runs")
    story.core.forget("ns", "w", story.decided[0].revision)
    assert story.active() == ["w"]
    assert story.settle() == ["w"]


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
            id="12 a workload that must not be requeued waits for a change of its own",
        ),
    ],
)
def test_12_a_flush_does_not_wake_workloads_in_backoff(status: dict[str, Any], due: bool) -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("runs", "cq", "10", age=9)
    story.settle()
    story.submit("w", "cq", "5")
    story.change("w", **status)
    story.finish("runs")
    assert story.settle() == []
    assert story.parked() == ["w"]
    assert story.core.next_wake() == (NOON + timedelta(seconds=60) if due else None)
    story.now += timedelta(seconds=61)
    if due:
        assert story.cycle() == ["w"]
    else:
        assert story.cycle() == []
        story.change("w", conditions={"Requeued": (True, "BackoffFinished")})
        assert story.settle() == ["w"]


def test_13_an_update_without_relevant_change_leaves_it_parked() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("w", "cq", pods=[{"requests": {"cpu": "4"}, "count": 3}])
    story.settle()
    story.change("w", conditions={"QuotaReserved": (False, "ExceedsMaxQuota")})
    assert story.parked() == ["w"]
    assert not story.core.has_work()
    story.change("w", reclaimable_pods=(ReclaimablePod(name="main", count=1),))
    assert story.settle() == ["w"]


def test_13_an_update_of_the_spec_lets_it_compete_again() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("w", "cq", "20")
    story.settle()
    story.respec("w", priority=5)
    assert story.active() == ["w"]


def test_14_a_workload_of_a_wrong_namespace_is_parked_in_strict_queues() -> None:
    story = Story()
    selector = {"matchLabels": {"team": "a"}}
    story.queue(
        "cq",
        queueingStrategy="StrictFIFO",
        namespaceSelector=selector,
        resourceGroups=groups(default="10"),
    )
    story.put("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="good")
    story.put("Namespace", "good", metadata={"labels": {"team": "a"}})
    story.submit("w", "cq", "1", age=9)
    story.submit("other", "cq", "1", namespace="good")
    assert story.settle() == ["other"]
    assert story.why("w").reason == "Misconfigured"
    story.finish("other")
    assert story.settle() == []
    assert story.parked() == ["w"]
    story.put("Namespace", "ns", metadata={"labels": {"team": "a"}})
    assert story.settle() == ["w"]


def test_15_of_two_heads_that_fit_only_alone_the_second_is_tried_again() -> None:
    story = Story()
    for name in ("a", "b"):
        story.queue(name, "co", resourceGroups=groups(default="5"))
    story.submit("first", "a", "7", priority=1)
    story.submit("second", "b", "7")
    assert story.cycle() == ["first"]
    assert story.active() == ["second"]
    assert story.cycle() == []
    assert story.parked() == ["second"]


def test_17_one_cycle_admits_two_heads_that_borrow_other_resources() -> None:
    story = Story()
    for name in ("a", "b", "lender"):
        nominal = "10" if name == "lender" else "0"
        resources = [{"name": one, "nominalQuota": nominal} for one in ("cpu", "memory")]
        group = {"coveredResources": ["cpu", "memory"]}
        offered = [{"name": "default", "resources": resources}]
        story.queue(name, "co", resourceGroups=[{**group, "flavors": offered}])
    story.submit("x", "a", "10")
    story.submit("y", "b", pods=[{"requests": {"memory": "10"}}])
    assert sorted(story.cycle()) == ["x", "y"]


def test_24_the_entry_that_borrows_at_a_lower_level_goes_first() -> None:
    story = Story()
    story.put("Cohort", "root", {"resourceGroups": groups(default="10")})
    story.put("Cohort", "left", {"parentName": "root"})
    story.put("Cohort", "right", {"parentName": "root"})
    story.queue("near", "left", resourceGroups=groups(default="0"))
    story.queue("sibling", "left", resourceGroups=groups(default="10"))
    story.queue("far", "right", resourceGroups=groups(default="0"))
    story.submit("from-afar", "far", "15", priority=10, age=9)
    story.submit("from-near", "near", "10")
    assert story.cycle() == ["from-near"]


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_25_a_workload_with_a_check_that_failed_is_not_evaluated(state: str) -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("w", "cq", "1")
    story.change("w", admission_checks=(CheckState(name="c", state=state),))
    assert story.settle() == []
    assert story.why("w").reason == "PendingEvaluation"
    story.change("w", admission_checks=(CheckState(name="c"),))
    assert story.settle() == ["w"]


def test_26_a_reservation_counts_while_its_checks_are_pending() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    story.submit("w", "cq", "7", age=1)
    story.cycle(confirm=False)
    story.change(
        "w",
        conditions={"QuotaReserved": (True, "QuotaReserved")},
        admission=story.decided[0].admission,
        admission_checks=(CheckState(name="c"),),
    )
    story.submit("next", "cq", "7")
    assert story.settle() == []
    story.evict("w", "AdmissionCheck")
    assert story.settle() == ["next"]


def _two_flavors(**spec: Any) -> Story:
    story = Story()
    story.flavor("one", nodeLabels={"type": "one"})
    story.flavor("two", nodeLabels={"type": "two"})
    story.queue("cq", resourceGroups=groups(one="10", two="10"), **spec)
    return story


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
def test_27_28_selectors_speak_of_the_labels_that_a_flavor_has(
    pod: dict[str, Any], flavor: str
) -> None:
    story = _two_flavors()
    story.submit("w", "cq", "1", pod=pod)
    story.settle()
    assert story.flavors("w") == [{"cpu": flavor}]


def test_29_a_taint_that_the_flavor_tolerates_excludes_no_workload() -> None:
    story = Story()
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    story.flavor("kept", nodeTaints=[taint])
    story.flavor("open", nodeTaints=[taint], tolerations=[{"key": "spot", "operator": "Exists"}])
    story.queue("cq", resourceGroups=groups(kept="10", open="10"))
    story.submit("w", "cq", "1")
    story.settle()
    assert story.flavors("w") == [{"cpu": "open"}]


@pytest.mark.parametrize(
    ("policy", "second", "flavor"),
    [
        pytest.param("MayStopSearch", "10", "one", id="30 borrowing in the first flavor may do"),
        pytest.param("TryNextFlavor", "10", "two", id="30 the next flavor fits without borrowing"),
        pytest.param("TryNextFlavor", "2", "one", id="30 the next flavor cannot hold it"),
    ],
)
def test_30_when_can_borrow(policy: str, second: str, flavor: str) -> None:
    story = Story()
    story.flavor("one")
    story.flavor("two")
    story.queue("lender", "co", resourceGroups=groups(one="10", two="0"))
    story.queue(
        "cq",
        "co",
        resourceGroups=groups(one="5", two=second),
        flavorFungibility={"whenCanBorrow": policy},
    )
    story.submit("w", "cq", "8")
    story.settle()
    assert story.flavors("w") == [{"cpu": flavor}]


def test_34_two_pod_sets_are_too_much_together() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="4"))
    story.submit("w", "cq", pods=[{"requests": {"cpu": "2"}}, {"requests": {"cpu": "10"}}])
    assert story.settle() == []
    why = story.why("w")
    assert why.reason == "ExceedsMaxQuota"
    assert "previously considered 2 + 10 > 4" in why.message


def test_37_a_borrowing_limit_is_not_capacity() -> None:
    story = Story()
    story.queue("cq", "co", resourceGroups=groups(default=quota("0", borrow="12")))
    story.queue("lender", "co", resourceGroups=groups(default="11"))
    story.submit("w", "cq", "12")
    assert story.settle() == []
    assert story.why("w").reason == "ExceedsMaxQuota"
