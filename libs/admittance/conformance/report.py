"""What comes out of a trial: an outcome for each case."""

from __future__ import annotations

from typing import Final

import msgspec

PASSED: Final = "passed"
FAILED: Final = "failed"
NOT_APPLICABLE: Final = "not applicable"


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one case. ``details``: what was wrong, or why it does not apply."""

    case: str
    title: str
    outcome: str
    details: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of all. ``usual``: what the program usually answers; empty: nothing."""

    outcomes: tuple[Outcome, ...]
    usual: str = ""
    seconds: float = 0.0

    @property
    def program(self) -> str:
        """The program under test."""
        raise NotImplementedError

    @property
    def passed(self) -> bool:
        """No case failed."""
        return all(one.outcome != FAILED for one in self.outcomes)

    def count(self, outcome: str) -> int:
        """How many cases ended so."""
        return sum(one.outcome == outcome for one in self.outcomes)
