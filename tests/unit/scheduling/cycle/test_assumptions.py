"""What is decided is charged at once, and given back exactly when it does not come true."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.workload import ReclaimablePod
from admittance.events.requests import PendingQuery, Queues
from admittance.scheduling.cycle.refusals import IN_FLIGHT_MAX
from admittance.scheduling.state.config import Config
from support.cores.scheduling_story import Story, groups, quota


def a_story(nominal: str = "10") -> Story:
    story = Story()
    story.queue("cq", resourceGroups=groups(default=nominal))
    return story


def reserved(story: Story, queue: str = "cq") -> int:
    (status,) = story.core.queues(Queues(cluster_queue=queue)).cluster_queues
    return sum(one.reserved for one in status.usage)


def test_a_decision_is_charged_before_it_is_stored() -> None:
    story = a_story()
    story.submit("one", "cq", "6", age=1)
    story.submit("two", "cq", "6")
    assert story.cycle(confirm=False) == ["one"]
    assert reserved(story) == 6_000
    assert story.cycle(confirm=False) == []


def test_a_decision_records_its_inputs() -> None:
    story = a_story()
    story.submit("one", "cq", "6")
    of_workload = story.revision
    story.put("WorkloadPriorityClass", "p", value=1)
    story.core.seen(story.revision + 5)
    story.cycle(confirm=False)
    (decision,) = story.decided
    assert decision.domain == "queue-cq"
    assert (decision.revision, decision.seen) == (of_workload, story.revision + 5)
    assert decision.admission.pod_set_assignments[0].resource_usage == {"cpu": "6"}


def test_a_written_decision_stays_charged_once() -> None:
    story = a_story()
    story.submit("one", "cq", "6")
    story.cycle()
    assert reserved(story) == 6_000
    story.finish("one")
    assert reserved(story) == 0


def test_a_newer_revision_without_quota_undoes_the_assumption() -> None:
    story = a_story()
    story.submit("one", "cq", "6", age=1)
    story.submit("two", "cq", "6")
    story.cycle(confirm=False)
    story.settle()
    assert story.parked() == ["two"]
    story.respec("one", active=False)
    assert reserved(story) == 0
    assert story.settle() == ["two"]


def test_a_change_of_the_tree_drops_what_was_decided_before_it() -> None:
    story = Story()
    story.queue("a", "co", resourceGroups=groups(default="10"))
    story.queue("b", "co", resourceGroups=groups(default="10"))
    story.queue("c", resourceGroups=groups(default="10"))
    for name in ("a", "c"):
        story.submit(f"in-{name}", name, "6")
    story.cycle(confirm=False)
    story.queue("b", "co", resourceGroups=groups(default="5"))
    assert reserved(story, "a") == 0
    assert reserved(story, "c") == 6_000
    assert story.active() == ["in-a"]
    assert story.cycle() == ["in-a"]


def test_a_decision_made_after_the_change_is_kept() -> None:
    story = a_story()
    story.submit("one", "cq", "6")
    story.core.seen(story.revision + 10)
    story.cycle(confirm=False)
    story.queue("cq", resourceGroups=groups(default="10"))
    assert reserved(story) == 6_000


def test_forgetting_a_decision_of_another_revision_changes_nothing() -> None:
    story = a_story()
    story.submit("one", "cq", "6")
    story.cycle()
    story.core.forget("ns", "one", story.decided[0].revision)
    assert reserved(story) == 6_000


def test_disowning_drops_assumptions_and_decides_nothing_more() -> None:
    story = a_story()
    story.submit("one", "cq", "6")
    story.cycle(confirm=False)
    story.core.disown("queue-cq")
    assert reserved(story) == 0
    assert not story.core.has_work()
    assert story.core.cycle(now=story.now) == []
    story.core.own("queue-cq")
    assert story.cycle() == ["one"]


def test_evicted_quota_counts_until_the_job_has_stopped() -> None:
    story = a_story()
    story.submit("one", "cq", "6", age=1)
    story.cycle()
    story.change("one", conditions={"Evicted": (True, "Preempted")})
    story.submit("two", "cq", "6")
    assert story.settle() == []
    assert reserved(story) == 6_000
    story.evict("one", "Preempted")
    assert story.settle() == ["one"]


def test_pods_that_are_not_needed_any_more_give_their_quota_back() -> None:
    story = a_story()
    story.submit("one", "cq", pods=[{"requests": {"cpu": "2"}, "count": 4}], age=1)
    story.cycle()
    story.submit("two", "cq", "6")
    assert story.settle() == []
    story.change("one", reclaimable_pods=(ReclaimablePod(name="main", count=2),))
    assert reserved(story) == 4_000
    assert story.settle() == ["two"]


def test_quota_moves_with_a_queue_to_another_cohort_and_back() -> None:
    story = Story()
    story.queue("a", "left", resourceGroups=groups(default="4"))
    story.queue("b", "left", resourceGroups=groups(default="4"))
    story.submit("one", "a", "6")
    assert story.settle() == ["one"]
    story.queue("a", "right", resourceGroups=groups(default="4"))
    story.submit("two", "b", "4")
    assert story.settle() == ["two"]
    story.queue("a", "left", resourceGroups=groups(default="4"))
    story.submit("three", "b", "1")
    assert story.settle() == []


def test_a_queue_that_comes_back_still_counts_what_holds_its_quota() -> None:
    story = a_story()
    story.submit("one", "cq", "6", age=1)
    story.settle()
    story.delete("ClusterQueue", "cq")
    story.submit("two", "cq", "6")
    assert story.settle() == []
    story.queue("cq", resourceGroups=groups(default="10"))
    assert reserved(story) == 6_000
    assert story.settle() == []
    story.finish("one")
    assert story.settle() == ["two"]


def test_a_queue_that_is_deleted_takes_its_decisions_along() -> None:
    story = a_story()
    story.submit("one", "cq", "6")
    story.cycle(confirm=False)
    story.delete("ClusterQueue", "cq")
    story.queue("cq", resourceGroups=groups(default="10"))
    assert reserved(story) == 0
    assert story.cycle() == ["one"]


def test_an_old_revision_changes_nothing() -> None:
    story = a_story()
    story.submit("one", "cq", "6")
    old = story.stored["one"]
    story.cycle()
    story.core.apply_workload("ns", "one", old, 1, now=story.now)
    assert reserved(story) == 6_000


def test_a_namesake_does_not_inherit_quota() -> None:
    story = a_story()
    story.submit("one", "cq", "6")
    story.cycle(confirm=False)
    meta = msgspec.structs.replace(story.stored["one"].metadata, uid="another")
    story._write("ns", "one", msgspec.structs.replace(story.stored["one"], metadata=meta))
    assert reserved(story) == 0
    assert story.cycle() == ["one"]


def test_an_invalid_stored_spec_affects_no_other_workload() -> None:
    story = a_story()
    story.submit("broken", "cq", "6", age=9)
    bad = msgspec.structs.replace(story.stored["broken"], spec=msgspec.Raw(b'{"podSets": 7}'))
    story._write("ns", "broken", bad)
    story.submit("good", "cq", "6")
    assert story.settle() == ["good"]


# Refusals. ----------------------------------------------------------------------------------


def test_a_parked_workload_is_refused_once_after_a_delay() -> None:
    story = a_story()
    story.submit("w", "cq", "10500m")
    story.settle()
    assert story.core.refusals(now=story.now) == []
    assert story.core.next_wake() == story.now + timedelta(seconds=1)
    story.now += timedelta(seconds=1)
    (refused,) = story.core.refusals(now=story.now)
    assert refused.refusal.reason == "ExceedsMaxQuota"
    assert story.core.refusals(now=story.now) == []
    story.change("w", conditions={"QuotaReserved": (False, "ExceedsMaxQuota")})
    story.now += timedelta(seconds=9)
    assert story.core.refusals(now=story.now) == []


def test_a_refusal_names_flavor_and_numbers() -> None:
    story = Story()
    story.flavor("spot")
    story.queue("cq", resourceGroups=groups(spot="10"))
    story.submit("runs", "cq", "8", age=1)
    story.submit("w", "cq", "2500m")
    story.settle()
    story.now += timedelta(seconds=1)
    (refused,) = story.core.refusals(now=story.now)
    assert "cpu: 500m short in flavor spot" in refused.refusal.message
    (short,) = refused.refusal.shortfalls
    assert (short.requested, short.available) == (2_500, 2_000)


def test_a_head_is_not_decided_while_its_refusal_is_in_flight() -> None:
    story = a_story()
    story.submit("runs", "cq", "8", age=9)
    story.submit("w", "cq", "8", age=8)
    story.settle()
    story.now += timedelta(seconds=1)
    (refused,) = story.core.refusals(now=story.now)
    story.finish("runs")
    assert story.settle() == []
    story.change("w", conditions={"QuotaReserved": (False, refused.refusal.reason)})
    assert story.settle() == ["w"]


def test_a_refusal_that_was_not_taken_frees_the_workload() -> None:
    story = a_story()
    story.submit("runs", "cq", "8", age=9)
    story.submit("w", "cq", "8", age=8)
    story.settle()
    story.now += timedelta(seconds=1)
    (refused,) = story.core.refusals(now=story.now)
    story.finish("runs")
    story.core.forget("ns", "w", refused.revision)
    assert story.settle() == ["w"]


def test_refusals_come_a_portion_at_a_time() -> None:
    story = Story(Config(refusals_per_call=2))
    story.queue("cq", resourceGroups=groups(default="1"))
    for n in range(5):
        story.submit(f"w{n}", "cq", "2", age=n)
    story.settle()
    story.now += timedelta(seconds=1)
    counts = [len(story.core.refusals(now=story.now)) for _ in range(4)]
    assert counts == [2, 2, 1, 0]


def test_refusals_in_flight_are_bounded() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="1"))
    for n in range(IN_FLIGHT_MAX + 2):
        story.submit(f"w{n}", "cq", "2", age=n)
    story.settle()
    story.now += timedelta(seconds=1)
    first = story.core.refusals(now=story.now)
    assert (len(first), story.core.refusals(now=story.now)) == (IN_FLIGHT_MAX, [])
    assert story.core.next_wake() is None
    story.finish(first[0].name)
    assert story.core.next_wake() == story.now
    assert len(story.core.refusals(now=story.now)) == 1


# Stopping and inactive queues. --------------------------------------------------------------


def test_a_held_cluster_queue_is_not_popped_and_lends_on() -> None:
    story = Story()
    story.queue("held", "co", resourceGroups=groups(default="10"), stopPolicy="Hold")
    story.queue("b", "co", resourceGroups=groups(default="0"))
    story.submit("waits", "held", "1", age=9)
    story.submit("borrows", "b", "10")
    assert story.settle() == ["borrows"]
    assert story.active() == ["waits"]
    assert story.why("waits").reason == "Stopped"
    story.finish("borrows")
    story.queue("held", "co", resourceGroups=groups(default="10"))
    assert story.settle() == ["waits"]


def test_a_held_local_queue_takes_its_workloads_out() -> None:
    story = a_story()
    story.put("LocalQueue", "cq", {"clusterQueue": "cq", "stopPolicy": "Hold"}, namespace="ns")
    story.submit("w", "cq", "1")
    assert story.settle() == []
    assert story.active() == story.parked() == []
    story.put("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="ns")
    assert story.settle() == ["w"]


def test_workloads_may_come_before_their_queues() -> None:
    story = Story()
    story.submit("w", "cq", "1")
    story.put("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="ns")
    assert story.settle() == []
    story.queue("cq", resourceGroups=groups(default="1"))
    assert story.settle() == ["w"]


def test_a_flavor_that_is_missing_stops_its_queue_until_it_comes() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(rare="10"))
    story.submit("w", "cq", "1")
    assert story.settle() == []
    assert story.why("w").reason == "FlavorNotFound"
    story.flavor("rare")
    assert story.settle() == ["w"]


def test_a_cycle_of_cohorts_admits_no_workload_until_it_is_broken() -> None:
    story = Story()
    story.put("Cohort", "x", {"parentName": "y"})
    story.put("Cohort", "y", {"parentName": "x"})
    story.queue("cq", "x", resourceGroups=groups(default="10"))
    story.submit("w", "cq", "1")
    assert story.settle() == []
    assert story.why("w").reason == "Suspended"
    story.put("Cohort", "y", {})
    assert story.settle() == ["w"]


def test_a_borrower_is_held_to_its_limit() -> None:
    story = Story()
    story.queue("a", "co", resourceGroups=groups(default=quota("2", borrow="3")))
    story.queue("b", "co", resourceGroups=groups(default="10"))
    story.submit("six", "a", "6", age=1)
    story.submit("five", "a", "5")
    assert story.settle() == ["five"]


def test_flavors_whose_checks_share_a_controller_are_not_combined() -> None:
    story = Story()
    for name in ("gpus", "cpus", "spare"):
        story.flavor(name)
    for check in ("first", "second"):
        story.put("AdmissionCheck", check, {"controllerName": "example.com/one"})
    offered: list[dict[str, Any]] = [
        {"coveredResources": ["gpu"], "flavors": [
            {"name": "gpus", "resources": [{"name": "gpu", "nominalQuota": "1"}],
             "admissionChecks": ["first"]}]},
        {"coveredResources": ["memory"], "flavors": [
            {"name": "cpus", "resources": [{"name": "memory", "nominalQuota": "1"}],
             "admissionChecks": ["second"]},
            {"name": "spare", "resources": [{"name": "memory", "nominalQuota": "1"}]}]},
    ]  # fmt: skip
    story.queue("cq", resourceGroups=offered)
    story.submit("w", "cq", pods=[{"requests": {"gpu": "1", "memory": "1"}}])
    assert story.settle() == ["w"]
    assert story.flavors("w") == [{"gpu": "gpus", "memory": "spare"}]
    story.queue(
        "cq", resourceGroups=[offered[0], {**offered[1], "flavors": offered[1]["flavors"][:1]}]
    )
    story.finish("w")
    story.submit("v", "cq", pods=[{"requests": {"gpu": "1", "memory": "1"}}])
    assert story.settle() == []
    assert story.why("v").reason == "ConflictingAdmissionChecks"


def test_explanations_give_position_flavors_and_holders() -> None:
    story = a_story()
    story.submit("runs", "cq", "8", age=9)
    story.settle()
    story.submit("first", "cq", "5", priority=5)
    story.submit("second", "cq", "4", age=3)
    story.settle()
    why = story.why("second")
    assert why.position == 2
    assert why.parked
    assert why.holders == ("ns/runs",)
    (verdict,) = why.flavors
    assert verdict.message == "cpu: 2 short in flavor default (4 asked, 2 free)"
    assert why.unblocked_by == (
        "2 more free cpu in flavor default of ClusterQueue cq (held by ns/runs)",
    )


def test_parked_workloads_compete_again_when_a_borrowing_cohort_leaves() -> None:
    story = Story()
    story.put("Cohort", "below", {"parentName": "co"})
    story.queue("lender", "co", resourceGroups=groups(default="6"))
    story.queue("borrower", "below", resourceGroups=groups(default="0"))
    story.submit("lent", "borrower", "6", age=1)
    assert story.settle() == ["lent"]
    story.submit("waits", "lender", "6")
    assert story.settle() == []
    # Not by the story, which makes the scheduler own all domains anew: that alone wakes them.
    story.core.apply_object("Cohort", "", "below", None, story.revision + 1)
    assert story.settle() == ["waits"]


def test_a_workload_of_a_missing_queue_is_listed_with_the_reason() -> None:
    story = a_story()
    story.submit("early", "nowhere", "1")
    (row,) = story.core.pending(PendingQuery()).rows
    assert (row.name, row.position, row.reason) == ("early", 0, "Misconfigured")
    assert story.core.pending(PendingQuery()).total == 1
    assert story.core.pending(PendingQuery(cluster_queue="cq")).rows == ()
