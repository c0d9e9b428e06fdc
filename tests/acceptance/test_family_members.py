"""Families of one parent and its variants: their variants, their status, and the effect of changes
of the queue or the parent. LIFECYCLE 4, 7.4.
"""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.configuration import Configuration
from admittance.api.reading.manifest import ManifestError, accept
from admittance.api.workload import PARENT_VARIANT
from admittance.control.manifest_changes import cautions, planned_writes
from admittance.events import facts
from admittance.events.requests import PendingQuery, Queues
from admittance.scheduling.state.config import config_of
from admittance.scheduling.state.queue import in_order
from admittance.workload.change import with_spec
from admittance.workload.conditions import is_true
from admittance.workload.family_info import allowed_flavors
from admittance.workload.limits import Limits, limits_of
from admittance.workload.stored import encode, head, owner_of

from family_living import LOWER, FamilyLife, Row, a_family_life

scenario = pytest.mark.scenario
ONE = {"reservation": 4, "on-demand": 4, "spot": 8}
TWO = {"reservation": 4, "on-demand": 4}
FULL = {"r1": "reservation", "o1": "on-demand", "s1": "spot"}


def variant(tag: str, *flavors: str, **delays: int) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": list(flavors) or [tag], **delays}


EXPLICIT = [variant("fast", "reservation", "on-demand"), variant("cheap", "spot")]


# The variants of a parent. ----------------------------------------------------------------


@scenario("D1")
def test_a_parent_is_in_no_queue_and_counts_once() -> None:
    life = a_family_life(ONE, foreign=FULL)
    life.job()
    life.advance(3600)
    assert life.phase("j") == "Pending"
    assert "j" not in life.considered()
    reply = life.core.queues(Queues())
    (queue,), (local,) = reply.cluster_queues, reply.local_queues
    assert (queue.pending, local.pending) == (1, 1)
    assert (queue.reserving, queue.admitted) == (3, 3), "the workloads of before"
    pending = life.core.pending(PendingQuery())
    assert pending.total == 1
    assert [row.name for row in pending.rows] == ["j"]


@scenario("D2")
def test_a_variant_gets_its_own_flavor_though_a_better_one_is_free() -> None:
    life = a_family_life(ONE, explicit=[variant("cheap", "spot")])
    life.job()
    assert life.row() == Row("spot", "cheap", 0, 1, "0/0/4")


@scenario("D2")
def test_a_variant_waits_for_its_own_flavor_though_a_better_one_is_free() -> None:
    life = a_family_life(ONE, explicit=[variant("cheap", "spot")], foreign={"s1": "spot"})
    life.job()
    life.advance(3600)
    assert life.row() == Row("", "cheap", 0, 0, "0/0/8")


@scenario("D3")
@pytest.mark.parametrize(
    ("explicit", "flavors"),
    [
        pytest.param(
            [],
            {"reservation": ["reservation"], "on-demand": ["on-demand"], "spot": ["spot"]},
            id="three flavors make three",
        ),
        pytest.param(
            EXPLICIT,
            {"fast": ["reservation", "on-demand"], "cheap": ["spot"]},
            id="two explicit ones",
        ),
    ],
)
def test_a_parent_has_the_variants_that_its_queue_says(
    explicit: list[dict[str, Any]], flavors: dict[str, list[str]]
) -> None:
    life = a_family_life(ONE, explicit=explicit, foreign=FULL)
    life.job(priority=7, maximumExecutionTimeSeconds=3600)
    parent = life.stored("j")
    assert head(parent).role == "parent"
    assert parent.metadata.annotations[PARENT_VARIANT] == "true"
    found = life.variants()
    assert list(found) == list(flavors)
    for place, (tag, one) in enumerate(found.items()):
        spec = head(one)
        assert one.metadata.name == f"j-variant-{tag}"
        assert owner_of(one) == ("j", parent.metadata.uid)
        assert allowed_flavors(one) == frozenset(flavors[tag])
        assert (spec.role, spec.sibling_index, spec.priority) == ("variant", place, 7)
        assert spec.maximum_execution_time_seconds is None
        assert PARENT_VARIANT not in one.metadata.annotations
    life.advance(5)
    before = {name: encode(one) for name, one in life.variants().items()}
    life.restart_all()
    life.advance(3600)
    assert {name: encode(one) for name, one in life.variants().items()} == before


