"""Values that one service stores in a bucket or stream and others read: each with the function that
reads it. All raise one of `BROKEN` for an invalid value.
"""

from __future__ import annotations

from datetime import datetime

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


class HeldClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a claim: which runner holds it. The claim of a part of a job also says when the
    machine of the runner must be empty (``ends``; None: it need not be), for the warnings of the
    other parts; ``ends_known``: the runner has read that."""

    runner: str = ""
    ends: datetime | None = None
    ends_known: bool = False


_claim = Reader(HeldClaim)


def read_held_claim(value: bytes) -> HeldClaim:
    """Reads the value of a claim."""
    held = _claim(value)
    if not held.runner:
        raise Unreadable("the claim names no runner")
    check_times("ends", (held.ends,))
    return held


read_announcement = Reader(RunnerAnnouncement)
"""Reads what a runner says of itself in the bucket of claims."""
