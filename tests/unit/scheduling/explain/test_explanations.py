"""Why a workload waits: every sentence of the answer, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.api.fields.limits import INT32_MAX
from admittance.api.workload import CheckState, RequeueState
from admittance.events.requests.explanation import ExplainReply
from admittance.events.shapes import PreemptedBy
from admittance.scheduling.explain import explain, flavor_report, preemption_blockers
from admittance.scheduling.state.config import CohortFairSharing, Config
from support.cores.stepped_scheduler import NOON, SteppedScheduler, groups, quota
from unit.scheduling.preemption.test_loop_guard import a_pair

Tell = Callable[[SteppedScheduler], None]
ANY = {"reclaimWithinCohort": "Any"}
WITHIN = {"withinClusterQueue": "LowerPriority"}


def a_scheduler(config: Config | None = None) -> SteppedScheduler:
    return SteppedScheduler(config or Config(preemption=True))


def full(scheduler: SteppedScheduler, cohort: str = "", **spec: Any) -> None:
    """Queue cq of 6, where a workload of priority 3 holds 4 and one of priority 0 holds 2."""
    scheduler.queue("cq", cohort, resourceGroups=groups(default="6"), **spec)
    scheduler.submit("mid", "cq", "4", priority=3, age=20)
    scheduler.submit("low", "cq", "2", age=10)
    assert scheduler.settle() == ["mid", "low"]


def rules(why: ExplainReply) -> list[tuple[str, str]]:
    return [(bar.rule, bar.cluster_queue) for flavor in why.flavors for bar in flavor.barriers]


# Policies that protect holders. ----------------------------------------------------------------


def never(scheduler: SteppedScheduler) -> None:
    full(scheduler)
    scheduler.submit("w", "cq", "4", priority=9)


def not_lower(scheduler: SteppedScheduler) -> None:
    full(scheduler, preemption=WITHIN)
    scheduler.submit("w", "cq", "4", priority=1)


def no_reclaim(scheduler: SteppedScheduler) -> None:
    full(scheduler, "co", preemption=WITHIN)
    scheduler.queue("other", "co", resourceGroups=groups(default="4"))
    scheduler.submit("theirs", "other", "4", age=9)
    scheduler.settle()
    scheduler.submit("w", "cq", "5", priority=0)


def lender_within_nominal(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", "co", resourceGroups=groups(default="2"), preemption=ANY)
    scheduler.queue("other", "co", resourceGroups=groups(default="4"))
    scheduler.submit("mine", "cq", "2", age=20)
    scheduler.submit("theirs", "other", "4", age=10)
    scheduler.settle()
    scheduler.submit("w", "cq", "2")


def sheltered(scheduler: SteppedScheduler) -> None:
    scheduler.put("Cohort", "left", {"parentName": "root"})
    scheduler.put("Cohort", "right", {"parentName": "root"})
    scheduler.queue("cq", "left", resourceGroups=groups(default="4"), preemption=ANY)
    scheduler.queue("mine", "left", resourceGroups=groups(default="0"))
    scheduler.queue("borrows", "right", resourceGroups=groups(default="2"))
    scheduler.queue("lends", "right", resourceGroups=groups(default="2"))
    scheduler.submit("a", "borrows", "4", age=9)
    scheduler.submit("b", "cq", "4", age=8)
    scheduler.settle()
    scheduler.submit("w", "cq", "4")


def while_borrowing(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", "co", resourceGroups=groups(default="4"), preemption=ANY)
    scheduler.queue("idle", "co", resourceGroups=groups(default="4"))
    scheduler.queue("other", "co", resourceGroups=groups(default="1"))
    scheduler.submit("mine", "cq", "4", age=20, priority=5)
    scheduler.submit("theirs", "other", "4", age=10)
    scheduler.settle()
    scheduler.submit("w", "cq", "4", priority=9)


def above_threshold(scheduler: SteppedScheduler) -> None:
    borrow = {"policy": "LowerPriority", "maxPriorityThreshold": 2}
    scheduler.queue(
        "cq",
        "co",
        resourceGroups=groups(default="2"),
        preemption={**ANY, "borrowWithinCohort": borrow},
    )
    scheduler.queue("other", "co", resourceGroups=groups(default="4"))
    scheduler.submit("theirs", "other", "6", age=10, priority=3)
    scheduler.settle()
    scheduler.submit("w", "cq", "4", priority=9)


def inactive(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", "co", resourceGroups=groups(default="4"), preemption=ANY)
    scheduler.queue("other", "co", resourceGroups=groups(default="2"))
    scheduler.submit("theirs", "other", "6", age=10)
    scheduler.settle()
    scheduler.queue("other", "co", resourceGroups=groups(default="2"), stopPolicy="Hold")
    scheduler.submit("w", "cq", "4")


def above_nominal(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", "co", resourceGroups=groups(default="2"), preemption={**ANY, **WITHIN})
    scheduler.queue("other", "co", resourceGroups=groups(default="4"))
    scheduler.submit("theirs", "other", "5", age=10)
    scheduler.settle()
    scheduler.submit("w", "cq", "4", priority=9)


def not_enough(scheduler: SteppedScheduler) -> None:
    full(scheduler, preemption=WITHIN)
    scheduler.submit("w", "cq", "6", priority=1)


def not_enough_to_borrow(scheduler: SteppedScheduler) -> None:
    """Two workloads borrow, and one of them may be preempted for workload w. With fair sharing the
    share of its queue would forbid that."""
    policy = {**ANY, "borrowWithinCohort": {"policy": "LowerPriority"}}
    scheduler.queue("cq", "co", resourceGroups=groups(default="2"), preemption=policy)
    scheduler.queue("other", "co", resourceGroups=groups(default="4"))
    scheduler.queue("third", "co", resourceGroups=groups(default="0"))
    scheduler.submit("theirs", "other", "5", age=10)
    scheduler.submit("high", "third", "1", age=10, priority=9)
    scheduler.settle()
    scheduler.submit("w", "cq", "6", priority=1)


@pytest.mark.parametrize(
    ("tell", "want"),
    [
        pytest.param(never, ("PolicyNever", "cq"), id="its own queue never preempts"),
        pytest.param(not_lower, ("PriorityNotLower", "cq"), id="the holder has no lower priority"),
        pytest.param(no_reclaim, ("PolicyNever", ""), id="its queue takes nothing from the cohort"),
        pytest.param(
            lender_within_nominal, ("WithinNominal", "other"), id="the other queue has only its own"
        ),
        pytest.param(
            sheltered, ("CohortWithinQuota", "borrows"), id="a cohort between has only its own"
        ),
        pytest.param(
            while_borrowing,
            ("WhileBorrowing", "other"),
            id="it would borrow, and its queue does not preempt then",
        ),
        pytest.param(
            above_threshold,
            ("AboveThreshold", "other"),
            id="the holder is above the threshold for borrowers",
        ),
        pytest.param(inactive, ("Inactive", "other"), id="the other queue is stopped"),
        pytest.param(
            above_nominal, ("AboveNominal", ""), id="it asks for more than its queue may reclaim"
        ),
        pytest.param(not_enough, ("NotEnough", "cq"), id="all candidates together hold too little"),
        pytest.param(
            not_enough_to_borrow,
            ("NotEnough", "other"),
            id="the candidates of the other queue hold too little",
        ),
    ],
)
def test_protected_workloads_are_explained_with_the_rule(tell: Tell, want: tuple[str, str]) -> None:
    scheduler = a_scheduler()
    tell(scheduler)
    why = scheduler.why("w")
    assert want in rules(why)
    assert why.outlook is not None
    assert why.outlook.outcome in ("NoCandidates", "NoFit")
    assert scheduler.cycle() == []
    assert scheduler.preempted == []


def test_protections_have_a_policy_numbers_and_a_sentence() -> None:
    scheduler = a_scheduler()
    not_lower(scheduler)
    bars = {bar.rule: bar for bar in scheduler.why("w").flavors[0].barriers}
    bar = bars["PriorityNotLower"]
    assert (bar.policy, bar.of) == ("withinClusterQueue: LowerPriority", "cq")
    assert (bar.workloads, bar.amount, bar.lowest_priority) == (1, 4000, 3)
    assert bar.message == (
        "ClusterQueue cq has withinClusterQueue: LowerPriority, and workloads in ClusterQueue cq "
        "have priority 3 or higher, not below 1"
    )
    scheduler = a_scheduler()
    not_enough(scheduler)
    bars = {bar.rule: bar for bar in scheduler.why("w").flavors[0].barriers}
    bar = bars["NotEnough"]
    assert (bar.workloads, bar.amount, bar.lowest_priority, bar.message) == (
        1,
        2000,
        None,
        "1 workload in ClusterQueue cq holds 2 and may be preempted, but that frees 2, not 6",
    )
    assert (bar.frees, bar.needed, bar.used, bar.nominal) == (2000, 6000, 6000, 6000)


@pytest.mark.parametrize(
    ("tell", "rule", "policy"),
    [
        pytest.param(while_borrowing, "WhileBorrowing", "borrowWithinCohort: Never", id="never"),
        pytest.param(
            not_enough_to_borrow,
            "PriorityNotLower",
            "borrowWithinCohort: LowerPriority",
            id="lower priority",
        ),
        pytest.param(
            above_threshold,
            "AboveThreshold",
            "borrowWithinCohort: LowerPriority up to 2",
            id="threshold",
        ),
    ],
)
def test_a_protection_from_a_borrower_names_its_borrowing_policy(
    tell: Tell, rule: str, policy: str
) -> None:
    scheduler = a_scheduler()
    tell(scheduler)
    barriers = scheduler.why("w").flavors[0].barriers
    assert [bar.policy for bar in barriers if bar.rule == rule] == [policy]


@pytest.mark.parametrize(
    ("theirs", "priority", "threshold", "spared_by"),
    [
        (2, 9, 2, ""),
        (3, 9, 2, "AboveThreshold"),
        (3, 9, None, ""),
        (1, 1, 2, "PriorityNotLower"),
        (0, 1, 2, ""),
    ],
)
def test_a_borrower_spares_workloads_by_priority_and_threshold(
    theirs: int, priority: int, threshold: int | None, spared_by: str
) -> None:
    borrow = {"policy": "LowerPriority", "maxPriorityThreshold": threshold}
    if threshold is None:
        del borrow["maxPriorityThreshold"]
    preemption = {**ANY, "borrowWithinCohort": borrow}
    scheduler = a_scheduler()
    scheduler.queue("cq", "co", resourceGroups=groups(default="2"), preemption=preemption)
    scheduler.queue("other", "co", resourceGroups=groups(default="4"))
    scheduler.submit("theirs", "other", "6", age=10, priority=theirs)
    scheduler.settle()
    scheduler.submit("w", "cq", "4", priority=priority)
    assert [holder.spared_by for holder in scheduler.why("w").held_by] == [spared_by]


def test_with_fair_sharing_the_shares_are_compared() -> None:
    scheduler = a_scheduler(Config(preemption=True, fair_sharing=CohortFairSharing()))
    scheduler.queue("cq", "co", resourceGroups=groups(default="3"), preemption=ANY)
    scheduler.queue("other", "co", resourceGroups=groups(default="3"))
    scheduler.submit("mine", "cq", "3", age=9)
    scheduler.submit("theirs", "other", "3", age=8)
    scheduler.queue("lends", "co", resourceGroups=groups(default="3"))
    scheduler.submit("more", "other", "1", age=7)
    assert scheduler.settle() == ["mine", "theirs", "more"]
    scheduler.submit("w", "cq", "4")
    (bar,) = [
        barrier
        for barrier in scheduler.why("w").flavors[0].barriers
        if barrier.cluster_queue == "other"
    ]
    assert bar.rule == "SharesForbid"
    assert "cq would have share 444, not below the share 111 of other" in bar.message


# What would let it go on. ----------------------------------------------------------------------


def taint(scheduler: SteppedScheduler) -> None:
    scheduler.flavor("gpu", nodeTaints=[{"key": "gpu", "value": "a", "effect": "NoSchedule"}])
    scheduler.queue("cq", resourceGroups=groups(gpu="4"))
    scheduler.submit("w", "cq", "1")


def selector(scheduler: SteppedScheduler) -> None:
    scheduler.flavor("arm", nodeLabels={"arch": "arm"})
    scheduler.queue("cq", resourceGroups=groups(arm="4"))
    scheduler.submit("w", "cq", "1", pod={"nodeSelector": {"arch": "x86"}})


def too_large(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="4"))
    scheduler.submit("w", "cq", "5")


def borrowing_limit(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", "co", resourceGroups=groups(default=quota("2", borrow="1")))
    scheduler.queue("other", "co", resourceGroups=groups(default="9"))
    scheduler.submit("mine", "cq", "2", age=3)
    scheduler.settle()
    scheduler.submit("w", "cq", "3")


def in_cohort(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", "co", resourceGroups=groups(default="2"))
    scheduler.queue("other", "co", resourceGroups=groups(default="2"))
    scheduler.submit("theirs", "other", "3", age=3)
    scheduler.settle()
    scheduler.submit("w", "cq", "2")


def stopped(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="2"), stopPolicy="Hold")
    scheduler.submit("w", "cq", "2")


def stopped_local(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="2"))
    scheduler.put("LocalQueue", "cq", {"clusterQueue": "cq", "stopPolicy": "Hold"}, namespace="ns")
    scheduler.submit("w", "cq", "2")


def no_queue(scheduler: SteppedScheduler) -> None:
    scheduler.submit("w", "nowhere", "2")


def other_namespace(scheduler: SteppedScheduler) -> None:
    selects = {"matchLabels": {"team": "a"}}
    scheduler.queue("cq", resourceGroups=groups(default="2"), namespaceSelector=selects)
    scheduler.submit("w", "cq", "2")
    scheduler.settle()


def backoff(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="2"))
    scheduler.submit("w", "cq", "2")
    until = NOON + timedelta(minutes=5)
    scheduler.change("w", requeue_state=RequeueState(count=1, requeue_at=until))


def uncovered(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="2"))
    scheduler.submit("w", "cq", pods=[{"requests": {"cpu": "1", "gpu": "1"}}])


def cycle(scheduler: SteppedScheduler) -> None:
    scheduler.put("Cohort", "one", {"parentName": "two"})
    scheduler.put("Cohort", "two", {"parentName": "one"})
    scheduler.queue("cq", "one", resourceGroups=groups(default="2"))
    scheduler.submit("w", "cq", "1")


def behind_strict_head(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="2"), queueingStrategy="StrictFIFO")
    scheduler.submit("head", "cq", "9", age=9)
    scheduler.submit("w", "cq", "1")
    scheduler.settle()


@pytest.mark.parametrize(
    ("tell", "want"),
    [
        pytest.param(taint, "a toleration of taint gpu of flavor gpu", id="a taint"),
        pytest.param(
            selector,
            "a node selector or affinity that the labels of flavor arm match",
            id="a selector that no flavor matches",
        ),
        pytest.param(
            too_large,
            "1 more cpu quota in flavor default, which allows at most 4, or a smaller request",
            id="more than there can ever be",
        ),
        pytest.param(
            borrowing_limit,
            "2 more free cpu in flavor default of ClusterQueue cq with borrowingLimit 1 "
            "(held by ns/mine)",
            id="the borrowing limit of its queue",
        ),
        pytest.param(
            in_cohort,
            "1 more free cpu in flavor default of cohort co (held by ns/theirs)",
            id="quota that its cohort has lent out",
        ),
        pytest.param(
            stopped, "removal of stopPolicy Hold from ClusterQueue cq", id="a stopped ClusterQueue"
        ),
        pytest.param(
            stopped_local,
            "removal of stopPolicy Hold from LocalQueue cq",
            id="a stopped LocalQueue",
        ),
        pytest.param(
            no_queue, "creation of LocalQueue ns/nowhere", id="a LocalQueue that is not there"
        ),
        pytest.param(
            other_namespace,
            "labels of namespace ns that ClusterQueue cq selects",
            id="a namespace that is not selected",
        ),
        pytest.param(backoff, "end of its backoff at 2026-01-01T12:05:00Z", id="a wait that ends"),
        pytest.param(
            uncovered,
            "gpu in a resource group of the ClusterQueue, or a request without gpu",
            id="a resource that no group covers",
        ),
        pytest.param(
            cycle,
            "removal of one cohort from the cycle above ClusterQueue cq",
            id="a cycle of cohorts",
        ),
        pytest.param(
            behind_strict_head,
            "start of workload ns/head, the head of StrictFIFO ClusterQueue cq",
            id="the head of a strict queue",
        ),
    ],
)
def test_remedies_name_the_change_that_unblocks(tell: Tell, want: str) -> None:
    scheduler = a_scheduler()
    tell(scheduler)
    assert want in scheduler.why("w").unblocked_by


@pytest.mark.parametrize(
    "tell",
    [
        pytest.param(uncovered, id="where a resource is covered by no group"),
        pytest.param(cycle, id="where the cohorts bite their own tail"),
    ],
)
def test_no_flavor_fits_a_workload_that_cannot_be_admitted(tell: Tell) -> None:
    scheduler = a_scheduler()
    tell(scheduler)
    why = scheduler.why("w")
    assert why.flavors
    assert not any(flavor.fits for flavor in why.flavors)
    assert all(flavor.message for flavor in why.flavors)


# The numbers and the holders. --------------------------------------------------------------------


def test_every_flavor_has_the_numbers_of_its_quota() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", "co", resourceGroups=groups(default=quota("4", borrow="3")))
    scheduler.queue("other", "co", resourceGroups=groups(default="6"))
    scheduler.submit("mine", "cq", "5", age=3)
    scheduler.settle()
    scheduler.submit("w", "cq", "3")
    ((room,),) = [flavor.rooms for flavor in scheduler.why("w").flavors]
    assert (room.requested, room.available, room.short) == (3000, 2000, 1000)
    assert (room.usage, room.nominal, room.borrowing_limit, room.potential) == (
        5000,
        4000,
        3000,
        7000,
    )


def test_a_later_pod_set_is_measured_with_what_the_earlier_ones_take() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", resourceGroups=groups(default="4"))
    scheduler.submit("w", "cq", pods=[{"requests": {"cpu": "3"}}, {"requests": {"cpu": "2"}}])
    first, second = scheduler.why("w").flavors
    assert first.fits
    assert not second.fits
    assert (second.rooms[0].taken, second.rooms[0].requested) == (3000, 2000)


def test_the_largest_holders_come_first_with_their_protection() -> None:
    scheduler = a_scheduler()
    not_lower(scheduler)
    why = scheduler.why("w")
    holders = [
        (holder.name, holder.amount, holder.priority, holder.spared_by) for holder in why.held_by
    ]
    assert holders == [("mid", 4000, 3, "PriorityNotLower"), ("low", 2000, 0, "")]
    assert why.holders == ("ns/mid", "ns/low")


def test_a_holder_for_a_program_has_a_lease() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", resourceGroups=groups(default="2"))
    scheduler.submit("program", "cq", "1", age=9, spec={"leaseDurationSeconds": 60})
    scheduler.submit("job", "cq", "1", age=8)
    scheduler.settle()
    scheduler.submit("w", "cq", "2")
    leased = {holder.name: holder.leased for holder in scheduler.why("w").held_by}
    assert leased == {"program": True, "job": False}


def test_of_many_holders_the_largest_are_listed() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", resourceGroups=groups(default="9000"))
    # More than are looked at once, and then one that is the tenth.
    amounts = [*range(10, 420, 10), 325]
    for number, amount in enumerate(amounts):
        scheduler.submit(f"holder-{number}", "cq", str(amount), age=100 - number)
    scheduler.settle()
    scheduler.submit("w", "cq", "8999")
    largest = sorted(amounts, reverse=True)[:10]
    assert [holder.amount for holder in scheduler.why("w").held_by] == [
        1000 * cpu for cpu in largest
    ]


def test_of_queues_that_can_be_sorted_the_one_that_borrows_most_is_searched_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", "co", resourceGroups=groups(default="3"))
    # Queue a0-lender uses most, but does not borrow.
    for name, nominal, used in (("a0-lender", "7", "7"), ("a1", "0", "1"), ("b", "0", "2")):
        scheduler.queue(name, "co", resourceGroups=groups(default=nominal))
        scheduler.submit(f"in-{name}", name, used, age=9)
    scheduler.settle()
    scheduler.submit("w", "cq", "3")
    monkeypatch.setattr(flavor_report, "SORTED_MAX", 3)
    for looked_at, listed in ((1, ["in-b"]), (2, ["in-b", "in-a1"])):
        monkeypatch.setattr(flavor_report, "LOOKED_AT_MAX", looked_at)
        assert [holder.name for holder in scheduler.why("w").held_by] == listed


def test_the_queues_that_use_most_come_first() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", "co", resourceGroups=groups(default="2"), preemption=ANY)
    for name, used in (("a", "1"), ("b", "3"), ("c", "2")):
        scheduler.queue(name, "co", resourceGroups=groups(default=used))
        scheduler.submit(f"in-{name}", name, used, age=9)
    scheduler.submit("mine", "cq", "2", age=8)
    scheduler.settle()
    scheduler.submit("w", "cq", "2")
    within = [(rule, queue) for rule, queue in rules(scheduler.why("w")) if queue != "cq"]
    assert within == [("WithinNominal", name) for name in "bca"]


def test_victims_are_named_before_and_after_the_preemption() -> None:
    scheduler = a_scheduler()
    full(scheduler, preemption=WITHIN)
    scheduler.submit("w", "cq", "1", priority=1)
    why = scheduler.why("w")
    assert why.outlook is not None
    assert why.outlook.outcome == "Preempts"
    assert [(victim.name, victim.rule) for victim in why.outlook.victims] == [
        ("low", "InClusterQueue")
    ]
    assert why.flavors[0].victims == why.outlook.victims
    assert "its turn: 1 workload can be preempted for it" in why.unblocked_by
    scheduler.cycle(confirm=False)
    why = scheduler.why("w")
    assert why.reason == "WaitingForPreemptedWorkloads"
    assert [victim.name for victim in why.waits_for] == ["low"]
    assert "stop of ns/low, which is being preempted for it" in why.unblocked_by


def test_a_preempted_workload_names_its_preemptor_and_the_numbers() -> None:
    scheduler = a_scheduler()
    full(scheduler, preemption=WITHIN)
    scheduler.submit("w", "cq", "1", priority=1)
    scheduler.cycle(confirm=False)
    (said,) = scheduler.preempted
    grounds = said.grounds
    assert grounds is not None
    assert (said.by, said.reason) == ("ns/w", "InClusterQueue")
    assert (grounds.priority, grounds.by_priority, grounds.policy) == (
        0,
        1,
        "withinClusterQueue: LowerPriority",
    )
    ((short),) = grounds.short
    assert (short.flavor, short.resource, short.amount, short.available) == (
        "default",
        "cpu",
        1000,
        0,
    )
    assert said.message == (
        "Preempted for ns/w in ClusterQueue cq: priority 1 against 0 "
        "(withinClusterQueue: LowerPriority)"
    )


def test_victim_and_preemptor_name_each_other_from_their_status() -> None:
    scheduler = a_scheduler()
    full(scheduler, preemption=WITHIN)
    scheduler.submit("w", "cq", "1", priority=1)
    scheduler.cycle(confirm=False)
    (said,) = scheduler.preempted
    by = PreemptedBy(
        by=said.by, by_uid=said.by_uid, rule=said.reason, at=NOON, grounds=said.grounds
    )
    scheduler.change("low", conditions={"Evicted": (True, "Preempted")}, preempted_by=by)
    victim = scheduler.why("low")
    assert (victim.phase, victim.preempted_by) == ("Evicting", by)
    assert "preempted by workload ns/w" in victim.message
    ((going),) = scheduler.why("w").waits_for
    assert (going.name, going.rule, going.since) == ("low", "InClusterQueue", NOON)


def test_a_closed_preemption_gate_is_a_remedy() -> None:
    scheduler = a_scheduler()
    full(scheduler, preemption=WITHIN)
    scheduler.submit("w", "cq", "1", priority=1)
    scheduler.respec("w", preemptionGates=[{"name": "family"}])
    for _ in range(2):
        why = scheduler.why("w")
        assert why.reason == "AdmissionGated"
        assert why.unblocked_by == (
            "opening of preemption gate family",
            "1 more free cpu in flavor default of ClusterQueue cq (held by ns/mid, ns/low)",
        )
        scheduler.settle()
        assert scheduler.all_preempted == []


def test_an_admission_carries_what_it_took_and_what_there_was() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", "co", resourceGroups=groups(default="2"))
    scheduler.queue("other", "co", resourceGroups=groups(default="4"))
    scheduler.submit("w", "cq", "3", age=7)
    scheduler.settle()
    (said,) = scheduler.decided
    ((taken),) = said.taken
    assert (taken.amount, taken.available, taken.borrowed) == (3000, 6000, 1000)
    assert (said.level, said.waited_seconds) == (1, 7)


AWAY = {"type": "Active", "status": "False", "reason": "ControllerLost", "message": "no word"}


def test_an_inactive_queue_names_its_missing_and_inactive_checks() -> None:
    scheduler = a_scheduler()
    scheduler.put(
        "AdmissionCheck", "room", {"controllerName": "ctl"}, status={"conditions": [AWAY]}
    )
    scheduler.queue("cq", resourceGroups=groups(default="2"), admissionChecks=["budgte", "room"])
    scheduler.submit("w", "cq", "1")
    assert scheduler.why("w").unblocked_by == (
        "ClusterQueue cq becoming active (AdmissionCheckNotFound): "
        "creation of AdmissionCheck budgte; "
        "AdmissionCheck room becoming active again (ControllerLost: no word)",
    )


def test_an_open_check_names_its_controller_and_whether_it_is_active() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", resourceGroups=groups(default="2"))
    scheduler.submit("w", "cq", "1")
    scheduler.cycle(confirm=False)
    (said,) = scheduler.decided
    reserved = {"QuotaReserved": (True, "QuotaReserved")}
    rows = (CheckState(name="room"),)
    scheduler.change("w", conditions=reserved, admission=said.admission, admission_checks=rows)
    scheduler.put("AdmissionCheck", "room", {"controllerName": "ctl"})
    assert scheduler.why("w").unblocked_by == ("verdict Ready of check room by ctl",)
    scheduler.put(
        "AdmissionCheck", "room", {"controllerName": "ctl"}, status={"conditions": [AWAY]}
    )
    why = scheduler.why("w")
    (line,) = why.unblocked_by
    assert line == "verdict Ready of check room by ctl, which is inactive (ControllerLost: no word)"
    assert why.message.endswith("; room is inactive (ControllerLost: no word)")
    assert [(check.name, check.inactive) for check in why.checks] == [
        ("room", "ControllerLost: no word")
    ]
    scheduler.put("AdmissionCheck", "room", {"controllerName": MACHINES_CONTROLLER})
    (line,) = scheduler.why("w").unblocked_by
    assert line == "room on a machine, of which the message of check room says what is missing"


@pytest.mark.parametrize(
    ("least", "used", "reason", "message", "remedy"),
    [
        (2, "3", "WaitingForQuota", "cpu: 1 short in flavor default (2 asked, 1 free)",
         "1 more free cpu in flavor default of ClusterQueue cq (held by ns/runs)"),
        (5, "3", "ExceedsMaxQuota", "cpu: 5 > 4, the most that flavor default can give",
         "1 more cpu quota in flavor default, which allows at most 4, or a smaller request"),
    ],
    ids=["its fewest pods fit later", "its fewest pods are too many"],
)  # fmt: skip
def test_a_workload_with_min_count_waits_for_room_for_its_fewest_pods(
    least: int, used: str, reason: str, message: str, remedy: str
) -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", resourceGroups=groups(default="4"))
    scheduler.submit("runs", "cq", used, age=9)
    scheduler.settle()
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    pods = {"name": "main", "count": 10, "template": {"spec": {"containers": containers}}}
    scheduler.submit("w", "cq", spec={"podSets": [{**pods, "minCount": least}]})
    assert scheduler.settle() == []
    why = scheduler.why("w")
    assert why.reason == reason
    assert why.message == (
        f"couldn't assign flavors to pod set main: {message}, with its fewest pods"
    )
    assert [room.requested for flavor in why.flavors for room in flavor.rooms] == [least * 1000]
    assert remedy in why.unblocked_by
    refusals = [refusal.refusal for refusal in scheduler.waiting if refusal.name == "w"]
    assert [(refusal.reason, len(refusal.shortfalls)) for refusal in refusals] == [
        (reason, 1)
    ] * len(refusals)


def test_a_reservation_names_its_open_checks() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", resourceGroups=groups(default="2"))
    scheduler.submit("w", "cq", "1")
    scheduler.cycle(confirm=False)
    (said,) = scheduler.decided
    rows = (CheckState(name="budget"), CheckState(name="room", state="Ready"))
    reserved = {"QuotaReserved": (True, "QuotaReserved")}
    scheduler.change("w", conditions=reserved, admission=said.admission, admission_checks=rows)
    why = scheduler.why("w")
    assert (why.phase, why.unblocked_by) == ("QuotaReserved", ("verdict Ready of check budget",))
    assert [(check.name, check.state) for check in why.checks] == [
        (row.name, row.state) for row in rows
    ]


def test_quota_must_be_freed_below_the_node_that_lacks_it() -> None:
    scheduler = a_scheduler()
    flavors = ("one", "two")
    for name, cpu, used in (("other", "5", "4"), ("cq", "2", "2")):
        quotas = groups(**dict.fromkeys(flavors, quota(cpu, borrow="0")))
        scheduler.queue(name, "co", resourceGroups=quotas, preemption=WITHIN)
        for flavor in flavors:
            scheduler.flavor(flavor)
            scheduler.submit(f"{name}-{flavor}", name, used, priority=INT32_MAX, age=9)
            scheduler.settle()
    scheduler.submit("w", "cq", "2", priority=INT32_MAX)
    assert scheduler.why("w").unblocked_by == tuple(
        f"2 more free cpu in flavor {flavor} of ClusterQueue cq with borrowingLimit 0 "
        f"(held by ns/cq-{flavor})"
        for flavor in flavors
    ), "no priority is above the highest"


def test_workloads_ahead_are_named_and_the_preempting_one_first() -> None:
    scheduler = a_scheduler()
    full(scheduler, preemption=WITHIN)
    scheduler.submit("sticky", "cq", "1", priority=1, age=1)
    scheduler.cycle(confirm=False)
    scheduler.submit("urgent", "cq", "9", priority=7)
    scheduler.submit("w", "cq", "9")
    why = scheduler.why("w")
    assert why.position == 3
    assert [(ahead.name, ahead.position, ahead.holds_place) for ahead in why.ahead] == [
        ("sticky", 1, True),
        ("urgent", 2, False),
    ]


def test_of_a_long_queue_only_the_head_is_named_as_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def ahead(name: str) -> list[tuple[str, int]]:
        return [(row.name, row.position) for row in scheduler.why(name).ahead]

    scheduler = a_scheduler()
    full(scheduler)
    scheduler.submit("waits", "cq", "9", priority=7)
    scheduler.change("waits", conditions={"Requeued": (False, "AdmissionCheck")})
    for age, name in enumerate("cba"):
        scheduler.submit(name, "cq", "9", priority=5, age=age)
    scheduler.settle()
    monkeypatch.setattr(explain, "CLASSES_MAX", 1)
    assert ahead("b") == []
    monkeypatch.setattr(explain, "CLASSES_MAX", 2)
    assert ahead("b") == [("waits", 1), ("a", 2)]
    scheduler.submit("head", "cq", "1", priority=1)
    assert (ahead("b"), ahead("head")) == ([("head", 0)], [])
    scheduler.submit("last", "cq", "1")
    monkeypatch.undo()
    assert ahead("last") == [("waits", 1), ("a", 2), ("b", 3), ("head", 5)]


def test_a_refusal_has_the_numbers_of_unscanned_flavors_too() -> None:
    scheduler = a_scheduler()
    scheduler.flavor("one")
    scheduler.flavor("two")
    scheduler.flavor("three")
    cpu = groups(one="2", two="3")
    gpu = {
        "coveredResources": ["gpu"],
        "flavors": [{"name": "three", "resources": [{"name": "gpu", "nominalQuota": "1"}]}],
    }
    scheduler.queue("cq", resourceGroups=[*cpu, gpu])
    more: dict[str, Any] = {"name": "more", "requests": {"gpu": "1"}}
    scheduler.submit("runs", "cq", pods=[{"requests": {"cpu": "3"}}, more], age=9)
    scheduler.settle()
    scheduler.submit("w", "cq", pods=[{"requests": {"cpu": "9"}}, more])
    scheduler.settle()
    scheduler.now += timedelta(seconds=2)
    (said,) = scheduler.core.refusals(now=scheduler.now)
    numbers = [
        (shortfall.pod_set, shortfall.flavor, shortfall.available)
        for shortfall in said.refusal.shortfalls
    ]
    assert numbers == [("main", "one", 2000), ("main", "two", 3000), ("more", "three", 0)]
    assert said.refusal.reason == "ExceedsMaxQuota"
    assert said.refusal.message == (
        "couldn't assign flavors to pod set main: cpu: 9 > 2, the most that flavor one can give, "
        "cpu: 9 > 3, the most that flavor two can give"
    )


def test_a_pair_in_a_preemption_loop_is_explained() -> None:
    life = a_pair()
    life.settle()
    why = life.scheduler.explain("ns", "owner", now=life.now)
    assert why.reason == "PreemptionLoop"
    assert ("PreemptionLoop", "b") in rules(why)
    assert any(remedy.startswith("removal of this obstacle: Took") for remedy in why.unblocked_by)


def test_a_message_is_short_but_the_numbers_name_all_flavors() -> None:
    scheduler = a_scheduler()
    names = [f"f{n}" for n in range(30)]
    for name in names:
        scheduler.flavor(name)
    scheduler.queue("cq", resourceGroups=groups(**dict.fromkeys(names, "1")))
    scheduler.submit("w", "cq", "2")
    why = scheduler.why("w")
    assert why.message.endswith("the most that flavor f7 can give, and 22 more")
    assert len(why.flavors) == 30


def test_unchecked_queues_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", "co", resourceGroups=groups(default="6"), preemption={**ANY, **WITHIN})
    scheduler.queue("other", "co", resourceGroups=groups(default="1"))
    scheduler.submit("mine", "cq", "3", priority=5, age=9)
    scheduler.submit("more", "cq", "3", priority=5, age=8)
    scheduler.submit("theirs", "other", "1", age=7)
    scheduler.settle()
    scheduler.submit("w", "cq", "4", priority=1)
    monkeypatch.setattr(preemption_blockers, "LOOKED_AT_MAX", 1)
    assert rules(scheduler.why("w")) == [("PriorityNotLower", "cq"), ("WithinNominal", "other")]
    monkeypatch.setattr(preemption_blockers, "LOOKED_AT_MAX", 0)
    assert rules(scheduler.why("w")) == [("NotLookedAt", "cq"), ("NotLookedAt", "")]


def test_the_search_for_victims_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = a_scheduler()
    flavors = ("one", "two", "three")
    for flavor in flavors:
        scheduler.flavor(flavor)
    quota = groups(**dict.fromkeys(flavors, "2"))
    scheduler.cluster_queue("lender", "co", resourceGroups=quota)
    scheduler.queue("cq", "co", resourceGroups=quota, preemption=WITHIN)
    for name in flavors:
        scheduler.submit(name, "cq", "4", priority=0, age=9)
    scheduler.settle()
    scheduler.submit("w", "cq", "2", priority=1)
    assert [flavor.outcome for flavor in scheduler.why("w").flavors] == ["Preempts"] * 3
    # What the nomination itself asked is known, and costs nothing.
    monkeypatch.setattr(flavor_report, "CANDIDATES_MAX", 0)
    assert [flavor.outcome for flavor in scheduler.why("w").flavors] == ["Preempts"] * 3
    scheduler.queue(
        "cq",
        "co",
        resourceGroups=quota,
        preemption=WITHIN,
        flavorFungibility={"whenCanPreempt": "MayStopSearch"},
    )
    for candidates in (1, 3):
        monkeypatch.setattr(flavor_report, "CANDIDATES_MAX", candidates)
        *searched, last = scheduler.why("w").flavors
        assert [flavor.outcome for flavor in searched] == ["Preempts", "Preempts"]
        assert (last.outcome, last.level) == ("NoCandidates", 1)
        assert last.message.endswith("because too many workloads hold quota")


def test_the_same_question_has_the_same_answer() -> None:
    scheduler = a_scheduler()
    not_lower(scheduler)
    assert scheduler.why("w") == scheduler.why("w")


def test_the_ten_largest_holders_are_listed_and_of_equal_ones_those_of_lower_priority() -> None:
    scheduler = a_scheduler()
    scheduler.queue("cq", resourceGroups=groups(default="220"))
    held = [(n * 37 % 6 + 1, n * 5 % 4, f"h{n * 17 % 60:02}") for n in range(60)]
    for age, (amount, priority, name) in enumerate(held):
        scheduler.submit(name, "cq", str(amount), priority=priority, age=100 - age)
    scheduler.settle()
    scheduler.submit("w", "cq", "100")
    scheduler.settle()
    ranked = sorted((-amount, priority, name) for amount, priority, name in held)
    holders = scheduler.why("w").held_by
    listed = [(-holder.amount // 1000, holder.priority, holder.name) for holder in holders]
    assert listed == ranked[:10]
