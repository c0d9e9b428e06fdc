# ruff: noqa: PTH103, PTH110, PTH118, SIM105
# (pathlib and contextlib are not worth their import time here)
"""Groups by cgroup v1: each controller has a tree of its own. The shim imports this module, so the
module imports little."""

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
    processes_in,
    read,
    remove_folders,
    wait_while,
    write,
)

CONTROLLERS = ("freezer", "memory", "pids", "cpu", "devices")
"""The controllers of which groups are made."""
FREEZE_SECONDS = 1.0
"""Longest wait until a group is frozen: a process may hang in the kernel. Then the group is killed
while it runs."""
PERIOD = 100_000
"""Microseconds of a period of the limit of cpu; the kernel's own."""
SHARES_OF_ONE = 1024
SHARES_MIN = 2
QUOTA_MIN = 1000
NEAR = 1 << 20
"""A pod that came so near to its limit, in bytes, was killed because of its limit."""


class CgroupV1(JobGroups):
    """``folders``: for each controller the folder of the runner's group."""

    def __init__(self, folders: dict[str, str], why_not: str = "") -> None:
        self._folders = {name: folders[name] for name in CONTROLLERS if name in folders}
        # A group for devices is made when the pod is denied one: to join a group takes time.
        # Controllers that are mounted together have one folder.
        at_once = (path for name, path in self._folders.items() if name != "devices")
        self._at_once = list(dict.fromkeys(at_once))
        self._has_freezer = "freezer" in self._folders
        self._why_not = why_not

    def offers(self) -> Offers:
        return offered(self._folders, "v1", self._why_not)

    def folders(self) -> dict[str, str]:
        return dict(self._folders)

    def _path(self, controller: str, run: str, pod: str, *more: str) -> str:
        return os.path.join(self._folders[controller], run, pod, *more)

    def _all(self, run: str, pod: str) -> list[str]:
        return [os.path.join(folder, run, pod) for folder in dict.fromkeys(self._folders.values())]

    def make(self, run: str, pod: str, limits: Limits) -> None:
        for folder in self._at_once:
            path = os.path.join(folder, run, pod)
            try:
                make_folder(os.path.join(folder, run))
                make_folder(path)
            except FileNotFoundError:  # another runner has removed the empty group of this one
                os.makedirs(path, exist_ok=True)
        if limits.memory and "memory" in self._folders:
            self._limit_memory(run, pod, limits.memory)
        if limits_processes(limits) and "pids" in self._folders:
            write(self._path("pids", run, pod, "pids.max"), str(limits.processes))
        if "cpu" in self._folders:
            if limits.share:
                shares = max(SHARES_MIN, limits.share * SHARES_OF_ONE // 1000)
                write(self._path("cpu", run, pod, "cpu.shares"), str(shares))
            if limits_cpu(limits):
                quota = max(QUOTA_MIN, limits.cpu * PERIOD // 1000)
                write(self._path("cpu", run, pod, "cpu.cfs_quota_us"), str(quota))

    def _limit_memory(self, run: str, pod: str, size: int) -> None:
        # The limit of memory and swap together is never below that of memory.
        write(self._path("memory", run, pod, "memory.limit_in_bytes"), str(size))
        try:
            write(self._path("memory", run, pod, "memory.memsw.limit_in_bytes"), str(size))
        except FileNotFoundError:
            pass  # The kernel does not count swap.

    def doors(self, run: str, pod: str) -> list[str]:
        # A thread enters by `tasks` at once. By `cgroup.procs` a process waits for all processors,
        # often for 10 ms: the kernel stops all forks and ends of processes meanwhile.
        files = [os.path.join(folder, run, pod, "tasks") for folder in self._at_once]
        if "devices" in self._folders:
            file = self._path("devices", run, pod, "tasks")
            files += [file] if file not in files and os.path.exists(file) else []
        return files

    def deny_devices(self, run: str, pod: str, devices: list[tuple[int, int]]) -> bool:
        if "devices" not in self._folders:
            return not devices
        if devices:
            os.makedirs(self._path("devices", run, pod), exist_ok=True)
        for major, minor in devices:
            write(self._path("devices", run, pod, "devices.deny"), f"c {major}:{minor} rwm")
        return True

    def watch(self, run: str, pod: str) -> tuple[int, int]:
        if "memory" not in self._folders:
            return -1, 0
        file = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        control = -1
        try:
            path = self._path("memory", run, pod, "memory.oom_control")
            control = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            write(self._path("memory", run, pod, "cgroup.event_control"), f"{file} {control}")
        except OSError:
            os.close(file)
            raise
        finally:
            if control >= 0:
                os.close(control)
        return file, select.POLLIN

    def heard(self, file: int) -> None:
        try:
            os.read(file, 8)
        except BlockingIOError:
            pass

    def usage(self, run: str, pod: str) -> Usage:
        if "memory" not in self._folders:
            return Usage()
        folder = self._path("memory", run, pod)

        def of(name: str, part: str = "") -> int:
            return number(os.path.join(folder, name), part)

        oom_kills = self.oom_kills(run, pod)
        peak = max(of("memory.max_usage_in_bytes"), of("memory.memsw.max_usage_in_bytes"))
        if not oom_kills:
            return Usage(peak)
        limit = of("memory.limit_in_bytes")
        # memory.failcnt proves nothing: it counts page cache without room, or nothing at all.
        of_machine = peak <= limit - max(NEAR, limit // 64)
        return Usage(peak, oom_kills, of_machine=of_machine)

    def oom_kills(self, run: str, pod: str) -> int:
        if "memory" not in self._folders:
            return 0
        return number(self._path("memory", run, pod, "memory.oom_control"), "oom_kill")

    def kill(self, run: str, pod: str = "") -> None:
        if self.is_empty(run, pod):
            return
        state = self._path("freezer", run, pod, "freezer.state") if self._has_freezer else ""
        try:
            # Frozen processes start no others. They get the signal when they are thawed.
            if state:
                write(state, "FROZEN")
                wait_while(lambda: read(state).strip() == "FREEZING", FREEZE_SECONDS)
        except OSError:
            pass  # the processes are killed unfrozen
        for folder in self._all(run, pod):
            kill_processes(folder)
        try:
            if state:
                write(state, "THAWED")
        except OSError:
            pass  # the group is gone

    def is_empty(self, run: str, pod: str = "") -> bool:
        return not any(map(processes_in, self._all(run, pod)))

    def remove(self, run: str, pod: str = "") -> bool:
        are_gone = [remove_folders(folder) for folder in self._all(run, pod)]
        return all(are_gone)

    def runs(self) -> list[str]:
        names: dict[str, None] = {}
        for folder in self._folders.values():
            names.update(dict.fromkeys(groups_in(folder)))
        return list(names)
