"""Checks of `admit doctor`: machines and the quota that is promised of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from admittance.api.checks import MACHINES_CONTROLLER, AdmissionCheck
from admittance.api.fields.units import BadQuantity, amount, render
from admittance.api.kinds import KINDS
from admittance.api.manifests import Manifest
from admittance.api.queues import ClusterQueue, Cohort, ResourceFlavor
from admittance.api.runners import Runner
from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import lookup_all
from admittance.doctor.finding import Finding, note, wrong
from admittance.events.reader import Unreadable
from admittance.placement.machines.known_runners import NAME_CONFLICT
from admittance.placement.machines.machine import Machine
from admittance.placement.machines.stored_machine import machine_of
from admittance.workload.bucket_reader import read_manifest

NAMED_MAX: Final = 3
PAGE: Final = "docs/machines.md"

M = TypeVar("M", bound=Manifest)


class Promises(NamedTuple):
    """What the bucket says about machines and quota."""

    runners: Sequence[Runner]
    flavors: Sequence[ResourceFlavor] = ()
    queues: Sequence[ClusterQueue | Cohort] = ()
    checks: Sequence[AdmissionCheck] = ()


async def machine_findings(bus: Link) -> list[Finding]:
    """The findings about machines; empty if no runner announces one, or if the bucket cannot be
    read, which another finding reports."""
    with suppress(RequestFailed):
        runners = await _objects(bus, Runner)
        if not runners:
            return []
        queues = await _objects(bus, ClusterQueue)
        cohorts = await _objects(bus, Cohort)
        flavors, checks = await _objects(bus, ResourceFlavor), await _objects(bus, AdmissionCheck)
        return findings_of(Promises(runners, flavors, [*queues, *cohorts], checks))
    return []


async def _objects(bus: Link, kind: type[M]) -> list[M]:
    """The readable objects of a kind; a finding of its own names the others."""
    read: list[M] = []
    for stored in await lookup_all(bus, f"{KINDS[kind.__name__].prefix}.>"):
        with suppress(Unreadable):
            manifest = read_manifest(stored.key, stored.data)
            if isinstance(manifest, kind):
                read.append(manifest)
    return read


def findings_of(given: Promises) -> list[Finding]:
    """The findings about these objects."""
    return [
        *_conflicts(given.runners),
        *_lacking(given.runners),
        *_promised(given),
    ]


def _conflicts(runners: Iterable[Runner]) -> Iterator[Finding]:
    for runner in runners:
        for condition in runner.status.conditions if runner.status is not None else ():
            if condition.type == NAME_CONFLICT and condition.status == "True":
                todo = f"give one of them a user, or an ADMIT_RUNNER, of its own: {PAGE}"
                yield wrong(f"runner {runner.metadata.name}", condition.message, todo)


def _lacking(runners: Iterable[Runner]) -> Iterator[Finding]:
    """What machines cannot do, one line for each sentence."""
    said: dict[str, list[str]] = defaultdict(list)
    for runner in runners:
        status = runner.status
        for message in status.messages if status is not None else ():
            # A machine without devices has none to keep jobs from.
            if "devices" not in message or (status is not None and status.devices):
                said[message].append(runner.metadata.name)
    for message, names in said.items():
        todo = f"see what the machine lacks: {PAGE}, docs/runner.md"
        yield note(f"runner {_some(names)}", message, todo)


def _promised(given: Promises) -> Iterator[Finding]:
    """The quota of covered flavors that is larger than the machines."""
    covered = {
        flavor
        for check in given.checks
        if check.spec.controller_name == MACHINES_CONTROLLER
        for flavor in check.spec.on_flavors
    }
    machines = [machine for runner in given.runners if (machine := _machine(runner)) is not None]
    promised = _quota(given.queues)
    for flavor in given.flavors:
        name = flavor.metadata.name
        if name not in covered:
            continue
        labels = flavor.spec.node_labels.items()
        fitting = [machine for machine in machines if labels <= machine.labels.items()]
        for resource, quota in sorted(promised.get(name, {}).items()):
            offered = sum(machine.capacity.get(resource, 0) for machine in fitting)
            if quota > offered:
                yield note(
                    f"flavor {name}",
                    f"ClusterQueues promise {render(resource, quota)} {resource} of it, "
                    f"{len(fitting):,} {'runner offers' if len(fitting) == 1 else 'runners offer'} "
                    f"{render(resource, offered)}",
                    f"workloads above that wait for a machine: lower the quota, or start runners "
                    f"with the labels of the flavor: {PAGE}",
                )


def _machine(runner: Runner) -> Machine | None:
    try:
        return machine_of(runner)
    except BadQuantity:
        return None  # no runner announces it: the object was written by hand


def _quota(queues: Iterable[ClusterQueue | Cohort]) -> dict[str, dict[str, int]]:
    """The nominal quota by flavor and resource."""
    total: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for queue in queues:
        for group in queue.spec.resource_groups:
            for flavor in group.flavors:
                for quota in flavor.resources:
                    total[flavor.name][quota.name] += amount(quota.name, quota.nominal_quota)
    return total


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
