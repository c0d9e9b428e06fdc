"""Widens intervals by the errors of earlier forecasts (split conformal prediction). The errors are
stored, so that the next process begins with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from admittance.events.reader import Reader

ERRORS: Final = 1000
"""How many earlier forecasts count."""
LEAST: Final = 10
"""With fewer errors than this, both sides are widened by `UNKNOWN_FACTOR`."""
UNKNOWN_FACTOR: Final = 2.0
TAIL: Final = 0.05
"""The share of earlier starts outside the interval, on each side. It is less than a tenth, since
starts that lie close together have the same cause: the next ones differ more than the last."""
ERRORS_KEPT: Final = 300
"""How many errors of a tree are stored: the last ones."""
TREES_KEPT: Final = 100
"""How many trees are stored: those with the most errors."""
HALF_MINUTE: Final = 30.0
PART: Final = 0.05


class Interval(NamedTuple):
    """Seconds from the forecast to the start: 10 %, 50 % and 90 % of starts are earlier."""

    p10: float
    p50: float
    p90: float


def quantiles(values: list[float]) -> Interval:
    """The interval of sampled values, of which there is at least one."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return Interval(*(ordered[round(part * last)] for part in (0.1, 0.5, 0.9)))


def error_of(forecast: Interval, actual: float) -> float:
    """How far the actual value lies above the median, in half widths of the interval; negative:
    below it."""
    below, above = _halves(forecast)
    off = actual - forecast.p50
    return off / (below if off < 0 else above)


def _halves(forecast: Interval) -> tuple[float, float]:
    """The widths below and above the median, at least 30 s or a twentieth of the median."""
    least = max(HALF_MINUTE, PART * forecast.p50)
    return max(forecast.p50 - forecast.p10, least), max(forecast.p90 - forecast.p50, least)


class Widening:
    """The errors of the last forecasts of a tree, each compared with the start of its workload.
    ``added``: how many were added since this process began."""

    def __init__(self, errors: Iterable[float] = ()) -> None:
        """``errors``: those of an earlier process, as `errors` returns them."""
        self._errors: deque[float] = deque(errors, maxlen=ERRORS)
        self.added = 0
        self._sides: tuple[float, float] | None = None

    def add(self, forecast: Interval, actual: float) -> None:
        """Adds a forecast, as it was before it was widened, with the time that came true."""
        self._errors.append(error_of(forecast, actual))
        self.added += 1
        self._sides = None

    @property
    def errors(self) -> list[float]:
        """The errors in half widths, the last one at the end."""
        return list(self._errors)

    @property
    def sides(self) -> tuple[float, float]:
        """By how much the sides below and above the median are widened."""
        if self._sides is None:
            self._sides = _sides(sorted(self._errors))
        return self._sides

    def widened(self, forecast: Interval) -> Interval:
        """The forecast, as wide as earlier errors ask for."""
        (below, above), (more_below, more_above) = _halves(forecast), self.sides
        return Interval(
            max(0.0, forecast.p50 - more_below * below),
            forecast.p50,
            forecast.p50 + more_above * above,
        )


def _sides(ordered: list[float]) -> tuple[float, float]:
    count = len(ordered)
    if count < LEAST:
        return UNKNOWN_FACTOR, UNKNOWN_FACTOR
    outside = max(0, int((count + 1) * TAIL) - 1)
    return max(1.0, -ordered[outside]), max(1.0, ordered[-1 - outside])


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
