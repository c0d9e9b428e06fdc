"""Starts the shims of runs, forwards the notifications that shims send, and tells shims to stop.
`LocalMachine` is the machine of this process: data folders of files, and jobs that are processes or
containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import structlog

from admittance.events.facts import Admitted
from admittance.events.stored.machines import RunnerInventory
from admittance.events.system import RunnerStarts
from admittance.folders import MachineFacts
from admittance.job_rules.limits import NO_GROUPS
from admittance.job_rules.machine_options import GivenMachine
from admittance.job_rules.options import check_env_files, own_unix_user
from admittance.job_rules.rules import CannotRun, JobRules, UnixUser
from admittance.runner.disk.checkpoints import Owner, checkpoint_folder
from admittance.runner.folder import DataFolder, find_run
from admittance.runner.groups.job_groups import JobGroups, NoGroups, Offers
from admittance.runner.groups.machine_groups import find_groups
from admittance.runner.inventory.machine_inventory import inventory_of
from admittance.runner.jobs.devices import NO_MACHINE
from admittance.runner.jobs.engine_orders import sweep_docker
from admittance.runner.jobs.inputs.host_inputs import MachineInputs
from admittance.runner.jobs.live_rules import LiveRules
from admittance.runner.jobs.plan import (
    RunPlan,
    plan_docker,
    plan_local,
    with_limits,
)
from admittance.runner.jobs.pod_limits import GroupsPlan
from admittance.runner.jobs.shim import boot_seconds
from admittance.runner.machine import Executor, OtherRun, RunFiles, RunnerFiles, Shims
from admittance.runner.processes import GONE_SECONDS, end_processes
from admittance.runtime.clock import monotonic
from admittance.runtime.errors import SetupError
from admittance.runtime.process import service
from admittance.runtime.process.this_machine import machine_facts

INHERITED: Final = ("PATH", "HOME", "TMPDIR")
"""The names of the runner's environment variables that shims and docker clients get. A local
process gets HOME from its Unix user."""

ENGINE_VERSION: Final = ("version", "--format", "{{.Server.Version}}")
"""The arguments of a docker client that only asks whether the engine answers."""
ENGINE_SECONDS: Final = 10.0
"""Longest wait for the answer."""
ANSWER_SECONDS: Final = 10.0
"""For so many seconds an engine that has answered counts as there, unless a job is lost."""
PROBLEM_SECONDS: Final = 1.0
"""For so many seconds an engine that has not answered counts as away."""
LEFTOVER_SECONDS: Final = 1.0
"""Longest time of one attempt to end what is left in the groups of a closed run."""
SWEEP_SECONDS: Final = 60.0
"""Longest time of one attempt to remove the containers of a run."""

log = structlog.get_logger(service="runner")


def _without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The runner's environment variables that shims and docker clients get."""
    return {
        name: value
        for name, value in environ.items()
        if name in INHERITED or name.startswith("DOCKER_")
    }


def _other_user(rules: JobRules, admitted: Admitted) -> UnixUser | None:
    """The Unix user of the job if it differs from that of the runner. Raises CannotRun."""
    user = rules.unix_user(admitted)
    return None if user is None or user.uid == os.geteuid() else user


def _owner(admitted: Admitted) -> Owner:
    return Owner(admitted.namespace, admitted.name, admitted.uid)


