"""Families of one parent and its variants: their variants, their status, and the effect of changes
of the queue or the parent. docs/spec/lifecycle.md#4, #7.4.
"""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.configuration import Configuration
from admittance.api.workload import PARENT_VARIANT
from admittance.events import facts
from admittance.events.requests.queues import PendingQuery, Queues
from admittance.scheduling.state.config import config_of
from admittance.workload.change import with_spec
from admittance.workload.family_info import allowed_flavors
from admittance.workload.limits import limits_of
from admittance.workload.stored import encode, head, owner_of
from support.cores.families.family_cores import LOWER, FamilyCores, Row, cores_with_families

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
    cores = cores_with_families(ONE, foreign=FULL)
    cores.job()
    cores.advance(3600)
    assert cores.phase("j") == "Pending"
    assert "j" not in cores.considered()
    reply = cores.scheduler.queues(Queues())
    (queue,), (local,) = reply.cluster_queues, reply.local_queues
    assert (queue.pending, local.pending) == (1, 1)
    assert (queue.reserving, queue.admitted) == (3, 3), "the workloads of before"
    pending = cores.scheduler.pending(PendingQuery())
    assert pending.total == 1
    assert [row.name for row in pending.rows] == ["j"]


@scenario("D2")
def test_a_variant_waits_for_its_own_flavor_though_a_better_one_is_free() -> None:
    cores = cores_with_families(ONE, explicit=[variant("cheap", "spot")], foreign={"s1": "spot"})
    cores.job()
    cores.advance(3600)
    assert cores.row() == Row("", "cheap", 0, 0, "0/0/8")


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
    cores = cores_with_families(ONE, explicit=explicit, foreign=FULL)
    cores.job(priority=7, maximumExecutionTimeSeconds=3600)
    parent = cores.stored("j")
    assert head(parent).role == "parent"
    assert parent.metadata.annotations[PARENT_VARIANT] == "true"
    variants = cores.variants()
    assert list(variants) == list(flavors)
    for place, (tag, variant) in enumerate(variants.items()):
        spec = head(variant)
        assert variant.metadata.name == f"j-variant-{tag}"
        assert owner_of(variant) == ("j", parent.metadata.uid)
        assert allowed_flavors(variant) == frozenset(flavors[tag])
        assert (spec.role, spec.sibling_index, spec.priority) == ("variant", place, 7)
        assert spec.maximum_execution_time_seconds is None
        assert PARENT_VARIANT not in variant.metadata.annotations
    cores.advance(5)
    before = {name: encode(variant) for name, variant in cores.variants().items()}
    cores.restart()
    cores.advance(3600)
    assert {name: encode(variant) for name, variant in cores.variants().items()} == before


@scenario("D18")
def test_the_parent_lists_all_of_its_variants() -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation"}, checks={"on-demand": ["slow"]})
    cores.job()
    rows = {row.variant: row for row in cores.stored("j").status.variants}
    assert list(rows) == ["reservation", "on-demand"]
    assert [rows[tag].resource_flavors for tag in rows] == [("reservation",), ("on-demand",)]
    reserved = {condition.type: condition.status for condition in rows["on-demand"].conditions}
    assert reserved["QuotaReserved"] == "True"
    cores.report("j-variant-on-demand", "slow", "Ready")
    rows = {row.variant: row for row in cores.stored("j").status.variants}
    assert (rows["reservation"].active, rows["reservation"].why) == (True, "upgrade")
    admitted = {condition.type: condition.status for condition in rows["on-demand"].conditions}
    assert admitted["Admitted"] == "True"
    assert cores.stored("j").status.admission_checks == ()
    cores.done("r1")
    rows = {row.variant: row for row in cores.stored("j").status.variants}
    assert (rows["on-demand"].active, rows["on-demand"].why) == (False, "lowerThanAdmitted")


@scenario("D19")
def test_a_variant_gets_another_name_when_its_name_is_in_use() -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation"})
    cores.edit_queue(concurrentAdmission=None)
    cores.job("j-variant-on-demand", 4, allowed=["on-demand"])
    cores.policy()
    cores.job()
    names = [variant.metadata.name for variant in cores.variants().values()]
    assert names[0] == "j-variant-reservation"
    assert names[1].startswith("j-variant-on-demand-")
    assert cores.phases("j-variant-on-demand", "j") == ["Admitted", "Pending"]
    cores.done("j-variant-on-demand")
    assert cores.on() == "on-demand"


# Configuration. -----------------------------------------------------------------------------


