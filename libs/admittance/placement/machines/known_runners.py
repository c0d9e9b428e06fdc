"""What placement knows of runners, and how each Runner object must look. Pure.

An object changes with the inventory of its machine, and when a second runner wants its name. Which
runners are alive, and what runs on them, changes often: that is answered and not stored, so that a
heartbeat or a job wakes no reader of the bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict, replace

from admittance.api.fields.units import render
from admittance.api.meta import Condition, ObjectMeta, Taint
from admittance.api.runners import Runner, RunnerDevice, RunnerSpec, RunnerStatus, RunnerUsers
from admittance.events import reasons
from admittance.events.names import uid_of
from admittance.events.reader import Unreadable
from admittance.events.requests.machines import MachineState
from admittance.events.stored.machines import (
    ALIVE_RUNNERS,
    INVENTORIES,
    OPEN_RUNS,
    REFUSED_RUNNERS,
    OpenRun,
    OpenRuns,
    RunnerAlive,
    RunnerInventory,
    RunnerRefused,
    read_alive_runner,
    read_inventory,
    read_open_runs,
    read_refused_runner,
)
from admittance.placement.machines.failed_hooks import drained_by_hooks

PAGE_RUNS: Final = 1_500
"""After so many runs a page of machines ends."""
NAME_CONFLICT: Final = "NameConflict"
"""The condition of a Runner if a second runner uses its name."""


class StoredRunner(NamedTuple):
    """A Runner object, None if it was deleted, and its revision in the bucket."""

    object: Runner | None
    revision: int


NOT_STORED: Final = StoredRunner(None, 0)


def _nothing(_: str) -> Sequence[OpenRun]:
    return ()


class RunnerWrite(NamedTuple):
    """The write that an object needs. ``expected``: the revision that it replaces."""

    name: str
    object: Runner
    expected: int


class KnownRunners:
    """What runners have said last, and the stored objects, each by the runner's name.

    Invariant: ``alive`` and ``refused`` hold only what has not expired. ``objects`` is for reading:
    `set_object` changes it.
    """

    def __init__(self) -> None:
        self.objects: dict[str, StoredRunner] = {}
        self._unsettled: set[str] = set()
        """The runners with objects that may have to be written. A heartbeat and a list of runs
        change no object, so that they cost the same with any number of runners."""
        self.inventories: dict[str, RunnerInventory] = {}
        self.alive: dict[str, RunnerAlive] = {}
        self.refused: dict[str, RunnerRefused] = {}
        self.runs: dict[str, OpenRuns] = {}
        self.held: Callable[[str], Sequence[OpenRun]] = _nothing
        """A function that returns what is held of the machine with an id, beside the runs that its
        runner reports: by programs, and by jobs of earlier data folders of the runner."""
        self._tables: dict[str, tuple[dict[str, Any], Callable[[bytes], Any]]] = {
            INVENTORIES: (self.inventories, read_inventory),
            ALIVE_RUNNERS: (self.alive, read_alive_runner),
            REFUSED_RUNNERS: (self.refused, read_refused_runner),
            OPEN_RUNS: (self.runs, read_open_runs),
        }

    def said(self, first: str, name: str, value: bytes | None) -> None:
        """Records what the runner says at the key of the bucket of claims that begins with
        ``first``; None: the value was deleted, or has expired. Raises Unreadable."""
        table, read = self._tables[first]
        if table is self.inventories or table is self.refused:
            self._unsettled.add(name)
        table.pop(name, None)
        if value is None:
            return
        said = read(value)
        if isinstance(said, RunnerInventory) and said.name != name:
            raise Unreadable(f"the inventory names another runner: {said.name}")
        table[name] = said

    def set_object(self, name: str, stored: StoredRunner) -> None:
        """Records the object of a runner as it is in the bucket now."""
        self.objects[name] = stored
        self._unsettled.add(name)

    def writes(self, now: datetime) -> Iterator[RunnerWrite]:
        """The writes of all objects that do not look as they must; each comes again until its
        object is set."""
        for name in sorted(self._unsettled):
            stored = self.objects.get(name, NOT_STORED)
            if name in self.inventories:
                wanted = self._wanted(name, stored.object, now)
                if wanted != stored.object:
                    yield RunnerWrite(name, wanted, stored.revision)
                    continue
            self._unsettled.discard(name)

    def _wanted(self, name: str, before: Runner | None, now: datetime) -> Runner:
        said = self.inventories[name]
        conditions = before.status.conditions if before is not None and before.status else ()
        return runner_object(
            before, said, _with_conflict(conditions, said, self.refused.get(name), now), now
        )

    def is_ready(self, name: str) -> bool:
        """Whether the runner that announced the machine is alive, and is not being shut down."""
        said, alive = self.inventories.get(name), self.alive.get(name)
        return said is not None and alive is not None and alive.id == said.id and not alive.leaving

    def names(self) -> list[str]:
        """The names of all runners, sorted: those that have said something, and stored ones."""
        stored = (name for name, kept in self.objects.items() if kept.object is not None)
        return sorted({*self.inventories, *stored})

    def state(self, name: str, *, with_runs: bool = False) -> MachineState:
        """What runs on the machine, with what programs hold there, and whether its runner is
        alive."""
        said, announced = self.runs.get(name), self.inventories.get(name)
        runs = said.runs if said is not None else ()
        if announced is not None:
            # The runner of the present data folder has not reported its runs yet.
            runs = runs if said is not None and said.id == announced.id else ()
            runs = (*runs, *self.held(announced.id))
        in_use: dict[str, int] = {}
        for run in runs:
            for resource, amount in run.requests.items():
                in_use[resource] = in_use.get(resource, 0) + amount
        return MachineState(
            runner=name,
            ready=self.is_ready(name),
            in_use=in_use,
            runs=runs if with_runs else (),
        )

    def page(self, names: Sequence[str], with_runs: bool) -> tuple[MachineState, ...]:
        """The states of the first of the machines: of all, or with runs of those up to the machine
        with the run `PAGE_RUNS`."""
        states: list[MachineState] = []
        runs = 0
        for name in names:
            states.append(self.state(name, with_runs=with_runs))
            runs += len(states[-1].runs)
            if runs >= PAGE_RUNS:
                break
        return tuple(states)


def runner_object(
    before: Runner | None,
    said: RunnerInventory,
    conditions: tuple[Condition, ...],
    now: datetime,
) -> Runner:
    """The object of a runner that announced ``said``. ``before``: as it is stored; None: it is not.
    Of the stored object, what users set in ``spec`` and the metadata of users stay."""
    old = before or Runner()
    drain, conditions = drained_by_hooks(old.spec.drain, conditions, said.failure, now)
    spec = RunnerSpec(
        unschedulable=old.spec.unschedulable,
        drain=drain,
        taints=tuple(
            Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in said.taints
        ),
    )
    status = RunnerStatus(
        id=said.id,
        version=said.version,
        host=said.host,
        boot_id=said.boot_id,
        mount_namespace=said.mount_namespace,
        folders=said.folders,
        capacity={name: render(name, said.capacity[name]) for name in sorted(said.capacity)},
        devices=tuple(
            RunnerDevice(
                resource=device.resource,
                index=device.index,
                id=device.id,
                slices=device.slices,
                model=device.model,
            )
            for device in said.devices
        ),
        executors=said.executors,
        users=None if said.starts is None else RunnerUsers(**asdict(said.starts)),
        messages=said.messages,
        conditions=conditions,
    )
    labels = dict(sorted(said.labels.items()))
    if before is None:
        meta = ObjectMeta(
            name=said.name,
            uid=uid_of(f"runner/{said.name}/{now.isoformat()}"),
            creation_timestamp=now,
            generation=1,
            labels=labels,
        )
        return Runner(metadata=meta, spec=spec, status=status)
    changed = (spec, labels) != (before.spec, before.metadata.labels)
    meta = replace(
        before.metadata, labels=labels, generation=before.metadata.generation + int(changed)
    )
    return replace(before, metadata=meta, spec=spec, status=status)


def _with_conflict(
    conditions: tuple[Condition, ...],
    said: RunnerInventory,
    refused: RunnerRefused | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions, with that of two runners with one name, which is absent until there were
    two."""
    old = next((condition for condition in conditions if condition.type == NAME_CONFLICT), None)
    if refused is None or refused.id == said.id:
        if old is None:
            return conditions
        new = Condition(type=NAME_CONFLICT, status="False", reason=reasons.ONE_RUNNER)
    else:
        new = Condition(
            type=NAME_CONFLICT,
            status="True",
            reason=reasons.TWO_RUNNERS,
            message=f"a second runner has this name and starts nothing: data folder {refused.id} "
            f"on host {refused.host or 'unknown'}; give it a user of its own, or an ADMIT_RUNNER",
        )
    since: datetime | None = now
    if old is not None and (old.status, old.message) == (new.status, new.message):
        since = old.last_transition_time
    new = replace(new, last_transition_time=since)
    return (*(condition for condition in conditions if condition is not old), new)
