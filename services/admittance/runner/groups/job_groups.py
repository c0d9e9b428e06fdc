# ruff: noqa: PTH102, PTH106, PTH118, SIM105
# (pathlib and contextlib are not worth their import time here)
"""The port by which a runner and its shims limit and end the processes of pods. The shim imports
this module, so the module imports little.

Groups are named by a run and a pod of the run. A run has the groups of its pods and no processes of
its own; shims and the fork server are in no group of a run, so that the memory limit of a pod never
ends its shim.
"""

from __future__ import annotations

import os
import signal
from time import monotonic, sleep

from admittance.runner.disk.small_files import read_bytes

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

EMPTY_PAUSE = 0.002
"""The first pause between two looks whether killed processes are gone; each is longer."""
EMPTY_PAUSE_MAX = 0.1
BUSY_SECONDS = 0.3
"""For so long the kernel may keep a group whose processes are gone."""


class Limits:
    """What the processes of one pod may use together; 0: no limit.

    ``memory``: bytes. ``processes``: processes and threads. ``cpu``: thousandths of a processor,
    even if others are idle. ``share``: thousandths of a processor, the weight of the pod while more
    pods want to run than there are processors.
    """

    def __init__(
        self, *, memory: int = 0, processes: int = 0, cpu: int = 0, share: int = 0
    ) -> None:
        self.memory = memory
        self.processes = processes
        self.cpu = cpu
        self.share = share


class Offers:
    """What the groups of this machine can do. ``version``: ``v1`` or ``v2`` of Linux cgroups, or
    "" for none. ``devices``: whether pods can be kept from devices. ``why_not``: why some of it is
    not offered, as a clause; "": all is."""

    def __init__(
        self,
        *,
        memory: bool = False,
        cpu: bool = False,
        processes: bool = False,
        devices: bool = False,
        version: str = "",
        why_not: str = "",
    ) -> None:
        self.memory = memory
        self.cpu = cpu
        self.processes = processes
        self.devices = devices
        self.version = version
        self.why_not = why_not


def offered(controllers: Container[str], version: str, why_not: str) -> Offers:
    """What groups with these controllers can do."""
    return Offers(
        memory="memory" in controllers,
        cpu="cpu" in controllers,
        processes="pids" in controllers,
        devices="devices" in controllers,
        version=version,
        why_not=why_not,
    )


class Usage:
    """What a pod has used. ``peak``: the most bytes of memory at one time; 0: not known.
    ``oom_kills``: greater than 0 if the kernel has killed a process of the pod for want of memory.
    ``of_machine``: whether the machine had no memory left, and not the pod."""

    def __init__(self, peak: int = 0, oom_kills: int = 0, *, of_machine: bool = False) -> None:
        self.peak = peak
        self.oom_kills = oom_kills
        self.of_machine = of_machine


class JobGroups:
    """The groups below one group of the runner. Methods raise OSError unless they say otherwise."""

    def offers(self) -> Offers:
        raise NotImplementedError

    def folders(self) -> dict[str, str]:
        """The folders of the runner's group, from which `groups_of` makes the groups again."""
        raise NotImplementedError

    def make(self, run: str, pod: str, limits: Limits) -> None:
        """Makes the group of a pod. Of a group that is there already, only the limits change."""
        raise NotImplementedError

    def join(self, run: str, pod: str) -> None:
        """Moves this process into the group of the pod, see `pass_doors`."""
        pass_doors(self.doors(run, pod))

    def doors(self, run: str, pod: str) -> list[str]:
        """The files by which a process that writes 0 into them joins the group of the pod. Raises
        nothing."""
        raise NotImplementedError

    def deny_devices(self, run: str, pod: str, devices: list[tuple[int, int]]) -> bool:
        """Keeps the pod from character devices, each given by its major and minor number; returns
        False if these groups cannot do that."""
        raise NotImplementedError

    def watch(self, run: str, pod: str) -> tuple[int, int]:
        """An open file, and the events of `select.poll` that it has when the pod may have run out
        of memory; ``(-1, 0)``: there is none. Close it in the end."""
        raise NotImplementedError

    def heard(self, file: int) -> None:
        """Makes a file of `watch` wait for the next event."""
        raise NotImplementedError

    def usage(self, run: str, pod: str) -> Usage:
        """What the pod has used; an empty usage if it has no group. Raises nothing."""
        raise NotImplementedError

    def oom_kills(self, run: str, pod: str) -> int:
        """How many processes of the pod the kernel has killed for want of memory, as in `usage`:
        the only part of it that is read at the end of each process. Raises nothing."""
        raise NotImplementedError

    def kill(self, run: str, pod: str = "") -> None:
        """Kills all processes of the run, or of one pod of it. They need not be gone yet, and one
        of them may have started another one: repeat this until the group is empty. Raises
        nothing."""
        raise NotImplementedError

    def is_empty(self, run: str, pod: str = "") -> bool:
        """Whether no process of the run, or of one pod of it, is left. A process that has ended and
        is not reaped yet is gone. Raises nothing."""
        raise NotImplementedError

    def remove(self, run: str, pod: str = "") -> bool:
        """Removes the groups of a run, or of one pod of it; returns whether they are gone. Groups
        with processes stay. Raises nothing."""
        raise NotImplementedError

    def runs(self) -> list[str]:
        """The runs that have groups. Raises nothing."""
        raise NotImplementedError

    def close(self) -> None:
        """Removes the group of the runner if it has no runs. Raises nothing."""
        for folder in set(self.folders().values()):
            _is_removed(folder)

    def end(self, run: str, pod: str = "", *, seconds: float) -> bool:
        """Kills all processes, waits until they are gone and removes the groups; returns False if
        that takes longer. Raises nothing."""
        deadline = monotonic() + seconds
        is_gone, pause = False, EMPTY_PAUSE
        while not self.remove(run, pod):
            if is_gone and self.is_empty(run, pod):
                return True  # A group without processes harms nothing; it is removed later.
            is_gone = self.is_empty(run, pod)
            if not is_gone:
                self.kill(run, pod)
            if monotonic() >= deadline:
                return False
            sleep(BUSY_SECONDS if is_gone else pause)
            pause = min(2 * pause, EMPTY_PAUSE_MAX)
        return True


