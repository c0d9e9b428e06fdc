"""What must hold of retries without a delay: a check sends a workload round at once twice in a row,
and then it waits, as long as nothing else has changed.

Whatever may have begun the count anew is taken to have done so: this counts too few rather than too
many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from admittance.events.facts import CheckReported
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload, head
from simulation.effects import Effects
from simulation.twin import reserved

IMMEDIATE = 2


class Paced:
    """``checks``: the AdmissionChecks by name."""

    def __init__(self, limits: Limits, effects: Effects, checks: Mapping[str, Any]) -> None:
        self._on = bool(limits.pacing_max)
        self._delays = limits.requeue_after
        self._effects = effects
        self._checks = checks
        self._rounds: Counter[tuple[str, str]] = Counter()

    def objects_changed(self) -> None:
        """A manifest was written, which begins every count anew."""
        self._rounds.clear()

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload) -> list[str]:
        """What does not hold of this write."""
        if not self._on or before is None:
            return []
        since, through = before.status.log.fact, after.status.log.fact
        said = {
            check: [one for at, one in verdicts if since < at <= through]
            for (owner, check), verdicts in self._effects.verdicts.items()
            if owner == key
        }
        same = before.metadata.generation == after.metadata.generation
        anew = not same or is_true(after, Type.ADMITTED) or not head(after).active
        if anew:
            for one in [one for one in self._rounds if one[0] == key]:
                del self._rounds[one]
        for check, verdicts in said.items():
            if any(not self._is_immediate(one) for one in verdicts):
                del self._rounds[key, check]
        read = self._effects.read(key, since, through)
        spoke = [check for check, verdicts in said.items() if len(verdicts) == 1]
        if len(read) != 1 or len(spoke) != 1 or not _went_round(before, after):
            return []
        (check,) = spoke
        if not self._is_immediate(said[check][0]):
            return []
        self._rounds[key, check] += 1
        if self._rounds[key, check] > IMMEDIATE:
            return [f"{check} sends it round at once for time {self._rounds[key, check]} (3.2)"]
        return []

    def _is_immediate(self, said: CheckReported) -> bool:
        check = self._checks.get(said.check)
        if said.state != "Retry" or check is None:
            return False
        if not self._delays:
            return True
        if said.requeue_after_seconds is None:
            return check.spec.retry is None
        return said.requeue_after_seconds in (0, "0s")


def _went_round(before: StoredWorkload, after: StoredWorkload) -> bool:
    """It lost its reservation and competes again, in one write."""
    requeued = find(after, Type.REQUEUED)
    return (
        reserved(before)
        and not reserved(after)
        and requeued is not None
        and (requeued.status, requeued.reason) == ("True", "BackoffFinished")
        and after.status.admission_cycle > before.status.admission_cycle
    )


__all__ = ["Paced"]