@scenario("D18")
def test_the_parent_lists_all_of_its_variants() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"}, checks={"on-demand": ["slow"]})
    life.job()
    rows = {row.variant: row for row in life.stored("j").status.variants}
    assert list(rows) == ["reservation", "on-demand"]
    assert [rows[tag].resource_flavors for tag in rows] == [("reservation",), ("on-demand",)]
    reserved = {one.type: one.status for one in rows["on-demand"].conditions}
    assert reserved["QuotaReserved"] == "True"
    life.judge("j-variant-on-demand", "slow", "Ready")
    rows = {row.variant: row for row in life.stored("j").status.variants}
    assert (rows["reservation"].active, rows["reservation"].why) == (True, "upgrade")
    admitted = {one.type: one.status for one in rows["on-demand"].conditions}
    assert admitted["Admitted"] == "True"
    assert life.stored("j").status.admission_checks == ()
    life.done("r1")
    rows = {row.variant: row for row in life.stored("j").status.variants}
    assert (rows["on-demand"].active, rows["on-demand"].why) == (False, "lowerThanAdmitted")


@scenario("D18")
def test_a_waiting_parent_explains_each_variant() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation", "o1": "on-demand"})
    life.job()
    life.advance(5)
    told = life.message("j", "QuotaReserved")
    assert "reservation" in told
    assert "on-demand" in told


@scenario("D19")
def test_names_at_the_limit_are_cut_and_differ() -> None:
    name = "j" * 250
    long = {"f" * 60 + "-a": 4, "f" * 60 + "-b": 4}
    life = a_family_life(long)
    life.job(name)
    found = [one.metadata.name for one in life.variants(name).values()]
    assert len(set(found)) == 2
    assert all(len(one) <= 253 and "-variant-" in one for one in found)
    assert life.on(name) == "f" * 60 + "-a"
    again = a_family_life(long)
    again.job(name)
    uids = life.stored(name).metadata.uid, again.stored(name).metadata.uid
    if uids[0] == uids[1]:
        assert [one.metadata.name for one in again.variants(name).values()] == found


@scenario("D19")
def test_a_variant_gets_another_name_when_its_name_is_in_use() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.says(concurrentAdmission=None)
    life.job("j-variant-on-demand", 4, allowed=["on-demand"])
    life.policy()
    life.job()
    names = [one.metadata.name for one in life.variants().values()]
    assert names[0] == "j-variant-reservation"
    assert names[1].startswith("j-variant-on-demand-")
    assert life.phases("j-variant-on-demand", "j") == ["Admitted", "Pending"]
    life.done("j-variant-on-demand")
    assert life.on() == "on-demand"


# Configuration. -----------------------------------------------------------------------------


def a_queue(concurrent: Any, **spec: Any) -> dict[str, Any]:
    flavors = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": 4}]} for name in ("f", "g")
    ]
    group = {"coveredResources": ["cpu"], "flavors": flavors}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {"resourceGroups": [group], "concurrentAdmission": concurrent, **spec},
    }


def policy(*explicit: dict[str, Any], **constraints: str) -> dict[str, Any]:
    constraints.setdefault("mode", "UpgradeOnly")
    said: dict[str, Any] = {"migrationConstraints": constraints}
    return {**said, "explicitVariants": list(explicit)} if explicit else said


