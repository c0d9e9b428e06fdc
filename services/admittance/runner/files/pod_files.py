# ruff: noqa: SIM105, PTH103, PTH105, PTH118, PTH123
# (pathlib is not worth its import time here)
"""Puts inputs into the folder of a pod, and copies its outputs out of it, with the rights of the
job's Unix user. The shim imports this module, so the module imports little.

A job chooses what its folder has, so no path in it is trusted: the work is done by a child with the
rights of the job, which follows no link below the folder, opens plain files only, and gets the
files of the runner opened.
"""

from __future__ import annotations

import errno
import json
import os
import stat

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol, TypeAlias

    Enter: TypeAlias = Callable[[str], None]

    class Pod(Protocol):
        """What is read of a pod: see `admittance.runner.jobs.pod.Pod`."""

        name: str
        main_started: bool
        told_to_stop: bool

        @property
        def files(self) -> dict[str, Any]: ...


INPUTS = "inputs"
OUTPUTS = "outputs"
"""The folders of a run with the inputs by their digests, and with the outputs of its pods."""
STORED = "outputs.json"
"""The file of a run with the list of its outputs, written when they are stored."""
LIST = "list.json"
"""The file with what is said of the outputs of a pod; written last."""
CHUNK = 1 << 20
_PROGRAM = 0o777
_PLAIN = 0o666


class NoFile(OSError):
    """The error that an output is not there or is no file; its text is a clause."""


def place_inputs(
    run: str,
    folders: tuple[str, str],
    inputs: Sequence[Sequence[Any]],
    user: dict[str, Any] | None,
    enter: Enter = os.chdir,
) -> None:
    """Copies inputs of a run into the folder of a pod. ``folders``: the scratch folder of the pod,
    and the folder in which its containers start. ``inputs``: path, digest, and whether it is a
    program. ``enter``: how that folder is entered, if it is another one. Raises OSError with a
    sentence."""
    sources = [os.open(os.path.join(run, INPUTS, digest), os.O_RDONLY) for _, digest, _ in inputs]
    try:

        def work(folder: int) -> list[str]:
            for (name, _, program), source in zip(inputs, sources, strict=True):
                try:
                    _place(folder, name, source, _PROGRAM if program else _PLAIN)
                except OSError as error:
                    return [f"cannot place the input {name}: {error.strerror}"]
            return []

        problems = _as_user(user, folders, enter, work)
    finally:
        for source in sources:
            os.close(source)
    if problems:
        raise OSError(problems[0])


