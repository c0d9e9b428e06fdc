"""Migration to a better variant, with quota that is reserved for it until the job has stopped."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import WorkloadInfo
from support.cores.families.family_scheduler import FamilyScheduler, full

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def runs_on_mid(**spec: Any) -> FamilyScheduler:
    """Family ``a`` runs on the second best flavor, and the best one is taken."""
    scheduler = FamilyScheduler()
    for names in spec.get("checks", {}).values():
        for name in names:
            scheduler.check(name)
    scheduler.family_queue(**spec)
    full(scheduler, best="4")
    scheduler.passes("r-best")
    scheduler.settle()
    scheduler.family("a")
    scheduler.settle()
    assert scheduler.admitted("a") == "mid"
    return scheduler


def member(scheduler: FamilyScheduler, name: str) -> WorkloadInfo:
    return scheduler.core._state.workloads["ns", name]


def test_both_variants_of_a_migration_are_in_flight_together() -> None:
    scheduler = runs_on_mid()
    scheduler.finish("r-best")
    assert scheduler.cycle(confirm=False) == ["a-best"]
    (decision,) = scheduler.decided
    assert member(scheduler, "a-mid").in_flight is InFlight.MIGRATED
    assert member(scheduler, "a-mid").is_leaving
    assert scheduler.cycle() == []
    scheduler.core.forget("ns", "a-best", decision.revision)
    assert member(scheduler, "a-mid").in_flight is InFlight.NOTHING
    assert member(scheduler, "a-best").charge is None
    assert scheduler.cycle() == ["a-best"], "decided anew"


@pytest.mark.parametrize("name", ["a-best", "a-mid"])
def test_an_edit_of_the_queue_ends_both(name: str) -> None:
    scheduler = runs_on_mid()
    scheduler.finish("r-best")
    scheduler.cycle(confirm=False)
    scheduler.family_queue(flavors={"best": "4", "mid": "4", "worst": "5"})
    assert member(scheduler, name).in_flight is InFlight.NOTHING
    assert scheduler.cycle() == ["a-best"]


def test_an_unaccepted_decision_ends_with_the_next_event_of_its_workload() -> None:
    scheduler = runs_on_mid()
    scheduler.finish("r-best")
    scheduler.cycle(confirm=False)
    scheduler.change("a-best", conditions={"QuotaReserved": (False, "PendingEvaluation")})
    assert member(scheduler, "a-mid").in_flight is InFlight.NOTHING
    assert scheduler.cycle() == ["a-best"]


def test_a_reserved_victim_is_preempted_before_the_job_is_stopped() -> None:
    scheduler = FamilyScheduler()
    scheduler.check("slow")
    reclaims: dict[str, Any] = {"preemption": {"reclaimWithinCohort": "Any"}}
    scheduler.family_queue(cohort="c", flavors={"best": "4", "mid": "4"}, **reclaims)
    scheduler.family_queue("other", cohort="c", flavors={"best": "0"}, checks={"best": ["slow"]})
    full(scheduler, best="4")
    scheduler.family("a")
    scheduler.settle()
    assert scheduler.admitted("a") == "mid"
    scheduler.opens("a-best")
    scheduler.change("a", conditions={"Requeued": (False, "PodsReadyTimeout")})
    scheduler.finish("r-best")
    scheduler.admits = False
    scheduler.submit("weak", "other", "4")
    assert scheduler.settle() == ["weak"], "lent, and waits for its check"
    scheduler.change("a", conditions={"Requeued": (True, "BackoffFinished")})
    scheduler.cycle()
    assert [preemption.name for preemption in scheduler.preempted] == ["weak"]
    assert scheduler.decided == [], "its quota is not handed to a variant with a running sibling"
    assert scheduler.settle() == ["a-best"]
    assert scheduler.stored["a"].status.migrating_to == "a-best"


def test_a_variant_waits_if_its_admitted_sibling_is_preempted() -> None:
    scheduler = FamilyScheduler()
    reclaims: dict[str, Any] = {"preemption": {"reclaimWithinCohort": "Any"}}
    scheduler.family_queue(cohort="c", flavors={"best": "4", "mid": "0"}, **LOWER)
    scheduler.queue(
        "owner",
        "c",
        resourceGroups=[
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": "mid", "resources": [{"name": "cpu", "nominalQuota": "4"}]},
                ],
            }
        ],
        **reclaims,
    )
    full(scheduler, best="4")
    scheduler.family("a")
    scheduler.settle()
    assert scheduler.admitted("a") == "mid", "borrowed"
    scheduler.submit("mine", "owner", "4", priority=9)
    scheduler.finish("r-best")
    scheduler.cycle(confirm=False)
    decided = {type(decision).__name__: decision.name for decision in scheduler.decisions}
    both = {"Assigned", "Preempted"}
    assert not both <= decided.keys(), "a job is stopped for one reason"
