"""Telling of trouble that lasts: at once, and then once a minute."""

from __future__ import annotations

from typing import Final

AGAIN_SECONDS: Final = 60.0


class Seldom:
    """Whether to tell of something that happens again and again."""

    def __init__(self, seconds: float = AGAIN_SECONDS) -> None:
        self._seconds = seconds
        self._told: float | None = None

    @property
    def told(self) -> bool:
        """Whether anything was told."""
        return self._told is not None

    def due(self, now: float) -> bool:
        """Whether it is time to tell; then it counts as told. ``now``: monotonic seconds."""
        if self._told is not None and now - self._told < self._seconds:
            return False
        self._told = now
        return True
