"""The metrics of the telemetry service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from admittance.runtime.telemetry.metrics import Counter, Gauges, Labels, Metric, gauge

QUEUE_FULL: Final = "queue_full"
"""The reason of spans dropped because earlier spans, which the receiver does not take, fill the
queue."""
NOT_TAKEN: Final = "not_taken"
"""The reason of spans dropped because the receiver refused them or did not answer."""
UNREAD: Final = gauge(
    "traces_unread_facts", "Facts on the log that the telemetry service has not read yet"
)
OPEN: Final = gauge(
    "traces_open", "Sampled workloads that the telemetry service keeps in memory until they end"
)


class SpanMetrics:
    """How many spans of one process were exported, and how many were dropped."""

    def __init__(self) -> None:
        self.exported = Counter(
            "traces_spans_exported", "Spans that the receiver of traces has taken", ()
        )
        self.dropped = Counter(
            "traces_spans_dropped",
            f"Spans that were lost: {QUEUE_FULL} if the receiver does not take the earlier ones, "
            f"{NOT_TAKEN} if it refused them or did not answer",
            ("reason",),
            [(QUEUE_FULL,), (NOT_TAKEN,)],
        )
        self.failures = Counter(
            "traces_export_failures",
            "Requests that the receiver of traces refused, or did not answer in time",
            (),
        )

    @property
    def sent(self) -> int:
        """How many spans the receiver has taken."""
        return int(self.exported.values[()])

    @property
    def lost(self) -> int:
        """How many spans were dropped."""
        return int(sum(self.dropped.values.values()))

    def metrics(self, unread: Callable[[], int], kept: Callable[[], int]) -> list[Metric]:
        """All metrics of the telemetry service. ``unread``: how many facts on the log are not read
        yet; ``kept``: how many workloads are kept in memory."""

        def read() -> dict[str, dict[Labels, float]]:
            return {UNREAD.name: {(): unread()}, OPEN.name: {(): kept()}}

        return [self.exported, self.dropped, self.failures, Gauges((UNREAD, OPEN), read)]
