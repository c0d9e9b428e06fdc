"""A decision is charged at once, and given back if and only if it is not applied."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.workload import ReclaimablePod
from admittance.events.requests.queues import PendingQuery, Queues
from admittance.scheduling.cycle.refusals import IN_FLIGHT_MAX
from admittance.scheduling.state.assumption import domain_of, undo
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.stored_fields import InFlight
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota


def a_scheduler(nominal: str = "10") -> SteppedScheduler:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default=nominal))
    return scheduler


def reserved(scheduler: SteppedScheduler, queue: str = "cq") -> int:
    (status,) = scheduler.core.queues(Queues(cluster_queue=queue)).cluster_queues
    return sum(usage.reserved for usage in status.usage)


def test_a_decision_is_charged_before_it_is_stored() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6", age=1)
    scheduler.submit("two", "cq", "6")
    assert scheduler.cycle(confirm=False) == ["one"]
    assert reserved(scheduler) == 6_000
    assert scheduler.cycle(confirm=False) == []


def test_a_decision_records_its_inputs() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    of_workload = scheduler.revision
    scheduler.put("WorkloadPriorityClass", "p", value=1)
    scheduler.core.seen(scheduler.revision + 5)
    scheduler.cycle(confirm=False)
    (decision,) = scheduler.decided
    assert decision.domain == "queue-cq"
    assert (decision.revision, decision.seen) == (of_workload, scheduler.revision + 5)
    assert decision.admission.pod_set_assignments[0].resource_usage == {"cpu": "6"}


def test_a_written_decision_stays_charged_once() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    scheduler.cycle()
    assert reserved(scheduler) == 6_000
    scheduler.finish("one")
    assert reserved(scheduler) == 0


def test_a_newer_revision_without_quota_undoes_the_assumption() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6", age=1)
    scheduler.submit("two", "cq", "6")
    scheduler.cycle(confirm=False)
    scheduler.settle()
    assert scheduler.parked() == ["two"]
    scheduler.respec("one", active=False)
    assert reserved(scheduler) == 0
    assert scheduler.settle() == ["two"]


def test_a_change_of_the_tree_drops_what_was_decided_before_it() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("a", "co", resourceGroups=groups(default="10"))
    scheduler.queue("b", "co", resourceGroups=groups(default="10"))
    scheduler.queue("c", resourceGroups=groups(default="10"))
    for name in ("a", "c"):
        scheduler.submit(f"in-{name}", name, "6")
    scheduler.cycle(confirm=False)
    scheduler.queue("b", "co", resourceGroups=groups(default="5"))
    assert reserved(scheduler, "a") == 0
    assert reserved(scheduler, "c") == 6_000
    assert scheduler.active() == ["in-a"]
    assert scheduler.cycle() == ["in-a"]


def test_a_decision_made_after_the_change_is_kept() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    scheduler.core.seen(scheduler.revision + 10)
    scheduler.cycle(confirm=False)
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    assert reserved(scheduler) == 6_000


def test_an_object_that_is_read_twice_undoes_no_decision() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    scheduler.queue("cq", resourceGroups=groups(default="8"))
    scheduler.cycle(confirm=False)
    known = scheduler.core.catalog.cluster_queues["cq"]
    scheduler.core.apply_object("ClusterQueue", "", "cq", known, scheduler.revision)
    assert reserved(scheduler) == 6_000


def test_forgetting_a_decision_of_another_revision_changes_nothing() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    scheduler.cycle()
    scheduler.core.forget("ns", "one", scheduler.decided[0].revision)
    assert reserved(scheduler) == 6_000


def test_a_decision_in_flight_moves_with_its_queue_to_another_domain() -> None:
    """The queue's change is read late: the decision was made from a newer revision."""
    scheduler = SteppedScheduler()
    for name in ("other", "cq"):
        scheduler.queue(name, "co", resourceGroups=groups(default="6"))
        scheduler.submit(f"in-{name}", name, "6")
    scheduler.core.seen(10_000)
    assert sorted(scheduler.cycle(confirm=False)) == ["in-cq", "in-other"]
    scheduler.queue("cq", resourceGroups=groups(default="6"))
    scheduler.core.disown("cohort-co")
    assert (reserved(scheduler), reserved(scheduler, "other")) == (6_000, 0)
    scheduler.core.disown("queue-cq")
    assert reserved(scheduler) == 0


def test_disowning_drops_assumptions_and_decides_nothing_more() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    scheduler.cycle(confirm=False)
    scheduler.core.disown("queue-cq")
    assert reserved(scheduler) == 0
    assert not scheduler.core.has_work()
    assert scheduler.core.cycle(now=scheduler.now) == []
    scheduler.core.own("queue-cq")
    assert scheduler.cycle() == ["one"]


