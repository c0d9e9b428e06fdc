"""How long open pages rest before they ask again, so that the system keeps its time for its work.

All pages of all sessions rest together: the time in which any of them is answered counts once,
however many are answered at that time. Pages that a person opens do not count: only those that ask
again by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from admittance.runtime import clock

QUICK_SECONDS: Final = 0.2
QUICK: Final = 4
"""Pages rest so many times as long as their answers took together, up to `QUICK_SECONDS`."""
FURTHER: Final = 19
"""They rest so many times as long as their answers took beyond that: then pages take a twentieth of
the time."""
REST_MAX_SECONDS: Final = 2.0


def rest_after(busy: float) -> float:
    """The seconds of rest after so many seconds of answers."""
    further = max(0.0, busy - QUICK_SECONDS)
    return min(QUICK * (busy - further) + FURTHER * further, REST_MAX_SECONDS)


class Rests:
    """The answers since the last rest that was over. Times are those of a steady clock, in
    seconds."""

    def __init__(self) -> None:
        self._open = 0
        self._began = 0.0
        self._ended = 0.0
        self._busy = 0.0

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Counts the time of an answer."""
        self.begin(clock.monotonic())
        try:
            yield
        finally:
            self.end(clock.monotonic())

    def begin(self, now: float) -> None:
        """An answer begins."""
        if not self._open:
            if not self.left(now):
                self._busy = 0.0
            self._began = now
        self._open += 1

    def end(self, now: float) -> None:
        """An answer is ready."""
        self._open -= 1
        if not self._open:
            self._busy += now - self._began
            self._ended = now

    def left(self, now: float) -> float:
        """How long pages rest from now on, in seconds; 0: they may ask."""
        if not self._open:
            return max(0.0, self._ended + rest_after(self._busy) - now)
        took = now - self._began
        # The pages of all others do not wait longer for an answer that does not come.
        return rest_after(self._busy + took) if took < REST_MAX_SECONDS else 0.0
