# ruff: noqa: PTH108, PTH118, SIM105
# (pathlib and contextlib are not worth their import time in a shim)
"""Collects the output of a run's pods from pipes and keeps the newest of it in files.

A pod that wrote into its file itself could fill the disk faster than anything that looks at the
size of the file, or could make a file of any size with ``truncate``. So the pods write into pipes,
and the shim writes the files. A pod that writes faster than the shim waits.

The files of a pod are its parts (`admittance.runner.output.parts`), each of at most about an eighth
of the pod's output. When the output of the run exceeds the limit, the oldest part of the pod with
the most output is removed. The shim imports this module, so the module imports little.
"""

from __future__ import annotations

import os
import resource
import select
import time

from admittance.runner.output.parts import part_name, pods_with_output

READ_BYTES = 65_536
"""The capacity of a pipe."""
BUSY_BYTES = 16_384
"""If a read returns this much, the writer is fast, and the next read follows at once."""
REST_SECONDS = 0.02
"""How long the collector rests after slow output: so a pod that writes many short lines costs the
shim at most fifty wake-ups in a second."""
DRAIN_READS = 64
"""The most reads for the rest of the output of an ended pod."""
BLOCK_BYTES = 4_096
"""Each file takes at least a block of the disk, so sizes count as whole blocks."""
NEWEST_BYTES = 2_048
PARTS = 8
"""A part is full when it has this fraction of the pod's output: so one part is a small loss, and a
pod has less than a hundred parts."""


def charged(size: int) -> int:
    """What a file of this size takes from the limit."""
    return max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES


class PodFiles:
    """The files of one pod. ``parts``: start and size of each part, the oldest first; the last one
    is written as long as ``file`` is open. ``kept``: what the parts take from the limit. ``end``:
    the position of the next byte. ``ends_line``: whether no line is incomplete, as far as known.
    ``newest``: the last `NEWEST_BYTES` of the output."""

    __slots__ = ("end", "ends_line", "file", "kept", "newest", "parts", "pod")

    def __init__(self, pod: str) -> None:
        self.pod = pod
        self.parts: list[list[int]] = []
        self.kept = 0
        self.end = 0
        self.ends_line = True
        self.newest = b""
        self.file = -1


