"""Keeps the output of all runs of a namespace below a limit: the oldest output is removed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from admittance.runner.host.port import RunFiles
from admittance.runner.output.collector import charged
from admittance.runner.output.parts import pods_with_output


class NamespaceOutput:
    """Measures the output of runs; a closed run is measured once. ``limit``: the most bytes of
    output of one namespace; 0: any number. Methods read and remove files, so they may block."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._closed: dict[str, int] = {}

    def excess(
        self, open_runs: Mapping[str, RunFiles], closed: Mapping[str, RunFiles]
    ) -> list[str]:
        """The keys of the closed runs with output that must be removed, the oldest first. If the
        open runs of a namespace alone have too much output, each keeps its
        newest output, up to an equal share."""
        if not self._limit:
            return []
        for key in self._closed.keys() - closed.keys():
            del self._closed[key]
        by_namespace: dict[str, list[str]] = {}
        for key, run in closed.items():
            if key not in self._closed:
                self._closed[key] = size_of_output(run)
            by_namespace.setdefault(run.identity.namespace, []).append(key)
        opened: dict[str, dict[str, int]] = {}
        for key, run in open_runs.items():
            opened.setdefault(run.identity.namespace, {})[key] = size_of_output(run)
        removed: list[str] = []
        for namespace in by_namespace.keys() | opened.keys():
            sizes = opened.get(namespace, {})
            total = sum(sizes.values())
            if total > self._limit:
                share = self._limit // len(sizes)
                total = sum(
                    cut_output(open_runs[key], share) if size > share else size
                    for key, size in sizes.items()
                )
            keys = by_namespace.get(namespace, [])
            removed += self._oldest(keys, closed, self._limit - total)
        return removed

    def _oldest(self, keys: list[str], closed: Mapping[str, RunFiles], room: int) -> list[str]:
        """The oldest of these closed runs, so many that the others fit into the room."""
        size = sum(self._closed[key] for key in keys)
        if size <= room:
            return []
        aged = []
        for key in keys:
            with suppress(OSError):  # another task is closing the run at this moment
                if self._closed[key]:
                    aged.append((closed[key].closed_at(), key))
        removed = []
        for _, key in sorted(aged):
            if size <= room:
                break
            size -= self._closed[key]
            removed.append(key)
        return removed


def size_of_output(run: RunFiles) -> int:
    """What the output of the run takes of a limit, in bytes."""
    pods = pods_with_output(str(run.path / "out")).values()
    return sum(_charged_at(path) for parts in pods for _, path in parts)


def cut_output(run: RunFiles, limit: int) -> int:
    """Removes the oldest parts of a run's output down to the limit, but not the last part of a pod,
    which may be written at this moment; returns the size of what is left."""
    size = size_of_output(run)
    for parts in pods_with_output(str(run.path / "out")).values():
        for _, path in parts[:-1]:
            if size <= limit:
                return size
            taken = _charged_at(path)
            with suppress(OSError):
                Path(path).unlink()
                size -= taken
    return size


def _charged_at(path: str) -> int:
    try:
        # Blocks count, not the length: a job with the runner's Unix user can make a file of any
        # length, and an earlier version let every job do so.
        return charged(os.lstat(path).st_blocks * 512)
    except OSError:
        return 0  # the shim has removed it by now
