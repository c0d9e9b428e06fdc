"""`Job`: a handle for one workload.

`tools/sync_client.py` makes `SyncJob` from the signatures and docstrings of this module.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from admittance.client.arguments.checked import at_least, checked_methods
from admittance.client.calls import Calls, Stream, check_timeout
from admittance.client.errors import BadInput
from admittance.client.kinds import WORKLOAD
from admittance.client.requests import files, objects
from admittance.client.requests.files import FetchedFile
from admittance.client.requests.link import Link
from admittance.client.requests.workloads import changes, history
from admittance.client.requests.workloads.explanation import explanation
from admittance.client.requests.workloads.waits import Result, goal_named, reach, result_of
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.history import LogEntry, SettledReply
from admittance.events.shapes import PodLog
from admittance.runtime import clock
from admittance.workload.phase import Phase
from admittance.workload.phase import phase as phase_of
from admittance.workload.stored import StoredWorkload


@checked_methods
class Job:
    """A handle for one workload. ``created``: whether `Client.submit` created it with this call;
    False if it was there before."""

    def __init__(
        self,
        calls: Calls,
        namespace: str,
        name: str,
        *,
        created: bool = False,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._calls = calls
        self._namespace = namespace
        self._name = name
        self._created = created
        self._warnings = warnings

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._namespace}/{self._name}>"

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return self._namespace

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self._name

    @property
    def created(self) -> bool:
        """Whether the submission that returned this handle created the workload."""
        return self._created

    @property
    def warnings(self) -> tuple[str, ...]:
        """Parts of the submission that may not work as intended, such as a missing queue."""
        return self._warnings

    def element(self, index: int) -> Job:
        """A handle for the element of an array with that index, which need not exist yet."""
        at_least(0, index=index)
        return Job(self._calls, self._namespace, f"{self._name}[{index}]")

    async def get(self) -> StoredWorkload:
        """The workload as stored. Raises NotFound."""
        async with self._calls.call() as link:
            stored = await objects.find(link, WORKLOAD, self._name, self._namespace)
            return stored.workload()

    async def phase(self) -> Phase:
        """The phase of the workload. Raises NotFound."""
        return phase_of(await self.get(), clock.now())

    async def wait(
        self, phase: str = Phase.FINISHED, *, timeout: float | None = None
    ) -> StoredWorkload:
        """Waits until the workload has a phase, or has Succeeded or Failed; returns the workload.

        A later phase counts too: Running for Admitted, both for QuotaReserved. Raises NotFound if
        the workload does not exist or is deleted, TimedOut after ``timeout`` seconds, and Refused
        if the phase can no longer be reached.
        """
        async with self._calls.call() as link:
            wanted, limit = goal_named(phase), check_timeout(timeout)
            return await reach(link, self._namespace, self._name, wanted, limit)

    async def result(self, *, timeout: float | None = None) -> Result:
        """Waits until the job has ended, and returns how. A failed job raises no error here:
        `Result.check` raises it."""
        return result_of(await self.wait(timeout=timeout))

    def logs(
        self,
        *,
        follow: bool = False,
        pod: int | None = None,
        tail: int | None = None,
        previous: int = 0,
    ) -> Stream[PodLog]:
        """The output of the pods, piece by piece; with ``follow`` until the workload has ended.

        ``pod``: only the pod with this index; ``tail``: only the last lines of each pod;
        ``previous``: how many runs back, 0 is the newest run. Raises NotFound if the workload, pod,
        run or output does not exist.
        """

        async def pieces(link: Link) -> AsyncGenerator[PodLog]:
            at_least(0, pod=pod, tail=tail, previous=previous)
            if follow and previous:
                raise BadInput("an earlier run has ended: previous does not go with follow")
            replies = history.output_of(
                link,
                self._name,
                self._namespace,
                pod=pod,
                follow=follow,
                tail=tail,
                previous=previous,
            )
            async with aclosing(replies):
                async for reply in replies:
                    for piece in reply.pods:
                        if piece.text or piece.cut:
                            yield piece

        return self._calls.stream(pieces)

    async def fetch(self, folder: str | os.PathLike[str] = ".") -> tuple[FetchedFile, ...]:
        """Writes the files that the ended job left, of those that its submission asked for, below
        the folder. Raises NotFound if a file is not there, after the others are written, and
        Refused if the submission asked for none or the job has not ended."""
        async with self._calls.call() as link:
            fetched = await files.fetch(link, self._name, self._namespace, Path(folder))
            files.check_fetched(f"workload {self._namespace}/{self._name}", fetched)
            return fetched

    def events(self, *, follow: bool = False, after: int = 0) -> Stream[LogEntry]:
        """The facts of the log about the workload and its variants, as `Client.events` gives
        them."""

        def entries(link: Link) -> AsyncGenerator[LogEntry]:
            at_least(0, after=after)
            return history.facts_of(link, self._namespace, self._name, after=after, follow=follow)

        return self._calls.stream(entries)

    async def cancel(self) -> SettledReply:
        """Stops the job: it is evicted, and not admitted again until `Client.activate`. The outcome
        is ``ignored`` if it is stopped already."""
        async with self._calls.call() as link:
            made = await changes.change(
                link, changes.STOP, self._name, self._namespace, spelled="cancel"
            )
            return made.reply

    async def explain(self, *, start: bool = True) -> ExplainReply:
        """Why the workload waits: for each flavor and check, and what would unblock it. ``start``
        False: without its expected start, for which the answer may wait a third of a second."""
        async with self._calls.call() as link:
            answer = await explanation(link, self._name, self._namespace, start=start)
            return answer.reply
