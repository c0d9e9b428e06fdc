"""When the pods of a run are warned that its time ends. Pure. The shim imports this module, so the
module imports little."""

from __future__ import annotations

from admittance.runner.jobs.job_policy import NEVER

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from typing import Any

EARLIEST_SECONDS = 10.0
"""Seconds after the start of a run before which no warning comes: a program needs time to take the
signal, and would else be ended by it."""


class TimeWarnings:
    """The warnings of a run that are still due. ``spec``: of the run. ``now``: its start, in
    seconds since boot."""

    def __init__(self, spec: dict[str, Any], now: float) -> None:
        self.ends: float = spec.get("ends") or NEVER
        self._due: dict[str, tuple[float, int]] = {}
        for each in spec["sets"]:
            warn = each.get("warn")
            if warn and self.ends < NEVER:
                at = max(self.ends - warn["before"], now + EARLIEST_SECONDS)
                if at < self.ends:
                    self._due[each["name"]] = at, warn["signal"]

    def next_time(self) -> float:
        """When the next warning is due."""
        return min((at for at, _ in self._due.values()), default=NEVER)

    def take(self, now: float) -> dict[str, int]:
        """The signal for each pod set with a warning that is due now; each is returned once."""
        due = {name: number for name, (at, number) in self._due.items() if at <= now}
        for name in due:
            del self._due[name]
        return due