def test_evicted_quota_counts_until_the_job_has_stopped() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6", age=1)
    scheduler.cycle()
    scheduler.change("one", conditions={"Evicted": (True, "Preempted")})
    scheduler.submit("two", "cq", "6")
    assert scheduler.settle() == []
    assert reserved(scheduler) == 6_000
    scheduler.evict("one", "Preempted")
    assert scheduler.settle() == ["one"]


def test_pods_that_are_not_needed_any_more_give_their_quota_back() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", pods=[{"requests": {"cpu": "2"}, "count": 4}], age=1)
    scheduler.cycle()
    scheduler.submit("two", "cq", "6")
    assert scheduler.settle() == []
    scheduler.change("one", reclaimable_pods=(ReclaimablePod(name="main", count=2),))
    assert reserved(scheduler) == 4_000
    assert scheduler.settle() == ["two"]


def test_quota_moves_with_a_queue_to_another_cohort_and_back() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("a", "left", resourceGroups=groups(default="4"))
    scheduler.queue("b", "left", resourceGroups=groups(default="4"))
    scheduler.submit("one", "a", "6")
    assert scheduler.settle() == ["one"]
    scheduler.queue("a", "right", resourceGroups=groups(default="4"))
    scheduler.submit("two", "b", "4")
    assert scheduler.settle() == ["two"]
    scheduler.queue("a", "left", resourceGroups=groups(default="4"))
    scheduler.submit("three", "b", "1")
    assert scheduler.settle() == []


def test_a_queue_that_comes_back_still_counts_what_holds_its_quota() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6", age=1)
    scheduler.settle()
    scheduler.delete("ClusterQueue", "cq")
    scheduler.submit("two", "cq", "6")
    assert scheduler.settle() == []
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    assert reserved(scheduler) == 6_000
    assert scheduler.settle() == []
    scheduler.finish("one")
    assert scheduler.settle() == ["two"]


def test_a_queue_that_is_deleted_takes_its_decisions_along() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    scheduler.cycle(confirm=False)
    scheduler.delete("ClusterQueue", "cq")
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    assert reserved(scheduler) == 0
    assert scheduler.cycle() == ["one"]


def test_an_old_revision_changes_nothing() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    old = scheduler.stored["one"]
    scheduler.cycle()
    scheduler.core.apply_workload("ns", "one", old, 1, now=scheduler.now)
    assert reserved(scheduler) == 6_000


def test_a_namesake_does_not_inherit_quota() -> None:
    scheduler = a_scheduler()
    scheduler.submit("one", "cq", "6")
    scheduler.cycle(confirm=False)
    meta = msgspec.structs.replace(scheduler.stored["one"].metadata, uid="another")
    scheduler.write("ns", "one", msgspec.structs.replace(scheduler.stored["one"], metadata=meta))
    assert reserved(scheduler) == 0
    assert scheduler.cycle() == ["one"]


def test_an_invalid_stored_spec_affects_no_other_workload() -> None:
    scheduler = a_scheduler()
    scheduler.submit("broken", "cq", "6", age=9)
    bad = msgspec.structs.replace(scheduler.stored["broken"], spec=msgspec.Raw(b'{"podSets": 7}'))
    scheduler.write("ns", "broken", bad)
    scheduler.submit("good", "cq", "6")
    assert scheduler.settle() == ["good"]


# Refusals. ----------------------------------------------------------------------------------


def test_a_parked_workload_is_refused_once_after_a_delay() -> None:
    scheduler = a_scheduler()
    scheduler.submit("w", "cq", "10500m")
    scheduler.settle()
    assert scheduler.core.refusals(now=scheduler.now) == []
    assert scheduler.core.next_wake() == scheduler.now + timedelta(seconds=1)
    scheduler.now += timedelta(seconds=1)
    (refused,) = scheduler.core.refusals(now=scheduler.now)
    assert refused.refusal.reason == "ExceedsMaxQuota"
    assert scheduler.core.refusals(now=scheduler.now) == []
    scheduler.change("w", conditions={"QuotaReserved": (False, "ExceedsMaxQuota")})
    scheduler.now += timedelta(seconds=9)
    assert scheduler.core.refusals(now=scheduler.now) == []


def test_a_refusal_names_flavor_and_numbers() -> None:
    scheduler = SteppedScheduler()
    scheduler.flavor("spot")
    scheduler.queue("cq", resourceGroups=groups(spot="10"))
    scheduler.submit("runs", "cq", "8", age=1)
    scheduler.submit("w", "cq", "2500m")
    scheduler.settle()
    scheduler.now += timedelta(seconds=1)
    (refused,) = scheduler.core.refusals(now=scheduler.now)
    assert "cpu: 500m short in flavor spot" in refused.refusal.message
    (short,) = refused.refusal.shortfalls
    assert (short.requested, short.available) == (2_500, 2_000)


