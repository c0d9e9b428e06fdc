"""The promise of a start that a cohort tree makes to the head of a queue with backfill. The module
`cycle.backfill` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from admittance.quota.cell import Cell
from admittance.scheduling.state.equivalence import Key


class Promise(NamedTuple):
    """When the head of a queue with backfill is expected to start, and with which amounts.
    ``is_certain``: no other queue can delay the start, so it is promised."""

    head: Key
    need: Mapping[Cell, int]
    at: datetime
    is_certain: bool


class NoPromise(NamedTuple):
    """The head has no expected start: ``unbounded`` hold quota in its way and have no known end."""

    head: Key
    unbounded: tuple[Key, ...]
