"""Serves the output of pods, read from the data folder, on ``admit.api.logs.<ns>``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from admittance.events.names import plain
from admittance.events.requests import Logs, LogsReply, PodLog
from admittance.runner.machine import RunFiles

REPLY_BYTES: Final = 400_000
"""The most bytes of output in one reply. The output may double its size in JSON, and the server's
limit for a message is a megabyte.
"""
BLOCK_BYTES: Final = 65_536
"""How many bytes are read at once when lines are counted from the end."""

NOT_HERE_SECONDS: Final = 1.0
"""Seconds that a runner without the requested output waits, so that a runner with the output
replies first: every runner gets each request for logs.
"""

_decoder = msgspec.json.Decoder(Logs)


class LogReader:
    """Replies with the output of a workload's newest run, or of an earlier run; the run may have
    ended. ``given_back``: runs that may have started again on another runner; the reply uses these
    runs only if no other runner replies.
    """

    def __init__(
        self,
        runs: Callable[[], Iterable[RunFiles]],
        given_back: Callable[[], Iterable[RunFiles]] = tuple,
    ) -> None:
        self._runs = runs
        self._given_back = given_back

    async def handle(self, data: bytes, subject: str) -> LogsReply:
        """Handles a request to the endpoint for logs. Raises ValueError or MsgspecError for a bad
        request, as `micro.serve` expects.
        """
        request = _decoder.decode(data)
        namespace = plain(subject.rsplit(".", 1)[1])
        found = _newest(self._runs(), namespace, request)
        if found is None:
            await asyncio.sleep(NOT_HERE_SECONDS)
            found = _newest(self._given_back(), namespace, request)
            if found is None:
                which = "an earlier run of workload" if request.before else "workload"
                return LogsReply(
                    error=f"no runner has output of {which} {namespace}/{request.name}"
                )
            return await asyncio.to_thread(read_logs, found, request, over=True)
        found.read_journal()
        return await asyncio.to_thread(read_logs, found, request)


def _newest(runs: Iterable[RunFiles], namespace: str, request: Logs) -> RunFiles | None:
    found = [
        each
        for each in runs
        if (each.identity.namespace, each.identity.name) == (namespace, request.name)
        and (not request.before or each.identity.revision < request.before)
    ]
    return max(found, key=lambda each: each.identity.revision, default=None)


def read_logs(run: RunFiles, request: Logs, *, over: bool = False) -> LogsReply:
    """The output of the run's pods from the requested offsets on, as much as fits into one reply.
    ``over``: whether the run is known to have ended; otherwise its journal tells which pods run.

    An offset beyond the end of the output counts as 0, because such an offset belongs to an earlier
    run of the workload.
    """
    pods = []
    left = REPLY_BYTES
    complete = True
    for path in sorted((run.path / "out").glob("*.log"), key=_order):
        pod = path.name.removesuffix(".log")
        if request.pod is not None and not pod.endswith(f"-{request.pod}"):
            continue
        running = not over and pod not in run.journal.ended and run.journal.outcome is None
        offset = request.offsets.get(pod, 0)
        if request.tail is not None and pod not in request.offsets:
            offset = tail_offset(path, request.tail)
        text, end, more = _read(path, offset, left, running)
        left -= end - offset if end >= offset else end
        complete = complete and not more
        pods.append(PodLog(pod=pod, text=text, offset=end, running=running))
    return LogsReply(pods=tuple(pods), complete=complete, revision=run.identity.revision)


def _order(path: Path) -> tuple[str, int]:
    pod_set, _, index = path.name.removesuffix(".log").rpartition("-")
    return pod_set, int(index)


def _read(path: Path, offset: int, limit: int, running: bool) -> tuple[str, int, bool]:
    """Returns text of the file from ``offset`` on, the offset where the text ends, and whether the
    file has more text."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if not 0 <= offset <= size:
            offset = 0
        file.seek(offset)
        data = file.read(max(0, limit))
    more = offset + len(data) < size
    if more or running:
        data = data[: len(data) - _half_character(data)]
    return data.decode(errors="replace"), offset + len(data), more


def tail_offset(path: Path, lines: int) -> int:
    """The offset in a file at which its last ``lines`` lines begin. A last line without a newline
    counts as a line.
    """
    with path.open("rb") as file:
        size = at = file.seek(0, 2)
        if lines <= 0:
            return size
        wanted = lines
        while at > 0:
            length = min(BLOCK_BYTES, at)
            at -= length
            file.seek(at)
            block = file.read(length)
            # The newline at the very end of the file does not begin a line.
            end = len(block) - 1 if at + length == size and block.endswith(b"\n") else len(block)
            while (found := block.rfind(b"\n", 0, end)) >= 0:
                wanted -= 1
                if not wanted:
                    return at + found + 1
                end = found
    return 0


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