def test_a_head_is_not_decided_while_its_refusal_is_in_flight() -> None:
    scheduler = a_scheduler()
    scheduler.submit("runs", "cq", "8", age=9)
    scheduler.submit("w", "cq", "8", age=8)
    scheduler.settle()
    scheduler.now += timedelta(seconds=1)
    (refused,) = scheduler.core.refusals(now=scheduler.now)
    scheduler.finish("runs")
    assert scheduler.settle() == []
    scheduler.change("w", conditions={"QuotaReserved": (False, refused.refusal.reason)})
    assert scheduler.settle() == ["w"]


def test_a_refusal_that_was_not_taken_frees_the_workload() -> None:
    scheduler = a_scheduler()
    scheduler.submit("runs", "cq", "8", age=9)
    scheduler.submit("w", "cq", "8", age=8)
    scheduler.settle()
    scheduler.now += timedelta(seconds=1)
    (refused,) = scheduler.core.refusals(now=scheduler.now)
    scheduler.finish("runs")
    scheduler.core.forget("ns", "w", refused.revision)
    assert scheduler.settle() == ["w"]


def test_refusals_come_a_portion_at_a_time() -> None:
    scheduler = SteppedScheduler(Config(refusals_per_call=2))
    scheduler.queue("cq", resourceGroups=groups(default="1"))
    for n in range(5):
        scheduler.submit(f"w{n}", "cq", "2", age=n)
    scheduler.settle()
    scheduler.now += timedelta(seconds=1)
    counts = [len(scheduler.core.refusals(now=scheduler.now)) for _ in range(4)]
    assert counts == [2, 2, 1, 0]


def test_refusals_in_flight_are_bounded() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="1"))
    for n in range(IN_FLIGHT_MAX + 2):
        scheduler.submit(f"w{n}", "cq", "2", age=n)
    scheduler.settle()
    scheduler.now += timedelta(seconds=1)
    first = scheduler.core.refusals(now=scheduler.now)
    assert (len(first), scheduler.core.refusals(now=scheduler.now)) == (IN_FLIGHT_MAX, [])
    assert scheduler.core.next_wake() is None
    scheduler.finish(first[0].name)
    assert scheduler.core.next_wake() == scheduler.now
    assert len(scheduler.core.refusals(now=scheduler.now)) == 1


# Stopping and inactive queues. --------------------------------------------------------------


def test_a_held_cluster_queue_is_not_popped_and_lends_on() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("held", "co", resourceGroups=groups(default="10"), stopPolicy="Hold")
    scheduler.queue("b", "co", resourceGroups=groups(default="0"))
    scheduler.submit("waits", "held", "1", age=9)
    scheduler.submit("borrows", "b", "10")
    assert scheduler.settle() == ["borrows"]
    assert scheduler.active() == ["waits"]
    assert scheduler.why("waits").reason == "Stopped"
    scheduler.finish("borrows")
    scheduler.queue("held", "co", resourceGroups=groups(default="10"))
    assert scheduler.settle() == ["waits"]


