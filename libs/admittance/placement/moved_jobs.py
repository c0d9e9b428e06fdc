"""Jobs whose machines are gone: they are evicted, to start elsewhere."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.events.placement import Placement, runners_of
from admittance.placement.machines.machine import Machine
from admittance.placement.reservation import Judged
from admittance.placement.search.ledger import Ledger
from admittance.placement.verdicts import (
    DueTimes,
    PlacementTimes,
    PlacementVerdict,
    verdict_on,
)

_AT_ONCE: Final = 1
"""Seconds of delay of a Retry that only moves a job: a Retry without a delay would be paced as if
the check had failed."""


class MovedJobs:
    """The jobs with runners, and the machines that are lost, drained at once, or not known."""

    def __init__(self, ledger: Ledger, times: PlacementTimes) -> None:
        self.due = DueTimes()
        self._ledger = ledger
        self._times = times
        self._jobs: dict[str, tuple[Judged, frozenset[str]]] = {}
        self._on: dict[str, set[str]] = {}
        """The jobs by the id of their runners."""
        self._gone: dict[str, datetime | None] = {}
        """Machines to look at; of those that are not known, since when."""
        self._moved: dict[str, tuple[int, datetime]] = {}
        """The jobs that got a Retry: the cycle and when."""

    def set_job(self, key: str, judged: Judged | None, parts: Placement) -> None:
        """Sets the runners of an admitted workload; ``judged`` None: it has no job."""
        _, before = self._jobs.pop(key, (None, frozenset()))
        for machine_id in before:
            self._on[machine_id].discard(key)
            if not self._on[machine_id]:
                del self._on[machine_id]
        if judged is None or not parts:
            self._moved.pop(key, None)
            return
        self._jobs[key] = judged, frozenset(runners_of(parts))
        for machine_id in self._jobs[key][1]:
            self._on.setdefault(machine_id, set()).add(key)
            self.look_at(machine_id)

    def look_at(self, machine_id: str) -> None:
        """The machine, or the jobs on it, changed."""
        machine = self._ledger.machine(machine_id)
        if machine is None or machine.lost_since is not None or machine.evict_at is not None:
            self._gone.setdefault(machine_id, None)
        else:
            self._gone.pop(machine_id, None)

    def verdicts(self, now: datetime) -> list[PlacementVerdict]:
        """The verdicts on jobs whose machines are gone. One that has no effect comes again."""
        verdicts = []
        for machine_id in sorted(self._gone):
            if machine_id not in self._on:
                continue
            at, message = self._end_of(machine_id, now)
            if at is None:
                continue
            if now < at:
                self.due.add(machine_id, at)
                continue
            for key in sorted(self._on[machine_id]):
                judged, _ = self._jobs[key]
                cycle, moved_at = self._moved.get(key, (-1, now))
                again = moved_at + self._times.repeat_after
                if cycle != judged.cycle or now >= again:
                    self._moved[key], again = (judged.cycle, now), now + self._times.repeat_after
                    verdicts.append(verdict_on(judged, "Retry", message, delay=_AT_ONCE))
                self.due.add(machine_id, again)
        return verdicts

    def _end_of(self, machine_id: str, now: datetime) -> tuple[datetime | None, str]:
        """When the jobs of the machine are moved, and why; None: they stay."""
        machine = self._ledger.machine(machine_id)
        if machine is not None:
            self._gone[machine_id] = None
            return self._end_of_known(machine)
        since = self._gone[machine_id] or now
        self._gone[machine_id] = since
        return since + self._times.lost_after, f"the runner with the id {machine_id} is gone"

    def _end_of_known(self, machine: Machine) -> tuple[datetime | None, str]:
        ends = []
        why = f": {machine.message}" if machine.message else ""
        if machine.lost_since is not None:
            text = f"runner {machine.name} is lost since {machine.lost_since:%H:%M:%S} UTC{why}"
            ends.append((machine.lost_since + self._times.lost_after, text))
        if machine.evict_at is not None:
            ends.append((machine.evict_at, f"runner {machine.name} is drained{why}"))
        return min(ends) if ends else (None, "")
