"""Only the best eligible sibling of a family preempts, and no worse sibling starts before its
attempt has ended."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.workload import FAMILY_GATE, GatePosition
from admittance.events.facts import Refused
from admittance.scheduling.state.config import Config
from support.cores.families.family_scheduler import FamilyScheduler

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
GATED = "AdmissionGated"


def contested(mode: str = "UpgradeOnly", *taken: str, **spec: Any) -> FamilyScheduler:
    """A queue with a family; workloads of lower priority fill the flavors ``taken``."""
    scheduler = FamilyScheduler()
    scheduler.family_queue(mode=mode, flavors={"best": "4", "mid": "4"}, **LOWER, **spec)
    for flavor in taken:
        scheduler.submit(
            f"r-{flavor}",
            "cq",
            "4",
            priority=-1,
            age=100,
            annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": flavor},
        )
    scheduler.settle()
    return scheduler


def refused(scheduler: FamilyScheduler) -> dict[str, str]:
    return {refusal.name: refusal.refusal.reason for refusal in scheduler.waiting}


def test_siblings_are_refused_at_once_when_a_worse_one_is_blocked() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(flavors={"best": "2", "mid": "4"}, **LOWER)
    scheduler.submit("r", "cq", "4", priority=-1)
    scheduler.settle()
    scheduler.family("a")
    scheduler.settle()
    assert refused(scheduler) == {"a-best": "ExceedsMaxQuota", "a-mid": GATED}
    assert scheduler.now == scheduler.waiting[0].time, (
        "without the pause in which refusals may change"
    )


def test_a_reservation_with_a_plan_needs_the_open_gate() -> None:
    scheduler = FamilyScheduler()
    scheduler.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    scheduler.family_queue(flavors={"best": "4"}, checks={"best": ["slow"]}, **LOWER)
    scheduler.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    scheduler.submit("r", "cq", "4", priority=-1)
    scheduler.settle()
    scheduler.passes("r")
    scheduler.settle()
    scheduler.family("a")
    assert scheduler.settle() == []
    scheduler.opens("a-best")
    assert scheduler.settle() == ["a-best"]
    assert scheduler.stored["a-best"].status.pending_preemption is not None


def test_a_user_s_gate_that_is_closed_keeps_a_variant_from_preempting_too() -> None:
    scheduler = contested("UpgradeOnly", "best")
    scheduler.family("a")
    spec_gates = [{"name": "theirs"}, {"name": FAMILY_GATE}]
    scheduler.respec("a-best", preemptionGates=spec_gates)
    scheduler.settle()
    scheduler.opens("a-best")
    scheduler.settle()
    assert scheduler.all_preempted == []
    assert scheduler.admitted("a") == "mid", "its own gate is open, so no sibling waits for it"


@pytest.mark.parametrize("shares", [True, False])
def test_a_refusal_for_a_closed_gate_is_published_once(shares: bool) -> None:
    from admittance.scheduling.state.config import CohortFairSharing

    scheduler = FamilyScheduler(Config(fair_sharing=CohortFairSharing() if shares else None))
    scheduler.family_queue(flavors={"best": "4"}, **LOWER)
    scheduler.submit("r", "cq", "4", priority=-1)
    scheduler.settle()
    scheduler.family("a")
    for _ in range(3):
        scheduler.settle()
        scheduler.core.flush("cq")
    assert [refusal.name for refusal in scheduler.waiting if isinstance(refusal, Refused)] == [
        "a-best"
    ]


def test_a_variant_that_lost_its_gate_preempts_no_workload() -> None:
    scheduler = FamilyScheduler()
    scheduler.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    scheduler.family_queue(flavors={"best": "4"}, checks={"best": ["slow"]}, **LOWER)
    scheduler.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    scheduler.submit("r", "cq", "4", priority=-1)
    scheduler.settle()
    scheduler.passes("r")
    scheduler.settle()
    scheduler.family("a")
    scheduler.settle()
    scheduler.opens("a-best")
    scheduler.settle()
    closed = (GatePosition(name=FAMILY_GATE, position="Closed"),)
    scheduler.change("a-best", preemption_gates=closed)
    scheduler.passes("a-best")
    scheduler.cycle()
    assert scheduler.all_preempted == []
    assert [type(decision).__name__ for decision in scheduler.decisions] == ["Revoked"]