REFUSED = [
    pytest.param(
        policy(*(variant(f"v{number}", "f") for number in range(17))),
        "explicitVariants", id="seventeen variants",
    ),
    pytest.param(
        policy(variant("v", "f"), variant("v", "g")), "explicitVariants[1].name", id="a name twice"
    ),
    pytest.param({"migrationConstraints": {}}, "migrationConstraints.mode", id="no mode"),
    pytest.param(policy(mode="Always"), "migrationConstraints.mode", id="a mode that is none"),
    pytest.param(
        policy(mode="NoMigration", minFlavor="f"), "minFlavor", id="minFlavor with NoMigration"
    ),
    pytest.param(
        policy(variant("v", "f"), minFlavor="f"), "minFlavor", id="minFlavor with explicit ones"
    ),
    pytest.param(policy(minFlavor="h"), "minFlavor", id="minFlavor that is not on offer"),
    pytest.param(policy(minVariant="v"), "minVariant", id="minVariant without explicit ones"),
    pytest.param(
        policy(variant("v", "f"), minVariant="w"), "minVariant", id="minVariant that is unknown"
    ),
    pytest.param(
        policy({"name": "v", "allowedResourceFlavors": []}),
        "explicitVariants[0].allowedResourceFlavors", id="no flavor",
    ),
    pytest.param(
        policy(variant("v", "h")), "allowedResourceFlavors[0]", id="a flavor that is not on offer"
    ),
    pytest.param(
        policy(variant("v", "f", createDelaySeconds=-1)), "createDelaySeconds",
        id="a delay below zero",
    ),
    pytest.param(
        policy(variant("v", "f", deleteDelaySeconds=-1)), "deleteDelaySeconds",
        id="a patience below zero",
    ),
    pytest.param(policy(variant("Fast", "f")), "explicitVariants[0].name", id="capitals in a name"),
]  # fmt: skip


@scenario("D30")
@pytest.mark.parametrize(("concurrent", "field"), REFUSED)
def test_an_invalid_policy_is_refused_with_the_name_of_the_field(
    concurrent: Any, field: str
) -> None:
    with pytest.raises(ManifestError) as refused:
        accept(a_queue(concurrent))
    assert field in str(refused.value)


@scenario("D20")
def test_a_strict_fifo_queue_has_no_families() -> None:
    with pytest.raises(ManifestError) as refused:
        accept(a_queue(policy(), queueingStrategy="StrictFIFO"))
    assert "spec.queueingStrategy" in str(refused.value)
    assert "concurrentAdmission" in str(refused.value)
    accept(a_queue(policy(), queueingStrategy="BestEffortFIFO"))


@scenario("D32")
def test_a_regular_workload_gets_only_what_it_may_have() -> None:
    life = FamilyLife()
    life.offer(TWO)
    life.job("w", allowed=["on-demand"])
    assert (life.on("w"), life.used()) == ("on-demand", "0/4")
    life.job("x", allowed=["on-demand"])
    life.advance(3600)
    assert life.phases("w", "x") == ["Admitted", "Pending"]


@scenario("D32")
def test_a_parent_has_only_the_variants_that_it_may_have() -> None:
    life = a_family_life(ONE)
    life.job(allowed=["on-demand", "spot"])
    assert list(life.variants()) == ["on-demand", "spot"]
    assert life.row() == Row("on-demand", "on-demand", 0, 1, "0/4/0")


@scenario("D32")
def test_a_parent_without_variants_says_so() -> None:
    life = a_family_life(ONE)
    life.job(allowed=["gold"])
    life.advance(3600)
    assert life.variants() == {}
    assert life.reason("j", "QuotaReserved") == "False: NoMatchingFlavor"
    life.offer({**ONE, "gold": 4})
    life.go()
    assert life.on() == "gold"


@scenario("D33")
def test_a_queue_without_the_field_has_regular_workloads() -> None:
    life = a_family_life(TWO)
    life.queue("plain", resourceGroups=life.offered["resourceGroups"])
    life.job()
    life.job("w", queue="plain")
    assert [head(life.stored(name)).role for name in ("j", "w")] == ["parent", "regular"]
    assert life.variants("w") == {}
    assert (life.on("j"), life.on("w")) == ("reservation", "reservation")
    assert PARENT_VARIANT not in life.stored("w").metadata.annotations
    assert life.used("plain") == "4/0"


