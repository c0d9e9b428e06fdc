"""Orders for a family: creation, names, active variants, priorities, deletions, the parent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from admittance.api.reading.canonical import spec_of
from admittance.api.workload import FAMILY_GATE
from admittance.events import facts
from admittance.variants.core import GATHER, PATIENCE
from admittance.workload.stored import head
from support.builders import NOON, a_condition
from support.cores.stepped_variants import NS, SteppedVariants, a_family

RESERVATION, DEMAND, SPOT = "j-variant-reservation", "j-variant-demand", "j-variant-spot"
DELAYED = (
    {"name": "first", "allowedResourceFlavors": ["reservation"]},
    {"name": "second", "allowedResourceFlavors": ["demand"], "createDelaySeconds": 7200},
)
LIMITED = (
    {"name": "first", "allowedResourceFlavors": ["reservation"], "deleteDelaySeconds": 86400},
    {"name": "second", "allowedResourceFlavors": ["demand"]},
)


# Creation. ----------------------------------------------------------------------------------


def test_all_variants_are_submitted_the_best_first() -> None:
    table = SteppedVariants().workload()
    assert table.ordered_now() == [
        f"submitted {RESERVATION}",
        f"submitted {DEMAND}",
        f"submitted {SPOT}",
    ]


def test_a_variant_has_the_spec_that_its_parent_implies() -> None:
    table = a_family()
    one = table.stored[DEMAND]
    spec = spec_of(one.spec)
    assert (spec.role, spec.variant, spec.sibling_index) == ("variant", "demand", 1)
    constraints = spec.admission_constraints
    assert constraints is not None
    assert constraints.allowed_resource_flavors == ("demand",)
    assert [gate.name for gate in spec.preemption_gates] == [FAMILY_GATE]
    (owner,) = one.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Workload", "j", table.stored["j"].metadata.uid)


def test_a_complete_family_requires_no_act() -> None:
    table = a_family()
    assert table.ordered_now() == []
    assert table.later(3600).ordered_now() == []
    assert table.families.wake() is None


def test_a_queue_with_one_flavor_has_families_with_one_variant() -> None:
    assert a_family("only").active() == "only"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            lambda t: t.workload(role="regular"), [], id="a regular workload has no variants"
        ),
        pytest.param(
            lambda t: t.workload(admissionConstraints={"allowedResourceFlavors": ["spot"]}),
            [f"submitted {SPOT}"],
            id="a parent that may have one flavor only has one variant",
        ),
        pytest.param(
            lambda t: t.workload(active=False),
            [f"submitted {one} inactive" for one in (RESERVATION, DEMAND, SPOT)],
            id="those of a parent that is turned off are there, and turned off",
        ),
        pytest.param(
            lambda t: t.offer(policy=False).workload(),
            ["aggregated j"],
            id="without a policy there are none",
        ),
        pytest.param(lambda t: t.no_queue().workload(), [], id="unknown without a queue"),
        pytest.param(
            lambda t: t.local_queue("lq", "").workload(), [], id="nor without a LocalQueue"
        ),
        pytest.param(
            lambda t: t.offer(explicit=DELAYED).workload(),
            ["submitted j-variant-first", "submitted j-variant-second inactive"],
            id="one whose time has not come is there, and turned off",
        ),
    ],
)
def test_which_variants_are_created(
    change: Callable[[SteppedVariants], SteppedVariants], expected: list[str]
) -> None:
    assert change(SteppedVariants()).ordered_now() == expected


def test_with_the_gate_off_a_waiting_parent_is_updated() -> None:
    assert SteppedVariants(enabled=False).workload().ordered_now() == ["aggregated j"]


def test_with_the_gate_off_a_parent_without_a_queue_stays() -> None:
    assert SteppedVariants(enabled=False, queues=False).workload().ordered_now() == []


def test_with_the_gate_off_an_inactive_parent_is_updated_too() -> None:
    assert SteppedVariants(enabled=False).workload(active=False).ordered_now() == ["aggregated j"]


def test_a_parent_without_an_allowed_flavor_is_updated_once() -> None:
    table = SteppedVariants().workload(admissionConstraints={"allowedResourceFlavors": ["tape"]})
    assert table.follow() == ["aggregated j"]
    assert table.later(60).ordered_now() == []


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"kind": "Finished"}, id="one that has finished gets none"),
        pytest.param({}, id="nor one that is being deleted"),
    ],
)
def test_a_finished_parent_gets_no_variants(status: dict[str, str]) -> None:
    table = SteppedVariants().workload()
    if status:
        table.status("j", a_condition("Finished", True))
    else:
        table.meta("j", deletion_timestamp=NOON)
    assert table.ordered_now() == []


def test_a_queue_created_later_gives_waiting_parents_variants() -> None:
    table = SteppedVariants(queues=False).workload()
    assert table.ordered_now() == []
    table.local_queue()
    assert table.ordered_now() == []
    table.offer("a", "b")
    assert table.ordered_now() == ["submitted j-variant-a", "submitted j-variant-b"]


# Names. -------------------------------------------------------------------------------------


def test_a_variant_does_not_use_the_name_of_a_user_workload() -> None:
    table = SteppedVariants().workload(SPOT, role="regular").workload()
    *_, last = table.ordered_now()
    assert last.startswith(f"submitted {SPOT}-")
    table.follow()
    assert table.active() == "reservation demand spot"
    assert table.later(60).ordered_now() == []


def test_a_variant_does_not_use_the_name_of_a_terminating_one() -> None:
    table = a_family("a")
    table.put("j", None).workload("j", uid="second")
    deleted, submitted = table.ordered_now()
    assert deleted == "deleted j-variant-a"
    assert submitted.startswith("submitted j-variant-a-")
    table.follow()
    assert [one for one in table.stored if one != "j"] == [submitted.removeprefix("submitted ")]


def test_the_first_submission_gets_the_name() -> None:
    table = SteppedVariants().offer("a").workload()
    assert table.ordered_now() == ["submitted j-variant-a"]
    table.workload("j-variant-a", role="regular")
    (again,) = table.ordered_now()
    assert again.startswith("submitted j-variant-a-")


def test_a_name_that_became_free_is_used() -> None:
    table = SteppedVariants().offer("a").workload()
    table.workload("j-variant-a", role="regular")
    hashed = table.ordered_now()[0].split()[1]
    table.waiting.clear()
    table.workload(hashed, role="regular")
    assert table.later(3600).ordered_now() == []
    table.put("j-variant-a", None)
    assert table.ordered_now() == ["submitted j-variant-a"]


def test_of_duplicate_variants_the_one_with_quota_stays() -> None:
    table = SteppedVariants().offer("a").workload("j-variant-a", role="regular").workload()
    table.follow()
    (hashed,) = table.family()
    table.put("j-variant-a", None)
    copy = table.stored[hashed]
    plain = msgspec.structs.replace(
        copy, metadata=msgspec.structs.replace(copy.metadata, name="j-variant-a", uid="copy")
    )
    table.put("j-variant-a", plain).admit_name("j-variant-a")
    assert table.follow()[0] == f"deleted {hashed}"
    assert list(table.family()) == ["j-variant-a"]


# Which variants are active. ----------------------------------------------------------------


def test_worse_variants_are_deactivated_after_an_admission() -> None:
    table = a_family()
    table.admit("demand")
    assert table.ordered_now()[:1] == [f"deactivated {SPOT} lowerThanAdmitted"]


def test_variants_below_the_floor_are_deactivated() -> None:
    table = a_family(floor="reservation")
    table.admit("spot")
    assert table.ordered_now()[:1] == [f"deactivated {DEMAND} belowMin"]


def test_without_migration_all_other_variants_are_deactivated() -> None:
    table = a_family(mode="NoMigration")
    table.admit("demand")
    assert table.ordered_now()[:2] == [
        f"deactivated {RESERVATION} NoMigration",
        f"deactivated {SPOT} NoMigration",
    ]


def test_a_reset_activates_all_variants_that_were_not_stopped() -> None:
    table = a_family()
    table.admit("reservation").follow()
    assert table.active() == "reservation"
    table.status(SPOT, stopped_by="User")
    no = (a_condition("QuotaReserved", False, "PendingEvaluation"), a_condition("Admitted", False))
    table.status(RESERVATION, *no, admission=None)
    table.status("j", *no, admitted_variant="", admission=None)
    assert table.ordered_now()[:1] == [f"activated {DEMAND} race"]
    table.follow()
    assert table.active() == "reservation demand"


def test_a_deactivated_parent_deactivates_its_variants() -> None:
    table = a_family("a", "b")
    table.spec("j", active=False)
    assert table.ordered_now()[:2] == [
        "deactivated j-variant-a parent",
        "deactivated j-variant-b parent",
    ]


def test_a_variant_is_activated_at_the_end_of_its_create_delay() -> None:
    table = a_family(explicit=DELAYED)
    assert table.active() == "first"
    assert table.families.wake() == NOON + timedelta(seconds=7200)
    assert table.later(7199).ordered_now() == []
    assert table.later(1).ordered_now() == ["activated j-variant-second race", "aggregated j"]


def test_a_family_is_looked_at_when_its_act_may_be_repeated_before_the_delay_ends() -> None:
    table = a_family(explicit=DELAYED)
    table.spec("j", priority=7)
    assert table.ordered_now() == [
        "reprioritized j-variant-first 7",
        "reprioritized j-variant-second 7",
    ]
    assert table.families.wake() == NOON + PATIENCE


def test_a_variant_is_deactivated_after_its_delete_delay() -> None:
    table = a_family(explicit=LIMITED)
    table.later(10).admit("second").follow()
    assert table.families.wake() == NOON + timedelta(seconds=86410)
    assert table.later(86399).ordered_now() == []
    assert table.later(1).ordered_now()[:1] == ["deactivated j-variant-first deleteDelay"]


# Priorities. --------------------------------------------------------------------------------


def test_variants_get_the_priority_of_their_parent() -> None:
    table = a_family("a", "b")
    table.spec("j", priority=7)
    assert table.ordered_now() == ["reprioritized j-variant-a 7", "reprioritized j-variant-b 7"]
    table.follow()
    assert {head(one).priority for one in table.family().values()} == {7}


# Deletions. ---------------------------------------------------------------------------------


def test_a_variant_without_a_parent_is_deleted() -> None:
    table = a_family("a", "b")
    table.put("j", None)
    assert table.ordered_now() == ["deleted j-variant-a", "deleted j-variant-b"]
    table.follow()
    assert table.stored == {}
    assert table.families.pending == 0


def test_a_variant_of_a_parent_that_became_regular_is_deleted() -> None:
    table = a_family("a")
    table.offer(policy=False).spec("j", role="regular")
    assert table.ordered_now() == ["deleted j-variant-a"]


def test_a_finished_orphan_that_was_being_deleted_is_deleted() -> None:
    table = a_family("a").status("j-variant-a", a_condition("Finished", True))
    table.meta("j-variant-a", deletion_timestamp=NOON)
    assert table.put("j", None).ordered_now() == ["deleted j-variant-a"]


def test_a_deletion_names_the_uid() -> None:
    table = a_family("a")
    uid = table.stored["j-variant-a"].metadata.uid
    table.put("j", None).ordered_now()
    assert table.ordered[-1] == facts.Deleted(namespace=NS, name="j-variant-a", uid=uid)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            lambda t: t.offer("reservation", "demand", "spot", "tape"),
            ["submitted j-variant-tape"],
            id="a flavor comes: so does its variant",
        ),
        pytest.param(
            lambda t: t.offer("reservation", "spot"),
            [f"deleted {DEMAND}"],
            id="a flavor goes: so does its variant",
        ),
        pytest.param(lambda t: t.offer(quota=9), [], id="quota changes no variant"),
        pytest.param(lambda t: t.no_queue(), [], id="without a queue all stay"),
        pytest.param(lambda t: t.local_queue("lq", ""), [], id="without a LocalQueue, too"),
        pytest.param(
            lambda t: t.offer(policy=False), [], id="without a policy it is not for us to end them"
        ),
    ],
)
def test_a_changed_queue_changes_its_families(
    change: Callable[[SteppedVariants], SteppedVariants], expected: list[str]
) -> None:
    found = change(a_family()).ordered_now()
    assert [one for one in found if not one.startswith("aggregated")] == expected


def test_a_recreated_local_queue_uses_the_present_cluster_queue() -> None:
    table = a_family("a", "b")
    table.local_queue("lq", "").offer("a", "b", "c")
    assert "submitted j-variant-c" not in table.ordered_now()
    table.local_queue()
    assert table.ordered_now()[0] == "submitted j-variant-c"


def test_a_removed_flavor_deletes_the_admitted_variant() -> None:
    table = a_family("a", "b")
    table.admit("b").follow()
    assert table.offer("a").ordered_now()[0] == "deleted j-variant-b"


def test_without_a_policy_an_admitted_family_keeps_its_job() -> None:
    table = a_family()
    table.admit("demand").follow()
    table.offer(policy=False)
    assert table.ordered_now()[:2] == [f"deleted {RESERVATION}", f"deleted {SPOT}"]
    table.follow()
    assert list(table.family()) == [DEMAND]


def test_a_variant_that_runs_in_the_former_queue_stays() -> None:
    table = a_family("a", "b")
    table.admit("b").follow()
    name = table.named("b")
    admission = table.stored[name].status.admission
    assert admission is not None
    table.status(name, admission=msgspec.structs.replace(admission, cluster_queue="old"))
    table.offer("a").follow()
    assert name in table.family()


def test_a_terminating_variant_is_not_deleted_again_or_replaced() -> None:
    table = a_family("a", "b")
    table.meta("j-variant-a", deletion_timestamp=NOON)
    assert [one for one in table.ordered_now() if not one.startswith("aggregated")] == []
    table.put("j-variant-a", None)
    assert "submitted j-variant-a" in table.ordered_now()


# The parent. --------------------------------------------------------------------------------


def test_the_rows_of_a_parent_follow_its_variants() -> None:
    table = a_family("a", "b")
    assert [row.variant for row in table.stored["j"].status.variants] == ["a", "b"]
    table.later(1).status("j-variant-b", a_condition("QuotaReserved", False, "WaitingForQuota"))
    assert table.follow() == ["aggregated j"]
    (_, b) = table.stored["j"].status.variants
    assert b.conditions[0].reason == "WaitingForQuota"


def test_aggregations_of_a_parent_are_limited_to_ten_per_second() -> None:
    table = a_family("a", "b").later(1)
    nudges = []
    for step in range(30):
        table.status("j-variant-a", a_condition("QuotaReserved", False, f"Reason{step}"))
        nudges += table.follow()
        table.later(0.01)
    assert len(nudges) == 3
    assert table.families.wake() is not None
    table.later(0.1).follow()
    (a, _) = table.stored["j"].status.variants
    assert a.conditions[0].reason == "Reason29"
    assert table.ordered_now() == []


def test_an_aggregation_that_became_needless_is_not_requested() -> None:
    table = SteppedVariants(gather=GATHER).offer("a").workload()
    assert table.follow() == ["submitted j-variant-a"]
    assert table.families.wake() == table.now + GATHER
    table.hear(facts.Aggregated(namespace=NS, name="j"))  # The rows are written for another reason.
    assert table.later(GATHER.total_seconds()).ordered_now() == []
    table.status("j-variant-a", a_condition("QuotaReserved", False, "AnotherReason"))
    assert table.ordered_now() == []
    assert table.later(GATHER.total_seconds()).follow() == ["aggregated j"]
