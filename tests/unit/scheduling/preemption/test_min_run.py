"""The minimum run time: a workload that has not run for its minRunSeconds is not preempted
(docs/spec/scheduling.md#6.9)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.queues import ClusterQueue, ClusterQueueSpec, Preemption
from admittance.events import facts
from admittance.scheduling.preemption.min_run import (
    NotVictims,
    Youth,
    may_not_preempt,
    when_old,
    youth_of,
)
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.scheduling.state.equivalence import RefusalQueue
from admittance.scheduling.state.flavor_plan import MinRun, MinRuns
from admittance.scheduling.state.requests import Shapes
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import Charge, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import Run
from support.builders import NOON, an_admission
from support.cores.families.family_cores import FamilyCores
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

MINUTE = timedelta(minutes=1)
INSTANT = timedelta(microseconds=1)
LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}
ANY: dict[str, Any] = {"reclaimWithinCohort": "Any"}
DEFERS = "AfterCheckPassedOrOnDemand"


# The functions. -----------------------------------------------------------------------------


def runs(name: str = "w", *, minutes: float = 0, of_class: str = "", queue: str = "a") -> Any:
    """A workload that has run for so long at noon."""
    workload = WorkloadInfo(("ns", name))
    workload.state = "Admitted"
    workload.run = Run(NOON - minutes * MINUTE, of_class)
    workload.charge = Charge(Queue(queue, RefusalQueue()), an_admission(queue), [])
    return workload


def rules(*, queue: int | None = None, batch: int | None = None, required: bool = True) -> MinRuns:
    """The minutes of ClusterQueue ``a`` and of WorkloadPriorityClass ``batch``."""
    made = MinRuns()
    if queue is not None:
        made.of_queue["a"] = MinRun(queue * MINUTE, required, "ClusterQueue a")
    if batch is not None:
        made.of_class["batch"] = MinRun(batch * MINUTE, required, "WorkloadPriorityClass batch")
    return made


@pytest.mark.parametrize(
    ("workload", "known", "minutes_left"),
    [
        pytest.param(runs(), rules(), None, id="no setting"),
        pytest.param(runs(), rules(queue=5), 5, id="just started"),
        pytest.param(runs(minutes=4), rules(queue=5), 1, id="a minute too young"),
        pytest.param(runs(minutes=5), rules(queue=5), None, id="exactly old enough"),
        pytest.param(runs(), rules(queue=0), None, id="no time at all"),
        pytest.param(runs(queue="b"), rules(queue=5), None, id="another queue"),
        pytest.param(runs(), rules(batch=5), None, id="without the class"),
        pytest.param(runs(of_class="batch"), rules(batch=5), 5, id="of its class"),
        pytest.param(runs(of_class="other"), rules(queue=3, batch=5), 3, id="of another class"),
        pytest.param(runs(of_class="batch"), rules(queue=9, batch=5), 5, id="the class counts"),
        pytest.param(
            runs(of_class="batch"), rules(queue=9, batch=0), None, id="the class has none"
        ),
    ],
)
def test_a_workload_is_young_until_it_has_run_for_its_least_time(
    workload: WorkloadInfo, known: MinRuns, minutes_left: int | None
) -> None:
    youth = youth_of(known, workload, NOON)
    assert (youth.until if youth else None) == (
        None if minutes_left is None else NOON + minutes_left * MINUTE
    )


def test_a_workload_is_old_enough_at_the_very_instant_and_not_before() -> None:
    at = NOON + 5 * MINUTE
    assert youth_of(rules(queue=5), runs(), at - INSTANT) is not None
    assert youth_of(rules(queue=5), runs(), at) is None


@pytest.mark.parametrize("why", ["reserved", "evicting", "preempted", "without quota"])
def test_only_a_running_workload_is_young(why: str) -> None:
    workload = runs()
    match why:
        case "reserved":
            workload.run = None
        case "evicting":
            workload.state = "Evicting"
        case "preempted":
            workload.in_flight = InFlight.PREEMPTED
        case _:
            workload.charge = None
    assert youth_of(rules(queue=5), workload, NOON) is None


@pytest.mark.parametrize(("required", "forbidden"), [(True, True), (False, False)])
def test_a_preferred_time_forbids_no_preemption(required: bool, forbidden: bool) -> None:
    known = rules(queue=5, required=required)
    assert (may_not_preempt(known, runs(), NOON) is not None) is forbidden
    assert may_not_preempt(MinRuns(), runs(), NOON) is None


def test_the_victims_left_out_are_those_that_are_gone_or_too_young() -> None:
    gone, old, young, younger = (
        runs("gone", minutes=9),
        runs("old", minutes=5),
        runs("young", minutes=4),
        runs("younger", minutes=1),
    )
    left_out = NotVictims({gone}, rules(queue=5), NOON)
    assert gone in left_out
    assert old not in left_out
    assert left_out.until is None
    assert younger in left_out
    assert left_out.until == NOON + 4 * MINUTE
    assert young in left_out
    assert left_out.until == NOON + MINUTE
    assert younger in left_out
    assert left_out.until == NOON + MINUTE, "the first time counts"
    assert not left_out.yields()
    assert young in left_out, "the time is required"


def test_workloads_with_a_preferred_time_are_left_out_at_first_only() -> None:
    young = runs("young", minutes=4)
    left_out = NotVictims((), rules(queue=5, required=False), NOON)
    assert young in left_out
    assert left_out.yields()
    assert young not in left_out
    assert not left_out.yields(), "it was not left out again"
    assert left_out.until == NOON + MINUTE, "the first answer changes then"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.1, "1 s"),
        (1, "1 s"),
        (59, "59 s"),
        (59.5, "1 min"),
        (60, "1 min"),
        (60.5, "2 min"),
        (240, "4 min"),
        (3_540, "59 min"),
        (3_600, "1 h"),
        (3_601, "1 h 1 min"),
        (7_260, "2 h 1 min"),
    ],
)
def test_the_time_left_is_rounded_up(seconds: float, text: str) -> None:
    youth = Youth(NOON + timedelta(seconds=seconds), MinRun(MINUTE, True, "ClusterQueue a"))
    assert when_old(youth, NOON) == f"in {text} (minRunSeconds of ClusterQueue a)"


def a_queue_manifest(seconds: int | None, policy: str = "Required") -> ClusterQueue:
    preemption = Preemption(min_run_seconds=seconds, min_run_policy=policy)
    return ClusterQueue(spec=ClusterQueueSpec(preemption=preemption))


def test_settings_follow_the_manifests() -> None:
    known = MinRuns()
    assert not known.apply("ClusterQueue", "a", a_queue_manifest(None))
    assert not known
    assert known.apply("ClusterQueue", "a", a_queue_manifest(60))
    assert not known.apply("ClusterQueue", "a", a_queue_manifest(60)), "unchanged"
    assert not known.apply("Cohort", "a", None)
    assert known.of("a", "") == MinRun(MINUTE, True, "ClusterQueue a")
    assert known.apply("ClusterQueue", "a", a_queue_manifest(60, "Preferred"))
    assert known.of("a", "") == MinRun(MINUTE, False, "ClusterQueue a")
    assert known.of("b", "") is None
    assert known.apply("ClusterQueue", "a", None)
    assert not known.apply("ClusterQueue", "a", None)
    assert not known


# The scheduler. -----------------------------------------------------------------------------


def ready(cores: SteppedCores, *names: str) -> None:
    """All pods of the workloads are ready."""
    for name in names:
        revision = cores.stored(name).status.admitted_revision
        cores.publish(facts.PodsReady, name, revision=revision)


def one_queue(config: Config | None = None, **preemption: Any) -> SteppedCores:
    """ClusterQueue ``cq`` with 4 cpu, in which a workload runs at least ten minutes."""
    cores = SteppedCores(config)
    least = {"minRunSeconds": 600, **preemption}
    cores.queue("cq", resourceGroups=groups(default="4"), preemption={**LOWER, **least})
    return cores


def runs_low(cores: SteppedCores, name: str = "low", cpu: str = "4", **spec: Any) -> None:
    cores.submit(name, "cq", cpu, **spec)
    cores.settle()
    assert cores.phase(name) == "Admitted"


def wait(cores: SteppedCores, until: float | None = None) -> None:
    """Lets time pass, to the next time at which the scheduler wakes by itself."""
    wake = cores.scheduler.next_wake()
    assert wake is not None
    if until is not None:
        assert wake == NOON + timedelta(seconds=until)
    cores.now = wake
    cores.scheduler.wake(now=wake)
    cores.settle()


def started(cores: SteppedCores, name: str) -> Any:
    at = cores.stored(name).status.started_at
    assert at is not None
    return at


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair sharing"])
def test_a_preemptor_is_tried_again_when_a_young_workload_is_old_enough(
    strategy: str, fair: bool
) -> None:
    cores = SteppedCores(Config(fair_sharing=CohortFairSharing() if fair else None))
    cores.queue(
        "cq", "co", resourceGroups=groups(default="4"), queueingStrategy=strategy,
        preemption={**LOWER, "minRunSeconds": 600},
    )  # fmt: skip
    runs_low(cores)
    ready(cores, "low")
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    assert cores.phases("low", "high") == ["Running", "Pending"]
    assert not cores.scheduler.has_work(), "it does not ask again until then"
    wake = cores.scheduler.next_wake()
    assert wake == started(cores, "low") + 10 * MINUTE
    cores.now = wake - timedelta(seconds=1) - INSTANT
    cores.cycle()
    assert cores.preempted() == []
    wait(cores)
    assert cores.preempted() == [("low", "high")]
    assert cores.phases("low", "high") == ["Pending", "Admitted"]
    assert cores.scheduler.next_wake() is None


@pytest.mark.parametrize("policy", ["Any", "LowerPriority"])
@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair sharing"])
def test_quota_is_reclaimed_only_from_workloads_that_ran_long_enough(
    policy: str, fair: bool
) -> None:
    cores = SteppedCores(Config(fair_sharing=CohortFairSharing() if fair else None))
    reclaims = {"reclaimWithinCohort": policy}
    cores.queue("cq", "co", resourceGroups=groups(default="0"), preemption={"minRunSeconds": 300})
    cores.queue("owner", "co", resourceGroups=groups(default="4"), preemption=reclaims)
    runs_low(cores, "first", "2")
    cores.now += 2 * MINUTE
    runs_low(cores, "second", "2")
    cores.submit("high", "owner", "2", priority=1)
    cores.settle()
    assert cores.preempted() == []
    wait(cores)
    assert cores.preempted() == [("first", "high")], "the second is younger"
    assert cores.phase("high") == "Admitted"


def test_preemption_while_borrowing_waits_too() -> None:
    cores = SteppedCores()
    borrows = {**ANY, "borrowWithinCohort": {"policy": "LowerPriority"}}
    cores.queue("cq", "co", resourceGroups=groups(default="2"), preemption={"minRunSeconds": 300})
    cores.queue("other", "co", resourceGroups=groups(default="2"), preemption=borrows)
    runs_low(cores, "low", "4")
    cores.submit("high", "other", "3", priority=1)
    cores.settle()
    assert cores.preempted() == []
    wait(cores)
    assert cores.preempted() == [("low", "high")]


def test_an_older_workload_is_preempted_in_place_of_the_younger_one() -> None:
    cores = one_queue()
    runs_low(cores, "older", "2")
    cores.now += 11 * MINUTE
    runs_low(cores, "younger", "2")
    cores.submit("high", "cq", "2", priority=1)
    cores.settle()
    assert cores.preempted() == [("older", "high")], "without a setting the younger one is"


def test_all_victims_must_be_old_enough() -> None:
    cores = one_queue()
    runs_low(cores, "older", "2")
    cores.now += 5 * MINUTE
    runs_low(cores, "younger", "2")
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    wait(cores)
    assert cores.preempted() == [], "only the older one could go"
    wait(cores)
    assert sorted(cores.preempted()) == [("older", "high"), ("younger", "high")]


def test_waiting_workloads_of_one_kind_are_searched_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores = one_queue()
    runs_low(cores)
    nominator = cores.scheduler._cycle._nominator
    nominate, searched = nominator.nominate, []

    def counted(*given: Any, **more: Any) -> Any:
        searched.append(given[1].key[1])
        return nominate(*given, **more)

    monkeypatch.setattr(nominator, "nominate", counted)
    for number in range(5):
        cores.submit(f"high-{number}", "cq", "4", priority=1, age=9 - number)
    cores.settle()
    assert searched == ["high-0"]
    wait(cores)
    assert searched[:2] == ["high-0", "high-0"]
    assert cores.preempted() == [("low", "high-0")]


# From when the time counts. -----------------------------------------------------------------


def test_the_time_counts_from_the_admission_until_the_pods_are_ready() -> None:
    cores = one_queue()
    runs_low(cores)
    admitted = cores.now
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    wake = cores.scheduler.next_wake()
    assert wake is not None
    assert timedelta(0) <= admitted + 10 * MINUTE - wake <= timedelta(seconds=1)
    cores.now += 4 * MINUTE
    ready(cores, "low")
    begun = cores.now
    wait(cores)
    assert cores.preempted() == [], "it runs for six minutes now"
    assert cores.scheduler.next_wake() == begun + 10 * MINUTE
    wait(cores)
    assert cores.preempted() == [("low", "high")]


def test_a_pod_that_recovers_does_not_begin_the_time_again() -> None:
    cores = one_queue()
    runs_low(cores)
    cores.now += MINUTE
    ready(cores, "low")
    begun = cores.now
    cores.now += 5 * MINUTE
    revision = cores.stored("low").status.admitted_revision
    cores.publish(facts.PodsNotReady, "low", revision=revision)
    assert started(cores, "low") == begun
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    assert cores.scheduler.next_wake() == begun + 10 * MINUTE
    ready(cores, "low")
    assert started(cores, "low") == begun
    cores.settle()
    assert cores.scheduler.next_wake() == begun + 10 * MINUTE


def test_a_next_run_begins_anew() -> None:
    cores = one_queue()
    runs_low(cores)
    ready(cores, "low")
    cores.now += 20 * MINUTE
    cores.publish(facts.Deactivated, "low")
    cores.settle()
    assert cores.stored("low").status.started_at is None
    cores.publish(facts.Activated, "low")
    cores.settle()
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    assert cores.phases("low", "high") == ["Admitted", "Pending"]


def test_a_reservation_is_not_protected() -> None:
    cores = one_queue()
    cores.check("c")
    cores.queue(
        "cq", resourceGroups=groups(default="4"), admissionChecks=["c"],
        preemption={**LOWER, "minRunSeconds": 600},
    )  # fmt: skip
    cores.submit("low", "cq", "4")
    cores.settle()
    assert cores.phase("low") == "QuotaReserved"
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    assert cores.phases("low", "high") == ["Pending", "QuotaReserved"]


# The settings. ------------------------------------------------------------------------------


def test_with_preferred_a_young_workload_goes_if_nothing_else_helps() -> None:
    cores = one_queue(minRunPolicy="Preferred")
    runs_low(cores, "older", "2")
    cores.now += 11 * MINUTE
    runs_low(cores, "younger", "2")
    cores.submit("mid", "cq", "2", priority=1)
    cores.settle()
    assert cores.preempted() == [("older", "mid")]
    cores.submit("high", "cq", "4", priority=2)
    cores.settle()
    assert sorted(cores.preempted()[1:]) == [("mid", "high"), ("younger", "high")]
    said = [done.message for done in cores.decided if isinstance(done, facts.Preempted)]
    assert "minRunSeconds" not in said[0]
    assert all("has not run for minRunSeconds of ClusterQueue cq" in text for text in said[1:])


def test_a_flavor_with_old_workloads_is_chosen_before_one_with_young_ones() -> None:
    cores = SteppedCores()
    for name in ("spot", "reserved"):
        cores.put("ResourceFlavor", name)
    least = {"minRunSeconds": 600, "minRunPolicy": "Preferred"}
    cores.queue(
        "cq", resourceGroups=groups(spot="2", reserved="2"), preemption={**LOWER, **least},
        flavorFungibility={"whenCanPreempt": "MayStopSearch"},
    )  # fmt: skip
    runs_low(cores, "blocks", "2", priority=9)
    runs_low(cores, "old", "2")
    cores.now += 11 * MINUTE
    cores.finish("blocks")
    runs_low(cores, "young", "2")
    cores.submit("high", "cq", "2", priority=1)
    cores.settle()
    assert cores.preempted() == [("old", "high")]
    cores.submit("next", "cq", "2", priority=1)
    cores.settle()
    assert cores.preempted() == [("old", "high"), ("young", "next")]


def test_the_class_of_a_workload_counts_before_its_queue() -> None:
    cores = one_queue()
    for name, seconds in (("batch", 60), ("scratch", 0)):
        cores.put("WorkloadPriorityClass", name, value=0, minRunSeconds=seconds)
    ours = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}
    runs_low(cores, "scratch", "2", priorityClassRef={**ours, "name": "scratch"})
    runs_low(cores, "batch", "2", priorityClassRef={**ours, "name": "batch"})
    ready(cores, "batch")
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    assert cores.preempted() == []
    assert cores.scheduler.next_wake() == started(cores, "batch") + MINUTE
    cores.put("WorkloadPriorityClass", "batch", value=0)
    cores.settle()
    assert cores.scheduler.next_wake() == started(cores, "batch") + MINUTE, "it may wake in vain"
    wait(cores)
    assert cores.preempted() == []
    assert cores.scheduler.next_wake() == started(cores, "batch") + 10 * MINUTE
    cores.put("WorkloadPriorityClass", "batch", value=0, minRunSeconds=0)
    cores.settle()
    assert sorted(cores.preempted()) == [("batch", "high"), ("scratch", "high")]


def test_a_shorter_time_in_the_queue_lets_a_waiting_preemptor_go_on() -> None:
    cores = one_queue()
    runs_low(cores)
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    assert cores.preempted() == []
    cores.queue("cq", resourceGroups=groups(default="4"), preemption=LOWER)
    cores.settle()
    assert cores.preempted() == [("low", "high")]


def test_a_new_time_protects_workloads_that_run_already() -> None:
    cores = one_queue()
    cores.queue("cq", resourceGroups=groups(default="4"), preemption=LOWER)
    runs_low(cores)
    ready(cores, "low")
    cores.queue("cq", resourceGroups=groups(default="4"), preemption={**LOWER, "minRunSeconds": 60})
    cores.restart_scheduler()
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    assert cores.preempted() == []
    assert cores.scheduler.next_wake() == started(cores, "low") + MINUTE


def test_kueue_has_no_least_time() -> None:
    cores = one_queue(Config(as_kueue=True))
    runs_low(cores)
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    assert cores.preempted() == [("low", "high")]


# Other ends of a run. -----------------------------------------------------------------------


def test_other_evictions_do_not_wait() -> None:
    cores = one_queue()
    cores.check("c")
    runs_low(cores, "stopped", "2")
    runs_low(cores, "cut", "2")
    cores.publish(facts.Deactivated, "stopped")
    assert cores.phase("stopped") == "Deactivated"
    cores.queue(
        "cq", resourceGroups=groups(default="0"), preemption={**LOWER, "minRunSeconds": 600},
        onQuotaCut="evict",
    )  # fmt: skip
    cores.settle()
    assert cores.phase("cut") == "Pending"


# Plans of reservations. ---------------------------------------------------------------------


def with_plan(policy: str = "Required") -> SteppedCores:
    """Workload j has reserved the quota of v, which has run for eleven minutes, and waits for its
    check."""
    cores = one_queue()
    runs_low(cores, "v")
    cores.now += 11 * MINUTE
    cores.put("AdmissionCheck", "c", {"controllerName": "ctl-c", "preemptionPolicy": DEFERS})
    cores.queue(
        "cq", resourceGroups=groups(default="4"), admissionChecks=["c"],
        preemption={**LOWER, "minRunSeconds": 600, "minRunPolicy": policy},
    )  # fmt: skip
    cores.submit("j", "cq", "4", priority=1)
    cores.settle()
    assert cores.phase("j") == "QuotaReserved"
    return cores


def test_a_young_workload_is_not_planned_as_a_victim() -> None:
    cores = with_plan()
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert cores.preempted() == [("v", "j")]
    cores.submit("k", "cq", "4", priority=2)
    cores.settle()
    assert cores.phase("k") == "Pending", "j has just begun"
    wait(cores)
    assert cores.phase("k") == "QuotaReserved"


@pytest.mark.parametrize(("policy", "goes"), [("Required", False), ("Preferred", True)])
def test_a_planned_victim_that_has_become_young_is_not_preempted(policy: str, goes: bool) -> None:
    cores = with_plan(policy)
    ready(cores, "v")
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert cores.preempted() == ([("v", "j")] if goes else [])
    if goes:
        return
    assert cores.revoked() == [("j", "QuotaChanged")]
    assert cores.phase("v") == "Running"
    assert cores.scheduler.next_wake() == started(cores, "v") + 10 * MINUTE
    wait(cores)
    assert cores.phase("j") == "QuotaReserved"


# What is said of it. ------------------------------------------------------------------------


def test_an_explanation_names_the_time_left_and_the_setting() -> None:
    cores = one_queue()
    runs_low(cores, "first", "2")
    cores.now += MINUTE
    runs_low(cores, "second", "2")
    cores.submit("high", "cq", "2", priority=1)
    cores.settle()
    cores.now = NOON + 6 * MINUTE
    why = cores.scheduler.explain("ns", "high", now=cores.now)
    (protection,) = [bar for verdict in why.flavors for bar in verdict.barriers]
    assert (protection.rule, protection.workloads, protection.amount) == (
        "MinimumRunTime", 2, 4000,
    )  # fmt: skip
    assert protection.until is not None
    assert protection.message == (
        "workload ns/first may be preempted in 5 min (minRunSeconds of ClusterQueue cq), and "
        "1 workload later"
    )
    assert f"time: {protection.message}" in why.unblocked_by
    assert {holder.spared_by for holder in why.held_by} == {"MinimumRunTime"}
    holder = cores.scheduler.explain("ns", "first", now=cores.now)
    assert holder.message == (
        "Holds quota in ClusterQueue cq; may be preempted in 5 min (minRunSeconds of "
        "ClusterQueue cq)"
    )
    later = cores.now + 5 * MINUTE
    holder = cores.scheduler.explain("ns", "first", now=later)
    assert holder.message == "Holds quota in ClusterQueue cq"
    assert cores.scheduler.explain("ns", "high", now=later).outlook.outcome == "Preempts"


# Details. -----------------------------------------------------------------------------------


def test_free_quota_is_kept_for_a_queue_that_cannot_reclaim_the_rest_yet() -> None:
    cores = SteppedCores()
    cores.queue("cq", "co", resourceGroups=groups(default="0"), preemption={"minRunSeconds": 300})
    cores.queue(
        "owner", "co", resourceGroups=groups(default="4"), preemption=ANY,
        queueingStrategy="StrictFIFO",
    )  # fmt: skip
    runs_low(cores, "young", "2")
    cores.submit("late", "cq", "2", priority=9)
    cores.submit("wants", "owner", "4")
    cores.settle()
    assert cores.phases("late", "wants") == ["Pending", "Pending"]
    wait(cores)
    assert cores.preempted() == [("young", "wants")]
    assert cores.phase("wants") == "Admitted"


def test_a_plan_takes_a_preferred_young_workload_if_nothing_else_helps() -> None:
    cores = SteppedCores()
    cores.put("AdmissionCheck", "c", {"controllerName": "ctl-c", "preemptionPolicy": DEFERS})
    least = {"minRunSeconds": 600, "minRunPolicy": "Preferred"}
    spec: dict[str, Any] = {
        "resourceGroups": groups(default="8"), "preemption": {**LOWER, **least},
    }  # fmt: skip
    cores.queue("cq", **spec)
    runs_low(cores, "v")
    cores.now += 11 * MINUTE
    runs_low(cores, "other")
    cores.queue("cq", **spec, admissionChecks=["c"])
    cores.submit("k", "cq", "4", priority=1)
    cores.settle()
    pending = cores.stored("k").status.pending_preemption
    assert pending is not None
    (planned,) = pending.victims
    assert planned.name == "v", "the older one"
    cores.publish(facts.Reprioritized, "v", priority=2)
    cores.verdict("k", "c", "Ready")
    cores.settle()
    assert cores.preempted() == [("other", "k")]


def test_a_preemptor_that_waits_for_its_victims_does_not_wake_for_others() -> None:
    cores = one_queue()
    runs_low(cores, "old", "2")
    cores.now += 11 * MINUTE
    runs_low(cores, "young", "2")
    cores.slow_jobs.add("old")
    cores.submit("high", "cq", "2", priority=1)
    cores.settle()
    assert cores.preempted() == [("old", "high")]
    wait(cores)
    cores.now += MINUTE
    cores.submit("other", "cq", "2")
    cores.settle()
    wake = cores.scheduler.next_wake()
    assert wake is None or wake > cores.now
    assert cores.preempted() == [("old", "high")]


def test_a_domain_wakes_at_the_earliest_of_its_times_once() -> None:
    cores = one_queue()
    runs_low(cores)
    cores.submit("high", "cq", "4", priority=1)
    cores.settle()
    state = cores.scheduler._state
    (domain,) = state.domains.values()
    first = domain.wakes_at
    assert first is not None
    state.flush_at(domain, first + MINUTE)
    assert domain.wakes_at == first, "a later time changes nothing"
    state.flush_at(domain, first - MINUTE)
    state.flush_due(first - MINUTE - INSTANT)
    assert not domain.flush
    state.flush_due(first - MINUTE)
    assert domain.flush
    domain.flush = False
    state.flush_at(domain, first + MINUTE)
    state.flush_due(first)
    assert not domain.flush, "an earlier time has replaced it"
    state.flush_due(first + MINUTE)
    assert domain.flush
    assert state.domain_timers == []


# Families. ----------------------------------------------------------------------------------


def family_cores() -> FamilyCores:
    """Job j runs on its worse flavor, because r has the better one; workloads run for ten minutes
    at least."""
    cores = FamilyCores()
    cores.offer({"best": 4, "worse": 4}, preemption={**LOWER, "minRunSeconds": 600})
    cores.policy()
    cores.submit_regular("r", "best", priority=100)
    cores.job("j", priority=0)
    cores.go()
    assert cores.on() == "worse"
    return cores


def test_a_migration_does_not_wait_for_the_minimum_run_time() -> None:
    cores = family_cores()
    ready(cores, "j")
    cores.done("r")
    assert (cores.on(), cores.migrations()) == ("best", 1)


def test_a_variant_runs_for_its_time_from_the_start_of_the_job() -> None:
    cores = family_cores()
    cores.now += 5 * MINUTE
    ready(cores, "j")
    assert cores.variants()["worse"].status.started_at == started(cores, "j") == cores.now
    cores.submit_regular("high", "worse", priority=1)
    cores.go()
    assert cores.phases("j", "high") == ["Running", "Pending"]
    why = cores.scheduler.explain("ns", "high", now=cores.now)
    texts = [bar.message for verdict in why.flavors for bar in verdict.barriers]
    assert any(text.startswith("workload ns/j may be preempted in 10 min") for text in texts)
    cores.advance(599)
    assert cores.phases("j", "high") == ["Running", "Pending"]
    cores.advance(1)
    assert cores.phase("high") == "Admitted"
    assert cores.stored("j").status.started_at is None


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        (None, ""),
        ({"name": "batch"}, "batch"),
        ({"kind": "WorkloadPriorityClass", "name": "batch"}, "batch"),
        ({"kind": "PriorityClass", "name": "batch"}, ""),
    ],
)
def test_the_class_of_a_workload_is_its_workload_priority_class(ref: Any, name: str) -> None:
    spec = {"priorityClassRef": ref} if ref is not None else {}
    assert Shapes().needs(msgspec.json.encode(spec)).priority_class == name
