"""Reads the output of one pod, as much as one request may read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from types import TracebackType
from typing import Final, NamedTuple

from admittance.runtime import clock

BLOCK_BYTES: Final = 65_536
"""The most bytes that are read at once when lines are counted from the end."""
FIRST_BLOCK_BYTES: Final = 4_096
"""The bytes that are read first, since most requests are for a few lines of many pods."""


class ReadBudget:
    """What one request may still read. A job decides how long its output is and how long its lines
    are, so without a budget one request could keep a thread busy for days.

    ``deadline``: in monotonic seconds.
    """

    def __init__(self, size: int, deadline: float) -> None:
        self._left = size
        self._deadline = deadline

    def take(self, size: int) -> bool:
        """Returns whether the request may read ``size`` more bytes, which then count as read."""
        if size > self._left or clock.monotonic() >= self._deadline:
            return False
        self._left -= size
        return True


class _Part(NamedTuple):
    start: int
    size: int
    file: int


class PodOutput:
    """The kept output of a pod: the bytes from ``start`` to ``end``. Use it as a context manager,
    because it has open files.

    A job that runs as the runner's Unix user can replace the files, so only plain files are read,
    and opening a file never waits.
    """

    def __init__(self, parts: Iterable[tuple[int, str]]) -> None:
        self._parts: list[_Part] = []
        for start, path in parts:
            try:
                file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            except OSError:
                continue  # the shim has removed the part by now
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode):
                self._parts.append(_Part(start, status.st_size, file))
            else:
                os.close(file)
        self.start = self._parts[0].start if self._parts else 0
        self.end = self._parts[-1].start + self._parts[-1].size if self._parts else 0

    def __enter__(self) -> PodOutput:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for part in self._parts:
            os.close(part.file)

    def read(self, offset: int, limit: int) -> tuple[bytes, int]:
        """At most ``limit`` bytes of the output from ``offset`` on, and the position of the first
        of these bytes: greater than ``offset`` if the bytes there are not kept any more."""
        at = max(offset, self.start)
        first: int | None = None
        data = b""
        for part in self._parts:
            if part.start + part.size <= at:
                continue
            if part.start > at:
                if data:
                    break  # Bytes are missing here, so the text after them is another answer's.
                at = part.start
            first = at if first is None else first
            wanted = min(limit - len(data), part.start + part.size - at)
            if wanted <= 0:
                break
            read = os.pread(part.file, wanted, at - part.start)
            data += read
            at += len(read)
            if len(read) < wanted:
                break
        return data, at - len(data) if first is None else first

    def tail_offset(self, lines: int, budget: ReadBudget) -> tuple[int, bool]:
        """The position at which the last ``lines`` lines begin, and True; or, if the budget ends
        before, a later position and False. A last line without a newline counts as a line."""
        if lines <= 0:
            return self.end, True
        at, wanted, length = self.end, lines, FIRST_BLOCK_BYTES
        for part in reversed(self._parts):
            at = part.start + part.size
            while at > part.start:
                size = min(length, at - part.start)
                if not budget.take(size):
                    return at, False
                block = os.pread(part.file, size, at - size - part.start)
                # The newline at the very end of the output does not begin a line.
                last = at == self.end and block.endswith(b"\n")
                end = len(block) - 1 if last else len(block)
                at -= size
                while (newline := block.rfind(b"\n", 0, end)) >= 0:
                    wanted -= 1
                    if not wanted:
                        return at + newline + 1, True
                    end = newline
                length = min(2 * length, BLOCK_BYTES)
        return self.start, True