def test_a_held_local_queue_takes_its_workloads_out() -> None:
    scheduler = a_scheduler()
    scheduler.put("LocalQueue", "cq", {"clusterQueue": "cq", "stopPolicy": "Hold"}, namespace="ns")
    scheduler.submit("w", "cq", "1")
    assert scheduler.settle() == []
    assert scheduler.active() == scheduler.parked() == []
    scheduler.put("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="ns")
    assert scheduler.settle() == ["w"]


def test_workloads_may_come_before_their_queues() -> None:
    scheduler = SteppedScheduler()
    scheduler.submit("w", "cq", "1")
    scheduler.put("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="ns")
    assert scheduler.settle() == []
    scheduler.queue("cq", resourceGroups=groups(default="1"))
    assert scheduler.settle() == ["w"]


def test_a_flavor_that_is_missing_stops_its_queue_until_it_comes() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(rare="10"))
    scheduler.submit("w", "cq", "1")
    assert scheduler.settle() == []
    assert scheduler.why("w").reason == "FlavorNotFound"
    scheduler.flavor("rare")
    assert scheduler.settle() == ["w"]


def test_a_cycle_of_cohorts_admits_no_workload_until_it_is_broken() -> None:
    scheduler = SteppedScheduler()
    scheduler.put("Cohort", "x", {"parentName": "y"})
    scheduler.put("Cohort", "y", {"parentName": "x"})
    scheduler.queue("cq", "x", resourceGroups=groups(default="10"))
    scheduler.submit("w", "cq", "1")
    assert scheduler.settle() == []
    assert scheduler.why("w").reason == "Suspended"
    scheduler.put("Cohort", "y", {})
    assert scheduler.settle() == ["w"]


def test_a_borrower_is_held_to_its_limit() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("a", "co", resourceGroups=groups(default=quota("2", borrow="3")))
    scheduler.queue("b", "co", resourceGroups=groups(default="10"))
    scheduler.submit("six", "a", "6", age=1)
    scheduler.submit("five", "a", "5")
    assert scheduler.settle() == ["five"]


def test_flavors_with_checks_of_one_controller_are_not_combined() -> None:
    scheduler = SteppedScheduler()
    for name in ("gpus", "cpus", "spare"):
        scheduler.flavor(name)
    for check in ("first", "second"):
        scheduler.put("AdmissionCheck", check, {"controllerName": "example.com/one"})
    offered: list[dict[str, Any]] = [
        {"coveredResources": ["gpu"], "flavors": [
            {"name": "gpus", "resources": [{"name": "gpu", "nominalQuota": "1"}],
             "admissionChecks": ["first"]}]},
        {"coveredResources": ["memory"], "flavors": [
            {"name": "cpus", "resources": [{"name": "memory", "nominalQuota": "1"}],
             "admissionChecks": ["second"]},
            {"name": "spare", "resources": [{"name": "memory", "nominalQuota": "1"}]}]},
    ]  # fmt: skip
    scheduler.queue("cq", resourceGroups=offered)
    scheduler.submit("w", "cq", pods=[{"requests": {"gpu": "1", "memory": "1"}}])
    assert scheduler.settle() == ["w"]
    assert scheduler.flavors("w") == [{"gpu": "gpus", "memory": "spare"}]
    scheduler.queue(
        "cq", resourceGroups=[offered[0], {**offered[1], "flavors": offered[1]["flavors"][:1]}]
    )
    scheduler.finish("w")
    scheduler.submit("v", "cq", pods=[{"requests": {"gpu": "1", "memory": "1"}}])
    assert scheduler.settle() == []
    assert scheduler.why("v").reason == "ConflictingAdmissionChecks"


def test_explanations_give_position_flavors_and_holders() -> None:
    scheduler = a_scheduler()
    scheduler.submit("runs", "cq", "8", age=9)
    scheduler.settle()
    scheduler.submit("first", "cq", "5", priority=5)
    scheduler.submit("second", "cq", "4", age=3)
    scheduler.settle()
    why = scheduler.why("second")
    assert why.position == 2
    assert why.parked
    assert why.holders == ("ns/runs",)
    (verdict,) = why.flavors
    assert verdict.message == "cpu: 2 short in flavor default (4 asked, 2 free)"
    assert why.unblocked_by == (
        "2 more free cpu in flavor default of ClusterQueue cq (held by ns/runs)",
    )


def test_parked_workloads_compete_again_when_a_borrowing_cohort_leaves() -> None:
    scheduler = SteppedScheduler()
    scheduler.put("Cohort", "below", {"parentName": "co"})
    scheduler.queue("lender", "co", resourceGroups=groups(default="6"))
    scheduler.queue("borrower", "below", resourceGroups=groups(default="0"))
    scheduler.submit("lent", "borrower", "6", age=1)
    assert scheduler.settle() == ["lent"]
    scheduler.submit("waits", "lender", "6")
    assert scheduler.settle() == []
    # Not by the story, which makes the scheduler own all domains anew: that alone wakes them.
    scheduler.core.apply_object("Cohort", "", "below", None, scheduler.revision + 1)
    assert scheduler.settle() == ["waits"]


def test_a_workload_of_a_missing_queue_is_listed_with_the_reason() -> None:
    scheduler = a_scheduler()
    scheduler.submit("early", "nowhere", "1")
    (row,) = scheduler.core.pending(PendingQuery()).rows
    assert (row.name, row.position, row.reason) == ("early", 0, "Misconfigured")
    assert scheduler.core.pending(PendingQuery()).total == 1
    assert scheduler.core.pending(PendingQuery(cluster_queue="cq")).rows == ()


@pytest.mark.parametrize("decided", [InFlight.PREEMPTED, InFlight.REVOKED])
@pytest.mark.parametrize("admits", [True, False], ids=["admitted", "reserved"])
def test_a_reservation_that_keeps_its_quota_is_rechecked(admits: bool, decided: InFlight) -> None:
    scheduler = a_scheduler()
    scheduler.admits = admits
    scheduler.submit("one", "cq", "6")
    scheduler.settle()
    state = scheduler.core._state
    workload = state.workloads["ns", "one"]
    domain = domain_of(workload)
    assert domain is not None
    domain.rechecks.clear()
    state.set_in_flight(workload, domain, decided)
    assert workload.assumption is not None
    assert not scheduler.core.has_work()
    undo(state, workload.assumption, workload, domain, scheduler.now)
    assert workload.in_flight is InFlight.NOTHING
    assert (workload in domain.rechecks) is not admits
