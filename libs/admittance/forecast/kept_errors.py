"""The errors of earlier forecasts as they are stored, so that the next process begins with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from admittance.events.reader import Reader
from admittance.forecast.widening import Widening

ERRORS_KEPT: Final = 300
"""How many errors of a tree are stored: the last ones."""
TREES_KEPT: Final = 100
"""How many trees are stored: those with the most errors."""


class KeptErrors(msgspec.Struct, frozen=True, kw_only=True):
    """``trees``: the errors of each cohort tree in half widths, the last one at the end."""

    trees: dict[str, list[float]] = msgspec.field(default_factory=dict)


_decode: Final = Reader(KeptErrors)
_encode: Final = msgspec.json.Encoder().encode


def encode_errors(widenings: Mapping[str, Widening]) -> bytes:
    """The errors of all trees, about 2 kB of each."""
    known = sorted(widenings, key=lambda tree: (-len(widenings[tree].errors), tree))
    trees = {
        tree: [round(error, 2) for error in widenings[tree].errors[-ERRORS_KEPT:]]
        for tree in known[:TREES_KEPT]
        if widenings[tree].errors
    }
    return _encode(KeptErrors(trees=trees))


def decode_errors(data: bytes) -> dict[str, Widening]:
    """The stored errors by tree. Raises Unreadable."""
    return {tree: Widening(errors) for tree, errors in _decode(data).trees.items()}
