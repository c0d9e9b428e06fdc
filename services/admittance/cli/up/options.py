"""The options of `admit up` and `admit serve`, and which values would end a service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from admittance.client.errors import BadInput
from admittance.job_rules.machine_options import MachineTexts
from admittance.job_rules.options import EXECUTORS, RuleTexts
from admittance.runtime.errors import SetupError
from admittance.runtime.process.admin import address_of
from admittance.runtime.process.service import Service
from admittance.runtime.telemetry.metrics import prefix_of

AUTO: Final = "auto"
TWO_FROM_MILLI: Final = 2_000
"""From so many thousandths of a processor on, ``auto`` means two processes."""


def has_two_processes(processes: str, cpu_milli: int) -> bool:
    """Whether `admit up` has a second process, for the service with a process of its own.
    ``cpu_milli``: the processors that it may use; 0: not known."""
    return processes == "2" or (processes == AUTO and cpu_milli >= TWO_FROM_MILLI)


class Options(NamedTuple):
    """Options of ``admit up``; ``admit serve`` uses some of these options."""

    data_dir: Path
    folder_chosen: bool = False
    port: int | None = None
    runner: bool = True
    executor: str = "local"
    detach_jobs: bool = False
    sync_always: bool = False
    config: Path | None = None
    admin: str | None = None
    metrics_prefix: str | None = None
    insecure: bool = False
    use: bool = False
    service_processes: str = AUTO
    web: str | None = None
    web_url: str | None = None
    no_web: bool = False
    trust_header: str | None = None
    people: Path | None = None
    proxy: tuple[str, ...] = ()
    rules: RuleTexts = RuleTexts()
    machine: MachineTexts = MachineTexts()


def refuse_wrong(options: Options, executor: str | None, *, uses_folder: bool = True) -> None:
    """Raises BadInput for options that would end a service after its start. ``executor``: None if
    no runner starts. ``uses_folder``: whether anything that starts uses the data folder."""
    if uses_folder:
        _refuse_wrong_folder(options.data_dir)
    if executor is not None and executor not in EXECUTORS:
        raise BadInput(f"--executor {executor}: use one of {', '.join(EXECUTORS)}")
    for name, value, variable, read in (
        ("--admin", options.admin, "ADMIT_ADMIN", address_of),
        ("--metrics-prefix", options.metrics_prefix, "ADMIT_METRICS_PREFIX", prefix_of),
    ):
        if given := value or os.environ.get(variable):
            try:
                read(given)
            except SetupError as error:
                raise BadInput(f"{name if value else variable} {given}: {error}") from None


def refuse_wrong_of(service: Service, options: Options) -> None:
    """As `refuse_wrong`, for one service. Only a service that runs jobs uses the data folder: in a
    container of any other service, nothing may be writable."""
    runs_jobs = service.runs_jobs
    refuse_wrong(options, options.executor if runs_jobs else None, uses_folder=runs_jobs)


def _refuse_wrong_folder(data_dir: Path) -> None:
    if data_dir.exists() and not data_dir.is_dir():
        raise BadInput(f"--data-dir {data_dir} is not a folder")
    if data_dir.exists() and not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        owner = data_dir.stat().st_uid
        owned = "" if owner == os.geteuid() else f" (it belongs to the Unix user {owner})"
        raise BadInput(
            f"cannot use the data folder {data_dir}: your Unix user may not read and write it"
            f"{owned}; choose another with --data-dir"
        )


def with_real_folder(options: Options) -> Options:
    return options._replace(data_dir=Path(os.path.realpath(options.data_dir)))