@scenario("D33")
def test_with_the_gate_off_workloads_are_regular_and_apply_warns() -> None:
    configuration = Configuration(feature_gates={"ConcurrentAdmission": False})
    limits = limits_of(configuration)
    life = a_family_life(TWO, config=config_of(configuration), limits=limits)
    life.job()
    life.job("k")
    assert [head(life.stored(name)).role for name in ("j", "k")] == ["regular", "regular"]
    assert not life.families
    assert (life.on("j"), life.on("k"), life.used()) == ("reservation", "on-demand", "4/4")
    queue = accept(a_queue(policy())).manifest
    (planned,) = planned_writes(life.controller.objects, [queue], now=life.now)
    (warning,) = cautions(planned, limits, life.controller.objects)
    assert "spec.concurrentAdmission" in warning
    assert "ConcurrentAdmission" in warning
    assert cautions(planned, Limits(), life.controller.objects) == ()


@scenario("D34")
def test_a_variant_that_can_never_fit_says_so_and_blocks_no_sibling() -> None:
    life = a_family_life({"small": 1, "reservation": 4}, foreign={"r1": "reservation"})
    life.job()
    life.advance(5)
    never = life.variants()["small"]
    assert head(never).active
    assert life.reason("j-variant-small", "QuotaReserved") == "False: ExceedsMaxQuota"
    assert life.message("j-variant-small", "QuotaReserved")
    life.at(100)
    life.done("r1")
    assert life.row() == Row("reservation", "small reservation", 0, 1, "0/4")
    life.at(3600)
    assert life.lived() == [("started", 100)]


# Changes of the queue. ----------------------------------------------------------------------


@scenario("D5")
def test_a_new_flavor_is_a_new_variant_of_each_family() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation", "o1": "on-demand"})
    life.job()
    assert list(life.variants()) == ["reservation", "on-demand"]
    life.at(60)
    life.offer({**TWO, "spot": 4})
    life.go()
    assert list(life.variants()) == ["reservation", "on-demand", "spot"]
    assert life.row() == Row("spot", "reservation on-demand spot", 0, 1, "4/4/4")


@scenario("D5")
def test_a_new_flavor_that_policy_does_not_want_is_an_inactive_variant() -> None:
    life = a_family_life(TWO)
    life.job()
    life.offer({**TWO, "spot": 4})
    life.go()
    assert life.why()["spot"] == "lowerThanAdmitted"
    assert life.row() == Row("reservation", "reservation", 0, 1, "4/0/0")


@scenario("D5")
def test_a_removed_flavor_removes_its_variant() -> None:
    life = a_family_life(ONE, foreign={"r1": "reservation"})
    life.job()
    assert life.on() == "on-demand"
    life.offer({"reservation": 4, "on-demand": 4})
    life.go()
    assert list(life.variants()) == ["reservation", "on-demand"]
    assert not life.has("j-variant-spot")
    assert life.lived() == [("started", 0)]


@scenario("D5")
def test_the_job_moves_when_its_admitted_flavor_is_removed() -> None:
    life = a_family_life(ONE, foreign={"r1": "reservation"})
    life.job()
    life.at(60)
    life.offer({"reservation": 4, "spot": 8})
    life.go()
    assert life.row() == Row("spot", "reservation spot", 0, 2, "4/4")
    assert life.lived() == [("started", 0), ("stopped", 60), ("started", 60)]


@scenario("D5")
def test_a_new_order_of_flavors_reorders_variants_and_stops_no_job() -> None:
    life = a_family_life(ONE, foreign={"r1": "reservation"})
    life.job()
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4/0")
    life.at(60)
    life.offer({"spot": 0, "reservation": 4, "on-demand": 4})
    life.go()
    assert list(life.variants()) == ["spot", "reservation", "on-demand"]
    assert life.row() == Row("on-demand", "spot reservation on-demand", 0, 1, "0/4/4")
    life.offer({"spot": 8, "reservation": 4, "on-demand": 4})
    life.go()
    assert life.row() == Row("spot", "spot", 1, 2, "4/4/0")


