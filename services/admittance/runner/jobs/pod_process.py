# ruff: noqa: PTH101, PTH102, PTH109, PTH112, PTH113, PTH208, PTH118, PTH120, SIM105
# (pathlib and contextlib are not worth their import time here)
"""Starts one process of a pod, as the runner's Unix user or as another one. The shim imports this
module, so the module imports little.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import select
import signal

from admittance.runner.disk.small_files import read_bytes
from admittance.runner.jobs.strays import end_with_parent

# `typing` is not imported, because the import would cost milliseconds in every shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores. A pod's process gets them with their defaults; `exec` gives it those
of the signals that the shim handles."""
NOT_EXECUTABLE = (errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.E2BIG, errno.ETXTBSY)
"""Errors of a program that is there and cannot be executed."""
VICTIM_SCORE = 500
"""The value of oom_score_adj of jobs; 0 is that of most processes, and 1000 the highest."""
_REFERENCE = re.compile(r"\$(?:\$|\(([^()$]+)\))")


WORD_MAX = 131_071
"""The most bytes of one argument or variable; Linux starts no program with a longer one."""
WORDS_MAX = 6 << 20
"""The most bytes of all arguments or of all variables; Linux starts no program with more. Thousands
of references to one long variable would otherwise take the machine's memory."""


def expand(text: str, env: dict[str, str]) -> str:
    """Replaces ``$(NAME)`` as Kubernetes does: unknown names stay, ``$$(NAME)`` is an escape.
    Raises ValueError if the result is too long: references to references grow without limit."""
    size = 0

    def value(reference: re.Match[str]) -> str:
        nonlocal size
        name = reference.group(1)
        word = "$" if name is None else env.get(name, reference.group())
        size += len(word)
        if size > WORD_MAX:
            raise ValueError(
                f"an argument or variable is longer than {WORD_MAX} bytes after its references "
                "are replaced"
            )
        return word

    return _REFERENCE.sub(value, text)


def pod_env(given: dict[str, str], wanted: list[list[str]], own: dict[str, str]) -> dict[str, str]:
    """The environment of a container. A variable in ``own`` overrides one in ``given``; a variable
    in ``wanted`` overrides both, and its value may refer to the variables before it. Raises
    ValueError if the environment is too long.
    """
    env = {**given, **own}
    size = 0
    for name, value in wanted:
        env[name] = expand(value, env)
        size = _grown(size, env[name])
    return env


def program_of(
    container: dict[str, Any],
    given: dict[str, str],
    own: dict[str, str],
    fixed: dict[str, str],
    unset: list[str],
) -> tuple[dict[str, str], list[str]]:
    """The environment and the words of the process of a container's plan. ``fixed``: variables that
    the container cannot replace; ``unset``: those that it cannot have. Raises ValueError if they
    are too long."""
    own = {**own, **fixed}
    env = named = {**pod_env(given, container["env"], own), **fixed}
    for name in unset:
        env.pop(name, None)
    if container.get("wordsEnv") is not None:
        # The process is the client of an engine: the job must not see the client's own variables.
        named = pod_env({}, container["wordsEnv"], own)
        env = {**given, **own, **{name: named[name] for name, _ in container["env"]}, **fixed}
    return env, program_words(container["argv"], container.get("ownWords") or 0, own, named)


def program_words(
    argv: list[str], own_words: int, own: dict[str, str], env: dict[str, str]
) -> list[str]:
    """The words of a program. References in the first ``own_words`` of them mean variables in
    ``own``, later ones variables in ``env``. Raises ValueError if the words are too long."""
    words, size = [], 0
    for number, word in enumerate(argv):
        words.append(expand(word, own if number < own_words else env))
        size = _grown(size, words[-1])
    return words


def _grown(size: int, word: str) -> int:
    size += len(word)
    if size > WORDS_MAX:
        raise ValueError(
            f"the arguments or variables are longer than {WORDS_MAX} bytes after their references "
            "are replaced"
        )
    return size


def find_program(name: str, env: dict[str, str], cwd: str) -> str:
    """The path of a program on the pod's PATH. Raises OSError if no folder of PATH has the program:
    PermissionError if a folder has a file of that name that may not be executed."""
    if "/" in name:
        return os.path.join(cwd, name)
    refused = ""
    for folder in env.get("PATH", os.defpath).split(":"):
        path = os.path.join(cwd, folder, name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            refused = refused or path
    if refused:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), refused)
    raise FileNotFoundError(f"no folder of PATH has the program {name}")


