"""The circumstances of a move: when it is, where on the log, and what the queues look like."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from admittance.events.base import Fact
from admittance.workload.surroundings import Surroundings


class Occasion(NamedTuple):
    """``now`` is the controller's clock; for a due timer at least the time it was set for.
    ``sequence`` is the fact's on the log. ``at`` is when the log took it, by the server's clock:
    what is derived from it comes out the same when the fact is read again."""

    now: datetime
    sequence: int
    at: datetime
    around: Surroundings


class QueueChanged(Fact, frozen=True, kw_only=True):
    """A queue, flavor or check around the workload changed. Not on the wire: the controller makes
    it of ``admit.object.applied`` for each workload that it may concern. ``asks``: checks whose
    parameters changed: whoever has not judged yet is asked again, with the new ones."""

    asks: frozenset[str] = frozenset()