@scenario("D5")
def test_an_explicit_variant_releases_a_flavor_it_may_no_longer_use() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["slow"]}
    explicit = [variant("fast", "reservation", "on-demand"), variant("cheap", "spot")]
    life = a_family_life(ONE, explicit=explicit, checks=checks)
    life.job()
    assert (life.reserved(), life.on()) == ("fast", "spot")
    life.policy(explicit=[variant("fast", "on-demand"), variant("cheap", "spot")])
    life.go()
    assert life.flavors_of("j-variant-fast") == {"on-demand"}
    assert life.lived() == [("started", 0)]


@scenario("D5")
@pytest.mark.parametrize("still", [True, False], ids=["it still may", "it may not any more"])
def test_an_admitted_variant_stops_only_if_its_flavor_is_not_allowed(still: bool) -> None:
    explicit = [variant("fast", "reservation", "on-demand"), variant("cheap", "spot")]
    life = a_family_life(ONE, explicit=explicit, foreign={"r1": "reservation"})
    life.job()
    assert life.on() == "on-demand"
    life.at(60)
    fast = variant("fast", "on-demand" if still else "reservation")
    life.policy(explicit=[fast, variant("cheap", "spot")])
    life.go()
    if still:
        assert life.lived() == [("started", 0)]
    else:
        assert life.row() == Row("spot", "fast cheap", 0, 2, "4/0/4")


@scenario("D5")
def test_a_changed_floor_counts_at_once() -> None:
    life = a_family_life(ONE, foreign={"r1": "reservation", "o1": "on-demand"})
    life.job()
    life.policy(floor="reservation")
    life.go()
    assert life.row() == Row("spot", "reservation spot", 0, 1, "4/4/4")
    life.policy("NoMigration")
    life.go()
    assert life.row() == Row("spot", "spot", 0, 1, "4/4/4")
    life.policy()
    life.done("o1")
    assert life.row() == Row("on-demand", "reservation on-demand", 1, 2, "4/4/0")


@scenario("D5")
def test_a_waiting_workload_becomes_a_family_when_its_queue_allows_it() -> None:
    life = FamilyLife()
    life.offer(TWO)
    life.job("r1", allowed=["reservation"])
    life.job("j", allowed=["reservation"])
    life.job("k", 9)
    assert life.phases("r1", "j", "k") == ["Admitted", "Pending", "Pending"]
    life.policy()
    life.go()
    roles = [head(life.stored(name)).role for name in ("r1", "j", "k")]
    assert roles == ["regular", "parent", "parent"]
    assert list(life.variants("j")) == ["reservation"]
    assert list(life.variants("k")) == ["reservation", "on-demand"]
    life.done("r1")
    assert life.on("j") == "reservation"


@scenario("D5")
def test_a_running_workload_becomes_a_family_when_it_waits_again() -> None:
    life = FamilyLife()
    life.offer(TWO, preemption=LOWER)
    life.job("r1", allowed=["reservation"])
    life.policy()
    life.go()
    life.foreigner("p", "reservation")
    assert head(life.stored("r1")).role == "parent"
    assert list(life.variants("r1")) == ["reservation"]
    life.done("p")
    assert life.on("r1") == "reservation"
    assert life.lived("r1") == [("started", 0), ("stopped", 0), ("started", 0)]


@scenario("D5")
def test_without_the_policy_a_waiting_family_is_regular_and_a_job_runs_on() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job("j")
    life.job("k")
    assert (life.on("j"), life.on("k")) == ("on-demand", "")
    life.says(concurrentAdmission=None)
    life.go()
    assert head(life.stored("k")).role == "regular"
    assert life.variants("k") == {}
    assert not life.has("k-variant-reservation")
    assert list(life.variants("j")) == ["on-demand"]
    assert life.lived("j") == [("started", 0)]
    life.done("r1")
    assert life.on("k") == "reservation"
    assert life.on("j") == "on-demand"
    life.done("j")
    assert life.phase("j") == "Finished"
    assert life.used() == "4/0"


