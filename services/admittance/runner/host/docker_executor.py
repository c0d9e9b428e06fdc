"""Runs pods as containers of the engine that the docker client reaches."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import signal
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from admittance.events.facts import Admitted
from admittance.events.stored.machines import Device
from admittance.job_rules.limits import NO_GROUPS
from admittance.runner.decide import Ended
from admittance.runner.disk.checkpoints import checkpoint_folder
from admittance.runner.groups.job_groups import Offers
from admittance.runner.host.hooks import hooks_of_run, run_epilog
from admittance.runner.host.inherited import other_user, owner_of, without_secrets
from admittance.runner.host.live_rules import LiveRules
from admittance.runner.host.port import RunFiles
from admittance.runner.host.processes import end_processes
from admittance.runner.inventory.device_files import machine_devices
from admittance.runner.plans.devices import DOCKER, NO_MACHINE, PODMAN
from admittance.runner.plans.docker_plan import plan_docker
from admittance.runner.plans.engine_orders import sweep_docker
from admittance.runner.plans.inputs.host_inputs import MachineInputs
from admittance.runner.plans.run_plan import RunPlan, with_limits
from admittance.runtime.clock import monotonic
from admittance.runtime.errors import SetupError

ENGINE_VERSION: Final = ("version", "--format", "{{.Server.Version}}")
"""The arguments of a docker client that only asks whether the engine answers."""
ENGINE_SECONDS: Final = 10.0
"""Longest wait for the answer."""
ANSWER_SECONDS: Final = 10.0
"""For so many seconds an engine that has answered counts as there, unless a job is lost."""
PROBLEM_SECONDS: Final = 1.0
"""For so many seconds an engine that has not answered counts as away."""
SWEEP_SECONDS: Final = 60.0
"""Longest time of one attempt to remove the containers of a run."""


class DockerExecutor:
    """Runs pods as containers of the engine that the docker client reaches."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, rules: LiveRules | None = None
    ) -> None:
        self._given = without_secrets(environ)
        self._rules = rules or LiveRules(local=False)
        self.machine = NO_MACHINE
        self._docker = ""
        self._engine = DOCKER
        """The kind of the engine: the command ``docker`` may be that of podman."""
        self._asking = asyncio.Lock()
        self._asked_at = -math.inf
        self._problem = ""
        self._checkpoints = ""

    def open(self, runner: str, checkpoints: str) -> None:  # noqa: ARG002
        """Makes no groups: the engine makes those of its containers."""
        self._checkpoints = checkpoints

    def offers(self) -> Offers:
        if self._rules.current.limits.cgroup == NO_GROUPS:
            why = "switched off by --cgroup none"
            return Offers(processes=True, devices=True, why_not=why)
        return Offers(memory=True, cpu=True, processes=True, devices=True, version="engine")

    def take_devices(self, runner: str, devices: tuple[Device, ...]) -> tuple[str, ...]:
        """Says nothing: an engine gives a container no other devices than its own."""
        self.machine = machine_devices(runner, devices, can_deny=False)
        return ()

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
        _, said = await _ask(ENGINE_SECONDS, client, "--version")
        self._engine = PODMAN if PODMAN in said.lower() else DOCKER
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
        user = other_user(rules, admitted)
        plan = plan_docker(
            admitted,
            given=self._given,
            docker=self._docker,
            mark=mark,
            rules=rules,
            user=user,
            inputs=MachineInputs(rules, admitted.namespace, exact=True),
            machine=self.machine,
            checkpoint=checkpoint_folder(self._checkpoints, owner_of(admitted)),
            engine=self._engine,
        )
        # Without the right to give files away, the volumes stay those of the runner's Unix user.
        plan = msgspec.structs.replace(
            plan,
            volumes_of=None if os.geteuid() else user,
            hooks=hooks_of_run(rules.hooks, admitted, plan, self.machine.runner, user),
        )
        return with_limits(plan, rules.limits)

    async def epilog(self, run: RunFiles, end: Ended) -> str:
        return await run_epilog(run, end)

    async def sweep(self, run: RunFiles) -> bool:
        mark = run.identity.mark
        gone = await end_processes(mark, run.journal.processes, run.fork_server())
        status, _ = await _ask(SWEEP_SECONDS, *sweep_docker(self._docker, mark))
        return status == 0 and gone


async def _ask(seconds: float, *argv: str) -> tuple[int, str]:
    """The exit status of a program, and the last line of its standard error, or, if it succeeded,
    of its output. A program that takes longer than so many seconds is killed, and has the status
    124; one that cannot be started, such as a client that is being replaced, has the status 127."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return 127, f"cannot start {argv[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        return 124, f"no answer in {seconds:g} s"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    said = errors if process.returncode else output
    lines = said.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else "no answer"
