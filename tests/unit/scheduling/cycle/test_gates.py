"""Gates on preemption: docs/spec/scheduling.md#6.8 and case 58 of its section 9."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.workload import GatePosition
from admittance.events import facts
from admittance.workload.conditions import find
from admittance.workload.stored import StoredWorkload
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
GATED: dict[str, Any] = {"preemptionGates": [{"name": "gate"}]}


def configured_cores(**spec: object) -> SteppedCores:
    cores = SteppedCores()
    cores.queue("cq", resourceGroups=groups(default="10"), **{**LOWER, **spec})
    return cores


def move(cores: SteppedCores, name: str, position: str, gate: str = "gate") -> None:
    """Moves the gate. There is no fact for it yet: the status is written."""
    key = f"workload.ns.{name}"
    known = cores.controller.workloads.get(key)
    workload = known.workload
    assert workload is not None
    others = [gate_row for gate_row in workload.status.preemption_gates if gate_row.name != gate]
    moved = GatePosition(name=gate, position=position, last_transition_time=cores.now)
    status = msgspec.structs.replace(workload.status, preemption_gates=(*others, moved))
    changed: StoredWorkload = msgspec.structs.replace(workload, status=status)
    cores.revision += 1
    cores.controller.workloads.keep(key, known._replace(workload=changed, revision=cores.revision))
    cores.scheduler.apply_workload("ns", name, changed, cores.revision, now=cores.now)


def test_case_58_a_closed_gate_prevents_preemption() -> None:
    cores = configured_cores()
    cores.submit("low", "cq", "6", priority=-1)
    cores.settle()
    cores.submit("high", "cq", "6", **GATED)
    cores.settle()
    assert cores.preempted() == []
    assert cores.phases("low", "high") == ["Admitted", "Pending"]
    assert cores.reason("high", "QuotaReserved") == "False: AdmissionGated"
    assert cores.reason("high", "BlockedOnPreemptionGates") == "True: PreemptionGated"


def test_case_58_a_workload_with_a_closed_gate_is_admitted_where_it_fits() -> None:
    cores = configured_cores()
    cores.submit("low", "cq", "4", priority=-1)
    cores.submit("high", "cq", "6", **GATED)
    cores.settle()
    assert cores.phases("low", "high") == ["Admitted", "Admitted"]


def test_case_58_without_victims_a_gated_workload_waits_for_quota() -> None:
    cores = configured_cores()
    cores.submit("same", "cq", "6")
    cores.settle()
    cores.submit("high", "cq", "6", **GATED)
    cores.settle()
    assert cores.reason("high", "QuotaReserved") == "False: WaitingForQuota"
    assert cores.reason("high", "BlockedOnPreemptionGates") == ""


def test_opening_the_gate_lets_it_compete_and_preempt() -> None:
    cores = configured_cores()
    cores.submit("low", "cq", "6", priority=-1)
    cores.settle()
    cores.submit("high", "cq", "6", **GATED)
    cores.settle()
    move(cores, "high", "Open")
    cores.settle()
    assert cores.preempted() == [("low", "high")]
    assert cores.phases("low", "high") == ["Pending", "Admitted"]
    assert cores.reason("high", "BlockedOnPreemptionGates") == "False: QuotaReserved"


def test_of_two_gates_both_must_be_open() -> None:
    cores = configured_cores()
    cores.submit("low", "cq", "6", priority=-1)
    cores.settle()
    cores.submit("high", "cq", "6", preemptionGates=[{"name": "gate"}, {"name": "other"}])
    cores.settle()
    move(cores, "high", "Open")
    cores.settle()
    assert cores.preempted() == []
    move(cores, "high", "Open", gate="other")
    cores.settle()
    assert cores.preempted() == [("low", "high")]


@pytest.mark.parametrize("how", ["preempted", "deactivated"])
def test_any_eviction_closes_its_gates(how: str) -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "6", **GATED)
    cores.settle()
    move(cores, "w", "Open")
    if how == "preempted":
        cores.submit("higher", "cq", "6", priority=9)
        cores.settle()
    else:
        cores.publish(facts.Deactivated, "w")
    (gate,) = cores.stored("w").status.preemption_gates
    assert gate.position == "Closed"
    evicted = find(cores.stored("w"), "Evicted")
    assert evicted is not None and gate.last_transition_time == evicted.last_transition_time


def test_a_gated_workload_does_not_stop_others_from_preempting() -> None:
    cores = configured_cores()
    cores.submit("low", "cq", "6", priority=-1)
    cores.settle()
    cores.submit("gated", "cq", "6", age=9, **GATED)
    cores.submit("equal", "cq", "6")
    cores.settle()
    assert cores.preempted() == [("low", "equal")]
    assert cores.phases("gated", "equal") == ["Pending", "Admitted"]


def test_a_gated_workload_is_tried_again_when_quota_is_free() -> None:
    cores = configured_cores()
    cores.submit("low", "cq", "6", priority=-1)
    cores.settle()
    cores.submit("gated", "cq", "6", **GATED)
    cores.settle()
    cores.finish("low")
    cores.settle()
    assert cores.phase("gated") == "Admitted"


def test_in_a_strict_queue_a_gated_workload_stays_the_head() -> None:
    cores = configured_cores(queueingStrategy="StrictFIFO")
    cores.submit("low", "cq", "6", priority=-1)
    cores.settle()
    cores.submit("gated", "cq", "6", age=9, **GATED)
    cores.submit("small", "cq", "1")
    cores.settle()
    assert cores.phase("small") == "Pending"
    move(cores, "gated", "Open")
    cores.settle()
    assert cores.phases("gated", "small") == ["Admitted", "Admitted"]