# What happens to the parent. ----------------------------------------------------------------


@scenario("D22")
def test_a_deactivated_parent_deactivates_its_variants() -> None:
    life = a_family_life(TWO, explicit=[variant("reservation"), variant("on-demand")])
    life.job()
    life.at(60)
    life.say(facts.Deactivated, "j")
    life.go()
    assert life.phase("j") == "Deactivated"
    assert life.row() == Row("", "", 0, 1, "0/0")
    assert set(life.why().values()) == {"parent"}
    life.at(120)
    life.say(facts.Activated, "j")
    life.go()
    assert life.row() == Row("reservation", "reservation", 0, 2, "4/0")
    assert life.lived() == [("started", 0), ("stopped", 60), ("started", 120)]


@scenario("D22")
def test_a_reactivated_parent_restarts_the_delays() -> None:
    explicit = [variant("reservation"), variant("on-demand", createDelaySeconds=100)]
    life = a_family_life(TWO, explicit=explicit, foreign={"r1": "reservation"})
    life.job()
    life.at(50)
    life.say(facts.Deactivated, "j")
    life.at(200)
    assert life.row() == Row("", "", 0, 0, "4/0")
    life.say(facts.Activated, "j")
    life.at(299)
    assert life.row() == Row("", "reservation", 0, 0, "4/0")
    life.at(300)
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")


@scenario("D22")
def test_a_change_of_the_parent_reaches_its_variants() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.say(facts.Reprioritized, "j", priority=42)
    life.go()
    assert {head(one).priority for one in life.variants().values()} == {42}


@scenario("D22")
def test_a_finished_parent_finishes_its_variants() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"}, checks={"reservation": ["slow"]})
    life.judge("r1", "slow", "Ready")
    life.job()
    life.done("r1")
    assert (life.on(), life.reserved(), life.used()) == ("on-demand", "reservation", "4/4")
    life.done("j")
    assert life.used() == "0/0"
    assert {life.phase(one.metadata.name) for one in life.variants().values()} == {"Finished"}
    assert life.withdrawn("slow", "j-variant-reservation")


@scenario("D22")
@pytest.mark.parametrize("stopping", [0, 30], ids=["stops at once", "takes its time to stop"])
def test_a_deleted_parent_deletes_its_variants(stopping: int) -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    if stopping:
        life.stubborn.add("j")
    life.at(60)
    life.say(facts.Deleted, "j")
    life.go()
    if stopping:
        assert life.used() == "4/4", "until the job has stopped"
        life.at(60 + stopping)
        life.stop("j")
        life.go()
    assert [life.has(name) for name in ("j", "j-variant-reservation", "j-variant-on-demand")] == [
        False, False, False,
    ]  # fmt: skip
    assert life.used() == "4/0"
    life.job("k")
    assert life.on("k") == "on-demand"


@scenario("D22")
def test_the_admitted_variant_shows_whether_its_pods_are_ready() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.ready("j")
    life.go()
    assert life.phase("j") == "Running"
    variants = life.variants()
    assert is_true(variants["on-demand"], "PodsReady")
    assert not is_true(variants["reservation"], "PodsReady")
    life.not_ready("j")
    life.go()
    assert life.phase("j") == "Admitted"
    assert not is_true(life.variants()["on-demand"], "PodsReady")


