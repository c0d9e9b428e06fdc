"""Why a family waits, variant by variant; why a variant may not be tried, and what ends that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admittance.events.shapes import PreemptedBy
from support.builders import NOON
from support.cores.families.family_queues import both, explicit
from support.cores.families.family_scheduler import FamilyScheduler, full

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
DELAYED: list[dict[str, Any]] = [
    {"name": "fast", "allowedResourceFlavors": ["best"], "createDelaySeconds": 100},
    {"name": "slow", "allowedResourceFlavors": ["mid"]},
]


def with_family(**taken: str) -> FamilyScheduler:
    """Family ``a`` was tried; flavors are full as ``taken`` says, or all of them."""
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    full(scheduler, **taken)
    scheduler.family("a")
    scheduler.settle()
    return scheduler


def blocked() -> FamilyScheduler:
    """Family ``a``, not tried yet, needs a victim for its better variant."""
    scheduler = FamilyScheduler()
    scheduler.family_queue(flavors={"best": "4", "mid": "4"}, **LOWER)
    scheduler.submit("r", "cq", "4", priority=-1)
    scheduler.settle()
    scheduler.family("a")
    return scheduler


def test_a_parent_that_waits_is_explained_variant_by_variant() -> None:
    scheduler = with_family()
    why = scheduler.why("a")
    assert (why.phase, why.reason, why.position) == ("Pending", "WaitingForQuota", 1)
    assert (why.cluster_queue, why.parked, why.pending) == ("cq", True, 1)
    assert [(variant.variant, variant.why, variant.gate) for variant in why.variants] == [
        ("best", "race", "Closed"),
        ("mid", "race", "Closed"),
        ("worst", "race", "Closed"),
    ]
    assert [variant.explained.reason for variant in why.variants] == ["WaitingForQuota"] * 3
    assert [variant.explained.parent for variant in why.variants] == ["a"] * 3
    assert (
        "mid: 4 more free cpu in flavor mid of ClusterQueue cq (held by ns/r-mid)"
        in why.unblocked_by
    )
    assert not [remedy for remedy in why.unblocked_by if "allowed" in remedy]


def test_a_family_without_a_queue_has_no_position() -> None:
    scheduler = with_family()
    scheduler.delete("LocalQueue", "cq", "ns")
    why = scheduler.why("a")
    assert (why.cluster_queue, why.position, why.pending, why.variants) == ("", 0, 0, ())


def test_a_variant_is_explained_only_with_its_flavors() -> None:
    scheduler = with_family()
    why = scheduler.why("a-mid")
    assert {flavor.flavor for flavor in why.flavors} == {"mid"}
    assert why.message.endswith("cpu: 4 short in flavor mid (4 asked, 0 free)")
    scheduler.later(10)
    refusals = [
        refusal for refusal in scheduler.core.refusals(now=scheduler.now) if refusal.name == "a-mid"
    ]
    assert [{each.flavor for each in refusal.refusal.shortfalls} for refusal in refusals] == [
        {"mid"}
    ]


def test_a_stopping_parent_names_the_variant_that_continues() -> None:
    scheduler = with_family(best="4")
    scheduler.finish("r-best")
    scheduler.settle()
    why = scheduler.why("a")
    assert (why.phase, why.message) == (
        "Evicting",
        "Its job is being stopped and will continue as variant best",
    )
    assert why.position == 0, "it waits in no queue"
    heir = scheduler.why("a-best")
    assert (heir.phase, heir.reason) == ("Pending", "WaitingForPreemptedWorkloads")
    assert heir.unblocked_by == ("stop of the job of its sibling variant",)


def test_a_delayed_variant_has_the_time_of_its_activation() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(explicit=DELAYED, flavors={"best": "4", "mid": "4"})
    full(scheduler, mid="4")
    scheduler.family("a")
    scheduler.activate("a-fast")
    scheduler.settle()
    why = scheduler.why("a-fast")
    assert (why.reason, why.message) == (
        "WaitingForFamily",
        "Its createDelaySeconds have not passed",
    )
    (way,) = why.unblocked_by
    assert way.startswith("activation by the policy of its family at 2026-01-01T12:01:40Z")


def test_a_variant_behind_a_better_one_is_explained() -> None:
    scheduler = blocked()
    scheduler.settle()
    better, worse = scheduler.why("a").variants
    assert better.explained.reason == "AdmissionGated"
    assert worse.set_aside == "The better variant best needs preemption and is tried first"
    assert "the turn of its better sibling" in worse.explained.unblocked_by[0]
    scheduler.opens("a-best")
    assert scheduler.why("a").variants[0].gate == "Open"


def test_a_delayed_variant_is_explained_before_it_is_tried() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(explicit=DELAYED, flavors={"best": "4", "mid": "4"})
    scheduler.family("a")
    scheduler.activate("a-fast")
    why = scheduler.why("a-fast")
    assert (why.reason, why.message) == (
        "WaitingForFamily",
        "Its createDelaySeconds have not passed",
    )


def test_asking_changes_nothing() -> None:
    scheduler = blocked()
    before = scheduler.tried()
    for name in ("a", "a-best", "a-mid"):
        scheduler.why(name)
    assert scheduler.tried() == before
    assert scheduler.settle() == []


def test_a_family_has_the_reason_of_its_best_waiting_variant() -> None:
    scheduler = FamilyScheduler()
    scheduler.check("slow")
    scheduler.family_queue(checks={"best": ["slow"], "worst": ["slow"]})
    full(scheduler, mid="4")
    scheduler.family("a")
    scheduler.settle()
    why = scheduler.why("a")
    assert (why.phase, why.reason) == ("Pending", "WaitingForQuota")
    assert why.message.startswith("best: reserved, waits for slow; mid: couldn't ")
    scheduler.passes("a-worst", state="Rejected")
    scheduler.respec("a-mid", active=False)
    scheduler.change("a-mid", stopped_by="User")
    why = scheduler.why("a")
    assert (why.reason, why.message) == (
        "UnsatisfiedAdmissionChecks",
        "best: reserved, waits for slow; mid: inactive (User); worst: inactive (Rejected): "
        "The admission check slow is in state Rejected",
    )


def test_an_inactive_variant_is_shown_as_deactivated_or_delayed() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(explicit=DELAYED, flavors={"best": "4", "mid": "4"})
    full(scheduler, mid="4")
    scheduler.family("a")
    scheduler.settle()
    why = scheduler.why("a")
    assert why.message.startswith("fast: inactive (createDelay) until 2026-01-01T12:01:40Z; slow: ")
    assert [variant.explained.phase for variant in why.variants] == ["Deactivated", "Pending"]
    assert "fast: end of its createDelaySeconds at 2026-01-01T12:01:40Z" in why.unblocked_by


@pytest.mark.parametrize(
    ("variants", "status", "spec", "reason", "message"),
    [
        (
            "mid",
            {"conditions": {"Requeued": (True, "Activated")}},
            {},
            "PendingEvaluation",
            "The next cycle tries one of its variants",
        ),
        (
            "best",
            {"conditions": {"Requeued": (False, "AdmissionCheck")}},
            {},
            "Backoff",
            "best: waits; mid: ",
        ),
        (
            "best",
            {"conditions": {"QuotaReserved": (False, "Held")}},
            {"active": False},
            "Held",
            "best: does not compete; mid: ",
        ),
        (
            "best mid worst",
            {"stopped_by": "Rejected"},
            {"active": False},
            "WaitingForFamily",
            "best: inactive (Rejected); mid: inactive (Rejected); worst: inactive (Rejected)",
        ),
    ],
)
def test_a_family_has_the_reason_of_its_variants(
    variants: str, status: dict[str, Any], spec: dict[str, Any], reason: str, message: str
) -> None:
    scheduler = with_family()
    for tag in variants.split():
        scheduler.respec(f"a-{tag}", **spec)
        scheduler.change(f"a-{tag}", **status)
    why = scheduler.why("a")
    assert why.reason == reason
    assert why.message.startswith(message)


def test_a_family_without_an_allowed_flavor_has_a_remedy() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    scheduler.family("a", tags=())
    spec = json.loads(bytes(scheduler.stored["a"].spec))
    scheduler.respec("a", **spec, admissionConstraints={"allowedResourceFlavors": ["gold"]})
    why = scheduler.why("a")
    assert why.reason == "NoMatchingFlavor"
    assert why.unblocked_by == (
        "one of the flavors gold in ClusterQueue cq, or a flavor of that ClusterQueue in the "
        "allowed flavors of a",
    )


@pytest.mark.parametrize(
    ("spec", "reason", "message", "position"),
    [
        pytest.param(
            {},
            "PendingEvaluation",
            "Its variants are not created yet, or the ClusterQueue has no variant for it",
            1,
            id="no variants",
        ),
        pytest.param(
            {"active": False}, "Suspended", "It does not compete for quota", 0, id="inactive"
        ),
        pytest.param(
            {"admissionConstraints": {"allowedResourceFlavors": ["b", "a"]}},
            "NoMatchingFlavor",
            "The ClusterQueue has none of the allowed flavors: a, b",
            1,
            id="other flavors are allowed",
        ),
        pytest.param(
            {"admissionConstraints": {"allowedResourceFlavors": []}},
            "NoMatchingFlavor",
            "The ClusterQueue has none of the allowed flavors: none",
            1,
            id="no flavor is allowed",
        ),
    ],
)
def test_a_parent_without_variants_says_why(
    spec: dict[str, Any], reason: str, message: str, position: int
) -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    scheduler.family("a", tags=())
    scheduler.respec("a", **spec)
    why = scheduler.why("a")
    assert (why.phase, why.reason, why.message) == ("Pending", reason, message)
    assert (why.position, why.pending) == (position, position)
    assert (why.waiting_since is not None) is bool(position)
    assert (why.requeue_at, why.preempted_by, why.parked) == (None, None, False)


def test_a_family_says_which_workload_preempted_its_variant() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    scheduler.family("a")
    assert scheduler.why("a").preempted_by is None
    by = PreemptedBy(by="ns/w", by_uid="w", rule="InClusterQueue", at=NOON)
    scheduler.change("a-mid", preempted_by=by)
    assert scheduler.why("a").preempted_by == by


def test_a_family_in_an_inactive_queue_has_the_reason_of_the_queue() -> None:
    scheduler = FamilyScheduler()
    scheduler.put(
        "AdmissionCheck",
        "room",
        {"controllerName": "ctl"},
        status={"conditions": [{"type": "Active", "status": "False", "reason": "ControllerLost"}]},
    )
    scheduler.family_queue(admissionChecks=["room"])
    scheduler.family("a")
    why = scheduler.why("a")
    assert why.reason == "AdmissionCheckInactive"
    assert why.message.endswith("references inactive AdmissionCheck(s): room.")


@pytest.mark.parametrize(
    ("mode", "remedies"),
    [("UpgradeOnly", ("best: `admit activate workload a-best`",)), ("NoMigration", ())],
)
def test_a_running_family_has_remedies_of_the_variants_it_may_move_to(
    mode: str, remedies: tuple[str, ...]
) -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(mode=mode)
    full(scheduler, best="4")
    scheduler.family("a")
    scheduler.settle()
    assert scheduler.why("a").variants[1].admitted
    for variant in ("a-best", "a-worst"):
        scheduler.respec(variant, active=False)
        scheduler.change(variant, stopped_by="User")
    assert scheduler.why("a").unblocked_by == remedies


def test_a_family_in_backoff_is_explained() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    full(scheduler)
    scheduler.family("a")
    scheduler.change("a", conditions={"Requeued": (False, "PodsReadyTimeout")})
    why = scheduler.why("a")
    assert (why.phase, why.reason) == ("Backoff", "Backoff")
    assert scheduler.why("a-best").message == "The family waits until its backoff ends"


def test_a_variant_without_a_known_parent_is_explained() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    scheduler.family("a")
    scheduler.gone("a")
    why = scheduler.why("a-best")
    assert why.message == "Its parent is not known"
    assert why.unblocked_by == ("its parent workload, which is not known yet",)


def lacks_four_cpus(priority: int, **spec: Any) -> FamilyScheduler:
    """Variant a-better asks for 20 cpus, of which its family holds 16; workload r, with this
    priority, holds the other four."""
    scheduler = FamilyScheduler()
    flavors = {"better": "8", "worse": "8"}
    for flavor in (*flavors, "all"):
        scheduler.flavor(flavor)
    scheduler.queue(
        "cq",
        resourceGroups=both(flavors, "20", shared="all"),
        concurrentAdmission=explicit(*flavors, shared="all"),
        **LOWER,
        **spec,
    )
    scheduler.job("gpus", "cq", [(1, {"gpu": "8"})], age=100)
    scheduler.settle()
    tags = {"better": ("better", "all"), "worse": ("worse", "all")}
    scheduler.open_family("a", "cq", tags, [(1, {"cpu": "4"}), (4, {"gpu": "2", "cpu": "4"})])
    scheduler.settle()
    scheduler.reclaim("a-worse", 0, 1)
    scheduler.job("r", "cq", [(1, {"cpu": "4"})], priority=priority, age=50)
    scheduler.settle()
    scheduler.gone("gpus")
    return scheduler


def test_a_variant_is_explained_beyond_what_its_family_holds() -> None:
    limited = lacks_four_cpus(priority=0, perUser={"cpu": 20}).why("a-better")
    assert limited.message.endswith("and holds 20; the workload asks for 4 more")
    scheduler = lacks_four_cpus(priority=0)
    why = scheduler.why("a-better")
    assert why.holders == ("ns/r",)
    assert why.unblocked_by[0] == (
        "4 more free cpu in flavor all of ClusterQueue cq (held by ns/r)"
    )
    blockers = [blocker for verdict in why.flavors for blocker in verdict.barriers]
    assert [(blocker.rule, blocker.workloads, blocker.amount) for blocker in blockers] == [
        ("PriorityNotLower", 1, 4000)
    ]


def test_victims_of_a_variant_free_only_what_its_family_lacks() -> None:
    scheduler = lacks_four_cpus(priority=-1)
    victims = [victim.name for each in scheduler.why("a-better").flavors for victim in each.victims]
    assert victims == ["r"]
