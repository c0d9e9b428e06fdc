"""What must hold of programs that hold quota by a lease: a lease that is renewed lasts, one that is
not is over soon, and no device belongs to a program and to a job. docs/spec/lifecycle.md#T32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants.seen import Seen
from simulation.nats.observed import Stored
from simulation.transcript import Broken

LATE: Final = timedelta(seconds=150)
"""How late a lease may end: the longest fault, and what leaders take to follow each other."""
HELD: Final = "LeaseExpired"


class Holds:
    """``seen``: all workloads by key. ``spread``: by how much two clocks may differ."""

    def __init__(self, seen: Mapping[str, Seen], spread: timedelta) -> None:
        self._seen = seen
        self._spread = spread
        self._renewed: dict[str, list[tuple[int, datetime]]] = defaultdict(list)
        """By key of the workload, the renewals on the log: their sequences and times."""
        self._holding: set[str] = set()
        """Keys of admitted workloads of programs."""

    def logged(self, stored: Stored, now: datetime) -> None:
        """Notes a renewal."""
        _, thing, what, rest = stored.subject.split(".", 3)
        if thing == "workload" and what in ("renewed", "submitted"):
            self._renewed[f"workload.{rest}"].append((stored.sequence, now))

    def stored(self, key: str, before: Seen, after: Seen, now: datetime) -> None:
        """Checks a write of a workload."""
        new = after.workload
        self._holding.discard(key)
        if new is None or head(new).lease_duration_seconds is None:
            return
        if after.usage and is_true(new, Type.ADMITTED):
            self._holding.add(key)
        finished = find(new, Type.FINISHED)
        if finished is not None and finished.reason == HELD and before.where != "finished":
            self._expired(key, new, now)

    def _expired(self, key: str, workload: StoredWorkload, now: datetime) -> None:
        """A lease ends a lease after the last renewal before the fact that ended it, or later."""
        seconds = head(workload).lease_duration_seconds
        assert seconds is not None
        fact = workload.status.log.fact
        known = [at for sequence, at in self._renewed[key] if sequence < fact]
        if known and now + self._spread < max(known) + timedelta(seconds=seconds):
            raise Broken(f"{key} lost its lease at {now}, and was renewed at {max(known)} (T32)")

    def look(self, now: datetime) -> None:
        """Checks that no program holds quota long after its last renewal."""
        for key in sorted(self._holding):
            workload = self._seen[key].workload
            assert workload is not None
            seconds = head(workload).lease_duration_seconds
            renewed = [at for _, at in self._renewed[key]]
            if seconds is None or not renewed:
                continue
            if now - self._spread > max(renewed) + timedelta(seconds=seconds) + LATE:
                raise Broken(f"{key} holds quota at {now}, and was renewed at {max(renewed)} (T32)")

    def units(self, runner: str) -> Iterator[tuple[str, str]]:
        """The units of devices of a machine that programs hold, each with the workload."""
        for key in sorted(self._holding):
            workload = self._seen[key].workload
            assert workload is not None
            for part in workload.status.placement:
                if part.id == runner:
                    for resource, ids in part.devices.items():
                        yield from ((f"{resource}={unit}", key) for unit in ids)

    def started(self, key: str, units: tuple[str, ...], runner: str) -> None:
        """A job starts on a machine: none of its devices belongs to a program."""
        for unit, holder in self.units(runner):
            if unit in units:
                raise Broken(f"{key} starts with {unit} of {runner}, which {holder} holds (2.9)")
        workload = key.rpartition(".")[0]
        if f"workload.{workload}" in self._holding:
            raise Broken(f"{key} starts, and a program holds the quota of its workload (T32)")
