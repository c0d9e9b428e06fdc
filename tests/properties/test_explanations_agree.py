"""An explanation predicts the decision of the next cycle about a head, and changes no state."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from test_preemption_machine import a_story, queues, workloads

from admittance.events.requests import ExplainReply
from admittance.scheduling.state.workload_info import WorkloadInfo
from support.cores.scheduling_story import Story
from support.examples import examples

Step = tuple[str, int, int, bool]
CASES = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
SPECS = st.lists(queues, min_size=3, max_size=3)
STEPS = st.lists(workloads, min_size=1, max_size=12)


def heads(story: Story) -> list[WorkloadInfo]:
    """The workloads that the next cycle tries; none if it requeues others first."""
    found: list[WorkloadInfo] = []
    for domain in story.core._state.domains.values():
        if domain.flush:
            return []
        for queue in domain.ready:
            head = queue.head()
            if head is not None and not head.in_flight:
                found.append(head)
    return found


def trace(story: Story) -> list[Any]:
    """All that a search could leave behind."""
    world = story.core._state
    cells = [
        (name, fr, cell.usage)
        for name, node in (*world.catalog.tree.queues.items(), *world.catalog.tree.cohorts.items())
        for fr, cell in node.cells.items()
    ]
    members = [
        (one.key, one.cursor, one.entry, one.inadmissible, one.in_flight, one.queue)
        for one in world.workloads.values()
    ]
    queued = [(name, queue.head(), queue.preemptor) for name, queue in world.queues.items()]
    return [cells, members, queued, world.busy.copy()]


def flavors(why: ExplainReply) -> list[dict[str, str]]:
    assert why.outlook is not None
    return list(why.outlook.flavors.values())


def check(story: Story, told: dict[str, ExplainReply], looked_at: list[WorkloadInfo]) -> None:
    """The cycle that just ran decided as the explanations predicted."""
    for one in story.decided:
        outlook = told[one.name].outlook
        assert outlook is not None
        assert outlook.outcome in ("Fits", "Preempts")
        got = [dict(place.flavors) for place in one.admission.pod_set_assignments]
        assert got == flavors(told[one.name])
        assert outlook.level == one.level
    if len(looked_at) != 1:
        return
    # It was the first of the cycle, so the result is that of the explanation.
    (head,) = looked_at
    outlook = told[head.key[1]].outlook
    assert outlook is not None
    assigned = [one.name for one in story.decided]
    going = {one.name for one in story.preempted}
    match outlook.outcome:
        case "Fits":
            assert assigned == [head.key[1]]
        case "Preempts" if not assigned:
            assert going <= {one.name for one in outlook.victims}
            assert all(one.by == f"ns/{head.key[1]}" for one in story.preempted)
        case "NoFit" | "NoCandidates":
            assert not assigned
            assert not going


def says_who_is_in_the_way(why: ExplainReply) -> None:
    """If quota is short and no workload is preempted, a rule and a quota holder are named."""
    told = {(bar.flavor, bar.resource) for one in why.flavors for bar in one.barriers}
    for one in why.flavors:
        short = [room for room in one.rooms if room.reason == "WaitingForQuota"]
        if short and one.outcome in ("NoCandidates", "NoFit"):
            assert all((one.flavor, room.resource) in told for room in short)
            assert why.held_by
    assert why.unblocked_by or why.outlook is None or why.outlook.outcome == "Fits"


@CASES
@given(SPECS, STEPS, st.booleans())
def test_the_next_cycle_does_as_explained(
    specs: list[dict[str, Any]], asked: list[Step], fair: bool
) -> None:
    story = a_story(specs, fair=fair)
    for n, (queue, cpu, priority, ends) in enumerate(asked):
        story.submit(f"w{n}", queue, str(cpu), priority=priority, age=100 - n)
        for _ in range(6):
            if not story.core.has_work():
                break
            before = trace(story)
            told = {name: story.why(name) for name in story.stored}
            assert trace(story) == before
            for why in told.values():
                says_who_is_in_the_way(why)
            looked_at = heads(story)
            story.cycle(confirm=False)
            if looked_at:
                check(story, told, looked_at)
            for decision in story.decided:
                story.confirm(decision)
            for victim in story.preempted:
                story.evict(victim.name, "Preempted")
        if ends:
            story.finish(f"w{n}")
            story.stored.pop(f"w{n}")


@CASES
@given(SPECS, STEPS, st.booleans())
def test_asking_changes_no_decision(
    specs: list[dict[str, Any]], asked: list[Step], fair: bool
) -> None:
    silent, curious = a_story(specs, fair=fair), a_story(specs, fair=fair)
    for n, (queue, cpu, priority, _) in enumerate(asked):
        for story in (silent, curious):
            story.submit(f"w{n}", queue, str(cpu), priority=priority, age=100 - n)
        for _ in range(4):
            for name in curious.stored:
                curious.why(name)
            assert silent.cycle() == curious.cycle()
            assert silent.preempted == curious.preempted
    assert {name: silent.admission(name) for name in silent.stored} == {
        name: curious.admission(name) for name in curious.stored
    }
