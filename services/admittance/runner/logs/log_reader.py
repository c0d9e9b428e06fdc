"""Serves the output of pods, read from the data folder, on ``admit.api.logs.<ns>``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.events.names import plain
from admittance.events.requests.history import Logs, LogsReply
from admittance.events.shapes import PodLog, PodRetries
from admittance.runner.host.port import RunFiles
from admittance.runner.logs.pod_output import PodOutput, ReadBudget
from admittance.runner.output.parts import pods_with_output
from admittance.runtime import clock
from admittance.runtime.nats.micro import Turns

REPLY_BYTES: Final = 400_000
"""The most bytes of output in one reply."""
ENCODED_BYTES: Final = 800_000
"""The most bytes that the output in one reply may have in JSON, in which a zero byte takes six: the
server's limit for a message is a megabyte.
"""
CHARACTER_BYTES: Final = 4
"""The most bytes of one character in UTF-8."""
TAIL_BYTES: Final = 32 << 20
"""The most bytes that one request reads to find the last lines of all pods."""
READ_SECONDS: Final = 2.0
"""Seconds after which a request looks for no more lines."""

NOT_HERE_SECONDS: Final = 1.0
"""Seconds that a runner without the requested output waits, so that a runner with the output
replies first: every runner gets each request for logs.
"""
THREADS: Final = 4
"""Threads that read output. They do nothing else, so that requests for output never delay the end
of a run."""
THREADS_OF_NAMESPACE: Final = 1
"""The most threads that read output of one namespace at the same time. Python runs one thread at a
time, so each busy thread takes a share from the runner."""

_decoder = msgspec.json.Decoder(Logs)
_encode = msgspec.json.Encoder().encode


class LogReader:
    """Replies with the output of a workload's newest run, or of an earlier run; the run may have
    ended. ``runs``: a function that returns the runs of a namespace's workload. ``given_back``:
    runs that may have started again on another runner; the reply uses these runs only if no other
    runner replies. Call `close` at the end.
    """

    def __init__(
        self,
        runs: Callable[[str, str], Iterable[RunFiles]],
        given_back: Callable[[], Iterable[RunFiles]] = tuple,
        waits: Callable[[str], str] = lambda _: "",
        retries: Callable[[RunFiles], PodRetries | None] = lambda _: None,
    ) -> None:
        self._runs = runs
        self._given_back = given_back
        self._waits = waits
        self._retries = retries
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="logs")
        self._turns = Turns(THREADS, THREADS_OF_NAMESPACE)

    def close(self) -> None:
        """Drops the requests that wait. A read that has begun ends soon, because it is bounded."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def handle(self, data: bytes, subject: str) -> LogsReply:
        """Handles a request to the endpoint for logs. Raises ValueError or MsgspecError for a bad
        request, as `micro.serve` expects.
        """
        request = _decoder.decode(data)
        namespace = plain(subject.rsplit(".", 1)[1])
        run = _newest(self._runs(namespace, request.name), namespace, request)
        if run is None:
            await asyncio.sleep(NOT_HERE_SECONDS)
            run = _newest(self._given_back(), namespace, request)
            if run is None:
                which = "an earlier run of workload" if request.before else "workload"
                return LogsReply(
                    error=f"no runner has output of {which} {namespace}/{request.name}"
                )
            return await self._read(namespace, partial(read_logs, run, request, over=True))
        run.read_journal()
        reply = await self._read(namespace, partial(read_logs, run, request))
        has_ended = run.journal.end is not None
        retries = None if has_ended else self._retries(run)
        return replace(reply, waiting=self._waits(run.identity.key), retries=retries)

    async def _read(self, namespace: str, read: Callable[[], LogsReply]) -> LogsReply:
        async with self._turns.of(namespace):
            return await asyncio.get_running_loop().run_in_executor(self._threads, read)


def _newest(runs: Iterable[RunFiles], namespace: str, request: Logs) -> RunFiles | None:
    matching = [
        each
        for each in runs
        if (each.identity.namespace, each.identity.name) == (namespace, request.name)
        and (not request.before or each.identity.revision < request.before)
        and request.revision in (0, each.identity.revision)
        and request.part in (0, each.identity.part)
    ]
    return max(matching, key=lambda each: each.identity.revision, default=None)


def read_logs(run: RunFiles, request: Logs, *, over: bool = False) -> LogsReply:
    """The output of the run's pods from the requested offsets on, as much as fits into one reply.
    ``over``: whether the run is known to have ended; otherwise its journal tells which pods run.

    An offset beyond the end of the output counts as 0, because such an offset belongs to an earlier
    run of the workload.
    """
    pods = []
    left, encoded_left = REPLY_BYTES, ENCODED_BYTES
    complete = True
    budget = ReadBudget(TAIL_BYTES, clock.monotonic() + READ_SECONDS)
    for pod, parts in pods_with_output(str(run.path / "out"), request.pod).items():
        running = not over and pod not in run.journal.ended and run.journal.end is None
        with PodOutput(parts) as output:
            offset, whole = request.offsets.get(pod, 0), True
            if request.tail is not None and pod not in request.offsets:
                offset, whole = output.tail_offset(request.tail, budget)
            if not 0 <= offset <= output.end:
                offset = 0
            data, first = output.read(offset, left)
            data = _fitting(data, encoded_left)
            more = first + len(data) < output.end
        if more or running:
            whole_characters = data[: len(data) - _half_character(data)]
            # Half a character before bytes that are not kept is never completed.
            if whole_characters or not more or left < CHARACTER_BYTES:
                data = whole_characters
        text = data.decode(errors="replace")
        left -= len(data)
        encoded_left -= len(_encode(text))
        complete = complete and not more
        pods.append(
            PodLog(
                pod=pod,
                text=text,
                offset=first + len(data),
                running=running,
                cut=first - offset,
                short=not whole,
            )
        )
    return LogsReply(
        pods=tuple(pods),
        complete=complete,
        revision=run.identity.revision,
        part=run.identity.part,
        parts=run.identity.parts,
    )


def _fitting(data: bytes, limit: int) -> bytes:
    """The first of the bytes, as many as fit into the limit as JSON."""
    while data and (size := len(_encode(data.decode(errors="replace")))) > limit:
        data = data[: min(len(data) - 1, len(data) * max(0, limit) // size)]
    return data


def _half_character(data: bytes) -> int:
    """How many bytes at the end of ``data`` belong to an incomplete UTF-8 character."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < length else 0
        if byte < 0x80:
            return 0
    return 0
