"""What family policy reads from a stored parent or variant: by direct calls."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta
from admittance.api.workload import ALLOWED_FLAVORS, FAMILY_GATE, GatePosition
from admittance.workload.family_info import (
    allowed_flavors,
    competes,
    parent_state,
    sibling,
    with_closed_gate,
    with_use_noted,
)
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON, a_condition

OPEN = GatePosition(name=FAMILY_GATE, position="Open")
USED = GatePosition(name=FAMILY_GATE, position="Open", used_at=NOON)
CLOSED = GatePosition(name=FAMILY_GATE)
FOREIGN = GatePosition(name="example.com/other", position="Open")


def a_workload(
    *conditions: str,
    spec: dict[str, Any] | None = None,
    gates: tuple[GatePosition, ...] = (),
    reason: str = "",
    **meta: Any,
) -> StoredWorkload:
    """A workload with these conditions; one after ``!`` has status False."""
    made = tuple(
        a_condition(kind.removeprefix("!"), not kind.startswith("!"), reason) for kind in conditions
    )
    return StoredWorkload(
        api_version="v1",
        kind="Workload",
        metadata=ObjectMeta(name="v", namespace="ns", uid="v", **meta),
        spec=msgspec.Raw(msgspec.json.encode({"queueName": "q", **(spec or {})})),
        status=WorkloadStatus(conditions=made, preemption_gates=gates),
    )


STOPPED = {"active": False}


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(a_workload(), True, id="waits"),
        pytest.param(a_workload("QuotaReserved"), True, id="holds quota"),
        pytest.param(a_workload("!Requeued"), False, id="in backoff"),
        pytest.param(a_workload("Requeued"), True, id="after its backoff"),
        pytest.param(a_workload("QuotaReserved", "!Requeued"), True, id="holds quota again"),
        pytest.param(a_workload(spec=STOPPED), False, id="inactive"),
        pytest.param(a_workload("QuotaReserved", spec=STOPPED), False, id="inactive with quota"),
        pytest.param(a_workload("QuotaReserved", "Finished"), False, id="finished"),
        pytest.param(a_workload("!Finished"), True, id="not finished"),
        pytest.param(a_workload(deletion_timestamp=NOON), False, id="being deleted"),
    ],
)
def test_a_variant_competes_while_it_is_active_and_not_in_backoff(
    workload: StoredWorkload, expected: bool
) -> None:
    assert competes(workload) is expected


@pytest.mark.parametrize(
    ("workload", "active", "waits"),
    [
        pytest.param(a_workload(), True, False, id="waits for quota"),
        pytest.param(a_workload("!Requeued"), True, True, id="in backoff"),
        pytest.param(a_workload(spec=STOPPED), False, False, id="inactive"),
        pytest.param(a_workload("Finished"), False, False, id="finished"),
        pytest.param(a_workload(deletion_timestamp=NOON), False, False, id="being deleted"),
    ],
)
def test_a_parent_is_active_until_it_stops(
    workload: StoredWorkload, active: bool, waits: bool
) -> None:
    state = parent_state(workload)
    assert (state.active, state.waits) == (active, waits)


def test_a_family_starts_when_its_parent_was_created_unless_noted() -> None:
    workload = a_workload(creation_timestamp=NOON)
    assert parent_state(workload).start == NOON
    assert parent_state(a_workload()).start.year == 1


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(a_workload(), None, id="all"),
        pytest.param(
            a_workload(annotations={ALLOWED_FLAVORS: " a, b,,"}), {"a", "b"}, id="annotation"
        ),
        pytest.param(
            a_workload(
                spec={"admissionConstraints": {"allowedResourceFlavors": ["c"]}},
                annotations={ALLOWED_FLAVORS: "a"},
            ),
            {"c"},
            id="the spec comes first",
        ),
        pytest.param(
            a_workload(spec={"admissionConstraints": {}}, annotations={ALLOWED_FLAVORS: "a"}),
            {"a"},
            id="constraints without flavors",
        ),
    ],
)
def test_allowed_flavors_are_of_the_spec_or_the_annotation(
    workload: StoredWorkload, expected: set[str] | None
) -> None:
    assert allowed_flavors(workload) == expected


@pytest.mark.parametrize(
    ("workload", "evaluated", "blocked", "is_open", "took"),
    [
        pytest.param(a_workload(), False, False, False, False, id="not tried"),
        pytest.param(
            a_workload("!QuotaReserved", reason="PendingEvaluation"),
            False,
            False,
            False,
            False,
            id="is being tried",
        ),
        pytest.param(
            a_workload("!QuotaReserved", reason="ExceedsMaxQuota"),
            True,
            False,
            False,
            False,
            id="refused",
        ),
        pytest.param(
            a_workload("BlockedOnPreemptionGates", gates=(FOREIGN,)),
            False,
            True,
            False,
            False,
            id="only the gate of another is open",
        ),
        pytest.param(
            a_workload("QuotaReserved", gates=(FOREIGN, USED)), True, False, True, True, id="took"
        ),
        pytest.param(
            a_workload("QuotaReserved", gates=(OPEN,)), True, False, True, False, id="took nothing"
        ),
        pytest.param(
            a_workload("QuotaReserved", "Admitted", gates=(USED,)),
            True,
            False,
            True,
            False,
            id="is admitted",
        ),
        pytest.param(a_workload(gates=(USED,)), False, False, True, False, id="lost its quota"),
    ],
)
def test_gate_policy_reads_of_a_sibling(
    workload: StoredWorkload, evaluated: bool, blocked: bool, is_open: bool, took: bool
) -> None:
    read = sibling(workload, 3)
    assert (read.place, read.evaluated, read.blocked, read.open, read.took) == (
        3,
        evaluated,
        blocked,
        is_open,
        took,
    )


@pytest.mark.parametrize(
    ("before", "has_preempted", "after"),
    [
        (OPEN, True, USED),
        (OPEN, False, OPEN),
        (USED, False, OPEN),
        (CLOSED, True, CLOSED),
        (FOREIGN, True, FOREIGN),
    ],
)
def test_only_the_open_gate_of_the_family_notes_a_use(
    before: GatePosition, has_preempted: bool, after: GatePosition
) -> None:
    assert with_use_noted((before,), has_preempted, NOON) == (after,)


def test_only_the_gate_of_the_family_is_closed() -> None:
    closed = with_closed_gate(a_workload(gates=(FOREIGN, USED)))
    assert closed == (FOREIGN, GatePosition(name=FAMILY_GATE, position="Closed", used_at=NOON))
