"""Tells the decisions of placement what is known of machines, as far as it has changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from msgspec.structs import replace

from admittance.events.stored.machines import OpenRun
from admittance.events.system import RunnerAnnouncement
from admittance.folders import FolderSight
from admittance.placement.machines.folder_demands import host_of
from admittance.placement.machines.known_runners import NOT_STORED, KnownRunners
from admittance.placement.machines.machine import Machine
from admittance.placement.machines.stored_machine import machine_of


class Listener(Protocol):
    """The receiver of changes of machines: `admittance.placement.decisions.PlacementDecisions`."""

    def set_machine(self, machine: Machine) -> None: ...
    def forget_machine(self, machine_id: str) -> None: ...
    def set_runs(self, machine_id: str, runs: Iterable[OpenRun]) -> None: ...


class MachineFeed:
    """``touched``: the names of the runners of which something has changed.

    A machine counts with the id of its stored object, which is what assignments are compared with
    before they are stored. A runner that is not alive is lost since the first time that it was seen
    so; a new instance counts from its start, so that it moves no job too early."""

    def __init__(
        self,
        runners: KnownRunners,
        listener: Listener,
        sights: Mapping[str, FolderSight | None] = MappingProxyType({}),
    ) -> None:
        """``sights``: for each runner, by the id of its data folder, which folders its machine
        sees."""
        self._runners = runners
        self._sights = sights
        self._listener = listener
        self._ids: dict[str, str] = {}
        self._lost: dict[str, datetime] = {}
        self.touched: set[str] = set(runners.names())

    def look_at_id(self, machine_id: str) -> None:
        """What the runner with the data folder of this id sees has changed."""
        self.touched.update(name for name, known in self._ids.items() if known == machine_id)

    def pass_on(self, now: datetime) -> None:
        """Passes on what has changed since the last call."""
        for name in sorted(self.touched):
            self._pass_on(name, now)
        self.touched.clear()

    def _pass_on(self, name: str, now: datetime) -> None:
        stored = self._runners.objects.get(name, NOT_STORED).object
        machine = machine_of(stored) if stored is not None else None
        before = self._ids.get(name)
        if before is not None and (machine is None or machine.id != before):
            # Its open runs are not known to have ended, and count until its runner says so.
            self._listener.forget_machine(before)
            del self._ids[name]
        if machine is None:
            self._lost.pop(name, None)
            return
        self._ids[name] = machine.id
        if self._runners.is_ready(name):
            self._lost.pop(name, None)
            since = None
        else:
            since = self._lost.setdefault(name, now)
        said = self._runners.inventories.get(name)
        if said is not None and said.failure is not None and said.id == machine.id:
            # The runner gives each job back as long as it says so: before its object is drained,
            # and after an admin has ended the drain until the runner has seen that.
            machine = replace(
                machine, draining=True, message=machine.message or said.failure.message
            )
        sight = self._sights.get(machine.id)
        self._listener.set_machine(
            replace(
                machine,
                ready=since is None,
                lost_since=since,
                host=host_of(sight),
                folders=sight.shared if sight is not None else (),
            )
        )
        running = self._runners.runs.get(name)
        if running is not None and running.id == machine.id:
            self._listener.set_runs(machine.id, running.runs)


def older_runners(announced: Mapping[str, RunnerAnnouncement]) -> list[str]:
    """The runners of an earlier version, which would start what is placed on others, with the paths
    of their data folders. ``announced``: what runners say of themselves, by their ids."""
    return sorted(
        f"{runner} ({said.root})" if said.root else runner
        for runner, said in announced.items()
        if not said.placement
    )
