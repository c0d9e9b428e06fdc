"""Orders for a family: creation, names, active variants, priorities, deletions, the parent."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from admittance.acts import PATIENCE
from admittance.api.reading.canonical import spec_of
from admittance.api.workload import FAMILY_GATE
from admittance.events import facts
from admittance.variants.core import GATHER
from support.builders import NOON, a_condition
from support.cores.families.stepped_variants import NS, SteppedVariants, a_family

RESERVATION, DEMAND, SPOT = "j-variant-reservation", "j-variant-demand", "j-variant-spot"
DELAYED = (
    {"name": "first", "allowedResourceFlavors": ["reservation"]},
    {"name": "second", "allowedResourceFlavors": ["demand"], "createDelaySeconds": 7200},
)
# Creation. ----------------------------------------------------------------------------------


def test_a_variant_has_the_spec_that_its_parent_implies() -> None:
    table = a_family()
    workload = table.stored[DEMAND]
    spec = spec_of(workload.spec)
    assert (spec.role, spec.variant, spec.sibling_index) == ("variant", "demand", 1)
    constraints = spec.admission_constraints
    assert constraints is not None
    assert constraints.allowed_resource_flavors == ("demand",)
    assert [gate.name for gate in spec.preemption_gates] == [FAMILY_GATE]
    (owner,) = workload.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Workload", "j", table.stored["j"].metadata.uid)


def test_a_complete_family_requires_no_act() -> None:
    table = a_family()
    assert table.ordered_now() == []
    assert table.later(3600).ordered_now() == []
    assert table.families.wake() is None


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
            [f"submitted {name} inactive" for name in (RESERVATION, DEMAND, SPOT)],
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
            id="a variant before its time exists and is inactive",
        ),
    ],
)
def test_which_variants_are_created(
    change: Callable[[SteppedVariants], SteppedVariants], expected: list[str]
) -> None:
    assert change(SteppedVariants()).ordered_now() == expected


# Names. -------------------------------------------------------------------------------------


def test_a_variant_does_not_use_the_name_of_a_terminating_one() -> None:
    table = a_family("a")
    table.put("j", None).workload("j", uid="second")
    deleted, submitted = table.ordered_now()
    assert deleted == "deleted j-variant-a"
    assert submitted.startswith("submitted j-variant-a-")
    table.follow()
    assert [name for name in table.stored if name != "j"] == [submitted.removeprefix("submitted ")]


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


def test_a_family_is_looked_at_when_its_act_may_be_repeated_before_the_delay_ends() -> None:
    table = a_family(explicit=DELAYED)
    table.spec("j", priority=7)
    assert table.ordered_now() == [
        "reprioritized j-variant-first 7",
        "reprioritized j-variant-second 7",
    ]
    assert table.families.wake() == NOON + PATIENCE


# Deletions. ---------------------------------------------------------------------------------


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
    acts = change(a_family()).ordered_now()
    assert [act for act in acts if not act.startswith("aggregated")] == expected


def test_a_recreated_local_queue_uses_the_present_cluster_queue() -> None:
    table = a_family("a", "b")
    table.local_queue("lq", "").offer("a", "b", "c")
    assert "submitted j-variant-c" not in table.ordered_now()
    table.local_queue()
    assert table.ordered_now()[0] == "submitted j-variant-c"


def test_a_variant_that_runs_in_the_former_queue_stays() -> None:
    table = a_family("a", "b")
    table.admit("b").follow()
    name = table.named("b")
    admission = table.stored[name].status.admission
    assert admission is not None
    table.status(name, admission=msgspec.structs.replace(admission, cluster_queue="old"))
    table.offer("a").follow()
    assert name in table.family()


# The parent. --------------------------------------------------------------------------------


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
    table.apply_facts(
        facts.Aggregated(namespace=NS, name="j")
    )  # The rows are written for another reason.
    assert table.later(GATHER.total_seconds()).ordered_now() == []
    table.status("j-variant-a", a_condition("QuotaReserved", False, "AnotherReason"))
    assert table.ordered_now() == []
    assert table.later(GATHER.total_seconds()).follow() == ["aggregated j"]
