"""What is ordered of a family: creation, names, who may try, priorities, deletions, the parent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from admittance.api.reading.canonical import spec_of
from admittance.api.workload import FAMILY_GATE
from admittance.events import facts
from admittance.variants.core import GATHER
from admittance.workload.stored import head
from family_table import NS, FamilyTable, a_family, condition

from builders import NOON

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
    table = FamilyTable().workload()
    assert table.orders() == [
        f"submitted {RESERVATION}",
        f"submitted {DEMAND}",
        f"submitted {SPOT}",
    ]


def test_a_variant_is_what_its_parent_makes_it() -> None:
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


def test_a_family_that_has_all_it_should_have_is_left_alone() -> None:
    table = a_family()
    assert table.orders() == []
    assert table.later(3600).orders() == []
    assert table.core.wake() is None


def test_a_queue_with_one_flavor_has_families_of_one() -> None:
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
            lambda t: t.offer(policy=False).workload(), [], id="without a policy there are none"
        ),
        pytest.param(lambda t: t.no_queue().workload(), [], id="without a queue nobody knows"),
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
    change: Callable[[FamilyTable], FamilyTable], expected: list[str]
) -> None:
    assert change(FamilyTable()).orders() == expected


def test_with_the_gate_off_nothing_is_created() -> None:
    assert FamilyTable(enabled=False).workload().orders() == []


def test_a_parent_that_may_have_nothing_on_offer_is_told_so_once() -> None:
    table = FamilyTable().workload(admissionConstraints={"allowedResourceFlavors": ["tape"]})
    assert table.follow() == ["aggregated j"]
    assert table.later(60).orders() == []


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"kind": "Finished"}, id="one that has finished gets none"),
        pytest.param({}, id="nor one that is being deleted"),
    ],
)
def test_a_parent_that_is_over_gets_no_variants(status: dict[str, str]) -> None:
    table = FamilyTable().workload()
    if status:
        table.status("j", condition("Finished", True))
    else:
        table.meta("j", deletion_timestamp=NOON)
    assert table.orders() == []


def test_a_queue_that_comes_later_makes_families_of_those_that_wait() -> None:
    table = FamilyTable(queues=False).workload()
    assert table.orders() == []
    table.local_queue()
    assert table.orders() == []
    table.offer("a", "b")
    assert table.orders() == ["submitted j-variant-a", "submitted j-variant-b"]


# Names. -------------------------------------------------------------------------------------


def test_a_name_that_a_user_has_taken_is_left_to_them() -> None:
    table = FamilyTable().workload(SPOT, role="regular").workload()
    *_, last = table.orders()
    assert last.startswith(f"submitted {SPOT}-")
    table.follow()
    assert table.active() == "reservation demand spot"
    assert table.later(60).orders() == []


def test_a_name_that_a_namesakes_leftover_has_is_left_to_it_while_it_goes() -> None:
    table = a_family("a")
    table.put("j", None).workload("j", uid="second")
    deleted, submitted = table.orders()
    assert deleted == "deleted j-variant-a"
    assert submitted.startswith("submitted j-variant-a-")
    table.follow()
    assert [one for one in table.stored if one != "j"] == [submitted.removeprefix("submitted ")]


def test_who_is_faster_with_the_name_has_it() -> None:
    table = FamilyTable().offer("a").workload()
    assert table.orders() == ["submitted j-variant-a"]
    table.workload("j-variant-a", role="regular")
    (again,) = table.orders()
    assert again.startswith("submitted j-variant-a-")


def test_a_name_that_is_free_again_is_taken() -> None:
    table = FamilyTable().offer("a").workload()
    table.workload("j-variant-a", role="regular")
    hashed = table.orders()[0].split()[1]
    table.log.clear()
    table.workload(hashed, role="regular")
    assert table.later(3600).orders() == []
    table.put("j-variant-a", None)
    assert table.orders() == ["submitted j-variant-a"]


def test_of_two_that_are_the_same_the_one_that_holds_something_stays() -> None:
    table = FamilyTable().offer("a").workload("j-variant-a", role="regular").workload()
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


# Who may try. -------------------------------------------------------------------------------


def test_losers_are_turned_off_in_the_pass_that_sees_a_winner() -> None:
    table = a_family()
    table.admit("demand")
    assert table.orders()[:1] == [f"deactivated {SPOT} lowerThanAdmitted"]


def test_below_the_floor_nobody_is_moved_to() -> None:
    table = a_family(floor="reservation")
    table.admit("spot")
    assert table.orders()[:1] == [f"deactivated {DEMAND} belowMin"]


def test_without_migration_everybody_else_is_turned_off() -> None:
    table = a_family(mode="NoMigration")
    table.admit("demand")
    assert table.orders()[:2] == [
        f"deactivated {RESERVATION} NoMigration",
        f"deactivated {SPOT} NoMigration",
    ]


def test_a_reset_turns_everybody_on_who_was_not_stopped() -> None:
    table = a_family()
    table.admit("reservation").follow()
    assert table.active() == "reservation"
    table.status(SPOT, stopped_by="User")
    no = condition("QuotaReserved", False, "PendingEvaluation")
    table.status("j", no, condition("Admitted", False), admitted_variant="", admission=None)
    assert table.orders()[:1] == [f"activated {DEMAND} race"]
    table.follow()
    assert table.active() == "reservation demand"


def test_a_parent_that_is_turned_off_turns_its_variants_off() -> None:
    table = a_family("a", "b")
    table.spec("j", active=False)
    assert table.orders()[:2] == [
        "deactivated j-variant-a parent",
        "deactivated j-variant-b parent",
    ]


def test_one_whose_time_has_come_is_turned_on_at_that_time() -> None:
    table = a_family(explicit=DELAYED)
    assert table.active() == "first"
    assert table.core.wake() == NOON + timedelta(seconds=7200)
    assert table.later(7199).orders() == []
    assert table.later(1).orders() == ["activated j-variant-second race", "aggregated j"]


def test_one_that_had_its_time_to_be_the_better_place_is_turned_off() -> None:
    table = a_family(explicit=LIMITED)
    table.later(10).admit("second").follow()
    assert table.core.wake() == NOON + timedelta(seconds=86410)
    assert table.later(86399).orders() == []
    assert table.later(1).orders()[:1] == ["deactivated j-variant-first deleteDelay"]


# Priorities. --------------------------------------------------------------------------------


def test_a_parents_priority_is_its_variants() -> None:
    table = a_family("a", "b")
    table.spec("j", priority=7)
    assert table.orders() == ["reprioritized j-variant-a 7", "reprioritized j-variant-b 7"]
    table.follow()
    assert {head(one).priority for one in table.family().values()} == {7}


# Deletions. ---------------------------------------------------------------------------------


def test_a_variant_without_its_parent_goes() -> None:
    table = a_family("a", "b")
    table.put("j", None)
    assert table.orders() == ["deleted j-variant-a", "deleted j-variant-b"]
    table.follow()
    assert table.stored == {}
    assert table.core.pending == 0


def test_a_variant_of_a_parent_that_became_regular_goes() -> None:
    table = a_family("a")
    table.offer(policy=False).spec("j", role="regular")
    assert table.orders() == ["deleted j-variant-a"]


def test_an_orphan_whose_job_ended_while_it_was_being_deleted_goes() -> None:
    table = a_family("a").status("j-variant-a", condition("Finished", True))
    table.meta("j-variant-a", deletion_timestamp=NOON)
    assert table.put("j", None).orders() == ["deleted j-variant-a"]


def test_a_deletion_names_whom_it_means() -> None:
    table = a_family("a")
    uid = table.stored["j-variant-a"].metadata.uid
    table.put("j", None).orders()
    assert table.said[-1] == facts.Deleted(namespace=NS, name="j-variant-a", uid=uid)


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
        pytest.param(lambda t: t.offer(quota=9), [], id="quota moves nobody"),
        pytest.param(lambda t: t.no_queue(), [], id="without a queue all stay"),
        pytest.param(lambda t: t.local_queue("lq", ""), [], id="without a LocalQueue, too"),
        pytest.param(
            lambda t: t.offer(policy=False), [], id="without a policy it is not for us to end them"
        ),
    ],
)
def test_a_queue_that_changes_changes_its_families(
    change: Callable[[FamilyTable], FamilyTable], expected: list[str]
) -> None:
    found = change(a_family()).orders()
    assert [one for one in found if not one.startswith("aggregated")] == expected


def test_a_local_queue_that_is_back_leads_to_what_has_changed_meanwhile() -> None:
    table = a_family("a", "b")
    table.local_queue("lq", "").offer("a", "b", "c")
    assert "submitted j-variant-c" not in table.orders()
    table.local_queue()
    assert table.orders()[0] == "submitted j-variant-c"


def test_a_flavor_that_goes_takes_the_admitted_variant_with_it() -> None:
    table = a_family("a", "b")
    table.admit("b").follow()
    assert table.offer("a").orders()[0] == "deleted j-variant-b"


def test_without_a_policy_an_admitted_family_keeps_what_runs() -> None:
    table = a_family()
    table.admit("demand").follow()
    table.offer(policy=False)
    assert table.orders()[:2] == [f"deleted {RESERVATION}", f"deleted {SPOT}"]
    table.follow()
    assert list(table.family()) == [DEMAND]


def test_what_runs_in_a_queue_that_the_family_has_left_stays() -> None:
    table = a_family("a", "b")
    table.admit("b").follow()
    name = table.named("b")
    admission = table.stored[name].status.admission
    assert admission is not None
    table.status(name, admission=msgspec.structs.replace(admission, cluster_queue="old"))
    table.offer("a").follow()
    assert name in table.family()


def test_one_that_is_going_is_not_told_again_and_its_place_stays_taken() -> None:
    table = a_family("a", "b")
    table.meta("j-variant-a", deletion_timestamp=NOON)
    assert [one for one in table.orders() if not one.startswith("aggregated")] == []
    table.put("j-variant-a", None)
    assert "submitted j-variant-a" in table.orders()


# The parent. --------------------------------------------------------------------------------


def test_the_parent_is_told_of_what_its_variants_say() -> None:
    table = a_family("a", "b")
    assert [row.variant for row in table.stored["j"].status.variants] == ["a", "b"]
    table.later(1).status("j-variant-b", condition("QuotaReserved", False, "WaitingForQuota"))
    assert table.follow() == ["aggregated j"]
    (_, b) = table.stored["j"].status.variants
    assert b.conditions[0].reason == "WaitingForQuota"


def test_while_its_variants_move_a_parent_is_nudged_ten_times_a_second_and_once_at_the_end() -> (
    None
):
    table = a_family("a", "b").later(1)
    nudges = []
    for step in range(30):
        table.status("j-variant-a", condition("QuotaReserved", False, f"Reason{step}"))
        nudges += table.follow()
        table.later(0.01)
    assert len(nudges) == 3
    assert table.core.wake() is not None
    table.later(0.1).follow()
    (a, _) = table.stored["j"].status.variants
    assert a.conditions[0].reason == "Reason29"
    assert table.orders() == []


def test_a_nudge_that_another_commit_makes_needless_in_time_is_never_given() -> None:
    table = FamilyTable(gather=GATHER).offer("a").workload()
    assert table.follow() == ["submitted j-variant-a"]
    assert table.core.wake() == table.now + GATHER
    table.obey(facts.Aggregated(namespace=NS, name="j"))  # whatever made it tell of its variants
    assert table.later(GATHER.total_seconds()).orders() == []
    table.status("j-variant-a", condition("QuotaReserved", False, "AnotherReason"))
    assert table.orders() == []
    assert table.later(GATHER.total_seconds()).follow() == ["aggregated j"]
