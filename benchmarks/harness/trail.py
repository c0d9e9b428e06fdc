"""Checks a run of jobs against the trail that the jobs wrote and a replay of the log.

A job writes ``start <name> <run>`` when it begins and ``end <name> <run>`` when it ends, each line
appended at once, so the order of the file is the order in which it happened.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from admittance.api.fields.units import amount
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.shapes import Admission


class Trail(NamedTuple):
    """``overlapping``: jobs of which two runs lived at once. ``peak``: how many jobs ran at the
    same time at the most, counting each job once."""

    started: int
    ended: frozenset[str]
    overlapping: tuple[str, ...]
    peak: int


def read_trail(lines: Iterable[str]) -> Trail:
    """Reads the lines that the jobs wrote.

    A run without an end was killed at an unknown time: it counts as alive until its job starts
    again. A run that ends after that start overlaps with the second one.
    """
    newest: dict[str, str] = {}
    running: set[str] = set()
    ended: set[str] = set()
    overlapping: set[str] = set()
    started = peak = 0
    for line in lines:
        what, name, run = line.split()
        if what == "start":
            started += 1
            newest[name] = run
            running.add(name)
            peak = max(peak, len(running))
            continue
        ended.add(name)
        if newest.get(name) == run:
            running.discard(name)
        else:
            overlapping.add(name)
    return Trail(started, frozenset(ended), tuple(sorted(overlapping)), peak)


def new_trail(folder: Path) -> Path:
    """An empty trail in the folder."""
    trail = folder / "trail"
    trail.touch()
    return trail


def trail_of(file: Path) -> Trail:
    """The runs of jobs by the lines of a file."""
    return read_trail(file.read_text().splitlines())


class Replay(NamedTuple):
    """``over``: a sentence per moment at which a ClusterQueue had more booked than its quota.
    ``peak``: the most that each queue had booked, in accounting units."""

    over: tuple[str, ...]
    peak: dict[str, int]
    admissions: int


def replay(told: Iterable[Fact], quota: Mapping[str, int], *, resource: str = "cpu") -> Replay:
    """Adds up the bookings on the log, in log order, and compares the sums with ``quota`` (per
    ClusterQueue, in accounting units; no borrowing).

    Quota is booked by `quota_reserved`, and free again from the fact that ends the run: `finished`,
    or `stopped`. Those come before the commit that frees it, and what is booked next comes after
    it, so the sum here is never more than what was really booked.
    """
    booked: dict[tuple[str, str], tuple[str, int]] = {}
    used: Counter[str] = Counter()
    peak: dict[str, int] = defaultdict(int)
    over: list[str] = []
    admissions = 0
    for fact in told:
        key = (fact.namespace, fact.name)
        match fact:
            case facts.QuotaReserved(admission=Admission() as admission) if key not in booked:
                queue = admission.cluster_queue
                asked = sum(
                    amount(resource, pods.resource_usage.get(resource, 0))
                    for pods in admission.pod_set_assignments
                )
                booked[key] = (queue, asked)
                used[queue] += asked
                peak[queue] = max(peak[queue], used[queue])
                if used[queue] > quota[queue]:
                    over.append(f"{fact.name}: {queue} has {used[queue]} of {quota[queue]} booked")
            case facts.Admitted():
                admissions += 1
            case facts.Stopped(reason="RunnerEnded"):
                pass  # the admission lasts
            case facts.Finished() | facts.Stopped():
                queue, asked = booked.pop(key, ("", 0))
                used[queue] -= asked
    return Replay(tuple(over), dict(peak), admissions)