@scenario("D22")
@pytest.mark.parametrize("judged", [False, True], ids=["waiting", "holding reservations"])
def test_a_held_parent_has_no_competing_variant_until_its_release(judged: bool) -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]} if judged else {}
    foreign = {} if judged else {"r1": "reservation", "o1": "on-demand"}
    life = a_family_life(TWO, foreign=foreign, checks=checks)
    life.job()
    assert life.reserved() == ("reservation on-demand" if judged else "")
    life.say(facts.Held, "j")
    life.go()
    if not judged:
        life.done("o1")
    life.advance(3600)
    assert (life.phase("j"), life.active(), life.on()) == ("Pending", "", "")
    assert life.reason("j", "QuotaReserved") == "False: OnHold"
    assert life.used() == ("0/0" if judged else "4/0")
    life.say(facts.Released, "j")
    life.go()
    if judged:
        life.judge("j-variant-on-demand", "quick", "Ready")
    assert life.on() == "on-demand"


@scenario("D22")
def test_a_parent_that_runs_cannot_be_held() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.say(facts.Held, "j")
    assert life.settled[life.sequence].outcome == "refused"
    life.go()
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")


@scenario("D18", "D22")
def test_the_job_starts_with_the_updates_of_the_admitted_variant_s_checks() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    life = a_family_life(TWO, checks=checks)
    life.put("ResourceFlavor", "on-demand", {"nodeLabels": {"kind": "on-demand"}})
    life.job()
    for tag, check in (("on-demand", "quick"), ("reservation", "slow")):
        updates = [{"name": "main", "labels": {"from": check}}]
        life.judge(f"j-variant-{tag}", check, "Ready", pod_set_updates=updates)
    told = [one for one in life.said if isinstance(one, facts.Admitted)]
    assert [one.name for one in told] == ["j", "j"]
    first, second = (one.pod_sets[0] for one in told)
    assert (first.labels, first.node_selector) == ({"from": "quick"}, {"kind": "on-demand"})
    assert (second.labels, second.node_selector) == ({"from": "slow"}, {})


@scenario("D22")
def test_a_variant_deleted_by_a_user_is_created_again() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.say(facts.Deleted, "j-variant-reservation")
    life.go()
    life.advance(60)
    assert list(life.variants()) == ["reservation", "on-demand"]
    life.done("r1")
    assert life.on() == "reservation"


@scenario("D22")
def test_deleting_the_admitted_variant_stops_and_restarts_the_job() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.at(60)
    life.say(facts.Deleted, "j-variant-on-demand")
    life.go()
    life.advance(60)
    assert life.on() == "on-demand"
    assert life.starts("j") == 2
    assert list(life.variants()) == ["reservation", "on-demand"]


@scenario("D22")
@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(facts.Held, id="held"),
        pytest.param(facts.Finished, id="finished"),
        pytest.param(facts.Reprioritized, id="given another priority"),
    ],
)
@pytest.mark.parametrize("tag", ["reservation", "on-demand"])
def test_facts_for_parents_do_not_affect_a_variant(fact: Any, tag: str) -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    more = {"priority": 99} if fact is facts.Reprioritized else {}
    life.say(fact, f"j-variant-{tag}", **more)
    life.go()
    life.advance(60)
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")
    life.done("r1")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")


@scenario("D22")
def test_variants_without_a_stored_parent_are_deleted() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation", "o1": "on-demand"})
    life.job()
    life.by_hand("j", None)
    life.go()
    assert not any(map(life.has, ("j-variant-reservation", "j-variant-on-demand")))
    life.job()
    life.done("o1")
    assert life.on() == "on-demand"


@scenario("D22")
@pytest.mark.parametrize("tag", ["reservation", "on-demand"])
@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"active": False}, id="turned off"),
        pytest.param({"priority": 99}, id="more important"),
        pytest.param({"siblingIndex": 7}, id="at another place"),
        pytest.param(
            {"admissionConstraints": {"allowedResourceFlavors": ["reservation", "on-demand"]}},
            id="with more flavors",
        ),
    ],
)
def test_a_foreign_write_into_a_variant_is_corrected(edit: dict[str, Any], tag: str) -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    one = life.variants()[tag]
    life.by_hand(one.metadata.name, with_spec(one, **edit))
    life.say(facts.Aggregated, "j")
    life.go()
    life.done("r1")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")


