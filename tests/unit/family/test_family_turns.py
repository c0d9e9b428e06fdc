"""However long no variant of a family can preempt, every variant gets a turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admittance.family import PREEMPTION_TIMEOUT, GateOpening, Sibling, to_open

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


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
