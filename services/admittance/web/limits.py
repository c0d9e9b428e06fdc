"""How often signing in may fail, and how many streams may be open."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from math import ceil
from typing import Final

WINDOW_SECONDS: Final = 60.0
FAILURES_MAX: Final = 10
"""The most failures of one address within the window."""
ALL_FAILURES_MAX: Final = 60
"""The most failures of all addresses within the window, so that many addresses gain nothing."""


STREAMS_MAX: Final = 400
"""The most open streams of this process."""
STREAMS_OF_ONE_MAX: Final = 20
"""The most open streams of one person: a browser has one for all its pages."""


class StreamLimit:
    """Counts the open streams. A place is taken before a stream begins, so that streams that begin
    at the same time cannot be more."""

    def __init__(self, most: int = STREAMS_MAX, most_of_one: int = STREAMS_OF_ONE_MAX) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[Hashable] = Counter()

    def take(self, person: Hashable) -> bool:
        """Takes a place for a stream of a person; False: all are taken."""
        if self._open[person] >= self._most_of_one or self._open.total() >= self._most:
            return False
        self._open[person] += 1
        return True

    def give_back(self, person: Hashable) -> None:
        """Ends a stream."""
        self._open[person] -= 1
        if not self._open[person]:
            del self._open[person]


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
