"""One sibling preempts at a time, the best that may; a worse one never starts meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.workload import FAMILY_GATE, GatePosition
from admittance.events.facts import Preempted, Refused
from admittance.scheduling.state.config import Config
from support.cores.family_story import FamilyStory

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
GATED = "AdmissionGated"


def contested(mode: str = "UpgradeOnly", *taken: str, **spec: Any) -> FamilyStory:
    """The flavors that are ``taken`` are full of workloads that matter less."""
    story = FamilyStory()
    story.families(mode=mode, flavors={"best": "4", "mid": "4"}, **LOWER, **spec)
    for flavor in taken:
        story.submit(
            f"r-{flavor}",
            "cq",
            "4",
            priority=-1,
            age=100,
            annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": flavor},
        )
    story.settle()
    return story


def refused(story: FamilyStory) -> dict[str, str]:
    return {one.name: one.refusal.reason for one in story.waiting}


@pytest.mark.parametrize("mode", ["NoMigration", "UpgradeOnly"])
def test_the_better_variant_that_needs_a_victim_is_chosen(
    mode: str,
) -> None:
    story = contested(mode, "best")
    story.family("a")
    assert story.settle() == []
    assert refused(story) == {"a-best": GATED}, "told at once, so that the gate can be opened"
    assert story.told == []
    story.later(1_000)
    assert story.settle() == []
    story.opens("a-best")
    assert story.settle() == ["a-best"]
    assert [one.name for one in story.told] == ["r-best"]
    assert story.admitted("a") == "best"


def test_only_one_gate_of_a_family_opens() -> None:
    story = contested("UpgradeOnly", "best", "mid")
    story.family("a")
    story.settle()
    assert refused(story) == {"a-best": GATED}
    story.opens("a-best")
    story.settle()
    assert [one.name for one in story.told] == ["r-best"]
    assert story.admitted("a") == "best"
    assert story.admission("r-mid") is not None


def test_while_victims_stop_no_sibling_is_tried() -> None:
    story = contested("UpgradeOnly", "best")
    story.family("a")
    story.settle()
    story.opens("a-best")
    story.cycle(confirm=False)
    (told,) = [one for one in story.decisions if isinstance(one, Preempted)]
    assert told.name == "r-best"
    for one in story.decisions:
        if isinstance(one, Refused):
            story.write(one)
    story.change("r-best", conditions={"Evicted": (True, "Preempted")})
    for _ in range(3):
        assert story.cycle() == []
    story.evict("r-best", "Preempted")
    assert story.settle()[0] == "a-best"


def test_a_worse_variant_starts_if_no_victim_is_found() -> None:
    story = FamilyStory()
    story.families(flavors={"best": "4", "mid": "4"}, **LOWER)
    story.submit("r", "cq", "4", priority=5)
    story.settle()
    story.family("a")
    story.settle()
    assert story.admitted("a") == "mid"


def test_siblings_are_refused_at_once_when_a_worse_one_is_blocked() -> None:
    story = FamilyStory()
    story.families(flavors={"best": "2", "mid": "4"}, **LOWER)
    story.submit("r", "cq", "4", priority=-1)
    story.settle()
    story.family("a")
    story.settle()
    assert refused(story) == {"a-best": "ExceedsMaxQuota", "a-mid": GATED}
    assert story.now == story.waiting[0].time, "without the pause in which refusals may change"


def test_others_of_the_queue_go_on_while_a_family_waits_for_its_gate() -> None:
    story = contested("UpgradeOnly", "best")
    story.family("a")
    story.submit("r", "cq", "4")
    assert story.settle() == ["r"]


def test_a_reservation_with_a_plan_needs_the_open_gate() -> None:
    story = FamilyStory()
    story.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    story.families(flavors={"best": "4"}, checks={"best": ["slow"]}, **LOWER)
    story.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    story.submit("r", "cq", "4", priority=-1)
    story.settle()
    story.passes("r")
    story.settle()
    story.family("a")
    assert story.settle() == []
    story.opens("a-best")
    assert story.settle() == ["a-best"]
    assert story.stored["a-best"].status.pending_preemption is not None


def test_other_variants_are_tried_once_all_victims_have_stopped() -> None:
    story = FamilyStory()
    story.check("slow")
    story.families(flavors={"best": "4", "mid": "4"}, checks={"best": ["slow"]}, **LOWER)
    story.check("slow")
    story.submit(
        "r",
        "cq",
        "4",
        priority=-1,
        annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": "best"},
    )
    story.settle()
    story.passes("r")
    story.settle()
    story.family("a")
    story.settle()
    story.opens("a-best")
    story.settle()
    assert story.admission("a-best") is not None, "reserved, with its check running"
    assert story.admitted("a") == "mid", "it fits, and races"


def test_a_user_s_gate_that_is_closed_keeps_a_variant_from_preempting_too() -> None:
    story = contested("UpgradeOnly", "best")
    story.family("a")
    spec_gates = [{"name": "theirs"}, {"name": FAMILY_GATE}]
    story.respec("a-best", preemptionGates=spec_gates)
    story.settle()
    story.opens("a-best")
    story.settle()
    assert story.told == []
    assert story.admitted("a") == "mid", "its own gate is open, so no sibling waits for it"


@pytest.mark.parametrize("shares", [True, False])
def test_a_refusal_for_a_closed_gate_is_published_once(shares: bool) -> None:
    from admittance.scheduling.state.config import FairSharing

    story = FamilyStory(Config(fair_sharing=FairSharing() if shares else None))
    story.families(flavors={"best": "4"}, **LOWER)
    story.submit("r", "cq", "4", priority=-1)
    story.settle()
    story.family("a")
    for _ in range(3):
        story.settle()
        story.core.flush("cq")
    assert [one.name for one in story.waiting if isinstance(one, Refused)] == ["a-best"]


def test_quota_that_waits_for_victims_is_not_free_for_a_sibling() -> None:
    story = FamilyStory()
    story.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    explicit = [{"name": name, "allowedResourceFlavors": ["best"]} for name in ("v0", "v1")]
    checks = {"best": ["slow"]}
    story.families(flavors={"best": "4"}, checks=checks, explicit=explicit, **LOWER)
    story.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    story.submit("r", "cq", "4", priority=-1)
    story.settle()
    story.passes("r")
    story.settle()
    story.family("a")
    story.settle()
    story.opens("a-v0")
    assert story.settle() == ["a-v0"], "and not its sibling, without a plan, beside it"
    assert story.stored["a-v0"].status.pending_preemption is not None


def test_a_variant_that_lost_its_gate_preempts_no_workload() -> None:
    story = FamilyStory()
    story.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    story.families(flavors={"best": "4"}, checks={"best": ["slow"]}, **LOWER)
    story.check("slow", preemptionPolicy="AfterCheckPassedOrOnDemand")
    story.submit("r", "cq", "4", priority=-1)
    story.settle()
    story.passes("r")
    story.settle()
    story.family("a")
    story.settle()
    story.opens("a-best")
    story.settle()
    closed = (GatePosition(name=FAMILY_GATE, position="Closed"),)
    story.change("a-best", preemption_gates=closed)
    story.passes("a-best")
    story.cycle()
    assert story.told == []
    assert [type(one).__name__ for one in story.decisions] == ["Revoked"]
