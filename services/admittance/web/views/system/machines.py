"""The page of machines: what each offers, which workloads hold its devices, and what lacks room."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from admittance.api.fields.units import amount as units_of
from admittance.api.runners import Runner, RunnerStatus
from admittance.client.calls import Login
from admittance.events.requests.machines import LackingRow, MachinesReply, MachineState
from admittance.events.stored.machines import OpenRun, device_users
from admittance.web.paths import machines_path, workload_path
from admittance.web.views.actions import Ask
from admittance.web.views.words import GPU, Link, Word, amount, between, clock_time, number

ROWS_MAX: Final = 100
"""The most machines of one page."""
CELLS_MAX: Final = 64
RUNS_MAX: Final = 10
CHANGES: Final = frozenset({"", "admin"})
"""The roles that change machines; "": the server has no users."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device. ``state``: ``free``; ``taken``: workloads have all of it, ``part``: some of its
    shares; ``closed``: nothing has it and the machine takes no jobs; ``lost``: workloads have it
    and the machine does not announce it any more. ``word``: the state in words; ``of``: the
    workloads."""

    id: str
    name: str
    model: str
    state: str
    word: str
    of: tuple[Link, ...] = ()


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """A resource. ``used``: the width in percent of what the runs have asked for; ``over``: they
    have asked for more than there is."""

    resource: str
    used: float
    over: bool
    text: str
    label: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run. ``link`` None: it stands for all further runs."""

    name: str
    link: Link | None
    asks: str
    held: bool


class MachineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. ``notes``: why it takes no jobs, and what it cannot do, one sentence each."""

    id: str
    name: str
    host: str
    word: Word
    notes: tuple[str, ...]
    labels: tuple[str, ...]
    taints: tuple[str, ...]
    gauges: tuple[Gauge, ...]
    devices: tuple[Device, ...]
    devices_more: int
    runs: tuple[Run, ...]
    runs_more: int
    acts: tuple[Ask, ...]


class Lacking(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that lacks room. ``misses``: what it misses, a sentence."""

    id: str
    link: Link
    namespace: str
    priority: str
    waiting: str
    misses: str


class MachinesView(msgspec.Struct, frozen=True, kw_only=True):
    """``unknown``: why it is not known what runs; "": it is. ``lacking_more``: how many further
    workloads lack room."""

    title: str
    say: str
    unknown: str
    rows: tuple[MachineRow, ...]
    lacking: tuple[Lacking, ...]
    lacking_more: int
    earlier: Link | None
    later: Link | None


def build(
    runners: Sequence[Runner],
    reply: MachinesReply | None,
    login: Login,
    now: datetime,
    *,
    skip: int = 0,
    unknown: str = "",
) -> MachinesView:
    """The view of one page of machines. ``runners``: all of them; ``reply``: what runs there, None:
    it is not known, and ``unknown`` says why; ``skip``: how many are on the pages before."""
    states = {} if reply is None else {state.runner: state for state in reply.machines}
    ordered = sorted(runners, key=lambda runner: runner.metadata.name)
    page = ordered[skip : skip + ROWS_MAX]
    lacking = () if reply is None else reply.lacking
    total = 0 if reply is None else reply.lacking_total
    end = skip + len(page)
    return MachinesView(
        title=_title(len(runners), total),
        say=_say(ordered, states, total, is_known=reply is not None),
        unknown=unknown,
        rows=tuple(
            _row(runner, _state(runner, states, is_known=reply is not None), login, now)
            for runner in page
        ),
        lacking=tuple(_lacking(row, now) for row in lacking),
        lacking_more=total - len(lacking),
        earlier=Link("Earlier", machines_path(max(0, skip - ROWS_MAX))) if skip else None,
        later=Link("Later", machines_path(end)) if end < len(runners) else None,
    )


