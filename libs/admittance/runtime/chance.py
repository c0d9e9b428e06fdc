"""The only module that draws chance. A seed can take its place, and then a run repeats itself."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

_unguessable: random.Random = random.SystemRandom()
_fast: random.Random = random.Random()


def token_hex(count: int) -> str:
    """Random bytes that cannot be guessed, as ``2 * count`` hexadecimal digits."""
    return f"{_unguessable.getrandbits(8 * count):0{2 * count}x}"


def choice(items: Sequence[T]) -> T:
    """One of the items, not to be guessed."""
    return _unguessable.choice(items)


def bits(count: int) -> int:
    """A number of so many random bits. It can be guessed: for spans and numbers, not for names that
    protect something. Ten times faster than `token_hex`."""
    return _fast.getrandbits(count)


def uniform(least: float, most: float) -> float:
    """A number between two others, such as a pause with jitter."""
    return _fast.uniform(least, most)


def shuffled(items: Sequence[T]) -> list[T]:
    """The items in a random order."""
    return _fast.sample(items, len(items))


@contextmanager
def replaced(rng: random.Random) -> Iterator[None]:
    """Takes all chance from ``rng`` until the end of the block. For simulations."""
    global _unguessable, _fast
    before = _unguessable, _fast
    _unguessable = _fast = rng
    try:
        yield
    finally:
        _unguessable, _fast = before
