"""The short story of a run: who did what when, one line each."""

from __future__ import annotations

from collections.abc import Callable


class Story:
    """Lines with the virtual time. Kept only when somebody wants to read it."""

    def __init__(self, clock: Callable[[], float], *, keep: bool) -> None:
        self.lines: list[str] = []
        self.keep = keep
        self._clock = clock

    def tell(self, who: str, what: str) -> None:
        """One line."""
        if self.keep:
            self.lines.append(f"{self._clock():9.3f}  {who:<8} {what}")
