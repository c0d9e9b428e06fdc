"""The description of one runner and its machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from admittance.api.fields.units import render
from admittance.cli.show import sections
from admittance.cli.show.capacity.machines import amounts, listed, messages, ready_text, taints
from admittance.cli.support import output
from admittance.cli.support.output import NOTHING, Table, columns_of, pairs
from admittance.cli.support.times import age
from admittance.client import kinds
from admittance.client.arguments.times import stamp
from admittance.client.requests.link import Link
from admittance.client.requests.machines import with_states
from admittance.client.requests.objects import BucketObject, field
from admittance.events.requests.machines import MachineState
from admittance.events.stored.machines import OpenRun, device_users
from admittance.runtime import clock


async def describe(bus: Link, stored: BucketObject) -> None:
    """Prints a runner with its machine, and what runs there."""
    known = await with_states(bus, kinds.RUNNER, [stored])
    if known.why:
        output.warn(f"what runs on the machine is unknown: {known.why}")
    [runner] = known.runners
    _describe(runner, known.states.get(stored.name), clock.now())


def _describe(stored: BucketObject, state: MachineState | None, now: datetime) -> None:
    plain = stored.plain()
    created = stored.created()
    output.facts(
        [
            ("Name", stored.name),
            ("Ready", ready_text(plain)),
            ("Drain", _drain(field(plain, "spec", "drain"))),
            ("Host", str(field(plain, "status", "host", default=""))),
            ("Data folder", str(field(plain, "status", "id", default=""))),
            ("Version", str(field(plain, "status", "version", default=""))),
            ("Created", f"{stamp(created)} ({age(created, now)})" if created else ""),
            ("Labels", pairs(field(plain, "metadata", "labels", default={}))),
            ("Taints", ", ".join(taints(plain))),
            ("Executor", ", ".join(field(plain, "status", "executors", default=()))),
            ("Jobs of", _users(field(plain, "status", "users"))),
        ]
    )
    runs = state.runs if state is not None else ()
    for number, message in enumerate((*messages(plain), *lost_devices(plain, runs))):
        output.say(f"{'' if number else chr(10)}! {output.clean(message)}")
    output.section("Resources", _resources(plain))
    output.section("Devices", _devices(plain, runs))
    output.section("Runs", _runs(runs))
    output.section("Conditions", sections.conditions(plain, now))


def _drain(drain: Mapping[str, Any] | None) -> str:
    if drain is None:
        return ""
    until = drain.get("deadline")
    text = f"jobs are evicted at {until}" if until else "jobs may end by themselves"
    return f"{text} ({drain['reason']})" if drain.get("reason") else text


def _resources(plain: Mapping[str, Any]) -> Table:
    capacity, used = amounts(plain, "capacity"), amounts(plain, "inUse")
    names = sorted({*capacity, *used})
    return Table(
        columns_of("RESOURCE", "#CAPACITY", "#IN USE"),
        [(name, capacity.get(name, NOTHING), used.get(name, "0")) for name in names],
    )


def lost_devices(plain: Mapping[str, Any], runs: Sequence[OpenRun]) -> list[str]:
    """A sentence about each device that jobs have and the machine does not announce any more."""
    present = {
        (device.get("resource", ""), device.get("id", ""))
        for device in field(plain, "status", "devices", default=())
    }
    return [
        f"{resource} {device} is gone from the machine, and was assigned to {_named(users)}, "
        "which still runs: if it needs the device, end it with `admit stop workload`"
        for (resource, device), users in sorted(device_users(runs).items())
        if (resource, device) not in present
    ]


def _named(workloads: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{namespace}/{name}" for namespace, name in workloads)


def _devices(plain: Mapping[str, Any], runs: Sequence[OpenRun]) -> Table:
    users = device_users(runs)
    return Table(
        columns_of("RESOURCE", "#INDEX", "ID", "#JOBS", "MODEL", "USED BY"),
        [
            (
                device.get("resource", ""),
                str(device.get("index", "")),
                device.get("id", ""),
                str(device.get("slices", 1)),
                device.get("model") or NOTHING,
                _named(users.get((device.get("resource", ""), device.get("id", "")), ()))
                or NOTHING,
            )
            for device in field(plain, "status", "devices", default=())
        ],
    )


def _runs(runs: Sequence[OpenRun]) -> Table:
    return Table(
        columns_of("NAMESPACE", "WORKLOAD", "#REVISION", "ASKED FOR"),
        [
            (
                run.namespace or NOTHING,
                f"{run.name or 'all others'}{' (held by a program)' if run.held else ''}",
                str(run.revision) if run.name else NOTHING,
                listed({name: render(name, run.requests[name]) for name in sorted(run.requests)}),
            )
            for run in sorted(runs, key=lambda run: (run.namespace, run.name, run.revision))
        ],
    )


def _users(users: Mapping[str, Any] | None) -> str:
    if users is None or users.get("every"):
        return "all submitters"
    named = [*users.get("submitters", ()), *(f"namespace {ns}" for ns in users.get("allOf", ()))]
    return ", ".join(named) or "none: it has no Unix user for jobs"
