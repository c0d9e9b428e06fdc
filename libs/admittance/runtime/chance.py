"""The only module that uses randomness. A simulation replaces this randomness by a seed, to repeat
a run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

_unguessable: random.Random = random.SystemRandom()
_fast: random.Random = random.Random()


def token_hex(count: int) -> str:
    """Returns ``count`` unguessable random bytes as hexadecimal digits."""
    return f"{_unguessable.getrandbits(8 * count):0{2 * count}x}"


def choice(items: Sequence[T]) -> T:
    """Returns one of the items, which cannot be guessed."""
    return _unguessable.choice(items)


def bits(count: int) -> int:
    """A number of ``count`` random bits. The random number can be guessed: use `bits` for span ids
    and ordinals, not for secrets. `bits` is ten times faster than `token_hex`.
    """
    return _fast.getrandbits(count)


def uniform(least: float, most: float) -> float:
    """A random number from ``least`` to ``most``, such as a pause with jitter."""
    return _fast.uniform(least, most)


def fraction() -> float:
    """A random number from 0 to below 1, which can be guessed."""
    return _fast.random()


def shuffled(items: Sequence[T]) -> list[T]:
    """The items in a random order."""
    return _fast.sample(items, len(items))


@contextmanager
def replaced(rng: random.Random) -> Iterator[None]:
    """Replaces all randomness by ``rng`` until the end of the block, for simulations."""
    global _unguessable, _fast
    before = _unguessable, _fast
    _unguessable = _fast = rng
    try:
        yield
    finally:
        _unguessable, _fast = before
