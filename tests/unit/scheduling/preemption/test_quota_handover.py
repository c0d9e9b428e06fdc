"""Quota of workloads with only a reservation passes on in one decision, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.requests import Queues
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.workload_info import InFlight
from support.cores.scheduling_story import Story, groups

LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any", **LOWER}


CHECKED = {"admissionChecks": ["later"]}


def waits_for_a_check(story: Story) -> None:
    """Workloads with quota are not admitted."""
    story.admits = False
    story.put("AdmissionCheck", "later", {"controllerName": "ctl"})


def a_story(nominal: str = "10", **more: Any) -> Story:
    """Two workloads merely hold reservations of all there is, and one that matters more waits."""
    story = Story(Config(**more))
    waits_for_a_check(story)
    story.queue("cq", resourceGroups=groups(default=nominal), preemption=LOWER, **CHECKED)
    story.submit("low", "cq", "5", priority=-1, age=2)
    story.submit("mid", "cq", "5", priority=0, age=1)
    story.settle()
    story.submit("high", "cq", "5", priority=1)
    return story


def reserved(story: Story, queue: str = "cq") -> int:
    (status,) = story.core.queues(Queues(cluster_queue=queue)).cluster_queues
    return sum(one.reserved for one in status.usage)


def picture(story: Story) -> dict[str, Any]:
    """All charges by workload, and the candidates for preemption in order."""
    world = story.core._state
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
    story = a_story()
    assert story.cycle(confirm=False) == ["high"]
    (one,) = story.decided
    (giver,) = one.preempts
    assert (giver.namespace, giver.name, giver.uid) == ("ns", "low", "uid-low")
    assert giver.reason == "InClusterQueue"
    assert giver.grounds is not None
    assert (giver.grounds.priority, giver.grounds.by_priority) == (-1, 1)
    assert "ns/low at priority -1" in one.message
    assert story.preempted == [] and story.waiting == []


def test_quota_moves_from_givers_to_receiver_at_once() -> None:
    story = a_story()
    story.cycle(confirm=False)
    assert reserved(story) == 10_000
    assert picture(story)["held"] == {"cq": ["high", "mid"]}
    assert picture(story)["inflight"] == {"high": InFlight.ASSIGNED, "low": InFlight.HANDED_ON}
    assert story.cycle(confirm=False) == []


def test_givers_are_pending_again_once_the_handover_is_stored() -> None:
    story = a_story()
    assert story.settle() == ["high"]
    assert story.parked() == ["low"]
    assert picture(story)["held"] == {"cq": ["high", "mid"]}
    assert picture(story)["inflight"] == {}


def test_left_over_quota_wakes_parked_workloads() -> None:
    story = Story()
    waits_for_a_check(story)
    story.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER, **CHECKED)
    story.submit("big", "cq", "10", priority=-1)
    story.settle()
    story.submit("small", "cq", "4", priority=-1)
    assert story.settle() == []
    story.submit("high", "cq", "5", priority=1)
    assert story.settle() == ["high", "small"]


def the_log_refuses(story: Story) -> None:
    story.core.forget("ns", "high", story.decided[0].revision)


def the_domain_is_lost(story: Story) -> None:
    story.core.disown("queue-cq")


def the_queue_changes(story: Story) -> None:
    story.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER, **CHECKED)


def the_preemptor_is_written_unchanged(story: Story) -> None:
    story.change("high")


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
    story = a_story()
    before = picture(story)
    story.cycle(confirm=False)
    assert picture(story) != before
    happens(story)
    assert picture(story) == before


def test_givers_get_their_quota_back_when_the_handover_fails() -> None:
    story = Story()
    waits_for_a_check(story)
    story.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER, **CHECKED)
    for name in ("a", "b"):
        story.submit(name, "cq", "5", priority=-1)
    story.settle()
    story.submit("high", "cq", "10", priority=1)
    assert story.cycle(confirm=False) == ["high"]
    # A check said Ready: the decision named an older revision, and falls.
    story.change("a", conditions={"Admitted": (True, "Admitted")})
    assert reserved(story) == 15_000
    story.change("high")
    assert reserved(story) == 10_000
    assert picture(story)["held"] == {"cq": ["a", "b"]}
    assert story.cycle(confirm=False) == ["high"]
    assert (planned(story), story.decided[0].preempts) == (["a", "b"], ())


@pytest.mark.parametrize("how", ["finish", "gone"])
def test_a_giver_that_ended_meanwhile_gives_its_quota_once(how: str) -> None:
    story = a_story()
    story.cycle(confirm=False)
    getattr(story, how)("low")
    assert reserved(story) == 10_000
    story.change("high")
    assert reserved(story) == 5_000
    assert story.cycle() == ["high"]
    assert picture(story)["held"] == {"cq": ["high", "mid"]}


def test_a_preemptor_that_is_deleted_meanwhile_gets_nothing() -> None:
    story = a_story()
    before = picture(story)
    story.cycle(confirm=False)
    story.gone("high")
    assert picture(story) == before


def planned(story: Story) -> list[str]:
    pending = story.decided[0].pending_preemption
    return sorted(one.name for one in pending.victims) if pending is not None else []


def test_no_quota_is_handed_over_if_a_victim_runs() -> None:
    story = a_story()
    story.change("mid", conditions={"Admitted": (True, "Admitted")})
    story.respec("high", podSets=_pods("10"))
    assert story.cycle(confirm=False) == ["high"]
    assert (planned(story), story.decided[0].preempts) == (["low", "mid"], ())


def _pods(cpu: str) -> list[dict[str, Any]]:
    container = {"resources": {"requests": {"cpu": cpu}}}
    return [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]


def test_no_decision_is_made_about_a_workload_in_flight() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER)
    story.submit("low", "cq", "5", priority=-1)
    assert story.cycle(confirm=False) == ["low"]
    (assigned,) = story.decided
    story.submit("high", "cq", "5", priority=1)
    assert story.cycle(confirm=False) == []
    assert story.preempted == []
    while story.core.has_work():
        story.cycle(confirm=False)
    story.confirm(assigned)
    assert story.core.has_work()
    story.cycle()
    assert [one.name for one in story.told] == ["low"]
    assert story.settle() == ["high"]


def test_as_in_kueue_reserved_victims_are_preempted_first() -> None:
    story = a_story(as_kueue=True)
    assert story.cycle(confirm=False) == []
    assert [one.name for one in story.preempted] == ["low"]


def test_left_over_quota_is_free_only_after_the_handover() -> None:
    story = a_story()
    story.submit("higher", "cq", "3", priority=2)
    story.submit("small", "cq", "2", priority=-1)
    assert story.cycle(confirm=False) == ["higher"]
    (one,) = story.decided
    for _ in range(3):
        assert story.cycle(confirm=False) == []
    assert not story.core.has_work()
    story.confirm(one)
    assert "small" in story.settle()


def test_the_receiver_of_a_handover_is_no_victim_in_that_cycle() -> None:
    story = Story()
    waits_for_a_check(story)
    story.put("Cohort", "co", {"resourceGroups": groups(default="4")})
    for name in ("a", "b"):
        story.queue(name, "co", resourceGroups=groups(default="2"), preemption=RECLAIM, **CHECKED)
    story.queue("lender", "co", resourceGroups=groups(default="0"), **CHECKED)
    story.submit("one", "lender", "4", age=2)
    story.submit("two", "lender", "4", age=1)
    story.settle()
    story.submit("first", "a", "2", age=1)
    story.submit("second", "b", "2")
    assert story.cycle() == ["first"]
    assert [giver.name for one in story.decided for giver in one.preempts] == ["one"]
    assert story.settle() == ["second"]


def test_a_head_that_fits_after_stopping_workloads_waits() -> None:
    """Kueue measures it as if they were gone, and so admits more than there is."""
    story = Story()
    story.queue("p", "co", resourceGroups=groups(default="10"), preemption=LOWER)
    for name in ("f", "g"):
        story.queue(name, "co", resourceGroups=groups(default="0"))
    story.submit("victim", "p", "8", priority=-1)
    story.settle()
    story.submit("preemptor", "p", "3", priority=5, age=3)
    story.submit("fits", "f", "2", age=2)
    story.submit("too-much", "g", "2", age=1)
    assert story.cycle(confirm=False) == ["fits"]
    assert [one.name for one in story.preempted] == ["victim"]
    story.evict("victim", "Preempted")
    assert story.cycle(confirm=False) == ["preemptor", "too-much"]
