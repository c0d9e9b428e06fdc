"""Every invariant of families fires where a world breaks it, and is silent where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from simulation.family_world import (
    ADMITTED,
    GONE,
    OPEN,
    PENDING,
    PREEMPTED,
    RESERVED,
    STOPPING,
    World,
    admission,
    condition,
    preempted_by,
)
from simulation.invariants.quota import Accounts
from simulation.nats.observed import Stored
from simulation.plots.configuration import manifest
from simulation.transcript import Broken

BREACHES: list[tuple[Callable[[World], None], str]] = []


def breaks(message: str) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Lists a breach of an invariant, with a part of the message about it."""

    def listed(breach: Callable[[World], None]) -> Callable[[World], None]:
        BREACHES.append((breach, message))
        return breach

    return listed


def test_a_family_that_moves_up_breaks_nothing() -> None:
    world = World(quota=2)
    revision = world.running()
    world.looks.started(f"ns.p.{revision}", "r")
    world.variant(0, RESERVED, admission=admission("f0"))
    world.whole()
    world.stop(migratingTo="p0")
    world.looks.ended(f"ns.p.{revision}", "stopped")
    world.variant(1, GONE)
    revision = world.admit(0)
    world.looks.started(f"ns.p.{revision}", "r")
    world.looks.families.at_rest(heals=True)
    assert world.looks.usage == {"q": {("f0", "cpu"): 2000, ("f1", "cpu"): 0}}


@breaks("two of one family are admitted")
def two_variants_are_admitted(world: World) -> None:
    world.running()
    world.variant(0, ADMITTED, admission=admission("f0"))
    world.whole()


@breaks("it runs: True")
def a_parent_runs_without_a_variant(world: World) -> None:
    world.waits()
    world.parent(ADMITTED, admission=admission("f1"), admittedVariant="p1")
    world.whole()


@breaks("it runs as 'p0'")
def a_parent_names_another_variant(world: World) -> None:
    world.running()
    world.parent(ADMITTED, admission=admission("f1"), admittedVariant="p0")
    world.whole()


@breaks("its admission")
def a_parent_has_another_admission(world: World) -> None:
    world.waits(1)
    world.variant(1, ADMITTED, admission=admission("f1"))
    world.parent(ADMITTED, admission=admission("f0"), admittedVariant="p1")
    world.whole()


@breaks("has not stopped")
def only_the_variant_gives_up_its_quota(world: World) -> None:
    world.running()
    world.stop()
    world.variant(1, GONE)
    world.whole()


@breaks("runs on r")
def quota_is_given_up_while_the_job_runs(world: World) -> None:
    world.looks.started(f"ns.p.{world.running()}", "r")
    world.stop()
    world.variant(1, GONE)
    world.parent(GONE)
    world.whole()


@breaks("runs on r")
def a_regular_job_runs_on_without_quota(world: World) -> None:
    world.regular("w", PENDING)
    revision = world.regular("w", ADMITTED, admission=admission("f0"))
    world.looks.started(f"ns.w.{revision}", "r")
    world.regular("w", STOPPING, admission=admission("f0"))
    world.regular("w", GONE)


@breaks("has rows of checks")
def a_parent_has_rows_of_checks(world: World) -> None:
    world.parent(PENDING, admissionChecks=[{"name": "k", "state": "Pending"}])


@breaks("is promised quota")
def quota_is_promised_without_a_migration(world: World) -> None:
    world.running()
    world.variant(0, PENDING, promised=admission("f0"))
    world.whole()


@breaks("is not being stopped")
def a_migration_begins_without_a_stop(world: World) -> None:
    world.running()
    where = admission("f1")
    world.parent(ADMITTED, admission=where, admittedVariant="p1", migratingTo="p0")
    world.whole()


@breaks("hold quota")
def orphans_hold_quota(world: World) -> None:
    world.parent(PENDING)
    world.variant(0, PENDING)
    world.variant(0, RESERVED, admission=admission("f0"))
    world.whole()
    world.put("workload.ns.p", None)
    world.whole()


@breaks("go on")
def variants_go_on_when_the_parent_has_finished(world: World) -> None:
    world.waits(0)
    world.parent([condition("Finished", True)])
    world.whole()


