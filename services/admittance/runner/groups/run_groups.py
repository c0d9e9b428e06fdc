# ruff: noqa: PTH119
# (pathlib is not worth its import time here)
"""The groups of one run as its shim uses them. The shim imports this module, so the module imports
little.

A group has the name of the pod's scratch folder, so that a pod that runs again gets a new group.
The kernel says that a pod runs out of memory just before it kills a process of it, and a shell may
go on after its child was killed: so the shim looks for some time whether there was a kill, and then
kills the whole pod.
"""

from __future__ import annotations

import errno
import os

from admittance.runner.groups.job_groups import Limits, pass_doors
from admittance.runner.groups.opened import groups_of

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from admittance.runner.groups.job_groups import Usage
    from admittance.runner.output.collector import OutputCollector

NEVER = float("inf")
OOM_KILLED = "OOMKilled"
DOUBT_SECONDS = 2.0
"""For so long the shim looks for the kill after the kernel said that a pod runs out of memory."""
LOOK_SECONDS = 0.01


class GroupError(OSError):
    """The error that a process cannot start in a control group of its own."""


class RunGroups:
    """``plan``: the plan of the groups. ``folder``: the folder of the run, of which the groups have
    the name. ``clock``: a function that returns the time in seconds since boot."""

    def __init__(
        self,
        plan: dict[str, Any] | None,
        folder: str,
        output: OutputCollector,
        clock: Callable[[], float],
    ) -> None:
        self._groups = groups_of(plan)
        self._run = os.path.basename(folder)
        self._output = output
        self._clock = clock
        self._is_on = bool(self._groups.folders())
        self._files: dict[str, int] = {}
        """For each pod with a group the file that says when it runs out of memory."""
        self._doubts: dict[str, float] = {}
        """Pods that may have run out of memory, and until when the shim looks for the kill."""
        self._seen: dict[str, int] = {}
        """For each pod with a group how many kills were noticed."""
        self._limits: dict[str, int] = {}
        """For each pod with a group the most bytes of memory; 0: any number."""
        self._left: list[str] = []
        """Ended pods whose groups have processes yet."""

    def enter(
        self, name: str, limits: dict[str, int], denied: list[list[int]]
    ) -> Callable[[], None] | None:
        """Makes the group of a pod with these `Limits` if need be; returns the function by which a
        process of the pod joins it, or None if there are no groups. ``denied``: the major and minor
        numbers of the devices that the pod may not open. Raises GroupError."""
        if not self._is_on:
            return None
        if name not in self._seen:
            try:
                self._groups.make(self._run, name, Limits(**limits))
                numbers = [(major, minor) for major, minor in denied]
                if not self._groups.deny_devices(self._run, name, numbers):
                    raise OSError(errno.ENOTSUP, "it keeps pods from no devices")
                self._limits[name] = limits.get("memory", 0)
                file, events = self._groups.watch(self._run, name)
            except OSError as error:
                raise GroupError(f"cannot make its control group: {error.strerror}") from None
            self._seen[name] = 0
            self._files[name] = file
            if file >= 0:
                self._output.watch(file, events)
        # The child has little to do itself: each page that it touches is copied.
        doors = self._groups.doors(self._run, name)
        return lambda: self._join(doors)

    def _join(self, doors: list[str]) -> None:
        try:
            pass_doors(doors)
        except OSError as error:
            raise GroupError(f"cannot enter its control group: {error.strerror}") from None

    def due(self) -> float:
        """When `look` must be called."""
        return self._clock() + LOOK_SECONDS if self._doubts else NEVER

    def look(self) -> None:
        """Kills pods of which the kernel has killed a process for want of memory."""
        now = self._clock()
        for name, file in self._files.items():
            if file >= 0 and file in self._output.woken_by:
                self._groups.heard(file)
                self._doubts[name] = now + DOUBT_SECONDS
        for name, until in list(self._doubts.items()):
            is_killed = self._groups.oom_kills(self._run, name) > self._seen.get(name, 0)
            if is_killed:
                self._groups.kill(self._run, name)
            if is_killed or now >= until:
                del self._doubts[name]

    def oom_text(self, name: str) -> str:
        """Why a process of the pod was killed for want of memory, as a clause; "": it was not, or
        that was said before."""
        if name not in self._seen:
            return ""
        oom_kills = self._groups.oom_kills(self._run, name)
        if oom_kills <= self._seen[name]:
            return ""
        self._seen[name] = oom_kills
        return oom_text(self._groups.usage(self._run, name), self._limits[name])

    def end_pod(self, name: str) -> None:
        """Kills what is left of a pod that has ended, and removes its group."""
        if name not in self._seen:
            return
        del self._seen[name], self._limits[name]
        self._doubts.pop(name, None)
        file = self._files.pop(name)
        if file >= 0:
            self._output.unwatch(file)
            os.close(file)
        self._left = [name for name in (*self._left, name) if not self._is_ended(name)]

    def _is_ended(self, name: str) -> bool:
        if self._groups.remove(self._run, name):
            return True
        self._groups.kill(self._run, name)
        return self._groups.remove(self._run, name)

    def kill(self) -> None:
        """Kills all processes of the run once."""
        if self._is_on:
            self._groups.kill(self._run)

    def end(self) -> None:
        """Kills all processes of the run, waits until they are gone, and removes its groups. A
        process that hangs in the kernel keeps the run open."""
        if self._is_on:
            self._groups.end(self._run, seconds=NEVER)


def oom_text(usage: Usage, limit: int) -> str:
    """Why a pod was killed for want of memory, as a clause with what it had and might have."""
    had = f"peak {_size(usage.peak)}" if usage.peak else "peak not known"
    may = f"limit {_size(limit)}" if limit else "no limit"
    if usage.of_machine:
        return f"the machine ran out of memory ({had}, {may})"
    return f"out of memory ({may}, {had})"


def _size(size: int) -> str:
    for unit, shift in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f}".removesuffix(".0") + unit
    return str(size)
