"""`AdmittanceExecutor`: an executor of `concurrent.futures`, for which each call is a job."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, ParamSpec, TypedDict, TypeVar, Unpack

from admittance.client.calling import called
from admittance.client.calls import CLOSED
from admittance.client.errors import ClientError, Closed, JobFailed, Refused
from admittance.client.job import Job
from admittance.client.requests import files
from admittance.client.requests.files import FetchedFile
from admittance.client.requests.submissions.names import stem, suffix
from admittance.client.requests.workloads.waits import Result, reach, result_of
from admittance.client.sync_client import SyncClient
from admittance.phases import Phase
from admittance.workload.stored import StoredWorkload

P = ParamSpec("P")
T = TypeVar("T")

CALLS: Final = 64
"""The most calls of an executor that are jobs at one time."""
TAIL: Final = 20
"""The lines of the output of a job that its error shows."""
MODULE: Final = "admittance.client.calling.called"
ENDED: Final = "cannot schedule new futures after shutdown"
"""The sentence of the executors of Python."""


class CallLost(JobFailed, futures.BrokenExecutor):
    """The job of a call ended without an outcome: it was killed, or never started. ``reason``: a
    stable word such as ``OOMKilled``; ``exit_code``: None if it is not known."""


class CallOptions(TypedDict, total=False):
    """The arguments of `Client.submit` for the job of each call."""

    queue: str | None
    cpu: str | float | None
    memory: str | int | None
    gpu: str | int | None
    priority: int | None
    priority_class: str | None
    env: Mapping[str, str] | None
    labels: Mapping[str, str] | None
    flavors: Sequence[str]
    max_seconds: int | None
    retries: int | None
    namespace: str | None
    anyway: bool


class AdmittanceExecutor(futures.Executor):
    """Each call is a job of its own: ``AdmittanceExecutor(client, queue="research", gpu=1)``.

    ``max_workers``: the most calls that are jobs at one time; the others wait in this program.
    ``python``: the program that runs a call, which needs this package and cloudpickle; by default
    the present one. The other arguments are those of `Client.submit`. A future is running once its
    job has been, and before that it can be cancelled; then the job is deleted. A future raises what
    its function raised, `CallLost` if the job ended without an outcome, and any other error of the
    client.
    """

    def __init__(
        self,
        client: SyncClient,
        *,
        max_workers: int = CALLS,
        python: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        if max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if unknown := options.keys() - CallOptions.__optional_keys__:
            raise TypeError(f"unknown arguments: {', '.join(sorted(unknown))}")
        self._thread, self._client = client._thread, client._inner
        self._command = [python or sys.executable, "-m", MODULE]
        self._options = options
        self._room = asyncio.Semaphore(max_workers)
        self._open: set[futures.Future[Any]] = set()
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """The future of ``fn(*args, **kwargs)``. Raises what pickling the call raises, RuntimeError
        after `shutdown`, Closed and WrongUse."""
        if self._ended:
            raise RuntimeError(ENDED)
        call = called.packed(fn, args, kwargs)
        named = f"{stem([getattr(fn, '__name__', type(fn).__name__)])}-{suffix()}"
        future: futures.Future[T] = futures.Future()
        work = self._thread.start(lambda: self._run(future, named, call))
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        future.add_done_callback(lambda done: work.cancel() if done.cancelled() else None)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no further calls. ``wait``: returns once all futures are done. ``cancel_futures``:
        cancels those that do not run yet. The jobs of others go on, also if this program ends."""
        self._ended = True
        left = list(self._open)
        if cancel_futures:
            for future in left:
                future.cancel()
        if wait:
            futures.wait(left)

    async def _run(self, future: futures.Future[Any], name: str, call: bytes) -> None:
        """Runs the packed call as a job of that name, and ends the future."""
        submitting = False
        wanted: bool | None = None

        def is_wanted() -> bool:
            """Marks the future as running, unless it was cancelled."""
            nonlocal wanted
            if wanted is None:
                wanted = future.set_running_or_notify_cancel()
            return wanted

        def seen(_: StoredWorkload, phase: Phase) -> None:
            if phase is Phase.RUNNING:
                is_wanted()

        try:
            async with self._room:
                submitting = True
                outcome = await self._outcome(name, call, seen)
            returned, value = await asyncio.to_thread(pickle.loads, outcome)
        except asyncio.CancelledError:
            if is_wanted():
                future.set_exception(Closed(CLOSED))
            elif submitting:
                await self._delete(name)
        except BaseException as error:
            if is_wanted():
                future.set_exception(error)
        else:
            if is_wanted():
                (future.set_result if returned else future.set_exception)(value)

    async def _outcome(
        self, name: str, call: bytes, seen: Callable[[StoredWorkload, Phase], None]
    ) -> bytes:
        """Submits the call as a job and waits for it. ``seen``: called with each of its phases.
        Raises CallLost and errors of the client."""
        with TemporaryDirectory(prefix="admittance-") as folder:
            packed = Path(folder, called.CALL)
            await asyncio.to_thread(packed.write_bytes, call)
            job = await self._client.submit(
                self._command, name=name, inputs=[packed], outputs=[called.OUTCOME], **self._options
            )
            async with self._client._calls.call() as link:
                ended = await reach(link, job.namespace, name, Phase.FINISHED, None, seen)
            fetched: Sequence[FetchedFile] = ()
            # A job that was stopped at its time limit keeps no files.
            with suppress(Refused):
                async with self._client._calls.call() as link:
                    fetched = await files.fetch(link, name, job.namespace, Path(folder))
            for file in fetched:
                if file.path is not None:
                    return await asyncio.to_thread(file.path.read_bytes)
        raise await self._lost(job, result_of(ended), *(file.problem for file in fetched))

    async def _lost(self, job: Job, result: Result, *problems: str) -> CallLost:
        """The error for a job that left no outcome, with the end of its output as a note."""
        why = ": ".join(filter(None, (result.reason, result.message, *problems)))
        error = CallLost(
            f'workload "{result.name}" ended without the outcome of its call: {why}',
            reason=result.reason,
            exit_code=result.exit_code,
        )
        with suppress(ClientError):
            async with job.logs(tail=TAIL) as pieces:
                if output := "".join([piece.text async for piece in pieces]):
                    error.add_note(output)
        return error

    async def _delete(self, name: str) -> None:
        """Deletes the job of a cancelled call, if there is one."""
        with suppress(ClientError):
            await self._client.delete("workload", name, namespace=self._options.get("namespace"))
