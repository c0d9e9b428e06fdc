"""Quota of workloads with only a reservation passes on in one decision, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.requests.queues import Queues
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.stored_fields import InFlight
from support.cores.families.family_queues import family_policy
from support.cores.families.family_scheduler import FamilyScheduler
from support.cores.stepped_scheduler import SteppedScheduler, groups

LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any", **LOWER}


CHECKED: dict[str, Any] = {"admissionChecks": ["later"]}


def waits_for_a_check(scheduler: SteppedScheduler) -> None:
    """Workloads with quota are not admitted."""
    scheduler.admits = False
    scheduler.put("AdmissionCheck", "later", {"controllerName": "ctl"})


def a_scheduler(nominal: str = "10", **more: Any) -> SteppedScheduler:
    """Two workloads reserve all of the quota without being admitted, and one of higher priority
    waits."""
    scheduler = SteppedScheduler(Config(**more))
    waits_for_a_check(scheduler)
    scheduler.queue("cq", resourceGroups=groups(default=nominal), preemption=LOWER, **CHECKED)
    scheduler.submit("low", "cq", "5", priority=-1, age=2)
    scheduler.submit("mid", "cq", "5", priority=0, age=1)
    scheduler.settle()
    scheduler.submit("high", "cq", "5", priority=1)
    return scheduler


def reserved(scheduler: SteppedScheduler, queue: str = "cq") -> int:
    (status,) = scheduler.core.queues(Queues(cluster_queue=queue)).cluster_queues
    return sum(usage.reserved for usage in status.usage)


def picture(scheduler: SteppedScheduler) -> dict[str, Any]:
    """All charges by workload, and the candidates for preemption in order."""
    world = scheduler.core._state
    cells = {
        (name, *fr): cell.usage
        for name, node in world.catalog.tree.queues.items()
        for fr, cell in node.cells.items()
    }
    held = {name: sorted(m.key[1] for m in q.holding) for name, q in world.queues.items()}
    ranked = {name: [entry[3][1] for entry in q.candidates] for name, q in world.queues.items()}
    inflight = {m.key[1]: m.in_flight for m in world.workloads.values() if m.in_flight}
    return {"cells": cells, "held": held, "ranked": ranked, "inflight": inflight}


def test_one_decision_names_all_givers() -> None:
    scheduler = a_scheduler()
    assert scheduler.cycle(confirm=False) == ["high"]
    (decision,) = scheduler.decided
    (giver,) = decision.preempts
    assert (giver.namespace, giver.name, giver.uid) == ("ns", "low", "uid-low")
    assert giver.reason == "InClusterQueue"
    assert giver.grounds is not None
    assert (giver.grounds.priority, giver.grounds.by_priority) == (-1, 1)
    assert "ns/low at priority -1" in decision.message
    assert scheduler.preempted == [] and scheduler.waiting == []


def test_quota_moves_from_givers_to_receiver_at_once() -> None:
    scheduler = a_scheduler()
    scheduler.cycle(confirm=False)
    assert reserved(scheduler) == 10_000
    assert picture(scheduler)["held"] == {"cq": ["high", "mid"]}
    assert picture(scheduler)["inflight"] == {"high": InFlight.ASSIGNED, "low": InFlight.HANDED_ON}
    assert scheduler.cycle(confirm=False) == []


def test_givers_are_pending_again_once_the_handover_is_stored() -> None:
    scheduler = a_scheduler()
    assert scheduler.settle() == ["high"]
    assert scheduler.parked() == ["low"]
    assert picture(scheduler)["held"] == {"cq": ["high", "mid"]}
    assert picture(scheduler)["inflight"] == {}


def test_left_over_quota_wakes_parked_workloads() -> None:
    scheduler = SteppedScheduler()
    waits_for_a_check(scheduler)
    scheduler.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER, **CHECKED)
    scheduler.submit("big", "cq", "10", priority=-1)
    scheduler.settle()
    scheduler.submit("small", "cq", "4", priority=-1)
    assert scheduler.settle() == []
    scheduler.submit("high", "cq", "5", priority=1)
    assert scheduler.settle() == ["high", "small"]


def the_log_refuses(scheduler: SteppedScheduler) -> None:
    scheduler.core.forget("ns", "high", scheduler.decided[0].revision)


def the_domain_is_lost(scheduler: SteppedScheduler) -> None:
    scheduler.core.disown("queue-cq")


def the_queue_changes(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER, **CHECKED)


def the_preemptor_is_written_unchanged(scheduler: SteppedScheduler) -> None:
    scheduler.change("high")


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(the_log_refuses, id="the log does not take it"),
        pytest.param(the_domain_is_lost, id="the domain is lost"),
        pytest.param(the_queue_changes, id="the queue changes"),
        pytest.param(the_preemptor_is_written_unchanged, id="the controller refuses it"),
    ],
)
def test_an_undone_handover_restores_the_previous_state(happens: Any) -> None:
    scheduler = a_scheduler()
    before = picture(scheduler)
    scheduler.cycle(confirm=False)
    assert picture(scheduler) != before
    happens(scheduler)
    assert picture(scheduler) == before


def test_givers_get_their_quota_back_when_the_handover_fails() -> None:
    scheduler = SteppedScheduler()
    waits_for_a_check(scheduler)
    scheduler.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER, **CHECKED)
    for name in ("a", "b"):
        scheduler.submit(name, "cq", "5", priority=-1)
    scheduler.settle()
    scheduler.submit("high", "cq", "10", priority=1)
    assert scheduler.cycle(confirm=False) == ["high"]
    # A check said Ready: the decision named an older revision, and falls.
    scheduler.change("a", conditions={"Admitted": (True, "Admitted")})
    assert reserved(scheduler) == 15_000
    scheduler.change("high")
    assert reserved(scheduler) == 10_000
    assert picture(scheduler)["held"] == {"cq": ["a", "b"]}
    assert scheduler.cycle(confirm=False) == ["high"]
    assert (planned(scheduler), scheduler.decided[0].preempts) == (["a", "b"], ())


@pytest.mark.parametrize("how", ["finish", "gone"])
def test_a_giver_that_ends_during_a_handover_gives_its_quota_once(how: str) -> None:
    scheduler = a_scheduler()
    scheduler.cycle(confirm=False)
    getattr(scheduler, how)("low")
    assert reserved(scheduler) == 10_000
    scheduler.change("high")
    assert reserved(scheduler) == 5_000
    assert scheduler.cycle() == ["high"]
    assert picture(scheduler)["held"] == {"cq": ["high", "mid"]}


def test_a_preemptor_that_is_deleted_before_the_handover_gets_nothing() -> None:
    scheduler = a_scheduler()
    before = picture(scheduler)
    scheduler.cycle(confirm=False)
    scheduler.gone("high")
    assert picture(scheduler) == before


def planned(scheduler: SteppedScheduler) -> list[str]:
    pending = scheduler.decided[0].pending_preemption
    return sorted(victim.name for victim in pending.victims) if pending is not None else []


def test_no_quota_is_handed_over_if_a_victim_runs() -> None:
    scheduler = a_scheduler()
    scheduler.change("mid", conditions={"Admitted": (True, "Admitted")})
    scheduler.respec("high", podSets=_pods("10"))
    assert scheduler.cycle(confirm=False) == ["high"]
    assert (planned(scheduler), scheduler.decided[0].preempts) == (["low", "mid"], ())


def _pods(cpu: str) -> list[dict[str, Any]]:
    container = {"resources": {"requests": {"cpu": cpu}}}
    return [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]


def test_no_decision_is_made_about_a_workload_in_flight() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER)
    scheduler.submit("low", "cq", "5", priority=-1)
    assert scheduler.cycle(confirm=False) == ["low"]
    (assigned,) = scheduler.decided
    scheduler.submit("high", "cq", "5", priority=1)
    assert scheduler.cycle(confirm=False) == []
    assert scheduler.preempted == []
    while scheduler.core.has_work():
        scheduler.cycle(confirm=False)
    scheduler.confirm(assigned)
    assert scheduler.core.has_work()
    scheduler.cycle()
    assert [preemption.name for preemption in scheduler.all_preempted] == ["low"]
    assert scheduler.settle() == ["high"]


def test_as_in_kueue_reserved_victims_are_preempted_first() -> None:
    scheduler = a_scheduler(as_kueue=True)
    assert scheduler.cycle(confirm=False) == []
    assert [preemption.name for preemption in scheduler.preempted] == ["low"]


def test_left_over_quota_is_free_only_after_the_handover() -> None:
    scheduler = a_scheduler()
    scheduler.submit("higher", "cq", "3", priority=2)
    scheduler.submit("small", "cq", "2", priority=-1)
    assert scheduler.cycle(confirm=False) == ["higher"]
    (decision,) = scheduler.decided
    for _ in range(3):
        assert scheduler.cycle(confirm=False) == []
    assert not scheduler.core.has_work()
    scheduler.confirm(decision)
    assert "small" in scheduler.settle()


@pytest.mark.parametrize("giver", ["one", "one-default"])
def test_the_receiver_of_a_handover_is_not_preempted_in_that_cycle(giver: str) -> None:
    """The giver is a workload, or a variant of family ``one``."""
    scheduler = FamilyScheduler()
    scheduler.flavor("default")
    waits_for_a_check(scheduler)
    scheduler.put("Cohort", "co", {"resourceGroups": groups(default="4")})
    for name in ("a", "b"):
        scheduler.queue(
            name, "co", resourceGroups=groups(default="2"), preemption=RECLAIM, **CHECKED
        )
    policy = family_policy()
    lends = {"resourceGroups": groups(default="0"), "concurrentAdmission": policy, **CHECKED}
    scheduler.queue("lender", "co", **lends)
    scheduler.submit("two", "lender", "4", priority=1)
    if giver == "one":
        scheduler.submit("one", "lender", "4")
    else:
        scheduler.open_family("one", "lender", {"default": ["default"]}, [(1, {"cpu": "4"})])
    scheduler.settle()
    scheduler.submit("first", "a", "2", age=1)
    scheduler.submit("second", "b", "2")
    assert scheduler.cycle() == ["first"]
    assert [row.name for decision in scheduler.decided for row in decision.preempts] == [giver]
    assert scheduler.settle() == ["second"]


def test_a_head_that_fits_after_stopping_workloads_waits() -> None:
    """Kueue computes usage as if the victims were gone, and so admits more than the quota."""
    scheduler = SteppedScheduler()
    scheduler.queue("p", "co", resourceGroups=groups(default="10"), preemption=LOWER)
    for name in ("f", "g"):
        scheduler.queue(name, "co", resourceGroups=groups(default="0"))
    scheduler.submit("victim", "p", "8", priority=-1)
    scheduler.settle()
    scheduler.submit("preemptor", "p", "3", priority=5, age=3)
    scheduler.submit("fits", "f", "2", age=2)
    scheduler.submit("too-much", "g", "2", age=1)
    assert scheduler.cycle(confirm=False) == ["fits"]
    assert [preemption.name for preemption in scheduler.preempted] == ["victim"]
    scheduler.evict("victim", "Preempted")
    assert scheduler.cycle(confirm=False) == ["preemptor", "too-much"]
