"""Which variant's preemption gate opens: D4, D21, D27, and docs/spec/lifecycle.md#4.8."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admittance.api.workload import FAMILY_GATE, GateHolder, GatePosition
from admittance.family import PREEMPTION_TIMEOUT
from support.builders import NOON, a_condition, an_admission
from support.cores.families.stepped_variants import SteppedVariants, a_family

GATED = (
    a_condition("QuotaReserved", False, "AdmissionGated"),
    a_condition("BlockedOnPreemptionGates", True, "PreemptionGated"),
)
FULL = (
    a_condition("QuotaReserved", False, "WaitingForQuota"),
    a_condition("BlockedOnPreemptionGates", False),
)
A, B = "j-variant-a", "j-variant-b"


def ungated(table: SteppedVariants) -> list[str]:
    """The variants with a gate that opens now."""
    acts = [act for act in table.follow() if act.startswith("ungated")]
    return [act.removeprefix("ungated j-variant-") for act in acts]


def an_open_gate(used: bool = False) -> tuple[GatePosition, ...]:
    return (GatePosition(name=FAMILY_GATE, position="Open", used_at=NOON if used else None),)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda t: t.status(A, stopped_by="Rejected").spec(A, active=False),
            id="one that is turned off",
        ),
        pytest.param(
            lambda t: t.status(A, a_condition("Requeued", False, "AdmissionCheck")),
            id="one that waits out its own check's delay",
        ),
        pytest.param(lambda t: t.meta(A, deletion_timestamp=NOON), id="one that is going"),
    ],
)
def test_a_variant_that_does_not_compete_opens_no_gate(
    change: Callable[[SteppedVariants], SteppedVariants],
) -> None:
    table = a_family("a", "b").status(B, *GATED)
    assert ungated(table) == []
    assert ungated(change(table)) == ["b"]


def opened(used: bool = False, reserved: bool = False) -> SteppedVariants:
    """a's gate was opened at noon, and b is blocked."""
    table = a_family("a", "b").status(A, *GATED).status(B, *GATED)
    assert ungated(table) == ["a"]
    table.status(A, preemption_gates=an_open_gate(used))
    if reserved:
        table.status(A, a_condition("QuotaReserved", True), admission=an_admission())
    return table


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t: t.put(A, None), id="the holder is deleted"),
        pytest.param(
            lambda t: t.status(A, stopped_by="Rejected").spec(A, active=False),
            id="the holder is rejected",
        ),
        pytest.param(lambda t: t.status(A, *FULL, preemption_gates=()), id="the holder is evicted"),
    ],
)
def test_the_next_gate_opens_when_the_holder_has_lost_it(
    change: Callable[[SteppedVariants], SteppedVariants],
) -> None:
    table = opened()
    assert ungated(table) == []
    assert "b" in ungated(change(table))


def test_the_next_gate_opens_after_five_minutes() -> None:
    table = opened().later(1)
    assert ungated(table) == []
    assert table.families.wake() == NOON + PREEMPTION_TIMEOUT
    table.later(PREEMPTION_TIMEOUT.total_seconds() - 2)
    assert ungated(table) == []
    table.later(1)
    assert ungated(table) == ["b"]
    assert table.stored["j"].status.preemption_gate == GateHolder(holder=B, since=table.now)


def test_no_gate_opens_after_preemption_for_a_reservation() -> None:
    table = opened(used=True, reserved=True)
    table.now += 2 * PREEMPTION_TIMEOUT
    assert ungated(table) == []
    table.later(86400)
    assert ungated(table) == []
    # Rejected: now the worse one may.
    table.status(A, stopped_by="Rejected", preemption_gates=()).spec(A, active=False)
    assert ungated(table) == ["b"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda t: t.status("j", a_condition("Requeued", False, "PodsReadyTimeout")),
            id="while the family's backoff runs",
        ),
        pytest.param(
            lambda t: t.admit("b").status("j", a_condition("Evicted", True, "VariantEvicted")),
            id="while the family's job stops",
        ),
        pytest.param(lambda t: t.spec("j", active=False), id="while the parent is turned off"),
    ],
)
def test_no_variant_may_preempt(change: Callable[[SteppedVariants], SteppedVariants]) -> None:
    table = change(a_family("a", "b").status(B, *FULL))
    if table.stored["j"].status.admitted_variant:
        table.status("j", admission=an_admission())
    assert ungated(table.status(A, *GATED)) == []


def test_families_with_an_open_gate_are_counted_by_queue() -> None:
    table = opened()
    table.follow()
    assert table.families.gates_open() == {"cq": 1}
    table.status(A, *FULL, preemption_gates=()).status(B, *FULL)
    table.follow()
    assert table.families.gates_open() == {}