class OutputCollector:
    """The output of one run, in the folder ``folder``. ``limit``: the most bytes that are kept; 0:
    any number. ``pods``: how many pods run at once."""

    def __init__(self, folder: str, limit: int, pods: int) -> None:
        self._folder = folder
        self._limit = limit
        self._part_min = max(BLOCK_BYTES, limit // (PARTS * max(1, pods)))
        self._pods: dict[str, PodFiles] = {}
        self._pipes: dict[int, PodFiles] = {}
        self._poll = select.poll()
        self._total = 0
        self._watched: set[int] = set()
        self.woken_by: set[int] = set()
        """The files of `watch` that had an event when `wait` returned last."""
        for pod, parts in pods_with_output(folder).items():
            files = self._files_of(pod)
            for start, path in parts:
                try:
                    size = os.lstat(path).st_size
                except OSError:
                    continue  # the runner has removed it by now
                files.parts.append([start, size])
                files.end = start + size
                self._charge(files, charged(size))

    def pipe(self, pod: str) -> int:
        """The writing end of a new pipe for the output of a process of the pod. Close it once the
        process has it. Raises OSError."""
        if 2 * len(self._pipes) > resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._pipes[read] = self._files_of(pod)
        self._poll.register(read, select.POLLIN)
        return write

    def watch(self, file: int, events: int) -> None:
        """Makes `wait` return when a file has one of the events of `select.poll`."""
        self._watched.add(file)
        self._poll.register(file, events)

    def unwatch(self, file: int) -> None:
        self._watched.discard(file)
        self._poll.unregister(file)

    def wait(self, wake: int, seconds: float) -> None:
        """Collects output until ``wake`` can be read, a file of `watch` has an event, or the time
        is over."""
        self.woken_by.clear()
        until = time.monotonic() + seconds
        self._poll.register(wake, select.POLLIN)
        try:
            while True:
                left = until - time.monotonic()
                ready = self._poll.poll(max(0.0, left) * 1000)
                busy = woken = False
                for pipe, _ in ready:
                    if pipe == wake:
                        woken = True
                    elif pipe in self._watched:
                        woken = True
                        self.woken_by.add(pipe)
                    else:
                        busy = self._take(pipe) >= BUSY_BYTES or busy
                if woken or left <= 0:
                    return
                if not busy and select.select([wake], [], [], REST_SECONDS)[0]:
                    return
        finally:
            self._poll.unregister(wake)

    def drain(self, pod: str) -> None:
        """Collects what the ended processes of a pod have written."""
        for read in [read for read, files in self._pipes.items() if files.pod == pod]:
            for _ in range(DRAIN_READS):
                if self._take(read) <= 0:
                    break

    def close_pod(self, pod: str) -> None:
        """Collects the rest of the output of a pod that has ended, and closes its file."""
        self.drain(pod)
        files = self._pods.get(pod)
        if files is not None and not any(pipe is files for pipe in self._pipes.values()):
            self._close_part(files)
            files.newest = b""  # a run may have a million pods

    def close(self) -> None:
        """Collects the rest of all output; later output is lost."""
        for read in list(self._pipes):
            for _ in range(DRAIN_READS):
                if self._take(read) <= 0:
                    break
            self._forget(read)
        for files in self._pods.values():
            self._close_part(files)

    def write(self, pod: str, data: bytes) -> None:
        """Adds data to the output of a pod. Data for which the disk has no space is dropped; its
        place in the output stays empty."""
        files = self._files_of(pod)
        files.ends_line = data.endswith(b"\n")
        files.newest = (files.newest + data[-NEWEST_BYTES:])[-NEWEST_BYTES:]
        while data:
            try:
                file = self._part_of(files)
                written = os.write(file, data[: self._room(files)])
            except OSError:
                self._close_part(files)
                files.end += len(data)
                return
            part = files.parts[-1]
            before = charged(part[1])
            part[1] += written
            files.end += written
            self._charge(files, charged(part[1]) - before)
            data = data[written:]
            if self._limit and self._total > self._limit:
                self._cut()

    def newest(self, pod: str) -> bytes:
        """The end of what the ended processes of a pod have written."""
        self.drain(pod)
        return self._files_of(pod).newest

    def note(self, pod: str, text: str) -> None:
        """Adds a line to the output of a pod, on a line of its own."""
        self.drain(pod)
        start = "" if self._files_of(pod).ends_line else "\n"
        self.write(pod, f"{start}{text}\n".encode())

    # Files. ------------------------------------------------------------------------------

    def _files_of(self, pod: str) -> PodFiles:
        files = self._pods.get(pod)
        if files is None:
            files = self._pods[pod] = PodFiles(pod)
        return files

    def _path(self, files: PodFiles, start: int) -> str:
        return os.path.join(self._folder, part_name(files.pod, start))

    def _charge(self, files: PodFiles, size: int) -> None:
        files.kept += size
        self._total += size

    def _room(self, files: PodFiles) -> int:
        """How many more bytes fit into the last part of the pod; at most 0: it is full."""
        if not self._limit:
            return READ_BYTES
        return max(self._part_min, files.kept // PARTS) - files.parts[-1][1]

    def _part_of(self, files: PodFiles) -> int:
        """The open file for the next bytes of the pod. Raises OSError."""
        if files.parts:
            start, size = files.parts[-1]
            goes_on = start + size == files.end and self._room(files) > 0
            if files.file >= 0 and goes_on:
                return files.file
            self._close_part(files)
            if goes_on:
                files.file = self._open(files, start, os.O_APPEND)
                return files.file
        files.file = self._open(files, files.end, os.O_CREAT | os.O_TRUNC)
        files.parts.append([files.end, 0])
        self._charge(files, charged(0))
        return files.file

    def _open(self, files: PodFiles, start: int, more: int) -> int:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | more
        return os.open(self._path(files, start), flags, 0o600)

    def _close_part(self, files: PodFiles) -> None:
        if files.file >= 0:
            os.close(files.file)
            files.file = -1

    def _cut(self) -> None:
        """Removes the oldest parts of the pods with the most output, down to the limit."""
        while self._total > self._limit:
            files = max(self._pods.values(), key=lambda each: each.kept)
            if not files.parts:
                return
            start, size = files.parts.pop(0)
            if not files.parts:
                self._close_part(files)
            self._charge(files, -charged(size))
            try:
                os.unlink(self._path(files, start))
            except OSError:
                pass  # the runner has removed it already

    # Pipes. ------------------------------------------------------------------------------

    def _take(self, read: int) -> int:
        """Collects what is in the pipe; returns how much, 0 at its end, and -1 if it is empty."""
        try:
            data = os.read(read, READ_BYTES)
        except BlockingIOError:
            return -1
        if not data:
            self._forget(read)
            return 0
        self.write(self._pipes[read].pod, data)
        return len(data)

    def _forget(self, read: int) -> None:
        if self._pipes.pop(read, None) is not None:
            self._poll.unregister(read)
            os.close(read)