def actions(runner: Runner, login: Login) -> tuple[Ask, ...]:
    """What a person may do to the machine. nats-server decides about each again."""
    if login.role not in CHANGES:
        return ()
    name = runner.metadata.name

    def ask(
        label: str, verb: str, *, words: str = "", given: str = "", field: str = "", then: str = ""
    ) -> Ask:
        return Ask(
            label=label,
            verb=verb,
            command=f"admit {verb} runner {shlex.quote(name)}{words}",
            python=f"await client.{verb}({name!r}{given})",
            field=field,
            confirm=then,
            danger=bool(then),
        )

    if runner.spec.unschedulable:
        first = ask("Uncordon", "uncordon")
    else:
        first = ask("Cordon…", "cordon", then=f"Cordon {name}? It gets no new jobs.")
    if runner.spec.drain is not None:
        return (first, ask("Undrain", "undrain"))
    question = f"Drain {name}? It gets no new jobs; those that run there may end by themselves."
    drain = ask(
        "Drain…", "drain", words=" --reason '{}'", given=", reason='{}'", field="reason",
        then=question,
    )  # fmt: skip
    return (first, drain)


# The parts of a row. --------------------------------------------------------------------


def _state(
    runner: Runner, states: Mapping[str, MachineState], *, is_known: bool
) -> MachineState | None:
    """What runs on the machine; None: it is not known."""
    name = runner.metadata.name
    return states.get(name, MachineState(runner=name)) if is_known else None


def _row(runner: Runner, state: MachineState | None, login: Login, now: datetime) -> MachineRow:
    status = runner.status or RunnerStatus()
    runs = state.runs if state is not None else ()
    devices = _devices(runner, status, runs, is_known=state is not None)
    by_name = sorted(runs, key=lambda run: (not run.name, run.namespace, run.name, run.revision))
    return MachineRow(
        id=runner.metadata.name,
        name=runner.metadata.name,
        host=status.host if status.host != runner.metadata.name else "",
        word=_word(runner, state, now),
        notes=_notes(runner, status, state, now),
        labels=tuple(f"{key}={value}" for key, value in sorted(runner.metadata.labels.items())),
        taints=tuple(
            f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
            for taint in runner.spec.taints
        ),
        gauges=_gauges(runner.metadata.name, status, state),
        devices=tuple(devices[:CELLS_MAX]),
        devices_more=max(0, len(devices) - CELLS_MAX),
        runs=tuple(_run(run) for run in by_name[:RUNS_MAX]),
        runs_more=max(0, len(by_name) - RUNS_MAX),
        acts=actions(runner, login),
    )


def _is_closed(runner: Runner) -> bool:
    return runner.spec.unschedulable or runner.spec.drain is not None


def _word(runner: Runner, state: MachineState | None, now: datetime) -> Word:
    if state is None:
        return Word("Unknown", "pending")
    if not state.ready:
        return Word("Not seen", "rejected")
    drain = runner.spec.drain
    if drain is not None:
        until = drain.deadline
        ends = until is not None and until > now and bool(state.runs)
        return Word("Draining", "evicting") if ends else Word("Drained", "off")
    return Word("Cordoned", "off") if runner.spec.unschedulable else Word("Ready", "running")


def _notes(
    runner: Runner, status: RunnerStatus, state: MachineState | None, now: datetime
) -> tuple[str, ...]:
    notes = []
    if state is not None and not state.ready:
        notes.append("Its runner does not say that it is alive.")
    drain = runner.spec.drain
    if drain is not None:
        reason = f": {drain.reason}" if drain.reason else ""
        notes.append(f"It is drained{reason}.")
        notes.append(
            f"Jobs are evicted at {clock_time(drain.deadline, now, seconds=False)}."
            if drain.deadline is not None
            else "Jobs may end by themselves."
        )
    if runner.spec.unschedulable:
        notes.append("It is cordoned.")
    conditions = (c.message for c in status.conditions if c.type != "Ready" and c.status == "True")
    reason = drain.reason if drain is not None else ""
    for message in (*conditions, *status.messages):
        if message and message != reason:
            notes.append(f"{message[0].upper()}{message[1:]}.")
    return tuple(notes)