@breaks("is started by")
def a_variant_is_started(world: World) -> None:
    world.running()
    world.looks.started("ns.p1.9", "r")


@breaks("starts while")
def a_job_is_started_twice(world: World) -> None:
    revision = world.running()
    world.looks.started(f"ns.p.{revision}", "r-a")
    world.looks.started(f"ns.p.{revision + 3}", "r-b")


@breaks("runners are told")
def runners_are_told_of_a_variant(world: World) -> None:
    revision = world.running()
    said = msgspec.json.encode({"uid": "p1", "revision": revision})
    world.looks.logged(Stored(1, "admit.workload.admitted.ns.p1", said, {}, 0.0))


@breaks("over quota by 1000")
def a_family_and_another_exceed_quota(world: World) -> None:
    world.running()
    world.regular("w", PENDING)
    world.regular("w", RESERVED, admission=admission("f1", 3))


@breaks("is an orphan")
def an_orphan_is_left_over(world: World) -> None:
    world.variant(0, PENDING)
    world.looks.families.at_rest(heals=True)


@breaks("promised quota forever")
def a_promise_is_left_over(world: World) -> None:
    world.parent(PENDING)
    world.variant(0, PENDING, promised=admission("f0"))
    world.looks.families.at_rest(heals=True)


@breaks("by its sibling")
def a_sibling_is_a_victim(world: World) -> None:
    world.parent(PENDING)
    world.variant(0, PENDING, **OPEN)
    world.variant(1, PENDING)
    world.variant(1, RESERVED, admission=admission("f1"))
    world.variant(1, PREEMPTED, **preempted_by("p0"))


@pytest.mark.parametrize(
    ("breach", "message"), [pytest.param(*breach, id=breach[0].__name__) for breach in BREACHES]
)
def test_a_breach_is_found(breach: Callable[[World], None], message: str) -> None:
    with pytest.raises(Broken, match=message):
        breach(World())


def test_quota_that_a_family_shares_is_charged_once() -> None:
    accounts = Accounts()
    shared, own = ("m", "memory"), ("f1", "cpu")
    accounts.put("a", "q", "p", {shared: 3, own: 2})
    assert accounts.put("b", "q", "p", {shared: 2}) == {}
    assert accounts.put("c", "q", "p", {shared: 5}) == {shared: 5}
    assert accounts.usage == {"q": {shared: 5, own: 2}}
    assert accounts.without(["c"]) == {"q": {shared: 3, own: 2}}
    assert accounts.without(["a", "c"]) == {"q": {shared: 2, own: 0}}
    accounts.put("d", "q", "d", {shared: 1})
    accounts.put("a", "q", "p", {})
    assert accounts.usage == {"q": {shared: 6, own: 0}}


def test_a_job_that_does_not_stop_in_time_is_abandoned() -> None:
    world = World()
    run = f"ns.p.{world.running()}"
    world.looks.started(run, "r")
    world.stop()
    world.kernel.loop.now += 9.0
    world.variant(1, GONE)
    world.parent(GONE)
    world.whole()
    assert world.looks.abandoned == {run}


RETRY = {"strategy": "static", "baseDelay": "1s"}


def check(world: World, **more: Any) -> None:
    about = manifest("AdmissionCheck", "k", {"controllerName": "c", **more})
    world.put("admissioncheck.k", about)


def late_retry(world: World) -> int:
    """The sequence on the log of a Retry for a cycle that is over."""
    rows = [{"name": "k", "state": "Pending"}]
    world.regular("w", PENDING, admissionChecks=rows, admissionCycle=4)
    said = facts.CheckReported(
        namespace="ns", name="w", controller="c", check="k", cycle=2, state="Retry"
    )
    sequence = world.number + 1
    world.looks.logged(Stored(sequence, subject_of(said), encode(said), {}, 0.0))
    return sequence


def test_a_late_retry_with_a_delay_that_had_no_effect_is_found() -> None:
    world = World()
    check(world, retry=RETRY)
    with pytest.raises(Broken, match="had no effect"):
        world.looks.effects.acknowledged(late_retry(world))
