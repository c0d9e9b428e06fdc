"""An explanation predicts the decision of the next cycle about a head, and changes no state."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from admittance.events.requests.explanation import ExplainReply
from admittance.scheduling.state.workload_info import WorkloadInfo
from properties.scheduling.test_preemption_machine import a_scheduler, queues, workloads
from support.cores.stepped_scheduler import SteppedScheduler
from support.examples import examples
from unit.scheduling.explain.test_remedies import says_what_it_is

Step = tuple[str, int, int, bool]
CASES = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
SPECS = st.lists(queues, min_size=3, max_size=3)
STEPS = st.lists(workloads, min_size=1, max_size=12)


def heads(scheduler: SteppedScheduler) -> list[WorkloadInfo]:
    """The workloads that the next cycle tries; none if it requeues others first."""
    heads: list[WorkloadInfo] = []
    for domain in scheduler.core._state.domains.values():
        if domain.flush:
            return []
        for queue in domain.ready:
            head = queue.head()
            if head is not None and not head.in_flight:
                heads.append(head)
    return heads


def trace(scheduler: SteppedScheduler) -> list[Any]:
    """Everything that a search could fail to clean up."""
    world = scheduler.core._state
    cells = [
        (name, fr, cell.usage)
        for name, node in (*world.catalog.tree.queues.items(), *world.catalog.tree.cohorts.items())
        for fr, cell in node.cells.items()
    ]
    members = [
        (
            workload.key,
            workload.cursor,
            workload.entry,
            workload.inadmissible,
            workload.in_flight,
            workload.queue,
        )
        for workload in world.workloads.values()
    ]
    queued = [(name, queue.head(), queue.preemptor) for name, queue in world.queues.items()]
    return [cells, members, queued, world.busy.copy()]


def flavors(why: ExplainReply) -> list[dict[str, str]]:
    assert why.outlook is not None
    return list(why.outlook.flavors.values())


def check(
    scheduler: SteppedScheduler,
    explanations: dict[str, ExplainReply],
    looked_at: list[WorkloadInfo],
) -> None:
    """Checks that the last cycle decided as the explanations predicted."""
    for decision in scheduler.decided:
        outlook = explanations[decision.name].outlook
        assert outlook is not None
        assert outlook.outcome in ("Fits", "Preempts")
        got = [dict(place.flavors) for place in decision.admission.pod_set_assignments]
        assert got == flavors(explanations[decision.name])
        assert outlook.level == decision.level
    if len(looked_at) != 1:
        return
    # It was the first of the cycle, so the result is that of the explanation.
    (head,) = looked_at
    outlook = explanations[head.key[1]].outlook
    assert outlook is not None
    assigned = [decision.name for decision in scheduler.decided]
    going = {preemption.name for preemption in scheduler.preempted}
    match outlook.outcome:
        case "Fits":
            assert assigned == [head.key[1]]
        case "Preempts" if not assigned:
            assert going <= {victim.name for victim in outlook.victims}
            assert all(preemption.by == f"ns/{head.key[1]}" for preemption in scheduler.preempted)
        case "NoFit" | "NoCandidates":
            assert not assigned
            assert not going


def says_who_is_in_the_way(why: ExplainReply) -> None:
    """If quota is short and no workload is preempted, a rule and a quota holder are named."""
    named = {(bar.flavor, bar.resource) for flavor in why.flavors for bar in flavor.barriers}
    for flavor in why.flavors:
        short = [room for room in flavor.rooms if room.reason == "WaitingForQuota"]
        if short and flavor.outcome in ("NoCandidates", "NoFit"):
            assert all((flavor.flavor, room.resource) in named for room in short)
            assert why.held_by
    assert why.unblocked_by or why.outlook is None or why.outlook.outcome == "Fits"
    assert all(says_what_it_is(remedy) for remedy in why.remedies)


@CASES
@given(SPECS, STEPS, st.booleans())
def test_the_next_cycle_decides_as_explained(
    specs: list[dict[str, Any]], asked: list[Step], fair: bool
) -> None:
    scheduler = a_scheduler(specs, fair=fair)
    for n, (queue, cpu, priority, ends) in enumerate(asked):
        scheduler.submit(f"w{n}", queue, str(cpu), priority=priority, age=100 - n)
        for _ in range(6):
            if not scheduler.core.has_work():
                break
            before = trace(scheduler)
            explanations = {name: scheduler.why(name) for name in scheduler.stored}
            assert trace(scheduler) == before
            for why in explanations.values():
                says_who_is_in_the_way(why)
            looked_at = heads(scheduler)
            scheduler.cycle(confirm=False)
            if looked_at:
                check(scheduler, explanations, looked_at)
            for decision in scheduler.decided:
                scheduler.confirm(decision)
            for victim in scheduler.preempted:
                scheduler.evict(victim.name, "Preempted")
        if ends:
            scheduler.finish(f"w{n}")
            scheduler.stored.pop(f"w{n}")


@CASES
@given(SPECS, STEPS, st.booleans())
def test_asking_changes_no_decision(
    specs: list[dict[str, Any]], asked: list[Step], fair: bool
) -> None:
    silent, curious = a_scheduler(specs, fair=fair), a_scheduler(specs, fair=fair)
    for n, (queue, cpu, priority, _) in enumerate(asked):
        for scheduler in (silent, curious):
            scheduler.submit(f"w{n}", queue, str(cpu), priority=priority, age=100 - n)
        for _ in range(4):
            for name in curious.stored:
                curious.why(name)
            assert silent.cycle() == curious.cycle()
            assert silent.preempted == curious.preempted
    assert {name: silent.admission(name) for name in silent.stored} == {
        name: curious.admission(name) for name in curious.stored
    }
