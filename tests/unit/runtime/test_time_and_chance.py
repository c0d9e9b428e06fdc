"""Time and randomness come from two modules, which a simulation can replace."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from random import Random

from admittance.runtime import chance, clock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def drawn() -> tuple[object, ...]:
    return (
        chance.token_hex(6),
        chance.choice("abcdef"),
        chance.bits(64),
        chance.uniform(1, 2),
        chance.shuffled("abcdef"),
    )


def test_a_token_has_two_digits_per_byte_and_is_random() -> None:
    tokens = [chance.token_hex(12) for _ in range(100)]
    assert all(re.fullmatch("[0-9a-f]{24}", token) for token in tokens)
    assert len(set(tokens)) == 100


def test_chance_from_a_seed_repeats_itself() -> None:
    with chance.replaced(Random(7)):
        first = drawn()
    with chance.replaced(Random(7)):
        assert drawn() == first
    assert drawn() != first


def test_a_replaced_clock_holds_until_the_end_of_the_block() -> None:
    with clock.replaced(lambda: NOON, lambda: 42.0):
        assert (clock.now(), clock.monotonic()) == (NOON, 42.0)
    assert clock.now() > NOON
    assert clock.monotonic() != 42.0
