"""How long facts may gather before they are dealt with together.

A batch has a price of its own, whatever is in it: three round trips, and half a dozen times that
somebody is woken. While facts are few, each is dealt with at once. When hundreds come every second,
one by one, that price is most of what they cost; then waiting a few milliseconds for the next few
of them costs nobody anything that he would notice, and less work lets everybody be quicker.
"""

from __future__ import annotations

from math import exp
from typing import Final

CALM: Final = 300.0
"""Facts a second up to which nothing waits."""
CROWDED: Final = 600.0
"""Facts a second from which on the whole pause is made."""
PAUSE: Final = 0.003
"""Seconds. Each start of a workload waits for two of them: twice as long would cost quota more than
it saves anybody."""
MEMORY: Final = 0.3
"""Seconds after which what came counts a third."""


class Pace:
    """The rate at which facts come, and the pause that it is worth."""

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def came(self, count: int, now: float) -> None:
        """So many facts came, by now (seconds of a clock that never goes back)."""
        self._level = self._level * exp((self._at - now) / MEMORY) + count
        self._at = now

    def pause(self, now: float) -> float:
        """Seconds to wait for more before those that are here are dealt with; often 0."""
        rate = self._level * exp((self._at - now) / MEMORY) / MEMORY
        return PAUSE * min(1.0, max(0.0, (rate - CALM) / (CROWDED - CALM)))
