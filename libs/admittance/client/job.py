"""`Job`: a handle for one workload.

`tools/sync_client.py` makes `SyncJob` from the signatures and docstrings of this module.
"""

from __future__ import annotations

from typing import Protocol

from admittance.client.calls import Stream
from admittance.client.requests.objects import BucketObject
from admittance.client.requests.waits import Result, result_of
from admittance.events.requests import ExplainReply, LogEntry, SettledReply
from admittance.events.shapes import PodLog
from admittance.runtime import clock
from admittance.workload.phase import Phase
from admittance.workload.phase import phase as phase_of
from admittance.workload.stored import StoredWorkload


class JobClient(Protocol):
    """What a `Job` asks of its client; the methods are those of `Client`."""

    async def get(self, kind: str, name: str, *, namespace: str | None = None) -> BucketObject: ...

    async def wait(
        self,
        name: str,
        phase: str = ...,
        *,
        timeout: float | None = None,
        namespace: str | None = None,
    ) -> StoredWorkload: ...

    def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        pod: int | None = None,
        tail: int | None = None,
        previous: int = 0,
        namespace: str | None = None,
    ) -> Stream[PodLog]: ...

    def events(
        self,
        name: str | None = None,
        *,
        follow: bool = False,
        after: int = 0,
        namespace: str | None = None,
    ) -> Stream[LogEntry]: ...

    async def stop(self, name: str, *, namespace: str | None = None) -> SettledReply: ...

    async def explain(self, name: str, *, namespace: str | None = None) -> ExplainReply: ...


class Job:
    """A handle for one workload. ``created``: whether `Client.submit` created it with this call;
    False if it was there before."""

    def __init__(self, client: JobClient, namespace: str, name: str, *, created: bool) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._created = created

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

    async def get(self) -> StoredWorkload:
        """The workload as stored. Raises NotFound."""
        found = await self._client.get("workload", self._name, namespace=self._namespace)
        return found.workload()

    async def phase(self) -> Phase:
        """The phase of the workload. Raises NotFound."""
        return phase_of(await self.get(), clock.now())

    async def wait(
        self, phase: str = Phase.FINISHED, *, timeout: float | None = None
    ) -> StoredWorkload:
        """Waits until the workload has a phase, as `Client.wait` does."""
        return await self._client.wait(
            self._name, phase, timeout=timeout, namespace=self._namespace
        )

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
        """The output of the pods, as `Client.logs` gives it."""
        return self._client.logs(
            self._name,
            follow=follow,
            pod=pod,
            tail=tail,
            previous=previous,
            namespace=self._namespace,
        )

    def events(self, *, follow: bool = False, after: int = 0) -> Stream[LogEntry]:
        """The facts of the log about the workload, as `Client.events` gives them."""
        return self._client.events(
            self._name, follow=follow, after=after, namespace=self._namespace
        )

    async def cancel(self) -> SettledReply:
        """Stops the job, as `Client.stop` does."""
        return await self._client.stop(self._name, namespace=self._namespace)

    async def explain(self) -> ExplainReply:
        """Why the workload waits."""
        return await self._client.explain(self._name, namespace=self._namespace)
