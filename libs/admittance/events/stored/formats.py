"""Values that one service stores in a bucket or stream and others read: each with the function that
reads it. All raise one of `BROKEN` for an invalid value.
"""

from __future__ import annotations

import msgspec

from admittance.events.reader import Reader, Unreadable, check_times
from admittance.events.shapes import ConsumedUsage
from admittance.events.stored.checkpoints import Commits
from admittance.events.system import RunnerAnnouncement

read_commits = Reader(Commits)
"""Reads a message of the journal, in which the workload-controller records its commits."""

_usage = Reader(ConsumedUsage)


def read_usage(value: bytes) -> ConsumedUsage:
    """Returns the consumption of a LocalQueue from its stored value."""
    usage = _usage(value)
    check_times("lastUpdate", (usage.last_update,))
    return usage


class HeldClaim(msgspec.Struct, frozen=True):
    """The value of a claim: which runner holds it."""

    runner: str = ""


_claim = Reader(HeldClaim)


def read_holder(value: bytes) -> str:
    """The runner that a claim names."""
    runner = _claim(value).runner
    if not runner:
        raise Unreadable("the claim names no runner")
    return runner


read_announcement = Reader(RunnerAnnouncement)
"""Reads what a runner says of itself in the bucket of claims."""