def _gauges(name: str, status: RunnerStatus, state: MachineState | None) -> tuple[Gauge, ...]:
    """The resources of the machine, without those that its devices show."""
    of_devices = {device.resource for device in status.devices}
    used = {} if state is None else state.in_use
    shown: list[str] = [r for r in ("cpu", "memory") if r in status.capacity or r in used]
    shown += sorted(r for r in {*status.capacity, *used} if r not in ("cpu", "memory"))
    gauges = []
    for resource in shown:
        if resource in of_devices:
            continue
        has = units_of(resource, status.capacity.get(resource, "0"))
        asked = used.get(resource, 0)
        width = min(100.0, 100.0 * asked / has) if has else 100.0 * bool(asked)
        is_over = asked > has
        of = amount(resource, has)
        text = f"{number(resource, asked)} of {of}" if state is not None else of
        gauges.append(
            Gauge(
                resource=resource,
                used=round(width, 2),
                over=is_over,
                text=text,
                label=f"{name}: {text}{' asked for' if state is not None else ''}",
            )
        )
    return tuple(gauges)


def _devices(
    runner: Runner, status: RunnerStatus, runs: Sequence[OpenRun], *, is_known: bool
) -> list[Device]:
    users = device_users(runs)
    cells = []
    for device in status.devices:
        of = users.pop((device.resource, device.id), {})
        parts = sum(of.values())
        if of and parts >= device.slices:
            state, word = "taken", "taken" if device.slices == 1 else f"{parts} of {device.slices}"
        elif of:
            state, word = "part", f"{parts} of {device.slices}"
        elif not is_known:
            state, word = "closed", "unknown"
        elif _is_closed(runner):
            state, word = "closed", "drained" if runner.spec.drain is not None else "cordoned"
        else:
            state, word = "free", "free"
        cells.append(
            Device(
                id=f"{runner.metadata.name}/{device.resource}/{device.id}",
                name=_device_name(device.resource, str(device.index)),
                model=device.model,
                state=state,
                word=word,
                of=_links(of),
            )
        )
    for (resource, id), of in sorted(users.items()):
        cells.append(
            Device(
                id=f"{runner.metadata.name}/{resource}/{id}",
                name=_device_name(resource, id),
                model="",
                state="lost",
                word="gone from the machine",
                of=_links(of),
            )
        )
    return cells


def _device_name(resource: str, which: str) -> str:
    return f"{'GPU' if resource == GPU else resource} {which}"


def _links(of: Mapping[tuple[str, str], int]) -> tuple[Link, ...]:
    return tuple(Link(name, workload_path(namespace, name)) for namespace, name in of)


def _run(run: OpenRun) -> Run:
    asks = (amount(resource, run.requests[resource]) for resource in sorted(run.requests))
    return Run(
        name=run.name or "all other runs",
        link=Link(run.name, workload_path(run.namespace, run.name)) if run.name else None,
        asks=", ".join(asks),
        held=run.held,
    )


def _lacking(row: LackingRow, now: datetime) -> Lacking:
    return Lacking(
        id=f"{row.namespace}/{row.name}",
        link=Link(row.name, workload_path(row.namespace, row.name)),
        namespace=row.namespace,
        priority=str(row.priority),
        waiting=between(row.since, now),
        misses=f"{row.message}.",
    )


# The sentence. --------------------------------------------------------------------------


def _title(machines: int, lacking: int) -> str:
    noun = "machine" if machines == 1 else "machines"
    verb = "lacks" if lacking == 1 else "lack"
    return f"{machines:,} {noun}" + (f", {lacking:,} {verb} room" if lacking else "")


def _say(
    runners: Sequence[Runner], states: Mapping[str, MachineState], lacking: int, *, is_known: bool
) -> str:
    if not runners:
        return "There is no machine yet: start a runner."
    known = [(runner, _state(runner, states, is_known=is_known)) for runner in runners]
    ready = [runner for runner, state in known if state is not None and state.ready]
    takes = sum(not _is_closed(runner) for runner in ready)
    if not is_known:
        return f"{_title(len(runners), 0)}; it is not known what runs there."
    noun = "machine" if len(runners) == 1 else "machines"
    text = f"{takes:,} of {len(runners):,} {noun} {'takes' if takes == 1 else 'take'} jobs"
    away = len(runners) - len(ready)
    if away:
        text += f"; {away:,} {'is' if away == 1 else 'are'} not seen"
    if lacking:
        return f"{text}. {lacking:,} workload{' lacks' if lacking == 1 else 's lack'} room."
    return f"{text}. No workload lacks room."