def start_code(error: Exception) -> int:
    """The exit status of a process that did not start, as of shells: 126 where the program is there
    but cannot be executed, else 127."""
    return 126 if isinstance(error, OSError) and error.errno in NOT_EXECUTABLE else 127


def start_problem(error: Exception) -> str:
    """Why a process did not start, as a clause."""
    if isinstance(error, FolderError):
        return error.strerror or "cannot enter the working folder"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"cannot start {error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


FOLDER_SECONDS = 30.0
"""Longest wait until a process has entered its working folder and begun its program: a file server
may be away."""


class FolderError(OSError):
    """The error that a process cannot start in its working folder."""


def enter_folder(path: str, place: dict[str, Any]) -> None:
    """Makes the folder the working folder of this process. ``place``: see `start_process`. Raises
    FolderError if this is not possible, if it is not the folder of the submission, or if no job
    may start there."""
    try:
        # What is compared is what is entered, whatever a link in the path names meanwhile.
        flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(path, flags)
        status = os.fstat(folder)
        os.fchdir(folder)
        os.close(folder)
        real = os.getcwd()
    except OSError as error:
        text = f"cannot enter the working folder {path}: {error.strerror}"
        raise FolderError(error.errno, text) from None
    inode = place.get("inode")
    if inode and (status.st_ino, status.st_uid) != (inode, place["owner"]):
        text = f"the working folder {path} is not the one in which the job was submitted"
        raise FolderError(errno.ESTALE, text)
    allowed = place.get("allowed") or []
    if allowed and not any(real == one or real.startswith(f"{one}/") for one in allowed):
        raise FolderError(
            errno.EACCES,
            f"the runner may not start jobs in the folder {real}: allowed are {', '.join(allowed)}",
        )


def make_scratch(path: str, user: dict[str, Any] | None) -> str:
    """Makes the scratch folder of a pod, which only the Unix user of the pod may read; returns its
    path. ``user``: the ``uid`` and ``gid`` of the pod's Unix user; None: the runner's Unix user."""
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        os.mkdir(above)
        os.chmod(above, 0o711 if user else 0o700)
    if not os.path.isdir(path):
        os.mkdir(path, 0o700)
        if user:
            os.chown(path, user["uid"], user["gid"])
    return path


def start_process(
    argv: list[str],
    env: dict[str, str],
    folders: tuple[str, str],
    output: int,
    user: dict[str, Any] | None,
    process_limit: int = 0,
    join: Callable[[], None] | None = None,
    place: dict[str, Any] | None = None,
) -> int:
    """Starts a process in a session of its own, with the open file ``output`` as its output;
    returns the pid. ``folders``: the scratch folder of the pod, and the folder in which the process
    starts. ``user``: the ``uid``, ``gid`` and ``groups`` of the process; None: the runner's Unix
    user. ``process_limit``: the most processes of another Unix user; 0: any number.
    ``join``: a function that moves the process into the group of its pod. ``place``: of a folder
    that is not one of the run, the ``inode`` and the ``owner`` (0: any folder), the ``allowed``
    folders (empty: all), and the ``umask`` of the process (None: the runner's). Raises OSError or
    ValueError if the process cannot start.
    """
    if user or join or place:
        return _start_as(user, argv, env, folders, output, process_limit, join, place or {})
    enter_folder(folders[1], {})
    return os.posix_spawn(
        find_program(argv[0], env, folders[1]),
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=IGNORED,
    )


def _start_as(
    user: dict[str, Any] | None,
    argv: list[str],
    env: dict[str, str],
    folders: tuple[str, str],
    output: int,
    process_limit: int,
    join: Callable[[], None] | None,
    place: dict[str, Any],
) -> int:
    # If the child process cannot start the program, it writes the reason to the pipe; a successful
    # exec closes the pipe.
    problems, report = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if not pid:
        try:
            if join:
                join()
            prefer_as_victim()
            if process_limit and user:
                limit_processes(process_limit)
            _become(user, *folders, output, place)
            end_with_parent(shim)
            # The program is looked for with the rights of the job: its folders may be closed to
            # root, as on a file server, or lead root elsewhere than the job.
            os.execve(find_program(argv[0], env, ""), argv, env)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", None) or 0
            kind = "folder" if isinstance(error, FolderError) else "program"
            os.write(report, f"{code} {kind} {start_problem(error)}".encode())
        finally:
            os._exit(127)
    os.close(report)
    try:
        problem = _read_report(problems, pid, "" if folders[1] == folders[0] else folders[1])
    finally:
        os.close(problems)
    if problem:
        os.waitpid(pid, 0)
        number, kind, text = problem.decode().split(" ", 2)
        if kind == "folder":
            raise FolderError(int(number), text)
        failed = OSError(text)
        failed.errno = int(number)
        raise failed
    return pid


