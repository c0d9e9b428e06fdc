"""What runners say about their machines, in the bucket of claims: the inventory, the open runs, and
that they are alive. Each key ends with the name of its runner, under which only its user may write.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from admittance.events.names import token
from admittance.events.reader import Reader
from admittance.events.system import RunnerStarts, SystemMessage

INVENTORIES: Final = "_runner_inventory"
"""First token of the keys ``_runner_inventory.<runner>``: see `RunnerInventory`."""
OPEN_RUNS: Final = "_runner_runs"
"""First token of the keys ``_runner_runs.<runner>``: see `OpenRuns`."""
ALIVE_RUNNERS: Final = "_runner_alive"
"""First token of the keys ``_runner_alive.<runner>``: see `RunnerAlive`."""
REFUSED_RUNNERS: Final = "_runner_refused"
"""First token of the keys ``_runner_refused.<runner>``: see `RunnerRefused`."""
OF_RUNNERS: Final = (INVENTORIES, OPEN_RUNS, ALIVE_RUNNERS, REFUSED_RUNNERS)


class Device(SystemMessage, frozen=True, kw_only=True):
    """A device of the machine. ``id``: names the device across restarts, such as the UUID of a GPU;
    of a device given by hand it is the index. ``slices``: how many jobs may share the device.
    ``minor``: the number of its file in /dev; -1: not known."""

    resource: str
    index: int
    id: str
    slices: int = 1
    model: str = ""
    minor: int = -1


class RunnerTaint(SystemMessage, frozen=True, kw_only=True):
    """A taint of the machine, as in a manifest."""

    key: str
    value: str = ""
    effect: str = ""


class MachineFailure(SystemMessage, frozen=True, kw_only=True):
    """Why the runner drains its machine. ``at``: when the prolog or the epilog failed, in whole
    seconds; the time also tells one failure from the next. ``reason``: ``PrologFailed`` or
    ``EpilogFailed``."""

    at: datetime
    reason: str
    message: str


class RunnerInventory(SystemMessage, frozen=True, kw_only=True):
    """Key ``_runner_inventory.<runner>``: the machine of the runner. It is written when the runner
    starts, when it changes, and every ten minutes.

    ``id``: that of the runner's data folder, as in claims. ``name``: of the runner. ``boot_id``,
    ``mount_namespace``: programs with the same two see the same files. ``folders``: folders that
    the machine shares with others. ``capacity``:
    in accounting units, cpu in thousandths. ``starts``: whose jobs it starts; None: all jobs.
    ``messages``: what the machine cannot do, one sentence each. ``failure``: why its machine must
    be drained; None: it need not.
    """

    id: str
    name: str
    host: str = ""
    version: str = ""
    boot_id: str = ""
    mount_namespace: str = ""
    folders: tuple[str, ...] = ()
    capacity: dict[str, int] = msgspec.field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[RunnerTaint, ...] = ()
    executors: tuple[str, ...] = ()
    starts: RunnerStarts | None = None
    messages: tuple[str, ...] = ()
    failure: MachineFailure | None = None


class OpenRun(SystemMessage, frozen=True, kw_only=True):
    """A run that may have processes on the machine. ``revision``: that of its admission.
    ``requests``: what its pods ask for together, in accounting units. ``devices``: the ids of the
    devices that it was given, by resource. A run without a name stands for all further runs of a
    runner with very many. ``held``: no runner has started it, as a program holds what it asks for
    by a lease."""

    namespace: str
    name: str
    revision: int
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    devices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    held: bool = False


class OpenRuns(SystemMessage, frozen=True, kw_only=True):
    """Key ``_runner_runs.<runner>``: all runs that may have processes on the machine. It is written
    at each change, and every ten minutes. ``id``: that of the runner's data folder."""

    id: str
    runs: tuple[OpenRun, ...] = ()


class RunnerAlive(SystemMessage, frozen=True, kw_only=True):
    """Key ``_runner_alive.<runner>``, with a TTL: the runner with the data folder ``id`` on the
    machine ``host`` has the name, and is alive. Another runner with this name starts nothing.
    ``leaving``: the runner is being shut down, and starts nothing more."""

    id: str
    host: str = ""
    leaving: bool = False


class RunnerRefused(SystemMessage, frozen=True, kw_only=True):
    """Key ``_runner_refused.<runner>``, with a TTL: the runner with the data folder ``id`` on the
    machine ``host`` starts nothing, since another runner has its name."""

    id: str
    host: str = ""


read_inventory = Reader(RunnerInventory)
read_open_runs = Reader(OpenRuns)
read_alive_runner = Reader(RunnerAlive)
read_refused_runner = Reader(RunnerRefused)


def device_users(runs: Iterable[OpenRun]) -> dict[tuple[str, str], dict[tuple[str, str], int]]:
    """The workloads that have each device, by namespace and name, each with how many parts of the
    device it has. The keys are the resource and the id of the device."""
    users: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
    for run in runs:
        for resource, ids in run.devices.items():
            for unit in ids:
                # A part of a shared device is named <id>::<number>.
                of = users.setdefault((resource, unit.partition("::")[0]), {})
                workload = (run.namespace, run.name)
                of[workload] = of.get(workload, 0) + 1
    return users


def key_of_runner(first: str, runner: str) -> str:
    """The key of the bucket of claims that begins with the token ``first`` of `OF_RUNNERS`."""
    return f"{first}.{token(runner)}"
