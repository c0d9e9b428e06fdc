"""Rounds of several systems in turns, so that other load on the machine affects all alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

Figures = TypeVar("Figures")


async def in_turns(
    systems: Mapping[str, Callable[[], Awaitable[Figures]]],
    rounds: int,
    on_run: Callable[[str, Figures], None] = lambda _name, _figures: None,
) -> dict[str, list[Figures]]:
    """The figures of each system in each round, in the order of the rounds. Each round plays every
    system once. ``on_run``: called with the name of a system and its figures after each run."""
    measured: dict[str, list[Figures]] = {name: [] for name in systems}
    for number in range(rounds):
        # The order changes, so that a warmer machine favors both.
        for name in systems if number % 2 == 0 else reversed([*systems]):
            figures = await systems[name]()
            measured[name].append(figures)
            on_run(name, figures)
    return measured
