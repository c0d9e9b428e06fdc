"""The machine of this process: data folders of files, and jobs that are processes or containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from admittance.runner.folder import DataFolder, open_run
from admittance.runner.launcher import Launcher, executor_of
from admittance.runner.machine import Executor, OtherRun, RunnerFiles, Shims
from admittance.runner.shim import boot_seconds


class LocalMachine:
    """The files, shims and clock of this machine, as
    `admittance.runner.machine.HostMachine` defines them.
    """

    def boot_seconds(self) -> float:
        return boot_seconds()

    def executor(self, name: str) -> Executor:
        return executor_of(name)

    def open_files(self, data_dir: Path) -> RunnerFiles:
        return DataFolder.open(data_dir)

    def shims(self, files: RunnerFiles, on_change: Callable[[str], None]) -> Shims:
        return Launcher(files, on_change)

    def find_run(self, roots: Mapping[str, str], key: str) -> OtherRun | None:
        return find_run(roots, key)


def find_run(roots: Mapping[str, str], key: str) -> OtherRun | None:
    """Returns the run of that key in one of the folders, or None; ``roots``: runner id to path of
    its folder.
    """
    for runner, root in roots.items():
        path = Path(root)
        try:
            if not path.is_absolute() or (path / "id").read_text().strip() != runner:
                continue
            found = open_run(path, key)
        except (OSError, ValueError):
            continue
        if found is None:
            continue
        try:
            return OtherRun(found, (path / "secret").read_text().strip().encode())
        except (OSError, ValueError):
            return OtherRun(found, None)
    return None
