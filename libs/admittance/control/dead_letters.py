"""How many dead letters verdicts get: whoever floods nonsense fills no log with them. Pure.

What nobody could use is on the log itself, where it came from; its letter says why. After a burst
of them only so many are written a second, and the next one tells how many got none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.control.commit import Dead

BURST: Final = 500
PER_SECOND: Final = 20.0
VERDICTS: Final = "admit.check.reported."


class Letters:
    """The letters of one leader. Only those about verdicts are counted out: others are rare."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = 0.0
        self._without: dict[str, int] = {}

    def of(self, dead: Iterable[Dead], now: float) -> list[Dead]:
        """Those that get a letter. ``now``: monotonic seconds."""
        self._left = min(float(BURST), self._left + (now - self._at) * PER_SECOND)
        self._at = now
        letters = []
        for one in dead:
            subject = one.heard.subject
            if not subject.startswith(VERDICTS):
                letters.append(one)
                continue
            controller = subject.split(".")[3]
            if self._left < 1:
                self._without[controller] = self._without.get(controller, 0) + 1
                continue
            self._left -= 1
            without = self._without.pop(controller, 0)
            if without:
                reason = f"{one.reason} ({without} verdicts of this controller before it got none)"
                one = one._replace(reason=reason)  # noqa: PLW2901
            letters.append(one)
        return letters
