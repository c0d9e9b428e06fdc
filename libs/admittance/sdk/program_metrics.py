"""The metrics of a check controller or provider, which its admin port shows at ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from admittance.runtime import clock
from admittance.runtime.telemetry.metrics import Counter, Gauges, Histogram, Metric, gauge

LABELS: Final = ("program",)
OPEN_REQUESTS: Final = gauge(
    "program_open_requests", "deliveries that the program has not acknowledged yet", LABELS
)


class ProgramMetrics:
    """The numbers of one program. ``program``: the ``controllerName`` of a check controller, or the
    provisioning class of a provider."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._requests = Counter(
            "program_requests", "requests that arrived, redeliveries included", LABELS
        )
        self._answers = Counter(
            "program_answers", "verdicts or statuses that are on the log", ("program", "state")
        )
        self._seconds = Histogram(
            "program_answer_seconds",
            "from the arrival of a request to its first final verdict or status",
            LABELS,
        )
        self._failures = Counter(
            "program_failures", "calls of the program's function that raised an error", LABELS
        )
        self._heartbeats = Counter("program_heartbeats", "heartbeats that were sent", LABELS)
        self._counters = (self._requests, self._failures, self._heartbeats)
        for counter in self._counters:
            counter.add((program,), 0)

    def metrics(self, open_requests: Callable[[], int]) -> tuple[Metric, ...]:
        """All metrics. ``open_requests`` returns the number of open deliveries."""
        gauges = Gauges(
            (OPEN_REQUESTS,),
            lambda: {OPEN_REQUESTS.name: {(self._program,): open_requests()}},
        )
        return (*self._counters, self._answers, self._seconds, gauges)

    def requested(self) -> None:
        """Counts a request that arrived."""
        self._requests.add((self._program,))

    def answered(self, state: str, since: float | None = None) -> None:
        """Counts an answer. ``since``: when the answered request arrived, by `clock.monotonic`;
        None if the answer is not the first final one of a request that this process knows.
        """
        self._answers.add((self._program, state))
        if since is not None:
            self._seconds.observe((self._program,), clock.monotonic() - since)

    def failed(self) -> None:
        """Counts a call of the program's function that raised an error."""
        self._failures.add((self._program,))

    def beat(self) -> None:
        """Counts a heartbeat."""
        self._heartbeats.add((self._program,))
