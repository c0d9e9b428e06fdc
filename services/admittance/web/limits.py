"""How often signing in may fail."""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Final

WINDOW_SECONDS: Final = 60.0
FAILURES_MAX: Final = 10
"""The most failures of one address within the window."""
ALL_FAILURES_MAX: Final = 60
"""The most failures of all addresses within the window, so that many addresses gain nothing."""


class SignInLimit:
    """Counts failures by address. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._failures: deque[tuple[float, str]] = deque()

    def wait_seconds(self, address: str, now: float) -> int:
        """For how many seconds the address may not sign in; 0: it may."""
        while self._failures and self._failures[0][0] <= now - WINDOW_SECONDS:
            self._failures.popleft()
        own = [at for at, other in self._failures if other == address]
        if len(own) >= FAILURES_MAX:
            return _left(own[-FAILURES_MAX], now)
        if len(self._failures) >= ALL_FAILURES_MAX:
            return _left(self._failures[-ALL_FAILURES_MAX][0], now)
        return 0

    def failed(self, address: str, now: float) -> None:
        """Counts a failure."""
        self._failures.append((now, address))


def _left(first: float, now: float) -> int:
    return max(1, ceil(first + WINDOW_SECONDS - now))
