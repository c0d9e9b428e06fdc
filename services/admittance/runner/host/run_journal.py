"""What the journal of a run says: the events that its shim has written."""

from __future__ import annotations

from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Final

import msgspec

from admittance.events.reader import BROKEN, one_line
from admittance.events.shapes import PodRetries, PodRetry
from admittance.runner.decide import MESSAGE_MAX, Ended

RETRIES_SHOWN: Final = 10
"""The most pods that wait for their next start of which the time is said."""


class _Line(msgspec.Struct, frozen=True):
    e: str
    p: str = ""
    pid: int = 0
    t: int = 0
    code: int = 0
    kind: str = ""
    message: str = ""
    reason: str = ""
    failed: int = 0
    due: float | None = None
    left: int | None = None
    drain: str = ""


_decoder = msgspec.json.Decoder(_Line)


class PodFailures:
    """The pods of a run that failed and run again, as the journal says.

    ``failed``: how many pods and containers have failed; ``given_up``: how many indexes have failed
    for good."""

    def __init__(self) -> None:
        self.failed = 0
        self.given_up = 0
        self.message = ""
        self._waiting: dict[str, tuple[float, int | None]] = {}
        """For each pod that waits the time of its next start, in seconds since boot, and how often
        it may fail again."""

    def note(self, line: _Line) -> None:
        self.failed = max(self.failed, line.failed)
        self.message = one_line(line.message, MESSAGE_MAX)
        if line.due is None:
            self.given_up += 1
        else:
            self._waiting[line.p] = line.due, line.left

    def starts(self, pod: str) -> None:
        self._waiting.pop(pod, None)

    def summary(self, now: datetime, boot: float) -> PodRetries | None:
        """The failures for people; None: no pod has failed. ``boot``: the seconds since boot at the
        time ``now``."""
        if not self.failed:
            return None
        first = nsmallest(RETRIES_SHOWN, self._waiting.items(), key=lambda pair: pair[1][0])
        return PodRetries(
            failed=self.failed,
            given_up=self.given_up,
            waiting=len(self._waiting),
            pods=tuple(
                PodRetry(pod=pod, at=now + timedelta(seconds=due - boot), left=left)
                for pod, (due, left) in first
            ),
            message=self.message,
        )


class RunJournal:
    """The events that a shim has written into the journal of its run; `feed` takes the bytes of the
    journal from ``offset`` on."""

    def __init__(self) -> None:
        self.offset = 0
        self.up = False
        self.ready = False
        self.begun = False
        """Whether the hooks of the runner have begun: then the epilog runs after the job."""
        self.result: Ended | None = None
        """The result of the job while the epilog runs; None: it is not known."""
        self.outcome: Ended | None = None
        """How the run has ended; None: it has not."""
        self.processes: dict[int, int] = {}
        """The process groups that the run has ever started: pid to start time in ticks."""
        self.ended: dict[str, int] = {}
        """Pods of the run that have ended, with their exit codes."""
        self.failures = PodFailures()

    @property
    def end(self) -> Ended | None:
        """How the job has ended, also while the epilog runs; None: it has not."""
        return self.outcome or self.result

    @property
    def in_prolog(self) -> bool:
        """Whether the hooks have begun and no process of the job has started."""
        return self.begun and not self.up and self.end is None

    @property
    def is_result(self) -> bool:
        """Whether the job ended without a stop request: then the result counts, and the job does
        not run again."""
        return self.end is not None and self.end.is_result

    def feed(self, data: bytes) -> bool:
        """Reads the complete new lines of the journal from ``data``; returns whether there was such
        a line. A last line without its newline is left for the next call, because the shim may have
        written only a part of it.
        """
        whole = data.rfind(b"\n") + 1
        self.offset += whole
        for text in data[:whole].splitlines():
            try:
                line = _decoder.decode(text)
            except BROKEN:
                continue  # skips an incomplete line, written just before a power failure
            match line.e:
                case "start":
                    self.processes[line.pid] = line.t
                    self.ended.pop(line.p, None)  # the pod runs again after a failure
                    self.failures.starts(line.p)
                case "retry":
                    self.failures.note(line)
                case "end":
                    self.ended[line.p] = line.code
                case "up":
                    self.up = True
                case "ready":
                    self.ready = True
                case "begun":
                    self.begun = True
                case "result":
                    self.result = _end_of(line)
                case "outcome":
                    self.outcome = _end_of(line)
        return whole > 0


def _end_of(line: _Line) -> Ended:
    message, drain = (one_line(text, MESSAGE_MAX) for text in (line.message, line.drain))
    return Ended(line.kind, message, line.code, line.reason, drain)
