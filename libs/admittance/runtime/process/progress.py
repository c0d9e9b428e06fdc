"""Progress of a long command: a line on a terminal that is drawn again and goes away at the end."""

from __future__ import annotations

import sys
from typing import Final

from admittance.runtime import clock

PAUSE_SECONDS: Final = 0.5
"""The least time between two drawings of a count: drawing costs time, too."""
ERASE: Final = "\r\x1b[2K"
"""What makes a terminal empty its current line."""


class Steps:
    """The steps of the long command ``name``, on standard error if that is a terminal. Any thread
    may report."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown = False
        self._step, self._total, self._drawn_at = "", 0, 0.0

    def __enter__(self) -> Steps:
        self._shown = sys.stderr.isatty()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            draw("")
            self._shown = False

    def begin(self, step: str, total: int = 0) -> None:
        """The next step begins. ``total``: how much `reach` will count; 0: unknown."""
        self._step, self._total, self._drawn_at = step, total, clock.monotonic()
        if self._shown:
            draw(f"{self._name} {step}")

    def reach(self, done: int) -> None:
        """``done`` of the step's total is done."""
        now = clock.monotonic()
        if self._shown and self._total and now - self._drawn_at >= PAUSE_SECONDS:
            self._drawn_at = now
            share = min(1.0, done / self._total)
            draw(f"{self._name} {self._step}: {share:.0%}")


def draw(text: str) -> None:
    """Draws the line of the terminal anew; "": empties the line."""
    sys.stderr.write(f"{ERASE}{text}")
    sys.stderr.flush()


NO_STEPS: Final = Steps("")
"""Shows nothing."""
