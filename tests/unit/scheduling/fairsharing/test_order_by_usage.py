"""Usage-based admission fair sharing: consumption and the order of heads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.reading.configuration_file import read_configuration
from admittance.api.workload import ReclaimablePod
from admittance.events.facts import Preempted
from admittance.events.reader import BucketEntry
from admittance.events.requests.queues import PendingQuery, Queues, QueueStatus
from admittance.events.shapes import ConsumedUsage
from admittance.replay.decision import DecisionReplay
from admittance.replay.logged_decisions import turns_of, usages_of
from admittance.scheduling.fairsharing.usage import (
    NANO,
    Account,
    penalty_of,
    reached_fraction,
    remaining_fraction,
    weighted_sum,
)
from admittance.scheduling.state.config import (
    CohortFairSharing,
    Config,
    UsageFairSharing,
    config_of,
)
from support.cores.stepped_scheduler import NOON, SteppedScheduler, groups

HOUR = timedelta(hours=1)
HALF_AN_HOUR = UsageFairSharing(usage_half_life_time=timedelta(minutes=30))
FORGETFUL = UsageFairSharing()


def cpus(number: float) -> dict[str, int]:
    """An amount of cpus in nano-cpus."""
    return {"cpu": int(number * NANO)}


def a_scheduler(
    *,
    quota: str = "4",
    as_kueue: bool = False,
    settings: UsageFairSharing = HALF_AN_HOUR,
    **spec: Any,
) -> SteppedScheduler:
    """A ClusterQueue by usage, with LocalQueues a, b and zero, which has no weight."""
    scheduler = SteppedScheduler(Config(admission_fair_sharing=settings, as_kueue=as_kueue))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    scheduler.cluster_queue(
        "cq", admissionScope=scope, resourceGroups=groups(default=quota), **spec
    )
    for name, weight in (("a", "1"), ("b", "1"), ("zero", "0")):
        local = {"clusterQueue": "cq", "fairSharing": {"weight": weight}}
        scheduler.put("LocalQueue", name, local, namespace="ns")
    return scheduler


def had_used(
    scheduler: SteppedScheduler, name: str, cpu: str, *, ago: timedelta = timedelta(0)
) -> None:
    """Stores usage of the LocalQueue in the bucket."""
    record = ConsumedUsage(consumed_resources={"cpu": cpu}, last_update=scheduler.now - ago)
    scheduler.core.apply_usage("ns", name, record)


def status(scheduler: SteppedScheduler, name: str) -> QueueStatus:
    """The answer about a LocalQueue."""
    (row,) = (
        local_queue
        for local_queue in scheduler.core.queues(Queues()).local_queues
        if local_queue.name == name
    )
    return row


def value(scheduler: SteppedScheduler, name: str) -> float | None:
    """The value by which it is compared."""
    used = status(scheduler, name).used
    assert used is not None
    return used.value


def consumed(scheduler: SteppedScheduler, name: str) -> dict[str, str]:
    """The stored usage of the LocalQueue."""
    used = status(scheduler, name).used
    assert used is not None
    return used.consumed.consumed_resources


def waiting(scheduler: SteppedScheduler) -> list[str]:
    """The waiting workloads, in order."""
    return [row.name for row in scheduler.core.pending(PendingQuery()).rows]


# Sums. -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(0, 1.0, id="nothing fades at once"),
        pytest.param(-5, 1.0, id="nor before it was there"),
        pytest.param(1800, 0.5, id="half of it counts no more after the half-life"),
        pytest.param(3600, 0.25, id="and a half of that after another"),
    ],
)
def test_consumption_decays(seconds: float, want: float) -> None:
    assert remaining_fraction(HALF_AN_HOUR, seconds) == want
    assert reached_fraction(HALF_AN_HOUR, seconds) == 1 - want


def test_without_a_half_life_usage_is_not_kept() -> None:
    account = Account(FORGETFUL, 1.0, NOON)
    account.restore(cpus(8), NOON)
    account.start(cpus(4), penalty_of(FORGETFUL, cpus(4)), NOON)
    assert account.at(NOON + timedelta(seconds=1)) == {}
    assert penalty_of(FORGETFUL, cpus(4)) == {}


def test_an_admission_costs_one_sampling_interval_of_its_use() -> None:
    config = UsageFairSharing(
        usage_half_life_time=timedelta(minutes=5), usage_sampling_interval=timedelta(minutes=5)
    )
    assert penalty_of(config, cpus(4)) == cpus(2)


def test_a_steady_use_is_approached() -> None:
    account = Account(HALF_AN_HOUR, 1.0, NOON)
    account.start(cpus(4), {}, NOON)
    assert account.at(NOON + HOUR) == cpus(3)
    assert account.at(NOON + 100 * HOUR) == {"cpu": 4 * NANO}


def test_a_late_start_event_counts_from_the_time_of_the_start() -> None:
    late, known = (Account(HALF_AN_HOUR, 1.0, NOON) for _ in range(2))
    known.start(cpus(4), cpus(1), NOON)
    late.start(cpus(2), {}, NOON + HOUR)
    known.start(cpus(2), {}, NOON + HOUR)
    late.start(cpus(4), cpus(1), NOON)
    assert late.at(NOON + 2 * HOUR) == known.at(NOON + 2 * HOUR)


def test_resources_count_with_their_configured_weights() -> None:
    config = UsageFairSharing(resource_weights={"cpu": 0.5, "gpu": 10})
    amounts = {"cpu": 2 * NANO, "gpu": NANO, "memory": 3 * NANO}
    assert weighted_sum(config, amounts, 1.0) == 14.0
    assert weighted_sum(config, amounts, 2.0) == 7.0
    assert weighted_sum(config, {}, 0.0) == float("inf")


# Order. ------------------------------------------------------------------------------------


def test_the_local_queue_that_used_less_goes_first_whatever_the_priority() -> None:
    scheduler = a_scheduler()
    had_used(scheduler, "a", "2")
    had_used(scheduler, "b", "1")
    scheduler.submit("high", "a", "4", priority=9, age=9)
    scheduler.submit("low", "b", "4")
    assert waiting(scheduler) == ["low", "high"]
    assert scheduler.cycle() == ["low"]


def test_a_local_queue_with_weight_zero_goes_last() -> None:
    scheduler = a_scheduler()
    had_used(scheduler, "a", "100")
    scheduler.submit("free", "zero", "4", priority=9)
    scheduler.submit("loaded", "a", "4")
    assert waiting(scheduler) == ["loaded", "free"]
    assert scheduler.why("free").position == 2


def test_with_equal_usage_priority_and_age_decide() -> None:
    scheduler = a_scheduler()
    scheduler.submit("old", "a", "1", age=9)
    scheduler.submit("young", "b", "1", age=1)
    scheduler.submit("high", "b", "1", priority=1)
    assert waiting(scheduler) == ["high", "old", "young"]


def test_an_admission_lets_others_go_first() -> None:
    scheduler = a_scheduler(quota="9")
    for name in ("a1", "a2", "a3"):
        scheduler.submit(name, "a", "1", age=9)
    for name in ("b1", "b2"):
        scheduler.submit(name, "b", "1")
    assert [scheduler.cycle(confirm=False) for _ in range(5)] == [
        ["a1"],
        ["b1"],
        ["a2"],
        ["b2"],
        ["a3"],
    ]


def test_a_decision_that_was_not_taken_costs_nothing() -> None:
    scheduler = a_scheduler()
    before = value(scheduler, "a")
    scheduler.submit("a1", "a", "1")
    scheduler.cycle(confirm=False)
    assert value(scheduler, "a") != before
    (decision,) = scheduler.decided
    scheduler.core.forget(decision.namespace, decision.name, decision.revision)
    assert value(scheduler, "a") == before


def test_a_workload_deleted_before_admission_costs_nothing() -> None:
    scheduler = a_scheduler()
    scheduler.admits = False
    scheduler.submit("a1", "a", "1")
    scheduler.cycle()
    assert value(scheduler, "a") != 0
    scheduler.gone("a1")
    assert value(scheduler, "a") == 0


def test_an_admission_is_charged_to_its_local_queue_once() -> None:
    scheduler = a_scheduler()
    scheduler.admits = False
    scheduler.submit("a1", "a", "1")
    scheduler.cycle()
    assert consumed(scheduler, "a") == {}
    asked = value(scheduler, "a")
    scheduler.change("a1", conditions={"Admitted": (True, "Admitted")})
    assert value(scheduler, "a") == asked
    paid = consumed(scheduler, "a")
    assert paid != {}
    scheduler.change("a1", conditions={"PodsReady": (True, "Started")})
    assert consumed(scheduler, "a") == paid


FROM_RESERVATION = msgspec.structs.replace(HALF_AN_HOUR, from_reservation=True)


def test_a_reservation_consumes_before_its_admission() -> None:
    scheduler = a_scheduler(settings=FROM_RESERVATION)
    scheduler.admits = False
    scheduler.submit("a1", "a", "4")
    scheduler.cycle()
    paid = consumed(scheduler, "a")
    assert paid != {}
    scheduler.change("a1", conditions={"Admitted": (True, "Admitted")})
    assert consumed(scheduler, "a") == paid
    scheduler.now += HOUR
    scheduler.core.wake(now=scheduler.now)
    # Half of the load is reached in each half-life, and the penalty has faded to a quarter.
    assert value(scheduler, "a") == pytest.approx(3.0, abs=0.3)


def test_a_reservation_that_ends_without_an_admission_was_consumed() -> None:
    scheduler = a_scheduler(settings=FROM_RESERVATION)
    scheduler.admits = False
    scheduler.submit("a1", "a", "4")
    scheduler.cycle()
    scheduler.now += HOUR
    scheduler.gone("a1")
    scheduler.core.wake(now=scheduler.now)
    assert value(scheduler, "a") == pytest.approx(3.0, abs=0.3)
    scheduler.now += 100 * HOUR
    scheduler.core.wake(now=scheduler.now)
    assert value(scheduler, "a") == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("gate", [None, True, False])
def test_the_gate_says_whether_usage_counts_from_the_reservation(gate: bool | None) -> None:
    name = "AdmissionFairSharingAnchorAtQuotaReservation"
    text = (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "admissionFairSharing: {usageHalfLifeTime: 30m}\n"
    ) + (f"featureGates: {{{name}: {str(gate).lower()}}}\n" if gate is not None else "")
    settings = config_of(read_configuration(text, "file").configuration).admission_fair_sharing
    assert settings is not None
    assert settings.from_reservation is (gate is not False)


def test_reclaimed_pods_end_their_usage_without_a_penalty() -> None:
    scheduler = a_scheduler()
    scheduler.submit("a1", "a", pods=[{"count": 4, "requests": {"cpu": "1"}}])
    scheduler.settle()
    before = value(scheduler, "a")
    scheduler.change("a1", reclaimable_pods=(ReclaimablePod(name="main", count=3),))
    assert value(scheduler, "a") == before
    scheduler.now += 100 * HOUR
    scheduler.core.wake(now=scheduler.now)
    assert value(scheduler, "a") == pytest.approx(1.0)


def test_usage_is_compared_again_once_in_every_interval() -> None:
    scheduler = a_scheduler()
    had_used(scheduler, "a", "4")
    scheduler.submit("b1", "b", "4")
    scheduler.settle()
    scheduler.submit("a2", "a", "4")
    scheduler.submit("b2", "b", "4")
    assert waiting(scheduler)[0] == "b2"
    scheduler.now += HOUR
    wake = scheduler.core.next_wake()
    assert wake is not None and wake <= scheduler.now
    scheduler.core.wake(now=scheduler.now)
    # b has used 4 cpus for an hour, and what a consumed has faded to a quarter.
    assert value(scheduler, "a") == 1.0
    assert value(scheduler, "b") == pytest.approx(3.0, abs=0.2)
    assert waiting(scheduler)[0] == "a2"


def test_a_saved_search_ends_when_usages_are_compared_again() -> None:
    scheduler = a_scheduler()
    had_used(scheduler, "a", "4")
    domain = scheduler.core._state.domains["queue-cq"]
    before = domain.version
    scheduler.now += HOUR
    scheduler.core.wake(now=scheduler.now)
    assert domain.version > before
    before = domain.version
    had_used(scheduler, "b", "4")
    assert domain.version > before


def test_queues_without_consumed_resources_are_not_compared() -> None:
    scheduler = a_scheduler()
    scheduler.core.wake(now=scheduler.now)
    list(scheduler.core.usages_to_write(now=scheduler.now, at_once=True))
    assert scheduler.core.next_wake() is None


def test_a_strict_head_yields_once_its_local_queue_used_more() -> None:
    scheduler = a_scheduler(queueingStrategy="StrictFIFO")
    had_used(scheduler, "b", "1")
    scheduler.submit("huge", "a", "9")
    scheduler.submit("small", "b", "1")
    assert scheduler.settle() == []
    had_used(scheduler, "a", "8", ago=timedelta(seconds=-1))
    assert scheduler.settle() == ["small"]


def test_equal_workloads_of_all_local_queues_are_parked_at_once() -> None:
    scheduler = a_scheduler()
    for name in ("a", "b", "zero"):
        scheduler.submit(f"in-{name}", name, "9")
    scheduler.cycle()
    assert scheduler.parked() == ["in-a", "in-b", "in-zero"]
    scheduler.submit("late", "b", "9")
    assert "late" in scheduler.parked()


@pytest.mark.parametrize(
    ("as_kueue", "first"),
    [
        pytest.param(False, "preemptor", id="ours gets the room that was made for it"),
        pytest.param(True, "less", id="kueue's preemptor is overtaken by a queue that used less"),
    ],
)
def test_a_preemptor_keeps_its_place(as_kueue: bool, first: str) -> None:
    scheduler = a_scheduler(preemption={"withinClusterQueue": "LowerPriority"}, as_kueue=as_kueue)
    scheduler.submit("victim", "b", "4", priority=-1)
    scheduler.settle()
    scheduler.submit("preemptor", "a", "4")
    scheduler.cycle(confirm=False)
    assert [preemption.name for preemption in scheduler.preempted] == ["victim"]
    scheduler.submit("high", "a", "4", priority=9)
    assert waiting(scheduler)[0] == "preemptor"
    had_used(scheduler, "a", "100")
    scheduler.submit("less", "b", "1")
    assert waiting(scheduler)[0] == first
    assert scheduler.why(first).position == 1
    assert scheduler.why("high").position == 3


def test_a_victim_does_not_take_back_the_quota_it_freed() -> None:
    scheduler = a_scheduler(preemption={"withinClusterQueue": "LowerPriority"})
    had_used(scheduler, "a", "100")
    scheduler.submit("low", "b", "4", priority=1)
    scheduler.settle()
    scheduler.submit("high", "a", "4", priority=5)
    scheduler.settle()
    assert scheduler.admission("high") is not None
    assert len(scheduler.all_preempted) == 1


def test_victims_are_taken_from_the_local_queue_that_used_more() -> None:
    scheduler = a_scheduler(preemption={"withinClusterQueue": "LowerPriority"})
    scheduler.submit("low", "a", "2", priority=1)
    scheduler.submit("middle", "b", "2", priority=5)
    scheduler.settle()
    had_used(scheduler, "b", "100")
    scheduler.submit("high", "zero", "2", priority=9)
    scheduler.cycle(confirm=False)
    assert [preemption.name for preemption in scheduler.preempted] == ["middle"]


# Configuration. ----------------------------------------------------------------------------


def test_a_queue_without_the_setting_orders_by_priority() -> None:
    scheduler = a_scheduler()
    had_used(scheduler, "a", "2")
    scheduler.submit("high", "a", "4", priority=9)
    scheduler.submit("low", "b", "4")
    scheduler.cluster_queue("cq", resourceGroups=groups(default="4"))
    assert waiting(scheduler) == ["high", "low"]
    assert status(scheduler, "a").used is None
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    scheduler.cluster_queue("cq", admissionScope=scope, resourceGroups=groups(default="4"))
    assert waiting(scheduler) == ["low", "high"]


def test_workloads_that_no_namespace_allows_have_a_place_by_usage() -> None:
    scheduler = a_scheduler(namespaceSelector={"matchLabels": {"team": "other"}})
    had_used(scheduler, "a", "2")
    scheduler.submit("much", "a", "4", age=9)
    scheduler.submit("young", "b", "4", age=7)
    scheduler.submit("old", "b", "4", age=8)
    scheduler.settle()
    places = {name: scheduler.why(name).position for name in ("old", "young", "much")}
    assert places == {"old": 1, "young": 2, "much": 3}


def test_without_the_configuration_usage_counts_nowhere() -> None:
    scheduler = SteppedScheduler()
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    scheduler.queue("cq", admissionScope=scope, resourceGroups=groups(default="4"))
    assert not scheduler.core.queues(Queues()).cluster_queues[0].by_usage
    assert list(scheduler.core.usages_to_write(now=scheduler.now, at_once=True)) == []


def test_a_weight_that_changes_moves_the_local_queue() -> None:
    scheduler = a_scheduler()
    had_used(scheduler, "a", "3")
    had_used(scheduler, "b", "2")
    scheduler.submit("a1", "a", "4")
    scheduler.submit("b1", "b", "4")
    assert waiting(scheduler) == ["b1", "a1"]
    local = {"clusterQueue": "cq", "fairSharing": {"weight": "2"}}
    scheduler.put("LocalQueue", "a", local, namespace="ns")
    assert waiting(scheduler) == ["a1", "b1"]


def test_the_explanation_names_the_local_queue_that_used_less() -> None:
    scheduler = a_scheduler(quota="9")
    had_used(scheduler, "a", "2")
    scheduler.submit("a1", "a", "4", priority=9)
    scheduler.submit("b1", "b", "4")
    why = scheduler.why("a1")
    assert why.position == 2
    assert "LocalQueue ns/a used more (2), and ns/b (0) goes first" in why.message


def test_the_share_of_a_queue_is_shown_with_fair_sharing() -> None:
    for config, want in ((Config(fair_sharing=CohortFairSharing()), 250), (Config(), None)):
        scheduler = SteppedScheduler(config)
        scheduler.queue("lender", "all", resourceGroups=groups(default="6"))
        scheduler.queue("borrower", "all", resourceGroups=groups(default="2"))
        scheduler.submit("w", "borrower", "4")
        scheduler.settle()
        (row,) = (
            cluster_queue
            for cluster_queue in scheduler.core.queues(Queues()).cluster_queues
            if cluster_queue.name == "borrower"
        )
        assert row.weighted_share == want


def test_a_decision_records_the_usage_of_its_local_queue() -> None:
    scheduler = a_scheduler(quota="9")
    had_used(scheduler, "a", "2")
    scheduler.submit("a1", "a", "1")
    scheduler.submit("z1", "zero", "1")
    usages = []
    for _ in range(2):
        scheduler.cycle()
        usages += [decision.local_usage for decision in scheduler.decided]
    assert usages == [2.0, None]


def test_a_preemption_is_reproduced_from_its_recorded_usages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = a_scheduler(preemption={"withinClusterQueue": "LowerPriority"})
    scheduler.submit("low", "a", "2", priority=1)
    scheduler.submit("middle", "b", "2", priority=5)
    scheduler.settle()
    had_used(scheduler, "b", "100")
    scheduler.submit("high", "zero", "2", priority=9)
    scheduler.cycle(confirm=False)
    (decision,) = scheduler.preempted
    assert decision.name == "middle"
    monkeypatch.setattr("admittance.system.local_system.Scheduler", DecisionReplay)
    for usages, victim in ((usages_of([decision]), "middle"), ({}, "low")):
        other = a_scheduler(preemption={"withinClusterQueue": "LowerPriority"})
        for name, stored in scheduler.stored.items():
            other.write("ns", name, stored)
        assert isinstance(other.core, DecisionReplay)
        turns = turns_of([decision])
        made = other.core.turns("queue-cq", turns, now=scheduler.now, usages=usages)
        assert [decision.name for decision in made if isinstance(decision, Preempted)] == [victim]


# Restarts and takeovers. -------------------------------------------------------------------


def copied(scheduler: SteppedScheduler, *, records: bool = True) -> SteppedScheduler:
    """Another instance that reads the same bucket from the beginning."""
    other = a_scheduler()
    other.now = scheduler.now
    written = scheduler.core.usages_to_write(now=scheduler.now, at_once=True)
    for (_, name), record in written if records else ():
        other.core.apply_usage("ns", name, record)
    for workload in scheduler.stored.values():
        other.write("ns", workload.metadata.name, workload)
    return other


def test_a_restarted_scheduler_reads_the_stored_usage() -> None:
    scheduler = a_scheduler()
    record = ConsumedUsage(consumed_resources={"cpu": "8"}, last_update=scheduler.now)
    entry = BucketEntry("_usage.ns.a", msgspec.json.encode(record), scheduler.revision + 1)
    scheduler.load([entry])
    before = consumed(scheduler, "a")
    scheduler.restart_scheduler()
    assert consumed(scheduler, "a") == before == {"cpu": "8"}


def test_a_successor_computes_the_same_usage() -> None:
    scheduler = a_scheduler()
    had_used(scheduler, "a", "8")
    scheduler.submit("a1", "a", "3")
    scheduler.settle()
    scheduler.now += timedelta(minutes=7)
    scheduler.submit("b1", "b", "1")
    scheduler.settle()
    other = copied(scheduler)
    scheduler.now = other.now = scheduler.now + HOUR
    for each_scheduler in (scheduler, other):
        each_scheduler.core.wake(now=each_scheduler.now)
    for name in ("a", "b"):
        assert value(other, name) == pytest.approx(value(scheduler, name), abs=1e-6)


def test_a_successor_charges_admissions_after_the_last_record() -> None:
    scheduler = a_scheduler()
    scheduler.submit("a1", "a", "3")
    scheduler.settle()
    assert value(scheduler, "a") != 0
    other = copied(scheduler, records=False)
    assert value(other, "a") == pytest.approx(value(scheduler, "a"), abs=1e-6)


def test_a_successor_charges_reserved_workloads_too() -> None:
    scheduler = a_scheduler()
    scheduler.admits = False
    scheduler.submit("a1", "a", "3")
    scheduler.settle()
    other = copied(scheduler)
    assert value(other, "a") == value(scheduler, "a") != 0


def test_only_the_owner_writes_and_only_what_changed() -> None:
    scheduler = a_scheduler()
    scheduler.submit("a1", "a", "3")
    scheduler.settle()
    assert scheduler.core.usages_to_write(now=scheduler.now) == []
    later = scheduler.now + timedelta(seconds=1)
    assert [key for key, _ in scheduler.core.usages_to_write(now=later)] == [("ns", "a")]
    assert scheduler.core.usages_to_write(now=later + HOUR) == []
    scheduler.finish("a1")
    for domain in scheduler.core.domains():
        scheduler.core.disown(domain)
    assert scheduler.core.usages_to_write(now=scheduler.now, at_once=True) == []


def test_the_scheduler_wakes_for_what_is_due_first_of_saving_and_comparing_usage() -> None:
    scheduler = a_scheduler()
    scheduler.submit("a1", "a", "3")
    scheduler.settle()
    assert scheduler.core.next_wake() == scheduler.now + timedelta(seconds=1)
    assert scheduler.core.usages_to_write(now=scheduler.now, at_once=True)
    wake = scheduler.core.next_wake()
    assert wake is not None
    assert timedelta(seconds=1) < wake - scheduler.now <= timedelta(minutes=5)


def test_usage_of_running_workloads_is_stored_in_every_interval() -> None:
    scheduler = a_scheduler()
    scheduler.submit("a1", "a", "3")
    scheduler.settle()
    assert scheduler.core.usages_to_write(now=scheduler.now, at_once=True)
    scheduler.now += HOUR
    scheduler.core.wake(now=scheduler.now)
    ((_, record),) = scheduler.core.usages_to_write(now=scheduler.now, at_once=True)
    assert record is not None and record.last_update == scheduler.now


def test_consumed_usage_is_deleted_with_its_local_queue() -> None:
    scheduler = a_scheduler()
    had_used(scheduler, "a", "8")
    scheduler.delete("LocalQueue", "a", namespace="ns")
    assert scheduler.core.usages_to_write(now=scheduler.now, at_once=True) == [(("ns", "a"), None)]
    scheduler.put("LocalQueue", "a", {"clusterQueue": "cq"}, namespace="ns")
    assert value(scheduler, "a") == 0


def test_a_stored_record_changes_nothing_for_its_writer() -> None:
    scheduler = a_scheduler()
    scheduler.submit("a1", "a", "3")
    scheduler.settle()
    ((_, record),) = scheduler.core.usages_to_write(now=scheduler.now, at_once=True)
    scheduler.now += timedelta(seconds=2)
    scheduler.submit("a2", "a", "1")
    scheduler.settle()
    before = value(scheduler, "a")
    scheduler.core.apply_usage("ns", "a", record)
    assert value(scheduler, "a") == before
