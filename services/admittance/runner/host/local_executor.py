"""Runs pods as process groups of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec
import structlog

from admittance.events.facts import Admitted
from admittance.events.stored.machines import Device
from admittance.folders import MachineFacts
from admittance.job_rules.options import check_env_files, own_unix_user
from admittance.job_rules.rules import CannotRun
from admittance.runner.decide import Ended
from admittance.runner.disk.checkpoints import checkpoint_folder
from admittance.runner.groups.job_groups import JobGroups, NoGroups, Offers
from admittance.runner.groups.machine_groups import find_groups
from admittance.runner.host.hooks import hooks_of_run, run_epilog
from admittance.runner.host.inherited import INHERITED, other_user, owner_of
from admittance.runner.host.live_rules import LiveRules
from admittance.runner.host.port import RunFiles
from admittance.runner.host.processes import GONE_SECONDS, end_processes
from admittance.runner.inventory.device_files import machine_devices
from admittance.runner.inventory.limit_messages import advice_messages, why_not_denied
from admittance.runner.plans.devices import NO_MACHINE
from admittance.runner.plans.inputs.host_inputs import MachineInputs
from admittance.runner.plans.local_plan import plan_local
from admittance.runner.plans.pod_limits import GroupsPlan
from admittance.runner.plans.run_plan import RunPlan, with_limits

LEFTOVER_SECONDS: Final = 1.0
"""Longest time of one attempt to end what is left in the groups of a closed run."""

log = structlog.get_logger(service="runner")


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

    def take_devices(self, runner: str, devices: tuple[Device, ...]) -> tuple[str, ...]:
        offers = self.groups.offers()
        self.machine = machine_devices(runner, devices, can_deny=offers.devices)
        return advice_messages(devices, self.machine.denied, why_not_denied(offers))

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
        user = other_user(rules, admitted)
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
            checkpoint=checkpoint_folder(self._checkpoints, owner_of(admitted)),
        )
        plan = with_limits(plan, rules.limits)
        return msgspec.structs.replace(
            plan,
            hooks=hooks_of_run(rules.hooks, admitted, plan, self.machine.runner, user),
            run_as=user,
            groups=self._groups_plan(),
            no_new_privs=not rules.limits.privilege_escalation,
        )

    def _groups_plan(self) -> GroupsPlan | None:
        version = self.groups.offers().version
        return GroupsPlan(version=version, folders=self.groups.folders()) if version else None

    async def epilog(self, run: RunFiles, end: Ended) -> str:
        return await run_epilog(run, end)

    async def sweep(self, run: RunFiles) -> bool:
        # No process leaves its group by accident. The marks are for machines without groups.
        ended = await asyncio.to_thread(self.groups.end, run.path.name, seconds=GONE_SECONDS)
        mark, known = run.identity.mark, run.journal.processes
        return await end_processes(mark, known, run.fork_server()) and ended