@scenario("D32")
def test_a_regular_workload_gets_only_what_it_may_have() -> None:
    cores = FamilyCores()
    cores.offer(TWO)
    cores.job("w", allowed=["on-demand"])
    assert (cores.on("w"), cores.used()) == ("on-demand", "0/4")
    cores.job("x", allowed=["on-demand"])
    cores.advance(3600)
    assert cores.phases("w", "x") == ["Admitted", "Pending"]


@scenario("D33")
def test_a_queue_without_the_field_has_regular_workloads() -> None:
    cores = cores_with_families(TWO)
    cores.queue("plain", resourceGroups=cores.offered["resourceGroups"])
    cores.job()
    cores.job("w", queue="plain")
    assert [head(cores.stored(name)).role for name in ("j", "w")] == ["parent", "regular"]
    assert cores.variants("w") == {}
    assert (cores.on("j"), cores.on("w")) == ("reservation", "reservation")
    assert PARENT_VARIANT not in cores.stored("w").metadata.annotations
    assert cores.used("plain") == "4/0"


@scenario("D33")
def test_with_the_gate_off_workloads_are_regular_and_apply_warns() -> None:
    configuration = Configuration(feature_gates={"ConcurrentAdmission": False})
    limits = limits_of(configuration)
    cores = cores_with_families(TWO, config=config_of(configuration), limits=limits)
    cores.job()
    cores.job("k")
    assert [head(cores.stored(name)).role for name in ("j", "k")] == ["regular", "regular"]
    assert not cores.family_watch
    assert (cores.on("j"), cores.on("k"), cores.used()) == ("reservation", "on-demand", "4/4")


@scenario("D34")
def test_a_variant_that_can_never_fit_says_so_and_blocks_no_sibling() -> None:
    cores = cores_with_families({"small": 1, "reservation": 4}, foreign={"r1": "reservation"})
    cores.job()
    cores.advance(5)
    never = cores.variants()["small"]
    assert head(never).active
    assert cores.reason("j-variant-small", "QuotaReserved") == "False: ExceedsMaxQuota"
    assert cores.message("j-variant-small", "QuotaReserved")
    cores.at(100)
    cores.done("r1")
    assert cores.row() == Row("reservation", "small reservation", 0, 1, "0/4")
    cores.at(3600)
    assert cores.lived() == [("started", 100)]


# Changes of the queue. ----------------------------------------------------------------------


@scenario("D5")
def test_a_new_flavor_is_a_new_variant_of_each_family() -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation", "o1": "on-demand"})
    cores.job()
    assert list(cores.variants()) == ["reservation", "on-demand"]
    cores.at(60)
    cores.offer({**TWO, "spot": 4})
    cores.go()
    assert list(cores.variants()) == ["reservation", "on-demand", "spot"]
    assert cores.row() == Row("spot", "reservation on-demand spot", 0, 1, "4/4/4")


@scenario("D5")
def test_an_explicit_variant_releases_a_flavor_it_may_no_longer_use() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["slow"]}
    explicit = [variant("fast", "reservation", "on-demand"), variant("cheap", "spot")]
    cores = cores_with_families(ONE, explicit=explicit, checks=checks)
    cores.job()
    assert (cores.reserved(), cores.on()) == ("fast", "spot")
    cores.policy(explicit=[variant("fast", "on-demand"), variant("cheap", "spot")])
    cores.go()
    assert cores.flavors_of("j-variant-fast") == {"on-demand"}
    assert cores.lived() == [("started", 0)]


@scenario("D5")
@pytest.mark.parametrize("still", [True, False], ids=["it still may", "it may not any more"])
def test_an_admitted_variant_stops_only_if_its_flavor_is_not_allowed(still: bool) -> None:
    explicit = [variant("fast", "reservation", "on-demand"), variant("cheap", "spot")]
    cores = cores_with_families(ONE, explicit=explicit, foreign={"r1": "reservation"})
    cores.job()
    assert cores.on() == "on-demand"
    cores.at(60)
    fast = variant("fast", "on-demand" if still else "reservation")
    cores.policy(explicit=[fast, variant("cheap", "spot")])
    cores.go()
    if still:
        assert cores.lived() == [("started", 0)]
    else:
        assert cores.row() == Row("spot", "fast cheap", 0, 2, "4/0/4")


