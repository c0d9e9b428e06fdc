"""The metrics of a scheduler: gauges of its queues, and its attempts to admit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from admittance.events.facts import Assigned
from admittance.runtime.telemetry.metrics import Counter, Histogram, Metric, gauge
from admittance.scheduling.cycle.decisions import Decided
from admittance.scheduling.explain.queue_gauges import GAUGES

QUEUE_GAUGES: Final = tuple(gauge(name, about, labels) for name, (about, labels) in GAUGES.items())
SUCCESS: Final = ("success",)
INADMISSIBLE: Final = ("inadmissible",)


class AttemptMetrics:
    """Attempts to admit: cycles of one domain. The label ``result`` is success if any workload
    got quota in the cycle."""

    def __init__(self) -> None:
        about = "Cycles of a domain; success: a workload got quota, inadmissible: none did"
        self.attempts = Counter("admission_attempts", about, ("result",))
        self.durations = Histogram(
            "admission_attempt_duration_seconds", "How long such a cycle took", ("result",)
        )
        self.metrics: tuple[Metric, ...] = (self.attempts, self.durations)

    def count(self, decided: Sequence[Decided], seconds: float) -> None:
        """Counts one cycle, with its decisions and duration."""
        got = any(isinstance(one, Assigned) for one in decided)
        result = SUCCESS if got else INADMISSIBLE
        self.attempts.add(result)
        self.durations.observe(result, seconds)