def keep_outputs(
    run: str,
    pod: str,
    folders: tuple[str, str],
    paths: Sequence[str],
    user: dict[str, Any] | None,
    most: int,
    enter: Enter = os.chdir,
) -> int:
    """Copies the outputs of a pod into the folder of the run, at most so many bytes together;
    returns how many bytes these are. Raises OSError if nothing can be written there."""
    above = os.path.join(run, OUTPUTS, pod)
    os.makedirs(above, 0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    copies = [os.open(os.path.join(above, str(index)), flags, 0o600) for index in range(len(paths))]
    try:

        def keep(folder: int) -> list[str]:
            problems, left = [], most
            for path, copy in zip(paths, copies, strict=True):
                try:
                    left -= _keep(folder, path, copy, left)
                    problems.append("")
                except NoFile as error:
                    problems.append(str(error))
                except OSError as error:
                    problems.append(f"cannot be kept: {error.strerror}")
            return problems

        try:
            problems = _as_user(user, folders, enter, keep)
        except OSError as error:
            problems = [str(error)] * len(paths)
        size = sum(os.fstat(copy).st_size for copy in copies)
    finally:
        for copy in copies:
            os.close(copy)
    said = [
        {"name": path, "copy": "" if problem else f"{pod}/{index}", "problem": problem}
        for index, (path, problem) in enumerate(zip(paths, problems, strict=True))
    ]
    half = os.path.join(above, f"{LIST}.new")
    with open(half, "w", encoding="utf-8") as file:
        json.dump(said, file)
    os.replace(half, os.path.join(above, LIST))
    return size


def _as_user(
    user: dict[str, Any] | None,
    folders: tuple[str, str],
    enter: Enter,
    work: Callable[[int], list[str]],
) -> list[str]:
    """What the work returns in a child with the rights of the user. Raises OSError with a sentence
    if the folder cannot be opened."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        answer: list[Any] = [False, ["it ended early"]]
        try:
            os.close(reading)
            # As root: the user may lack the right to pass through the folders above.
            os.chdir(folders[0])
            if user:
                os.setgroups(user["groups"])
                os.setresgid(user["gid"], user["gid"], user["gid"])
                os.setresuid(user["uid"], user["uid"], user["uid"])
            if folders[0] != folders[1]:
                enter(folders[1])
            answer = [True, work(os.open(".", os.O_RDONLY | os.O_DIRECTORY))]
        except OSError as error:
            answer = [False, [error.strerror or str(error)]]
        except Exception as error:
            answer = [False, [str(error) or type(error).__name__]]
        finally:
            try:
                with os.fdopen(writing, "w", encoding="utf-8") as file:
                    json.dump(answer, file)
            finally:
                os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(pid, 0)
    if not text:
        raise OSError("the process that was to do it was killed")
    worked, said = json.loads(text)
    if not worked:
        raise OSError(said[0])
    return list(said)


def _folder_of(folder: int, path: str, *, make: bool) -> tuple[int, str]:
    """The opened folder of the file at the path, and the name of the file in it. The caller closes
    the folder."""
    *above, name = path.split("/")
    here = os.dup(folder)
    for part in above:
        try:
            if make:
                try:
                    os.mkdir(part, dir_fd=here)
                except FileExistsError:
                    pass
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            inner = os.open(part, flags, dir_fd=here)
        finally:
            os.close(here)
        here = inner
    return here, name


def _place(folder: int, path: str, source: int, mode: int) -> None:
    here, name = _folder_of(folder, path, make=True)
    half = f".admittance-{os.getpid()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        target = os.open(half, flags, mode, dir_fd=here)
        try:
            _copy(source, target, os.fstat(source).st_size)
        except OSError:
            os.unlink(half, dir_fd=here)
            raise
        finally:
            os.close(target)
        try:
            os.rename(half, name, src_dir_fd=here, dst_dir_fd=here)
        except OSError:
            os.unlink(half, dir_fd=here)
            raise
    finally:
        os.close(here)


def _keep(folder: int, path: str, copy: int, most: int) -> int:
    try:
        here, name = _folder_of(folder, path, make=False)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            source = os.open(name, flags, dir_fd=here)
        finally:
            os.close(here)
    except FileNotFoundError:
        raise NoFile("the job left no such file") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NoFile("it is a link, or a part of its path is no folder") from None
        raise
    try:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "no plain file"
            raise NoFile(f"it is {what}; only files are kept")
        if found.st_size > most:
            raise NoFile(
                f"it has {found.st_size:,} bytes, and the outputs of the workload may have only "
                f"{most:,} more (ADMIT_FILE_LIMIT)"
            )
        _copy(source, copy, found.st_size)
        return found.st_size
    finally:
        os.close(source)


def _copy(source: int, target: int, size: int) -> None:
    """Copies the first bytes of an open file to another one."""
    done = 0
    while done < size:
        part = os.pread(source, min(CHUNK, size - done), done)
        if not part:
            return
        done += len(part)
        while part:
            part = part[os.write(target, part) :]


class FileCarrier:
    """Brings and keeps the files of all pods of a run. ``run``: the folder of the run. ``spec``:
    that of the run."""

    def __init__(self, run: str, spec: dict[str, Any]) -> None:
        self._run = run
        self._user = spec.get("runAs")
        self._limit = (spec.get("transfers") or {}).get("limit") or 0
        self._placed: set[tuple[str, str]] = set()
        self._left_in: dict[str, tuple[tuple[str, str], Enter]] = {}
        """For each pod its scratch folder, the folder that has its outputs, and how that is
        entered."""
        self._kept: dict[str, int] = {}

    def bring(self, pod: Pod, folders: tuple[str, str], enter: Enter) -> None:
        """Puts the inputs into the folder in which a container of the pod starts, once for each pod
        and folder. ``folders``: the scratch folder of the pod, and that folder. ``enter``: see
        `place_inputs`. Raises OSError."""
        files = pod.files
        if not files:
            return
        left_in = self._left_in.get(pod.name)
        if pod.main_started and (left_in is None or left_in[0][0] != folders[0]):
            self._left_in[pod.name] = folders, enter
        if files["inputs"] and folders not in self._placed:
            place_inputs(self._run, folders, files["inputs"], self._user, enter)
            self._placed.add(folders)

    def keep(self, pod: Pod) -> None:
        """Keeps the outputs of a pod that has ended by itself. An error is one of its outputs."""
        files = pod.files
        left_in = self._left_in.get(pod.name)
        if not files or not files["outputs"] or left_in is None or pod.told_to_stop:
            return
        folders, enter = left_in
        others = sum(size for name, size in self._kept.items() if name != pod.name)
        left = max(0, self._limit - others)
        try:
            self._kept[pod.name] = keep_outputs(
                self._run, pod.name, folders, files["outputs"], self._user, left, enter
            )
        except OSError:
            return  # a disk without room: the runner finds no list, and says that nothing was kept
