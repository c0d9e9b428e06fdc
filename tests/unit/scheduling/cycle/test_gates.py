"""Gates on preemption: SCHEDULING 6.8 and case 58 of its section 9."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.workload import GatePosition
from admittance.events import facts
from admittance.workload.conditions import find
from admittance.workload.stored import StoredWorkload
from support.cores.scheduling_story import groups

from living import Life

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
GATED: dict[str, Any] = {"preemptionGates": [{"name": "gate"}]}


def a_life(**spec: object) -> Life:
    life = Life()
    life.queue("cq", resourceGroups=groups(default="10"), **{**LOWER, **spec})
    return life


def move(life: Life, name: str, position: str, gate: str = "gate") -> None:
    """Moves the gate. There is no fact for it yet: the status is written."""
    key = f"workload.ns.{name}"
    known = life.controller.workloads.get(key)
    workload = known.workload
    assert workload is not None
    others = [one for one in workload.status.preemption_gates if one.name != gate]
    moved = GatePosition(name=gate, position=position, last_transition_time=life.now)
    status = msgspec.structs.replace(workload.status, preemption_gates=(*others, moved))
    changed: StoredWorkload = msgspec.structs.replace(workload, status=status)
    life.revision += 1
    life.controller.workloads.keep(key, known._replace(workload=changed, revision=life.revision))
    life.core.apply_workload("ns", name, changed, life.revision, now=life.now)


def test_58_a_closed_gate_prevents_preemption() -> None:
    life = a_life()
    life.submit("low", "cq", "6", priority=-1)
    life.settle()
    life.submit("high", "cq", "6", **GATED)
    life.settle()
    assert life.preempted() == []
    assert life.phases("low", "high") == ["Admitted", "Pending"]
    assert life.reason("high", "QuotaReserved") == "False: AdmissionGated"
    assert life.reason("high", "BlockedOnPreemptionGates") == "True: PreemptionGated"


def test_58_a_workload_with_a_closed_gate_is_admitted_where_it_fits() -> None:
    life = a_life()
    life.submit("low", "cq", "4", priority=-1)
    life.submit("high", "cq", "6", **GATED)
    life.settle()
    assert life.phases("low", "high") == ["Admitted", "Admitted"]


def test_58_without_victims_a_gated_workload_waits_for_quota() -> None:
    life = a_life()
    life.submit("same", "cq", "6")
    life.settle()
    life.submit("high", "cq", "6", **GATED)
    life.settle()
    assert life.reason("high", "QuotaReserved") == "False: WaitingForQuota"
    assert life.reason("high", "BlockedOnPreemptionGates") == ""


def test_opening_the_gate_lets_it_compete_and_preempt() -> None:
    life = a_life()
    life.submit("low", "cq", "6", priority=-1)
    life.settle()
    life.submit("high", "cq", "6", **GATED)
    life.settle()
    move(life, "high", "Open")
    life.settle()
    assert life.preempted() == [("low", "high")]
    assert life.phases("low", "high") == ["Pending", "Admitted"]
    assert life.reason("high", "BlockedOnPreemptionGates") == "False: QuotaReserved"


def test_of_two_gates_both_must_be_open() -> None:
    life = a_life()
    life.submit("low", "cq", "6", priority=-1)
    life.settle()
    life.submit("high", "cq", "6", preemptionGates=[{"name": "gate"}, {"name": "other"}])
    life.settle()
    move(life, "high", "Open")
    life.settle()
    assert life.preempted() == []
    move(life, "high", "Open", gate="other")
    life.settle()
    assert life.preempted() == [("low", "high")]


@pytest.mark.parametrize("how", ["preempted", "deactivated"])
def test_any_eviction_closes_its_gates(how: str) -> None:
    life = a_life()
    life.submit("w", "cq", "6", **GATED)
    life.settle()
    move(life, "w", "Open")
    if how == "preempted":
        life.submit("higher", "cq", "6", priority=9)
        life.settle()
    else:
        life.say(facts.Deactivated, "w")
    (gate,) = life.stored("w").status.preemption_gates
    assert gate.position == "Closed"
    evicted = find(life.stored("w"), "Evicted")
    assert evicted is not None and gate.last_transition_time == evicted.last_transition_time


def test_a_gated_workload_does_not_stop_others_from_preempting() -> None:
    life = a_life()
    life.submit("low", "cq", "6", priority=-1)
    life.settle()
    life.submit("gated", "cq", "6", age=9, **GATED)
    life.submit("equal", "cq", "6")
    life.settle()
    assert life.preempted() == [("low", "equal")]
    assert life.phases("gated", "equal") == ["Pending", "Admitted"]


def test_a_gated_workload_is_tried_again_when_quota_is_free() -> None:
    life = a_life()
    life.submit("low", "cq", "6", priority=-1)
    life.settle()
    life.submit("gated", "cq", "6", **GATED)
    life.settle()
    life.finish("low")
    life.settle()
    assert life.phase("gated") == "Admitted"


def test_in_a_strict_queue_a_gated_workload_stays_the_head() -> None:
    life = a_life(queueingStrategy="StrictFIFO")
    life.submit("low", "cq", "6", priority=-1)
    life.settle()
    life.submit("gated", "cq", "6", age=9, **GATED)
    life.submit("small", "cq", "1")
    life.settle()
    assert life.phase("small") == "Pending"
    move(life, "gated", "Open")
    life.settle()
    assert life.phases("gated", "small") == ["Admitted", "Admitted"]