@scenario("D5")
def test_a_running_workload_becomes_a_family_when_it_waits_again() -> None:
    cores = FamilyCores()
    cores.offer(TWO, preemption=LOWER)
    cores.job("r1", allowed=["reservation"])
    cores.policy()
    cores.go()
    cores.submit_regular("p", "reservation")
    assert head(cores.stored("r1")).role == "parent"
    assert list(cores.variants("r1")) == ["reservation"]
    cores.done("p")
    assert cores.on("r1") == "reservation"
    assert cores.lived("r1") == [("started", 0), ("stopped", 0), ("started", 0)]


# What happens to the parent. ----------------------------------------------------------------


@scenario("D22")
@pytest.mark.parametrize("stopping", [0, 30], ids=["stops at once", "takes its time to stop"])
def test_a_deleted_parent_deletes_its_variants(stopping: int) -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation"})
    cores.job()
    if stopping:
        cores.slow_jobs.add("j")
    cores.at(60)
    cores.publish(facts.Deleted, "j")
    cores.go()
    if stopping:
        assert cores.used() == "4/4", "until the job has stopped"
        cores.at(60 + stopping)
        cores.stop("j")
        cores.go()
    assert [cores.has(name) for name in ("j", "j-variant-reservation", "j-variant-on-demand")] == [
        False, False, False,
    ]  # fmt: skip
    assert cores.used() == "4/0"
    cores.job("k")
    assert cores.on("k") == "on-demand"


@scenario("D22")
@pytest.mark.parametrize("judged", [False, True], ids=["waiting", "holding reservations"])
def test_a_held_parent_has_no_competing_variant_until_its_release(judged: bool) -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]} if judged else {}
    foreign = {} if judged else {"r1": "reservation", "o1": "on-demand"}
    cores = cores_with_families(TWO, foreign=foreign, checks=checks)
    cores.job()
    assert cores.reserved() == ("reservation on-demand" if judged else "")
    cores.publish(facts.Held, "j")
    cores.go()
    if not judged:
        cores.done("o1")
    cores.advance(3600)
    assert (cores.phase("j"), cores.active(), cores.on()) == ("Pending", "", "")
    assert cores.reason("j", "QuotaReserved") == "False: OnHold"
    assert cores.used() == ("0/0" if judged else "4/0")
    cores.publish(facts.Released, "j")
    cores.go()
    if judged:
        cores.report("j-variant-on-demand", "quick", "Ready")
    assert cores.on() == "on-demand"


@scenario("D18", "D22")
def test_the_job_starts_with_the_updates_of_the_admitted_variant_s_checks() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    cores = cores_with_families(TWO, checks=checks)
    cores.put("ResourceFlavor", "on-demand", {"nodeLabels": {"kind": "on-demand"}})
    cores.job()
    for tag, check in (("on-demand", "quick"), ("reservation", "slow")):
        updates = [{"name": "main", "labels": {"from": check}}]
        cores.report(f"j-variant-{tag}", check, "Ready", pod_set_updates=updates)
    admissions = [fact for fact in cores.published if isinstance(fact, facts.Admitted)]
    assert [fact.name for fact in admissions] == ["j", "j"]
    first, second = (fact.pod_sets[0] for fact in admissions)
    assert (first.labels, first.node_selector) == ({"from": "quick"}, {"kind": "on-demand"})
    assert (second.labels, second.node_selector) == ({"from": "slow"}, {})


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
    cores = cores_with_families(TWO, foreign={"r1": "reservation"})
    cores.job()
    variant = cores.variants()[tag]
    cores.by_hand(variant.metadata.name, with_spec(variant, **edit))
    cores.publish(facts.Aggregated, "j")
    cores.go()
    cores.done("r1")
    assert cores.row() == Row("reservation", "reservation", 1, 2, "4/0")


# What is counted. ---------------------------------------------------------------------------


@scenario("D24")
def test_a_family_counts_as_one() -> None:
    cores = cores_with_families(ONE, foreign=FULL)
    cores.job()
    cores.advance(60)
    reply = cores.scheduler.queues(Queues())
    (queue,), (local,) = reply.cluster_queues, reply.local_queues
    assert (queue.pending, queue.reserving, queue.admitted) == (1, 3, 3)
    assert (local.pending, local.reserving, local.admitted) == (1, 3, 3)
    since = len(cores.revisions)
    cores.done("s1")
    reply = cores.scheduler.queues(Queues())
    (queue,), (local,) = reply.cluster_queues, reply.local_queues
    assert (queue.pending, queue.reserving, queue.admitted) == (0, 3, 3)
    assert (local.pending, local.reserving, local.admitted) == (0, 3, 3)
    assert sum(cores.tallied(since).lifecycle.admitted.clusters.values.values()) == 1