@scenario("D22")
def test_no_variant_is_created_for_a_missing_parent() -> None:
    life = a_family_life(TWO)
    life.job("v", role="variant", variant="reservation")
    assert not life.has("v")
    life.job("p", role="parent")
    assert head(life.stored("p")).role == "parent"
    assert life.on("p") == "reservation"


# What is counted. ---------------------------------------------------------------------------


@scenario("D24")
def test_a_family_counts_as_one() -> None:
    life = a_family_life(ONE, foreign=FULL)
    life.job()
    life.advance(60)
    reply = life.core.queues(Queues())
    (queue,), (local,) = reply.cluster_queues, reply.local_queues
    assert (queue.pending, queue.reserving, queue.admitted) == (1, 3, 3)
    assert (local.pending, local.reserving, local.admitted) == (1, 3, 3)
    since = len(life.revisions)
    life.done("s1")
    reply = life.core.queues(Queues())
    (queue,), (local,) = reply.cluster_queues, reply.local_queues
    assert (queue.pending, queue.reserving, queue.admitted) == (0, 3, 3)
    assert (local.pending, local.reserving, local.admitted) == (0, 3, 3)
    assert sum(life.tallied(since).lifecycle.admitted.clusters.values.values()) == 1


@scenario("D24")
def test_a_family_with_several_reservations_counts_as_one_pending_job() -> None:
    checks = {name: [f"check-{name}"] for name in ONE}
    life = a_family_life(ONE, checks=checks)
    life.job()
    assert life.reserved() == "reservation on-demand spot"
    reply = life.core.queues(Queues())
    for row in (*reply.cluster_queues, *reply.local_queues):
        assert (row.pending, row.reserving, row.admitted) == (1, 0, 0)
    life.judge("j-variant-spot", "check-spot", "Ready")
    assert life.reserved() == "reservation on-demand"
    reply = life.core.queues(Queues())
    for row in (*reply.cluster_queues, *reply.local_queues):
        assert (row.pending, row.reserving, row.admitted) == (0, 1, 1)


@scenario("D26")
def test_siblings_are_listed_together_the_best_first() -> None:
    life = FamilyLife()
    life.offer(ONE)
    for name, flavor in FULL.items():
        life.job(name, int(ONE[flavor]), allowed=[flavor])
    life.says(stopPolicy="Hold")
    life.policy()
    for name in ("a", "x", "b", "y", "c"):
        regular = name in "xy"
        pods = [pods_of(4, least=2)] if regular else None
        life.job(name, pods=pods)
    roles = {name: head(life.stored(name)).role for name in "axbyc"}
    assert roles == {"a": "parent", "x": "regular", "b": "parent", "y": "regular", "c": "parent"}
    life.says(stopPolicy="None")
    life.go()
    first = families_of(life, ["reservation", "on-demand", "spot"])
    life.offer({"spot": 8, "reservation": 4, "on-demand": 4})
    life.go()
    assert families_of(life, ["spot", "reservation", "on-demand"]) == first


def pods_of(count: int, least: int) -> dict[str, Any]:
    container = {"name": "c", "command": ["true"], "resources": {"requests": {"gpu": "1"}}}
    template = {"spec": {"containers": [container]}}
    return {"name": "main", "count": count, "minCount": least, "template": template}


def families_of(life: FamilyLife, tags: list[str]) -> list[str]:
    """Who waits, in order: families by their parent's name. Siblings stand side by side, in the
    order of their tags."""
    order = [member.key[1] for member in in_order(life.core._state.queues["cq"])]
    found: list[str] = []
    while order:
        name, middle, _ = order[0].partition("-variant-")
        if middle:
            assert order[:3] == [f"{name}-variant-{tag}" for tag in tags]
            del order[:3]
        else:
            del order[0]
        found.append(name)
    assert sorted(found) == ["a", "b", "c", "x", "y"]
    return found