class LocalExecutor:
    """Runs pods as process groups. ``machine``: where its processes run."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        rules: LiveRules | None = None,
        machine: MachineFacts | None = None,
    ) -> None:
        inherited = {name: environ[name] for name in INHERITED if name in environ}
        self._given = {**inherited, **own_unix_user(environ).variables()}
        self._rules = rules or LiveRules()
        self.machine = NO_MACHINE
        self.groups: JobGroups = NoGroups("the runner has not begun")
        self._facts = machine or MachineFacts()
        self._checkpoints = ""

    async def check(self) -> None:
        await asyncio.to_thread(self._rules.load)
        check_env_files(self._rules.current)

    def open(self, runner: str, checkpoints: str) -> None:
        self._checkpoints = checkpoints
        self.groups = find_groups(runner, self._rules.current.limits.cgroup)

    def offers(self) -> Offers:
        return self.groups.offers()

    async def end_leftovers(self, open_runs: Callable[[], Collection[str]]) -> None:
        runs = self.groups.runs()
        for run in set(runs) - set(open_runs()):
            log.info("groups_left_over", run=run)
            await asyncio.to_thread(self.groups.end, run, seconds=LEFTOVER_SECONDS)

    def close(self) -> None:
        self.groups.close()

    async def problem(self) -> str:
        return ""

    def doubt(self) -> None:
        """Does nothing: this machine starts processes as long as the runner runs."""

    def run_plan(self, admitted: Admitted, mark: str) -> RunPlan:  # noqa: ARG002
        rules = self._rules.current
        user = _other_user(rules, admitted)
        given = self._given
        if user is not None:
            path = {name: value for name, value in given.items() if name == "PATH"}
            given = {**path, **user.variables()}
        inputs = MachineInputs(rules, admitted.namespace, exact=False)
        if rules.env_files and user is None and len(rules.namespaces) != 1:
            raise CannotRun("a job as the runner's Unix user could read the files of --env-files")
        plan = plan_local(
            admitted,
            given=given,
            inputs=inputs,
            machine=self.machine,
            sight=rules.sight(self._facts, os.geteuid()),
            uid=os.geteuid() if user is None else user.uid,
            checkpoint=checkpoint_folder(self._checkpoints, _owner(admitted)),
        )
        plan = with_limits(plan, rules.limits)
        return msgspec.structs.replace(
            plan,
            run_as=user,
            groups=self._groups_plan(),
            no_new_privs=not rules.limits.privilege_escalation,
        )

    def _groups_plan(self) -> GroupsPlan | None:
        version = self.groups.offers().version
        return GroupsPlan(version=version, folders=self.groups.folders()) if version else None

    async def sweep(self, run: RunFiles) -> bool:
        # No process leaves its group by accident. The marks are for machines without groups.
        ended = await asyncio.to_thread(self.groups.end, run.path.name, seconds=GONE_SECONDS)
        mark, known = run.identity.mark, run.journal.processes
        return await end_processes(mark, known, run.fork_server()) and ended


class DockerExecutor:
    """Runs pods as containers of the engine that the docker client reaches."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, rules: LiveRules | None = None
    ) -> None:
        self._given = _without_secrets(environ)
        self._rules = rules or LiveRules(local=False)
        self.machine = NO_MACHINE
        self._docker = ""
        self._asking = asyncio.Lock()
        self._asked_at = -math.inf
        self._problem = ""
        self._checkpoints = ""

    def open(self, runner: str, checkpoints: str) -> None:  # noqa: ARG002
        """Makes no groups: the engine makes those of its containers."""
        self._checkpoints = checkpoints

    def offers(self) -> Offers:
        if self._rules.current.limits.cgroup == NO_GROUPS:
            return Offers(processes=True, why_not="switched off by --cgroup none")
        return Offers(memory=True, cpu=True, processes=True, version="engine")

    async def end_leftovers(self, open_runs: Callable[[], Collection[str]]) -> None:
        """Does nothing: the engine removes the groups of its containers."""

    def close(self) -> None:
        """Does nothing: this executor keeps nothing open."""

    async def check(self) -> None:
        await asyncio.to_thread(self._rules.load)
        client = shutil.which("docker")
        if client is None:
            raise SetupError(
                "--executor docker needs the docker client: install it, or run jobs as local "
                "processes with --executor local"
            )
        self._docker = client
        status, said = await _ask(ENGINE_SECONDS, client, *ENGINE_VERSION)
        if status:
            raise SetupError(
                f"--executor docker finds no container engine ({said}): start one, or run "
                "jobs as local processes with --executor local"
            )

    async def problem(self) -> str:
        async with self._asking:
            fresh = PROBLEM_SECONDS if self._problem else ANSWER_SECONDS
            if monotonic() - self._asked_at >= fresh:
                status, said = await _ask(ENGINE_SECONDS, self._docker, *ENGINE_VERSION)
                self._asked_at = monotonic()
                self._problem = (
                    f"the container engine does not answer ({said}), so no job starts"
                    if status
                    else ""
                )
            return self._problem

    def doubt(self) -> None:
        self._asked_at = -math.inf

    def run_plan(self, admitted: Admitted, mark: str) -> RunPlan:
        rules = self._rules.current
        user = _other_user(rules, admitted)
        plan = plan_docker(
            admitted,
            given=self._given,
            docker=self._docker,
            mark=mark,
            rules=rules,
            user=user,
            inputs=MachineInputs(rules, admitted.namespace, exact=True),
            machine=self.machine,
            checkpoint=checkpoint_folder(self._checkpoints, _owner(admitted)),
        )
        # Without the right to give files away, the volumes stay those of the runner's Unix user.
        plan = msgspec.structs.replace(plan, volumes_of=None if os.geteuid() else user)
        return with_limits(plan, rules.limits)

    async def sweep(self, run: RunFiles) -> bool:
        mark = run.identity.mark
        gone = await end_processes(mark, run.journal.processes, run.fork_server())
        status, _ = await _ask(SWEEP_SECONDS, *sweep_docker(self._docker, mark))
        return status == 0 and gone


