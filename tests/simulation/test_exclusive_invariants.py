"""The invariants of preemption within a family fire where a world breaks them, and only there."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from admittance.events.facts import Assigned
from admittance.events.shapes import Admission
from simulation.family_world import (
    ADMITTED,
    BLOCKED,
    NOW,
    OPEN,
    PENDING,
    PREEMPTED,
    RESERVED,
    STOPPING,
    World,
    admission,
    preempt,
    preempted_by,
)
from simulation.transcript import Broken


def contested(world: World) -> None:
    """Two variants that need victims, and two that may be."""
    queue = world.looks.queues["q"]
    policy = msgspec.structs.replace(queue.spec.preemption, within_cluster_queue="LowerPriority")
    spec = msgspec.structs.replace(queue.spec, preemption=policy)
    world.looks.queues["q"] = msgspec.structs.replace(queue, spec=spec)
    world.parent(PENDING)
    for place in (0, 1):
        world.regular(f"w{place}", PENDING)
        world.regular(f"w{place}", RESERVED, admission=admission(f"f{place}", 4))
        world.variant(place, BLOCKED)
    world.whole()


def a_variant_preempts_behind_a_closed_gate(world: World) -> None:
    contested(world)
    preempt(world, "w0", "p0")


def two_siblings_have_victims(world: World) -> None:
    contested(world)
    world.variant(0, PENDING, **OPEN)
    preempt(world, "w0", "p0")
    world.variant(0, RESERVED, admission=admission("f0"), **OPEN)
    world.kernel.loop.now += 301.0
    world.variant(1, BLOCKED, **OPEN)
    preempt(world, "w1", "p1")


def a_plan_is_made_behind_a_closed_gate(world: World) -> None:
    contested(world)
    plan = {"victims": [{"namespace": "ns", "name": "w0", "uid": "w0", "since": NOW}]}
    world.variant(0, RESERVED, admission=admission("f0"), pendingPreemption=plan)


def the_worse_variant_is_reserved_before_the_better(world: World) -> None:
    contested(world)
    world.regular("w1", PENDING)
    world.variant(1, RESERVED, admission=admission("f1"))
    world.looks.exclusive.acknowledged(world.number)
    world.variant(0, BLOCKED, **OPEN)
    preempt(world, "w0", "p0")


def the_worse_variant_is_reserved_while_victims_stop(world: World) -> None:
    contested(world)
    world.variant(0, PENDING, **OPEN)
    world.regular("w0", ADMITTED, admission=admission("f0", 4))
    world.regular("w0", STOPPING, admission=admission("f0", 4), **preempted_by("p0"))
    world.regular("w1", PENDING)
    world.variant(1, RESERVED, admission=admission("f1"))


BREACHES = [
    (a_variant_preempts_behind_a_closed_gate, "has a closed gate"),
    (two_siblings_have_victims, "others have gone for"),
    (a_plan_is_made_behind_a_closed_gate, "gate is closed"),
    (the_worse_variant_is_reserved_before_the_better, "had no chance"),
    (the_worse_variant_is_reserved_while_victims_stop, "victims have not stopped"),
]


@pytest.mark.parametrize(
    ("breach", "message"), [pytest.param(*breach, id=breach[0].__name__) for breach in BREACHES]
)
def test_a_breach_is_found(breach: Callable[[World], None], message: str) -> None:
    with pytest.raises(Broken, match=message):
        breach(World())


def test_a_sibling_with_an_open_gate_at_the_choice_of_the_worse_one_had_its_chance() -> None:
    world = World()
    contested(world)
    world.regular("w0", PENDING)
    world.variant(0, RESERVED, admission=admission("f0"), **OPEN)
    world.variant(1, BLOCKED)
    world.variant(2, PENDING)
    chosen = Assigned(
        namespace="ns",
        name="p2",
        revision=world.number,
        seen=world.number,
        domain="t",
        admission=Admission(cluster_queue="q"),
    )
    world.variant(0, PREEMPTED)
    world.looks.exclusive.decided("workload.ns.p2", chosen, world.number + 1)
    world.variant(2, RESERVED, admission=admission("f0"))
    world.looks.exclusive.acknowledged(world.number)
    world.variant(1, BLOCKED, **OPEN)
    preempt(world, "w1", "p1")
