"""The machine of this process: data folders of files, and jobs that are processes or containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from admittance.events.stored.machines import RunnerInventory
from admittance.folders import MachineFacts
from admittance.job_rules.machine_options import GivenMachine
from admittance.job_rules.rules import JobRules
from admittance.runner.host.data_folder import DataFolder, find_run
from admittance.runner.host.docker_executor import DockerExecutor
from admittance.runner.host.launcher import Launcher
from admittance.runner.host.live_rules import LiveRules
from admittance.runner.host.local_executor import LocalExecutor
from admittance.runner.host.port import Executor, OtherRun, RunnerFiles, Shims
from admittance.runner.inventory.device_files import is_character_device
from admittance.runner.inventory.device_list import DeviceList
from admittance.runner.inventory.devices import Detected, detect
from admittance.runner.inventory.machine_inventory import AnnouncedRunner, inventory_of
from admittance.runner.inventory.nvml_child import NvmlChild
from admittance.runner.jobs.shim import boot_seconds
from admittance.runtime.errors import SetupError
from admittance.runtime.process.this_machine import machine_facts

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


class LocalMachine:
    """The `HostMachine` of this process."""

    def __init__(self, rules: LiveRules) -> None:
        self._rules = rules
        self._devices: DeviceList | None = None
        """None: before the first look."""
        self._nvml = NvmlChild()

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

    def inventory(self, given: GivenMachine, runner: AnnouncedRunner) -> RunnerInventory:
        self._devices = self._devices or DeviceList(given.devices, is_character_device)
        return inventory_of(given, machine_facts(), runner, self._devices, detect=self._detect)

    def _detect(self, root: Path) -> Detected:
        return detect(root, self._nvml.ask)

    def find_run(self, roots: Mapping[str, str], key: str) -> OtherRun | None:
        return find_run(roots, key)