async def _ask(seconds: float, *argv: str) -> tuple[int, str]:
    """The exit status of a program, and the last line of its standard error. A program that takes
    longer than so many seconds is killed, and has the status 124; one that cannot be started, such
    as a client that is being replaced, has the status 127."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return 127, f"cannot start {argv[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(seconds):
            _, errors = await process.communicate()
    except TimeoutError:
        return 124, f"no answer in {seconds:g} s"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    lines = errors.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else "no answer"


KINDS: Final[Mapping[str, type[LocalExecutor] | type[DockerExecutor]]] = {
    "local": LocalExecutor,
    "docker": DockerExecutor,
}


def executor_of(name: str, rules: LiveRules) -> Executor:
    """Returns the executor with the name ``name``, such as docker. Raises SetupError for an unknown
    name."""
    kind = KINDS.get(name)
    if kind is None:
        raise SetupError(f"--executor {name}: choose one of the executors {', '.join(KINDS)}")
    if kind is LocalExecutor:
        return LocalExecutor(rules=rules, machine=machine_facts())
    return kind(rules=rules)


async def check_executor(name: str, rules: JobRules) -> None:
    """Raises SetupError if this machine lacks what the executor needs, or cannot follow the
    rules."""
    await executor_of(name, LiveRules(rules, local=name == "local")).check()


FORK_SERVER: Final = (
    *(sys.executable, "-I", "-S", "-c"),
    "import sys; sys.path.extend(sys.argv[1:]); "
    "from admittance.runner.jobs.fork_server import fork_server; fork_server()",
    str(Path(__file__).parents[2]),
    str(Path(service.__file__).parents[3]),
)
"""The command of the fork server, which imports modules of the standard library, the shim, and the
declaration of the service.
"""
STARTING_MAX: Final = 32
"""The most shims that start at the same time: more would only compete for the processors."""
STARTING_SECONDS: Final = 10.0
"""Seconds after which the start of a shim frees its slot, so that one slow start cannot block all
others."""


CLOSE_SECONDS: Final = 0.2
"""Longest wait for the end of a fork server that the runner leaves. A fork server whose shims run
on lives as long as they do."""


class ForkServer:
    """A running fork server. Not a process of asyncio, which kills its processes when it forgets
    them."""

    left: ClassVar[list[ForkServer]] = []
    """Fork servers that lived on when their runner left them."""

    def __init__(self, errors: int) -> None:
        """``errors``: the file for the messages of shims."""
        reading, self._names = os.pipe()
        os.set_blocking(self._names, False)
        try:
            self._pid = os.posix_spawn(
                FORK_SERVER[0],
                FORK_SERVER,
                # A job with the runner's Unix user can read the environment of its shim.
                _without_secrets(os.environ),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, errors, 2),
                ],
                # Ctrl-C at the terminal must reach the runner but not the shims.
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE],
            )
        finally:
            os.close(reading)
        self.status: int | None = None

    def has_ended(self) -> bool:
        """Whether the fork server has ended; then ``status`` is its exit status."""
        if self.status is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if not pid:
                    return False
                self.status = os.waitstatus_to_exitcode(status)
        return True

    def fork(self, folder: Path) -> None:
        """Forks a shim for the run in the folder. Raises BrokenPipeError if the fork server has
        ended, and BlockingIOError if it does not read."""
        os.write(self._names, os.fsencode(folder) + b"\n")

    async def leave(self) -> None:
        """Names no further runs: the fork server ends when its last shim is gone."""
        os.close(self._names)
        for _ in range(int(CLOSE_SECONDS / 0.01)):
            if self.has_ended():
                return
            await asyncio.sleep(0.01)
        self.left.append(self)


class Launcher:
    """The `Shims` of this machine. ``news``: a function that is called with the key of a run when
    the journal of the run has grown."""

    def __init__(self, folder: RunnerFiles, news: Callable[[str], None]) -> None:
        self._folder = folder
        self._news = news
        self._fork_server: ForkServer | None = None
        self._slots = asyncio.Semaphore(STARTING_MAX)
        self._starting: dict[str, asyncio.TimerHandle] = {}
        self._waiting: set[str] = set()
        self._pipe = -1
        self._heard = b""
        self._closed = False

    async def open(self) -> None:
        # The pipe for notifications is opened for reading and writing, so that it never ends and
        # shims always find a reader.
        self._pipe = os.open(self._folder.notify, os.O_RDWR | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._pipe, self._on_news)
        self._live_fork_server()

    async def close(self) -> None:
        self._closed = True
        for key in list(self._starting):
            self.start_done(key)
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
        server, self._fork_server = self._fork_server, None
        if server is not None:
            await server.leave()

    async def launch(self, run: RunFiles) -> None:
        key = run.identity.key
        if key in self._waiting or key in self._starting:
            return
        self._waiting.add(key)
        try:
            await self._slots.acquire()
        finally:
            self._waiting.discard(key)
        if self._closed:
            self._slots.release()
            return
        loop = asyncio.get_running_loop()
        self._starting[key] = loop.call_later(STARTING_SECONDS, self.start_done, key)
        for _ in range(3):
            try:
                self._live_fork_server().fork(run.path)
                return
            except BrokenPipeError:
                # The fork server has died, so the next one gets the run's folder.
                await asyncio.sleep(0.01)
            except BlockingIOError:
                log.error("fork_server_hangs", run=key)  # the run is launched again later
                return
        log.error("fork_server_dies", run=key)

    def start_done(self, key: str) -> None:
        timer = self._starting.pop(key, None)
        if timer is not None:
            timer.cancel()
            self._slots.release()

    def start_slots(self) -> tuple[int, int]:
        used = min(len(self._starting), STARTING_MAX)
        return used, STARTING_MAX - used

    def stop(self, run: RunFiles) -> None:
        _signal_shim(run, signal.SIGTERM)

    def kill(self, run: RunFiles) -> None:
        _signal_shim(run, signal.SIGKILL)

    def _live_fork_server(self) -> ForkServer:
        server = self._fork_server
        if server is None or server.has_ended():
            if server is not None:
                log.warning("fork_server_restarted", status=server.status)
            # Fork servers that the runner has left are reaped.
            ForkServer.left[:] = [one for one in ForkServer.left if not one.has_ended()]
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            errors = os.open(self._folder.root / "shim.log", flags, 0o600)
            try:
                server = self._fork_server = ForkServer(errors)
            finally:
                os.close(errors)
        return server

    def _on_news(self) -> None:
        try:
            data = os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        *keys, self._heard = (self._heard + data).split(b"\n")
        for key in dict.fromkeys(keys):
            self._news(key.decode(errors="replace"))


def _signal_shim(run: RunFiles, sig: signal.Signals) -> None:
    pid = run.shim_pid()
    if pid and run.shim_lives():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, sig)


class LocalMachine:
    """The `HostMachine` of this process."""

    def __init__(self, rules: LiveRules) -> None:
        self._rules = rules

    def boot_seconds(self) -> float:
        return boot_seconds()

    def executor(self, name: str) -> Executor:
        return executor_of(name, self._rules)

    def open_files(self, data_dir: Path) -> RunnerFiles:
        return DataFolder.open(data_dir)

    def shims(self, files: RunnerFiles, on_change: Callable[[str], None]) -> Shims:
        return Launcher(files, on_change)

    def machine_facts(self) -> MachineFacts:
        return machine_facts()

    def inventory(
        self,
        given: GivenMachine,
        *,
        id: str,
        name: str,
        executor: str,
        starts: RunnerStarts | None,
        messages: tuple[str, ...],
    ) -> RunnerInventory:
        return inventory_of(
            given,
            machine_facts(),
            id=id,
            name=name,
            executor=executor,
            starts=starts,
            messages=messages,
        )

    def find_run(self, roots: Mapping[str, str], key: str) -> OtherRun | None:
        return find_run(roots, key)