def prefer_as_victim() -> None:
    """Makes the kernel kill this process and its children before runners and shims when the machine
    has no memory left."""
    try:
        file = os.open("/proc/self/oom_score_adj", os.O_RDWR)
    except OSError:
        return  # Only Linux has this.
    try:
        if int(os.read(file, 16)) < VICTIM_SCORE:
            os.write(file, b"%d" % VICTIM_SCORE)
    finally:
        os.close(file)


def _read_report(problems: int, pid: int, folder: str) -> bytes:
    """What the child ``pid`` wrote before it could start its program; empty: it has started.
    ``folder``: the working folder outside of the run; "": none. Raises FolderError, and kills the
    child, if it does neither in time in such a folder."""
    report = b""
    # The child writes once, so each wait is one for the folder or for the end of the child.
    limit = FOLDER_SECONDS if folder else None
    while select.select([problems], [], [], limit)[0]:
        part = os.read(problems, 65536)
        if not part:
            return report
        report += part
    os.kill(pid, signal.SIGKILL)
    text = f"the working folder {folder} did not answer in {FOLDER_SECONDS:g} s"
    raise FolderError(errno.ETIMEDOUT, text)


def limit_processes(count: int) -> None:
    """Limits the processes and threads that the Unix user of this process may have when this
    process or a child of it starts one more. It has no effect on root."""
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    if most != resource.RLIM_INFINITY:
        count = min(count, most)  # Only a process with a further right may raise its own limit.
    resource.setrlimit(resource.RLIMIT_NPROC, (count, count))


def _become(
    user: dict[str, Any] | None, scratch: str, cwd: str, output: int, place: dict[str, Any]
) -> None:
    signal.set_wakeup_fd(-1)
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    silence = os.open(os.devnull, os.O_RDONLY)
    if user:
        # The process must own the pipe of its output, because a program may open /dev/stdout.
        os.fchown(output, user["uid"], user["gid"])
    for wanted, opened in ((0, silence), (1, output), (2, output)):
        os.dup2(opened, wanted)
    # The process enters the scratch folder while it is still root: the pod's Unix user may lack the
    # right to pass through the folders above, such as the home folder of root.
    os.chdir(scratch)
    if user:
        os.setgroups(user["groups"])
        os.setresgid(user["gid"], user["gid"], user["gid"])
        os.setresuid(user["uid"], user["uid"], user["uid"])
    if cwd != scratch:
        enter_folder(cwd, place)
    if place.get("umask") is not None:
        os.umask(place["umask"])


def handle_signals(asked: list[int], news: list[int]) -> int:
    """Adds the numbers of signals that ask this process to end to ``asked``, and the one that says
    that the runner has changed the run's folder to ``news``; returns a file that can be read after
    any signal, also of the end of a child."""
    wake, poke = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(poke, False)
    signal.set_wakeup_fd(poke, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))
    signal.signal(signal.SIGUSR1, lambda number, _: news.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    return wake


def start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 if the system has no /proc."""
    try:
        return int(read_bytes(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def signal_group(pid: int, sig: int) -> None:
    """Sends a signal to the process group ``pid`` if the group still exists."""
    try:
        os.killpg(pid, sig)
    except (ProcessLookupError, PermissionError):
        pass


def close_inherited_files() -> None:
    """Closes all open files but the standard ones: every job would inherit them. uvloop leaves open
    copies of standard input, by which the runner names runs, and of standard error."""
    try:
        numbers = [int(name) for name in os.listdir("/dev/fd")]
    except (OSError, ValueError):
        numbers = list(range(3, 1024))
    for number in numbers:
        if number > 2:
            try:
                os.close(number)
            except OSError:
                pass
