"""One sibling preempts at a time: which gate opens, and which variants wait for a better one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admittance.family import PREEMPTION_TIMEOUT, GateOpening, Sibling, first_choice, to_open

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BLOCKED = {"evaluated": True, "blocked": True}


def sibling(place: int, **more: bool) -> Sibling:
    return Sibling(f"v{place}", place, **{"evaluated": True, **more})


@pytest.mark.parametrize(
    ("holder", "waited", "expected"),
    [
        pytest.param(sibling(0, open=True), timedelta(minutes=4), "", id="its time runs"),
        pytest.param(sibling(0, open=True), PREEMPTION_TIMEOUT, "v1", id="its time is over"),
        pytest.param(
            sibling(0, open=True, took=True),
            timedelta(minutes=9),
            "",
            id="others have gone for it, however long its checks take",
        ),
        pytest.param(sibling(0), timedelta(minutes=1), "v1", id="it was evicted and is closed"),
        pytest.param(None, timedelta(minutes=1), "v1", id="it is gone"),
    ],
)
def test_gates_stay_closed_with_a_holder(
    holder: Sibling | None, waited: timedelta, expected: str
) -> None:
    siblings = [member for member in (holder, sibling(1, **BLOCKED)) if member is not None]
    assert to_open(siblings, GateOpening("v0", NOON - waited), NOON) == expected


@pytest.mark.parametrize(
    ("siblings", "stopping", "expected"),
    [
        pytest.param([sibling(0, **BLOCKED), sibling(1)], [], 0, id="blocked, and no gate open"),
        pytest.param(
            [sibling(0, **BLOCKED), sibling(1, open=True)],
            [],
            None,
            id="blocked, and another one has the open gate",
        ),
        pytest.param(
            [sibling(0, open=True), sibling(1)], ["v0"], 0, id="its victims are still stopping"
        ),
        pytest.param([sibling(0), sibling(1)], [], None, id="no variant needs victims"),
    ],
)
def test_a_worse_variant_waits_for_a_better_one(
    siblings: list[Sibling], stopping: list[str], expected: int | None
) -> None:
    assert first_choice(siblings, stopping) == expected


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_gates_open_in_order_and_then_from_the_best_again(count: int) -> None:
    held: GateOpening | None = None
    now = NOON
    turns = []
    for _ in range(2 * count):
        siblings = [
            Sibling(f"v{place}", place, evaluated=True, blocked=True, open=_holds(held, place))
            for place in range(count)
        ]
        name = to_open(siblings, held, now)
        if name:
            turns.append(name)
            held = GateOpening(name, now)
        now += PREEMPTION_TIMEOUT + timedelta(seconds=1)
    # A single one keeps its open gate.
    every = [f"v{place}" for place in range(count)]
    assert turns == (every * 2 if count > 1 else every)


def _holds(held: GateOpening | None, place: int) -> bool:
    return held is not None and held.holder == f"v{place}"
