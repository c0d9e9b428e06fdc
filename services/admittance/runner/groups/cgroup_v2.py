# ruff: noqa: PTH118, SIM105
# (pathlib and contextlib are not worth their import time here)
"""Groups by cgroup v2: one tree for all controllers. The shim imports this module, so the module
imports little."""

from __future__ import annotations

import os
import select

from admittance.runner.groups.job_groups import (
    JobGroups,
    Limits,
    Offers,
    Usage,
    groups_in,
    kill_processes,
    limits_cpu,
    limits_processes,
    make_folder,
    number,
    offered,
    read,
    remove_folders,
    write,
)

CONTROLLERS = ("memory", "pids", "cpu")
PERIOD = 100_000
"""Microseconds of a period of the limit of cpu; the kernel's own."""
QUOTA_MIN = 1000
WEIGHT_MAX = 10_000
SHARES_MIN, SHARES_MAX = 2, 262_144


def weight_of(share: int) -> int:
    """The weight of a pod with so many thousandths of a processor, by the formula of Kubernetes."""
    shares = min(SHARES_MAX, max(SHARES_MIN, share * 1024 // 1000))
    return 1 + (shares - SHARES_MIN) * (WEIGHT_MAX - 1) // (SHARES_MAX - SHARES_MIN)


class CgroupV2(JobGroups):
    """``folder``: the folder of the runner's group. ``controllers``: those of the groups in it."""

    def __init__(self, folder: str, controllers: list[str], why_not: str = "") -> None:
        self._folder = folder
        self._controllers = [name for name in CONTROLLERS if name in controllers]
        self._why_not = why_not

    def offers(self) -> Offers:
        return offered(self._controllers, "v2", self._why_not)

    def folders(self) -> dict[str, str]:
        return dict.fromkeys(self._controllers, self._folder)

    def _path(self, run: str, pod: str, *more: str) -> str:
        return os.path.join(self._folder, run, pod, *more)

    def make(self, run: str, pod: str, limits: Limits) -> None:
        try:
            make_folder(self._path(run, pod))
        except FileNotFoundError:
            for above in (self._folder, self._path(run, "")):
                make_folder(above)
                enable(above, self._controllers)
            make_folder(self._path(run, pod))
        if limits.memory and "memory" in self._controllers:
            # Without this the first process could go on after the kernel has killed another one.
            write(self._path(run, pod, "memory.oom.group"), "1")
            try:
                write(self._path(run, pod, "memory.swap.max"), "0")
            except FileNotFoundError:
                pass  # The kernel does not count swap.
            write(self._path(run, pod, "memory.max"), str(limits.memory))
        if limits_processes(limits) and "pids" in self._controllers:
            write(self._path(run, pod, "pids.max"), str(limits.processes))
        if "cpu" in self._controllers:
            if limits.share:
                write(self._path(run, pod, "cpu.weight"), str(weight_of(limits.share)))
            if limits_cpu(limits):
                quota = max(QUOTA_MIN, limits.cpu * PERIOD // 1000)
                write(self._path(run, pod, "cpu.max"), f"{quota} {PERIOD}")

    def doors(self, run: str, pod: str) -> list[str]:
        return [self._path(run, pod, "cgroup.procs")]

    def deny_devices(
        self,
        run: str,  # noqa: ARG002
        pod: str,  # noqa: ARG002
        devices: list[tuple[int, int]],
    ) -> bool:
        return not devices  # Version 2 keeps pods from devices by a BPF program only.

    def watch(self, run: str, pod: str) -> tuple[int, int]:
        if "memory" not in self._controllers:
            return -1, 0
        file = os.open(self._path(run, pod, "memory.events"), os.O_RDONLY | os.O_CLOEXEC)
        self.heard(file)
        return file, select.POLLPRI

    def heard(self, file: int) -> None:
        os.pread(file, 4096, 0)

    def usage(self, run: str, pod: str) -> Usage:
        events = self._path(run, pod, "memory.events")
        peak = number(self._path(run, pod, "memory.peak"))
        oom_kills = self.oom_kills(run, pod)
        of_machine = oom_kills > 0 and not number(events, "oom")
        return Usage(peak, oom_kills, of_machine=of_machine)

    def oom_kills(self, run: str, pod: str) -> int:
        return number(self._path(run, pod, "memory.events"), "oom_kill")

    def kill(self, run: str, pod: str = "") -> None:
        try:
            write(self._path(run, pod, "cgroup.kill"), "1")
        except OSError:
            kill_processes(self._path(run, pod))  # Linux before 5.14

    def is_empty(self, run: str, pod: str = "") -> bool:
        return not number(self._path(run, pod, "cgroup.events"), "populated")

    def remove(self, run: str, pod: str = "") -> bool:
        return remove_folders(self._path(run, pod))

    def runs(self) -> list[str]:
        return groups_in(self._folder)


def enable(folder: str, controllers: list[str]) -> None:
    """Gives controllers to the groups in the group ``folder``."""
    write(
        os.path.join(folder, "cgroup.subtree_control"), " ".join(f"+{name}" for name in controllers)
    )


def controllers_of(folder: str) -> list[str]:
    """The controllers that a group has."""
    return read(os.path.join(folder, "cgroup.controllers")).split()
