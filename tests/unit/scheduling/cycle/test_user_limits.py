"""Limits on the quota of a queue that one person may hold (docs/spec/scheduling.md#3.10)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from admittance.api.workload import ReclaimablePod
from admittance.events.requests.queues import PendingQuery, Queues
from admittance.scheduling.state.config import Config, UsageFairSharing
from support.builders import NOON
from support.cores.stepped_scheduler import SteppedScheduler, groups

LIMITED = "WaitingForUserLimit"
SECOND = timedelta(seconds=1)


class Office(SteppedScheduler):
    """ClusterQueue ``a`` with 8 cpu, of which one user may hold 4."""

    def __init__(self, config: Config | None = None, *, cpu: str = "8", **spec: Any) -> None:
        super().__init__(config)
        spec.setdefault("perUser", {"cpu": 4})
        self.queue("a", resourceGroups=groups(default=cpu), **spec)

    def job(self, name: str, user: str, cpu: str = "2", *, queue: str = "a", **more: Any) -> None:
        """Submits a workload of the user; later ones are younger."""
        self.now += SECOND
        age = -(self.now - NOON).total_seconds()
        self.submit(name, queue, cpu, user=user, age=age, **more)

    def jobs(self, **users: str) -> None:
        """Submits workloads of 2 cpu, each of this user."""
        for name, user in users.items():
            self.job(name, user)

    def waiting_for(self) -> dict[str, str]:
        rows = self.core.pending(PendingQuery()).rows
        return {row.name: row.reason for row in rows}


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_workloads_over_the_limit_wait_and_block_no_other(strategy: str) -> None:
    office = Office(queueingStrategy=strategy)
    office.jobs(a1="ada", a2="ada", a3="ada", b1="bob", a4="ada", b2="bob")
    assert office.settle() == ["a1", "a2", "b1", "b2"]
    assert office.waiting_for() == {"a3": LIMITED, "a4": LIMITED}
    office.finish("b1")
    assert office.settle() == []
    office.finish("a2")
    assert office.settle() == ["a3"]
    assert office.waiting_for() == {"a4": LIMITED}


@pytest.mark.parametrize(
    ("spec", "local", "jobs", "starts"),
    [
        pytest.param(
            {"perUser": {}}, {}, [("x", "ada", "6", {})], ["x"], id="an empty perUser is no limit"
        ),
        pytest.param(
            {"perUser": {"cpu": 0}}, {}, [("x", "ada", "1", {})], [], id="0 allows nothing"
        ),
        pytest.param(
            {}, {}, [("x", "ada", "4", {}), ("y", "ada", "", {"pods": [{"requests": {}}]})],
            ["x", "y"],
            id="a workload that asks for nothing of the resource is not limited",
        ),
        pytest.param(
            {}, {}, [("x", "", "4", {}), ("y", "", "1", {})], ["x"],
            id="all workloads without a user are one person",
        ),
        pytest.param(
            {"perUser": {}}, {"perUser": {"cpu": 2}},
            [("x", "ada", "2", {}), ("y", "ada", "1", {}), ("z", "ada", "4", {"queue": "b"})],
            ["x", "z"], id="the limit of a LocalQueue is about its own workloads",
        ),
        pytest.param(
            {}, {"perUser": {"cpu": 3}},
            [("x", "ada", "3", {}), ("y", "ada", "1", {"queue": "b"}),
             ("z", "ada", "1", {"queue": "b"})],
            ["x", "y"], id="both limits hold",
        ),
        pytest.param(
            {"perUser": {}, "perLabel": {"team": {"cpu": 2}}}, {},
            [("x", "ada", "2", {"labels": {"team": "red"}}),
             ("y", "bob", "1", {"labels": {"team": "red"}}),
             ("z", "bob", "1", {"labels": {"team": "blue"}}), ("free", "bob", "3", {})],
            ["x", "z", "free"], id="perLabel is about the workloads with one value",
        ),
        pytest.param(
            {"perUser": {"cpu": 100}, "perLabel": {"team": {"cpu": 2}, "pool": {"cpu": 1}}}, {},
            [("x", "ada", "1", {"labels": {"team": "red", "pool": "p"}}),
             ("y", "ada", "1", {"labels": {"team": "red", "pool": "p"}})],
            ["x"], id="each limit holds by itself",
        ),
    ],
)  # fmt: skip
def test_a_workload_starts_only_within_the_limits_of_its_persons(
    spec: dict[str, Any],
    local: dict[str, Any],
    jobs: list[tuple[str, str, str, dict[str, Any]]],
    starts: list[str],
) -> None:
    office = Office(**spec)
    office.put("LocalQueue", "a", {"clusterQueue": "a", **local}, namespace="ns")
    office.put("LocalQueue", "b", {"clusterQueue": "a"}, namespace="ns")
    for name, user, cpu, more in jobs:
        office.job(name, user, cpu, **more)
    assert office.settle() == starts


def with_quota_of_pods(**spec: Any) -> Office:
    office = Office()
    group = groups(default="8")[0]
    group["coveredResources"] = ["cpu", "pods"]
    group["flavors"][0]["resources"].append({"name": "pods", "nominalQuota": 100})
    office.queue("a", resourceGroups=[group], **spec)
    return office


def test_pods_count_where_the_queue_has_quota_of_pods() -> None:
    office = with_quota_of_pods(perUser={"pods": 3, "cpu": 9})
    office.job("two", "ada", pods=[{"count": 2, "requests": {}}])
    office.job("more", "ada", pods=[{"count": 2, "requests": {"cpu": "1"}}])
    assert office.settle() == ["two"]
    assert office.why("more").message == (
        "user ada may hold 3 pods in ClusterQueue a and holds 2; the workload asks for 2 more"
    )
    (status,) = office.core.queues(Queues(cluster_queue="a")).cluster_queues
    assert [(row.resource, row.held) for row in status.persons] == [("cpu", 0), ("pods", 2)]


def test_the_limit_counts_all_flavors_and_borrowed_quota_together() -> None:
    office = Office(perUser={})
    office.flavor("spot")
    office.cluster_queue("lender", "co", resourceGroups=groups(default="9", spot="9"))
    office.queue("a", "co", resourceGroups=groups(default="1", spot="1"), perUser={"cpu": 4})
    for name in ("x", "y", "z"):
        office.job(name, "ada", "2")
    assert office.settle() == ["x", "y"]


@pytest.mark.parametrize(("enough", "pods"), [(4, 4), (1, 4), (5, None)])
def test_a_flexible_workload_starts_with_as_many_pods_as_the_limit_allows(
    enough: int, pods: int | None
) -> None:
    office = Office()
    office.job("x", "ada", pods=[{"count": 6, "requests": {"cpu": "1"}}])
    office.respec("x", podSets=[{**_pod_set(6), "minCount": enough}])
    office.settle()
    admission = office.admission("x")
    assert (admission.pod_set_assignments[0].count if admission else None) == pods
    if pods is None:
        assert office.why("x").message.endswith("asks for 5, with its fewest pods")


def _pod_set(count: int) -> dict[str, Any]:
    container = {"resources": {"requests": {"cpu": "1"}}}
    return {
        "name": "main", "count": count, "template": {"spec": {"containers": [container]}},
    }  # fmt: skip


# What the person holds. -------------------------------------------------------------------------


def _reserves(office: Office) -> None:
    office.admits = False


def _in_flight(office: Office) -> None:
    office.cycle(confirm=False)


@pytest.mark.parametrize("before", [_reserves, _in_flight])
def test_reserved_and_assumed_quota_counts(before: Callable[[Office], None]) -> None:
    office = Office()
    office.jobs(a1="ada")
    office.job("a2", "ada", "3")
    before(office)
    office.settle()
    assert office.waiting_for().get("a2") == LIMITED


def test_a_lost_decision_frees_the_quota_of_its_user() -> None:
    office = Office()
    office.job("a1", "ada", "3")
    office.job("a2", "ada", "3")
    assert office.cycle(confirm=False) == ["a1"]
    office.core.forget("ns", "a1", office.decided[0].revision)
    office.gone("a1")
    assert office.settle() == ["a2"]


def test_a_new_leader_counts_the_same_quota() -> None:
    office = Office()
    office.jobs(a1="ada", a2="ada")
    office.settle()
    office.restart_scheduler()
    office.jobs(a3="ada", b1="bob")
    assert office.settle() == ["b1"]


def test_reclaimable_pods_are_not_held_any_more() -> None:
    office = Office()
    office.job("a1", "ada", pods=[{"count": 4, "requests": {"cpu": "1"}}])
    office.jobs(a2="ada")
    assert office.settle() == ["a1"]
    office.change("a1", reclaimable_pods=(ReclaimablePod(name="main", count=2),))
    assert office.settle() == ["a2"]


def test_a_workload_over_the_limit_preempts_nothing() -> None:
    office = Office(cpu="4", preemption={"withinClusterQueue": "LowerPriority"})
    office.jobs(a1="ada", a2="ada")
    office.settle()
    office.job("urgent", "ada", priority=9)
    assert office.settle() == []
    assert (office.waiting_for(), office.all_preempted) == ({"urgent": LIMITED}, [])
    office.finish("a1")
    assert office.settle() == ["urgent"]


# Edits. -----------------------------------------------------------------------------------------


def test_a_higher_limit_wakes_the_workloads_of_the_user() -> None:
    office = Office()
    office.jobs(a1="ada", a2="ada", a3="ada")
    office.settle()
    office.queue("a", resourceGroups=groups(default="8"), perUser={"cpu": 6})
    assert office.settle() == ["a3"]


def test_a_lower_limit_stops_no_workload_and_starts_none() -> None:
    office = Office()
    office.jobs(a1="ada", a2="ada", b1="bob")
    office.settle()
    office.queue("a", resourceGroups=groups(default="8"), perUser={"cpu": 2})
    office.jobs(a3="ada", b2="bob", c1="cy")
    assert office.settle() == ["c1"]
    office.finish("a1")
    assert office.settle() == []
    office.finish("a2")
    assert office.settle() == ["a3"]


@pytest.mark.parametrize("removes", ["perUser", "LocalQueue"])
def test_a_limit_that_is_taken_away_limits_no_more(removes: str) -> None:
    office = Office(perUser={} if removes == "LocalQueue" else {"cpu": 4})
    if removes == "LocalQueue":
        office.put("LocalQueue", "a", {"clusterQueue": "a", "perUser": {"cpu": 4}}, "ns")
    office.jobs(a1="ada", a2="ada", a3="ada")
    assert office.settle() == ["a1", "a2"]
    if removes == "LocalQueue":
        office.put("LocalQueue", "a", {"clusterQueue": "a"}, "ns")
    else:
        office.queue("a", resourceGroups=groups(default="8"))
    assert office.settle() == ["a3"]


def test_a_queue_that_is_made_again_counts_what_still_runs() -> None:
    office = Office()
    office.jobs(a1="ada", a2="ada", a3="ada")
    office.settle()
    office.delete("ClusterQueue", "a")
    office.queue("a", resourceGroups=groups(default="8"), perUser={"cpu": 4})
    assert office.settle() == []
    office.finish("a1")
    assert office.settle() == ["a3"]


# Beside other rules of the queue. ---------------------------------------------------------------


def test_a_user_over_the_limit_gets_no_promise_of_a_start() -> None:
    office = Office(cpu="4", backfill="Easy")
    office.job("long", "bob", "1", spec={"maximumExecutionTimeSeconds": 600})
    office.job("a1", "ada", "3", spec={"maximumExecutionTimeSeconds": 600})
    office.settle()
    office.job("a2", "ada", "4", spec={"maximumExecutionTimeSeconds": 600})
    office.finish("long")
    office.job("b1", "bob", "1")
    assert office.settle() == ["b1"]
    assert office.why("a2").promise is None


def test_usage_of_local_queues_orders_the_workloads_within_the_limits() -> None:
    config = Config(
        admission_fair_sharing=UsageFairSharing(
            usage_half_life_time=timedelta(hours=1), usage_sampling_interval=timedelta(minutes=1)
        )
    )
    office = Office(
        config, admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"}, cpu="6"
    )
    office.put("LocalQueue", "b", {"clusterQueue": "a"}, "ns")
    office.jobs(a1="ada", a2="ada", a3="ada")
    office.settle()
    office.job("b1", "ada", queue="b")
    office.job("b2", "bob", queue="b")
    assert office.settle() == ["b2"]
    assert office.waiting_for() == {"a3": LIMITED, "b1": LIMITED}


# Answers. ---------------------------------------------------------------------------------------


def test_an_explanation_says_that_the_own_limit_is_what_a_workload_waits_for() -> None:
    office = Office()
    office.jobs(a1="ada", a2="ada", b1="bob")
    office.job("a3", "ada", "4")
    office.settle()
    answer = office.why("a3")
    assert (answer.reason, answer.message) == (
        LIMITED,
        "user ada may hold 4 cpu in ClusterQueue a and holds 4; the workload asks for 4 more",
    )
    assert answer.parked
    assert answer.unblocked_by == (
        "4 cpu less held by user ada in ClusterQueue a (held by ns/a1, ns/a2)",
    )
    assert answer.holders == ("ns/a1", "ns/a2")


def test_an_explanation_lists_the_holders_of_the_limited_resource() -> None:
    office = with_quota_of_pods(perUser={"cpu": 4})
    office.job("a1", "ada", "1")
    office.job("a2", "ada", "3")
    office.jobs(b1="bob", a3="ada")
    office.settle()
    office.change("a2", conditions={"Evicted": (True, "Preempted")})
    held = office.why("a3").held_by
    assert [(row.name, row.flavor, row.amount, row.leaving, row.spared_by) for row in held] == [
        ("a2", "default", 3000, True, ""),
        ("a1", "default", 1000, False, "UserLimit"),
    ]


def test_an_explanation_says_that_a_workload_alone_is_over_the_limit() -> None:
    office = Office(perLabel={"team": {"cpu": 2}})
    office.jobs(a1="ada")
    office.job("big", "ada", "4", labels={"team": "red"})
    office.settle()
    answer = office.why("big")
    assert answer.message == (
        "label team=red may hold 2 cpu in ClusterQueue a; the workload asks for 4"
    )
    assert answer.unblocked_by == (
        "2 more cpu in perLabel[team] of ClusterQueue a, or a smaller request",
    )


def test_a_refusal_is_published_once_for_each_workload_over_the_limit() -> None:
    office = Office()
    office.jobs(a1="ada", a2="ada", a3="ada", a4="ada")
    office.settle()
    office.now = NOON + timedelta(minutes=1)
    refused = office.core.refusals(now=office.now)
    assert [(one.name, one.refusal.reason) for one in refused] == [("a3", LIMITED), ("a4", LIMITED)]


def test_many_workloads_over_the_limit_cost_one_step_together() -> None:
    office = Office()
    for number in range(50):
        office.job(f"a{number}", "ada")
    office.job("b1", "bob")
    assert office.settle() == ["a0", "a1", "b1"]
    state = office.core._state
    assert len(state.queues["a"].parked_classes) == 1
