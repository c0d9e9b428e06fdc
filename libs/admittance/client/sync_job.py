"""`SyncJob`: `Job` for programs without a loop.

Made by ``python -m tools.sync_client``; edit `job.py` instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from admittance.client.calls import LoopThread
from admittance.client.job import Job
from admittance.client.requests.files import FetchedFile
from admittance.client.requests.workloads.waits import Result
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.history import LogEntry, SettledReply
from admittance.events.shapes import PodLog
from admittance.workload.phase import Phase
from admittance.workload.stored import StoredWorkload


class SyncJob:
    """A handle for one workload. ``created``: whether `Client.submit` created it with this call;
    False if it was there before."""

    def __init__(self, thread: LoopThread, job: Job) -> None:
        self._thread = thread
        self._inner = job

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}/{self.name}>"

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return self._inner.namespace

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self._inner.name

    @property
    def created(self) -> bool:
        """Whether the submission that returned this handle created the workload."""
        return self._inner.created

    @property
    def warnings(self) -> tuple[str, ...]:
        """Parts of the submission that may not work as intended, such as a missing queue."""
        return self._inner.warnings

    def element(self, index: int) -> SyncJob:
        """A handle for the element of an array with that index, which need not exist yet."""
        return SyncJob(self._thread, self._inner.element(index))

    def get(self) -> StoredWorkload:
        """The workload as stored. Raises NotFound."""
        return self._thread.run(self._inner.get)

    def phase(self) -> Phase:
        """The phase of the workload. Raises NotFound."""
        return self._thread.run(self._inner.phase)

    def wait(self, phase: str = Phase.FINISHED, *, timeout: float | None = None) -> StoredWorkload:
        """Waits until the workload has a phase, or has Succeeded or Failed; returns the workload.

        A later phase counts too: Running for Admitted, both for QuotaReserved. Raises NotFound if
        the workload does not exist or is deleted, TimedOut after ``timeout`` seconds, and Refused
        if the phase can no longer be reached.
        """
        return self._thread.run(lambda: self._inner.wait(phase, timeout=timeout))

    def result(self, *, timeout: float | None = None) -> Result:
        """Waits until the job has ended, and returns how. A failed job raises no error here:
        `Result.check` raises it."""
        return self._thread.run(lambda: self._inner.result(timeout=timeout))

    def logs(
        self,
        *,
        follow: bool = False,
        pod: int | None = None,
        tail: int | None = None,
        previous: int = 0,
    ) -> Iterator[PodLog]:
        """The output of the pods, piece by piece; with ``follow`` until the workload has ended.

        ``pod``: only the pod with this index; ``tail``: only the last lines of each pod;
        ``previous``: how many runs back, 0 is the newest run. Raises NotFound if the workload, pod,
        run or output does not exist.
        """
        return self._thread.iterate(
            lambda: self._inner.logs(follow=follow, pod=pod, tail=tail, previous=previous)
        )

    def fetch(self, folder: str | os.PathLike[str] = ".") -> tuple[FetchedFile, ...]:
        """Writes the files that the ended job left, of those that its submission asked for, below
        the folder. Raises NotFound if a file is not there, after the others are written, and
        Refused if the submission asked for none or the job has not ended."""
        return self._thread.run(lambda: self._inner.fetch(folder))

    def events(self, *, follow: bool = False, after: int = 0) -> Iterator[LogEntry]:
        """The facts of the log about the workload and its variants, as `Client.events` gives
        them."""
        return self._thread.iterate(lambda: self._inner.events(follow=follow, after=after))

    def cancel(self) -> SettledReply:
        """Stops the job: it is evicted, and not admitted again until `Client.activate`. The outcome
        is ``ignored`` if it is stopped already."""
        return self._thread.run(self._inner.cancel)

    def explain(self, *, start: bool = True) -> ExplainReply:
        """Why the workload waits: for each flavor and check, and what would unblock it. ``start``
        False: without its expected start, for which the answer may wait a third of a second."""
        return self._thread.run(lambda: self._inner.explain(start=start))
