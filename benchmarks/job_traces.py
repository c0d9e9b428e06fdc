"""What jobs that save their state did, by their traces, the journals of their shims and the log.

A job counts up to a goal. It appends ``start N PID`` to its trace when it begins at N, ``step N
PID`` for each step, ``saved N PID`` when it received SIGTERM, and ``done N PID`` at its goal; each
line at once, so the order of the file is the order in which it happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

RESULTS = ("succeeded", "failed")


class JobRun(NamedTuple):
    """One run by its shim's journal: revision of its admission, and how it ended ("": it did not).
    ``began``: any process of it was started."""

    revision: int
    outcome: str
    began: bool = True


class JobFacts(NamedTuple):
    """A job by the log and the bucket: how often ``finished``, ``started`` and ``stopped``
    stand on the log, and whether it has succeeded in the end."""

    finished: int = 0
    started: int = 0
    stopped: int = 0
    succeeded: bool = False


class JobVerdict(NamedTuple):
    """``broken``: a sentence for each broken promise. ``steps``: that were worked, and ``lost`` of
    them: that were worked once more since nothing had saved them."""

    broken: tuple[str, ...]
    runs: int
    saves: int
    steps: int
    lost: int


def verdict_on(
    name: str, goal: int, trace: Sequence[str], runs: Sequence[JobRun], told: JobFacts
) -> JobVerdict:
    """Whether everything that is promised of the job holds."""
    broken: list[str] = []
    newest = ""
    starts = saves = steps = lost = reached = 0
    done = False
    for line in trace:
        what, count, pid = line.split()
        if what == "start":
            starts += 1
            lost += max(0, reached - int(count))
            newest = pid
            continue
        if pid != newest:
            broken.append(f"{name}: run {pid} lived beside run {newest}")
        reached = int(count)
        steps += what == "step"
        saves += what == "saved"
        done = done or (what == "done" and reached >= goal)
    if not told.succeeded:
        broken.append(f"{name}: has not succeeded in the end")
    elif not done:
        broken.append(f"{name}: succeeded at {reached} of {goal}")
    if told.finished > 1:
        broken.append(f"{name}: finished stands {told.finished} times on the log")
    results = [run.revision for run in runs if run.outcome in RESULTS]
    again = [run.revision for run in runs if run.began and results and run.revision > min(results)]
    if again:
        broken.append(f"{name}: had a result at {min(results)} and ran again at {again[0]}")
    return JobVerdict(tuple(dict.fromkeys(broken)), starts, saves, steps, lost)


def sum_of_verdicts(all_of_them: Mapping[str, JobVerdict]) -> JobVerdict:
    """All jobs together."""
    each = all_of_them.values()
    return JobVerdict(
        tuple(sentence for verdict in each for sentence in verdict.broken),
        sum(verdict.runs for verdict in each),
        sum(verdict.saves for verdict in each),
        sum(verdict.steps for verdict in each),
        sum(verdict.lost for verdict in each),
    )
