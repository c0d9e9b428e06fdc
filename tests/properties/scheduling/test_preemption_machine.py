"""Random workloads and policies: only workloads that a policy allows are preempted, the search
does not change the state, and no quota is exceeded.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from admittance.api.fields.units import amount
from admittance.events.facts import Preempted
from admittance.quota.cell import available
from admittance.scheduling.state.config import CohortFairSharing, Config
from support.cores.stepped_scheduler import SteppedScheduler, groups
from support.examples import examples

QUEUES = ("a", "b", "c")
FLAVORS = ("one", "two")

within = st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])
reclaim = st.sampled_from(["Never", "LowerPriority", "Any"])
policies = st.fixed_dictionaries({"withinClusterQueue": within, "reclaimWithinCohort": reclaim})
queues = st.fixed_dictionaries(
    {
        "cohort": st.sampled_from(["left", "right"]),
        "nominal": st.tuples(st.integers(0, 4), st.integers(0, 4)),
        "policies": policies,
        "borrows": st.booleans(),
    }
)
workloads = st.tuples(st.sampled_from(QUEUES), st.integers(1, 5), st.integers(-2, 2), st.booleans())


def a_scheduler(specs: list[dict[str, Any]], *, fair: bool) -> SteppedScheduler:
    """Queues in two cohorts below one root."""
    sharing = CohortFairSharing() if fair else None
    scheduler = SteppedScheduler(
        Config(preemption=True, partial_admission=True, fair_sharing=sharing)
    )
    for flavor in FLAVORS:
        scheduler.flavor(flavor)
    for cohort in ("left", "right"):
        scheduler.put("Cohort", cohort, {"parentName": "root"})
    for name, spec in zip(QUEUES, specs, strict=True):
        preemption = dict(spec["policies"])
        if spec["borrows"] and preemption["reclaimWithinCohort"] != "Never":
            preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
        first, two = spec["nominal"]
        scheduler.queue(
            name,
            spec["cohort"],
            resourceGroups=groups(one=str(first), two=str(two)),
            preemption=preemption,
        )
    return scheduler


def charged(scheduler: SteppedScheduler) -> dict[tuple[str, str], int]:
    """Queue and flavor to what the written admissions take."""
    total: dict[tuple[str, str], int] = {}
    for stored in scheduler.stored.values():
        admission = stored.status.admission
        if admission is None:
            continue
        for place in admission.pod_set_assignments:
            for resource, flavor in place.flavors.items():
                key = admission.cluster_queue, flavor
                much = amount(resource, place.resource_usage[resource])
                total[key] = total.get(key, 0) + much
    return total


def is_given_up(scheduler: SteppedScheduler, preemption: Preempted) -> bool:
    """Whether a policy of the preemptor's queue allows to preempt the victim."""
    members = scheduler.core._state.workloads
    preemptor = members[("ns", preemption.by.removeprefix("ns/"))]
    victim = members[("ns", preemption.name)]
    queue = scheduler.core.catalog.cluster_queues[preemptor.local_queue[1]]
    policy = queue.spec.preemption
    if preemption.reason == "InClusterQueue":
        assert victim.local_queue == preemptor.local_queue
        rule: str = policy.within_cluster_queue
    else:
        assert victim.local_queue != preemptor.local_queue
        rule = policy.reclaim_within_cohort
    assert victim.queued_at is not None and preemptor.queued_at is not None
    if rule == "LowerOrNewerEqualPriority" and victim.priority == preemptor.priority:
        return victim.queued_at > preemptor.queued_at
    return rule == "Any" or (rule != "Never" and victim.priority < preemptor.priority)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(queues, min_size=3, max_size=3),
    st.lists(workloads, min_size=1, max_size=14),
    st.booleans(),
)
def test_preemption_keeps_its_invariants(
    specs: list[dict[str, Any]], asked: list[tuple[str, int, int, bool]], fair: bool
) -> None:
    scheduler = a_scheduler(specs, fair=fair)
    tree = scheduler.core.catalog.tree
    for n, (queue, cpu, priority, ends) in enumerate(asked):
        scheduler.submit(f"w{n}", queue, str(cpu), priority=priority, age=100 - n)
        for _ in range(6):
            if not scheduler.core.has_work():
                break
            scheduler.cycle(confirm=False)
            assert all(is_given_up(scheduler, preemption) for preemption in scheduler.preempted)
            for decision in scheduler.decided:
                scheduler.confirm(decision)
            for victim in scheduler.preempted:
                scheduler.evict(victim.name, "Preempted")
            usage = charged(scheduler)
            for name in QUEUES:
                for flavor in FLAVORS:
                    cell = tree.queues[name].cell((flavor, "cpu"))
                    assert cell.usage == usage.get((name, flavor), 0)
                    assert available(cell) >= 0
        if ends:
            scheduler.finish(f"w{n}")
            scheduler.stored.pop(f"w{n}")
