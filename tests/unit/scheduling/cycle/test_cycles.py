"""Cycles: their count, the changes that wake inadmissible workloads, and the flavors left by a
search."""

from __future__ import annotations

from typing import Any

from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler, groups


def parked_scheduler() -> SteppedScheduler:
    """One workload too large for its queue, parked."""
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="1"))
    scheduler.submit("large", "cq", "5")
    scheduler.settle()
    assert scheduler.parked() == ["large"]
    return scheduler


def test_owning_a_domain_again_wakes_no_workload() -> None:
    scheduler = parked_scheduler()
    scheduler.core.own("queue-cq")
    assert not scheduler.core.wake_due(now=scheduler.now)
    assert scheduler.parked() == ["large"]


def test_a_woken_workload_competes_before_the_cycle() -> None:
    scheduler = parked_scheduler()
    scheduler.core.flush("cq")
    assert scheduler.core.wake_due(now=scheduler.now)
    assert scheduler.active() == ["large"]


def test_a_stopped_queue_adds_nothing_to_a_cycle() -> None:
    scheduler = parked_scheduler()
    scheduler.queue("cq", resourceGroups=groups(default="1"), stopPolicy="Hold")
    assert not scheduler.core.wake_due(now=scheduler.now)


def test_a_cycle_without_heads_does_not_age_saved_searches() -> None:
    """A saved cursor counts in the next cycle. Calls that look at no head are not cycles."""
    scheduler = parked_scheduler()
    number = scheduler.core._cycle.number
    scheduler.core.cycle(now=scheduler.now)
    scheduler.core.cycle(now=scheduler.now)
    assert scheduler.core._cycle.number == number


def test_a_deleted_workload_without_a_queue_wakes_the_tree() -> None:
    scheduler = parked_scheduler()
    scheduler.put(
        "LocalQueue", "held", {"clusterQueue": "cq", "stopPolicy": "Hold"}, namespace="ns"
    )
    scheduler.submit("off", "held")
    assert not scheduler.core.wake_due(now=scheduler.now)
    scheduler.gone("off")
    assert scheduler.core.wake_due(now=scheduler.now)


def test_a_search_does_not_continue_in_another_cohort_tree() -> None:
    """A saved cursor counts the edits of its tree; the new tree may have had fewer."""
    scheduler = SteppedScheduler()
    for nominal in "123456":
        scheduler.queue("cq", "old", resourceGroups=groups(default=nominal))
    queue = scheduler.core._state.queues["cq"]
    assert queue.domain is not None
    before = queue.generation + queue.domain.generation
    scheduler.queue("cq", "new", resourceGroups=groups(default="6"))
    assert queue.domain.name == "cohort-new"
    assert queue.generation + queue.domain.generation > before


def rows(**quotas: str) -> list[dict[str, str]]:
    return [{"name": name, "nominalQuota": nominal} for name, nominal in quotas.items()]


def a_queue_that_would_rather_preempt(*, gpu: bool = False, **config: Any) -> SteppedScheduler:
    """A queue whose cpu is taken by "low", and whose memory beyond 1 must be borrowed. With ``gpu``
    the queue also has a resource group for gpus, all of which are taken."""
    scheduler = SteppedScheduler(Config(**config))
    scheduler.flavor("default-gpu")

    def group(cpu: str, memory: str) -> list[dict[str, Any]]:
        flavor_quotas: list[dict[str, Any]] = [
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [{"name": "default", "resources": rows(cpu=cpu, memory=memory)}],
            }
        ]
        if gpu:
            flavor = {"name": "default-gpu", "resources": rows(gpu=cpu)}
            flavor_quotas.append({"coveredResources": ["gpu"], "flavors": [flavor]})
        return flavor_quotas

    scheduler.queue("lender", "co", resourceGroups=group("0", "8"))
    scheduler.queue(
        "cq",
        "co",
        resourceGroups=group("4", "1"),
        preemption={"withinClusterQueue": "LowerPriority"},
        flavorFungibility={
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "TryNextFlavor",
            "preference": "PreemptionOverBorrowing",
        },
    )
    more = {"gpu": "4"} if gpu else {}
    scheduler.submit("low", "cq", pods=[{"requests": {"cpu": "4", "memory": "1", **more}}])
    assert scheduler.settle() == ["low"]
    high = {"cpu": "4", "memory": "4", **more}
    scheduler.submit("high", "cq", pods=[{"requests": high}], priority=1)
    scheduler.submit("small", "cq", pods=[{"requests": {"memory": "1"}}])
    return scheduler


def test_a_flavor_that_needs_both_borrowing_and_preemption_does_not_fit() -> None:
    """PreemptionOverBorrowing holds borrowing to be the worse of the two, so that the flavor counts
    as one that fits by borrowing; what has to be preempted for it is preempted all the same."""
    scheduler = a_queue_that_would_rather_preempt()
    assert scheduler.cycle() == []
    assert [preemption.name for preemption in scheduler.preempted] == ["low"]
    assert scheduler.settle() == ["high", "small"]


def test_as_kueue_such_a_flavor_fits_by_name_and_keeps_its_queue() -> None:
    """In Kueue the resource that stands for the flavor stands for the pod set, too: nothing is
    preempted, there is never room, and the head goes back to where it was."""
    scheduler = a_queue_that_would_rather_preempt(as_kueue=True)
    assert scheduler.settle() == []
    assert scheduler.preempted == []
    assert scheduler.parked() == []
    scheduler.finish("low")
    assert scheduler.settle() == ["high", "small"]


def test_as_kueue_a_preempting_group_sets_the_mode_of_each_resource() -> None:
    scheduler = a_queue_that_would_rather_preempt(gpu=True, as_kueue=True)
    assert scheduler.cycle() == []
    assert [preemption.name for preemption in scheduler.preempted] == ["low"]