class NoGroups(JobGroups):
    """A machine without groups. ``why``: why there are none, as a clause."""

    def __init__(self, why: str) -> None:
        self._why = why

    def offers(self) -> Offers:
        return Offers(why_not=self._why)

    def folders(self) -> dict[str, str]:
        return {}

    def make(self, run: str, pod: str, limits: Limits) -> None:
        pass

    def doors(self, run: str, pod: str) -> list[str]:  # noqa: ARG002
        return []

    def deny_devices(
        self,
        run: str,  # noqa: ARG002
        pod: str,  # noqa: ARG002
        devices: list[tuple[int, int]],
    ) -> bool:
        return not devices

    def watch(self, run: str, pod: str) -> tuple[int, int]:  # noqa: ARG002
        return -1, 0

    def heard(self, file: int) -> None:
        pass

    def usage(self, run: str, pod: str) -> Usage:  # noqa: ARG002
        return Usage()

    def oom_kills(self, run: str, pod: str) -> int:  # noqa: ARG002
        return 0

    def kill(self, run: str, pod: str = "") -> None:
        pass

    def is_empty(self, run: str, pod: str = "") -> bool:  # noqa: ARG002
        return True

    def remove(self, run: str, pod: str = "") -> bool:  # noqa: ARG002
        return True

    def runs(self) -> list[str]:
        return []


PROCESSES_MAX = 1 << 22
"""The most processes of Linux: a limit above is none, and the kernel refuses it."""


def limits_cpu(limits: Limits) -> bool:
    """Whether the limit of cpu is below what the machine has. The kernel refuses large ones."""
    return 0 < limits.cpu < 1000 * (os.cpu_count() or 1)


def limits_processes(limits: Limits) -> bool:
    return 0 < limits.processes < PROCESSES_MAX


# Files of groups. ------------------------------------------------------------------------


def pass_doors(doors: list[str]) -> None:
    """Moves this process into the groups with the files ``doors``. Call it between fork and exec,
    as the Unix user of the runner: then the process has one thread. Raises OSError."""
    for file in doors:
        write(file, "0")


def wait_while(is_so: Callable[[], bool], seconds: float) -> None:
    """Waits until the function returns False, at most so many seconds."""
    until = monotonic() + seconds
    while is_so() and monotonic() < until:
        sleep(EMPTY_PAUSE / 2)


def write(path: str, text: str) -> None:
    """Writes a value into a file of a group, which must be there."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(file)


def read(path: str) -> str:
    """The text of a file of a group; "" if there is none."""
    try:
        return read_bytes(path).decode(errors="replace")
    except OSError:
        return ""


def number(path: str, name: str = "") -> int:
    """The number in a file of a group, or the number after the name at the begin of a line; 0:
    there is none."""
    for line in read(path).splitlines():
        words = line.split()
        if words and (not name or words[0] == name) and words[-1].isdigit():
            return int(words[-1])
    return 0


def make_folder(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        pass


def groups_in(folder: str) -> list[str]:
    """The names of the groups directly in a group."""
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def groups_below(folder: str) -> Iterator[str]:
    """The folders of a group and of all groups below it, the deepest first: a job that is root
    may have made some."""
    for name in groups_in(folder):
        yield from groups_below(os.path.join(folder, name))
    yield folder


def processes_in(folder: str) -> list[int]:
    """The processes in a group and in all groups below it."""
    return [
        int(pid)
        for group in groups_below(folder)
        for pid in read(os.path.join(group, "cgroup.procs")).split()
        if pid.isdigit() and pid != "0"  # 0: a process of a pid namespace outside
    ]


def kill_processes(folder: str) -> None:
    for pid in processes_in(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def remove_folders(folder: str) -> bool:
    """Removes a group with all groups below it; returns whether it is gone."""
    if _is_removed(folder):
        return True
    return all(map(_is_removed, groups_below(folder)))


def _is_removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError:  # the group has processes or groups
        return False
    return True
