"""When the pods of a run are warned that the time of the job ends, or that their machine must be
empty. Pure. The shim imports this module, so the module imports little."""

from __future__ import annotations

from admittance.runner.jobs.job_policy import NEVER

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from typing import Any

EARLIEST_SECONDS = 10.0
"""Seconds after the start of a run before which no warning comes: a program needs time to take the
signal, and would else be ended by it."""


SAME_SECONDS = 1.0
"""Two ends of a drain that are so near are the same: each start of the runner computes it anew."""


class TimeWarnings:
    """The warnings of a run. ``spec``: of the run. ``now``: its start, in seconds since boot.

    A pod set is warned once, before the first end that comes: that of the job's time, or that of a
    drain of the machine. A drain that is moved or ended is one of which it was not warned."""

    def __init__(self, spec: dict[str, Any], now: float) -> None:
        self._start = now
        self._time: float = spec.get("ends") or NEVER
        self._drain = NEVER
        warned = ((each["name"], each.get("warn")) for each in spec["sets"])
        self._warns = {name: (warn["before"], warn["signal"]) for name, warn in warned if warn}
        self._warned: dict[str, float] = {}
        """The pod sets that were warned, and of which end."""

    @property
    def ends(self) -> float:
        """The first end that comes."""
        return min(self._time, self._drain)

    @property
    def of_drain(self) -> bool:
        """Whether the first end is that of a drain."""
        return self._drain < self._time

    def set_drain(self, ends: float) -> None:
        """Sets when the machine must be empty, in seconds since boot; `NEVER`: it need not be."""
        if ends == self._drain or abs(ends - self._drain) < SAME_SECONDS:
            return
        self._warned = {name: end for name, end in self._warned.items() if end != self._drain}
        self._drain = ends

    def next_time(self) -> float:
        """When the next warning is due."""
        return min(map(self._due, self._warns), default=NEVER)

    def take(self, now: float) -> dict[str, int]:
        """The signal for each pod set with a warning that is due now; each is returned once."""
        due = [name for name in self._warns if self._due(name) <= now < self.ends]
        self._warned.update(dict.fromkeys(due, self.ends))
        return {name: self._warns[name][1] for name in due}

    def _due(self, name: str) -> float:
        before, _ = self._warns[name]
        ends = self.ends
        at = max(ends - before, self._start + EARLIEST_SECONDS)
        return at if at < ends and name not in self._warned else NEVER
