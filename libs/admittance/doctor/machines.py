"""Checks of `admit doctor`: machines and the quota that is promised of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from admittance.api.checks import MACHINES_CONTROLLER, AdmissionCheck
from admittance.api.fields.limits import is_extended
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
from admittance.events.requests.reading import AnnouncedRunner
from admittance.placement.machines.failed_hooks import condition_of
from admittance.placement.machines.known_runners import NAME_CONFLICT
from admittance.placement.machines.machine import Machine
from admittance.placement.machines.stored_machine import machine_of
from admittance.placement.search.room import capacity_of, units_of
from admittance.workload.bucket_reader import read_manifest

NAMED_MAX: Final = 3
PAGE: Final = "docs/machines.md"
UPGRADE: Final = "docs/backup.md#upgrade"
VARIANTS: Final = "docs/concurrent-admission.md"

M = TypeVar("M", bound=Manifest)


class Promises(NamedTuple):
    """What the bucket says about machines and quota. ``announced``: the runners that announced
    themselves in the last days."""

    runners: Sequence[Runner]
    flavors: Sequence[ResourceFlavor] = ()
    queues: Sequence[ClusterQueue | Cohort] = ()
    checks: Sequence[AdmissionCheck] = ()
    announced: Sequence[AnnouncedRunner] = ()

    @property
    def covered(self) -> set[str]:
        """The flavors of which workloads are placed on machines."""
        return {
            flavor
            for check in self.checks
            if check.spec.controller_name == MACHINES_CONTROLLER
            for flavor in check.spec.on_flavors
        }


async def machine_findings(bus: Link, announced: Sequence[AnnouncedRunner] = ()) -> list[Finding]:
    """The findings about machines; empty if no runner announces one, or if the bucket cannot be
    read, which another finding reports. ``announced``: as in `Promises`."""
    with suppress(RequestFailed):
        runners = await _objects(bus, Runner)
        if not runners:
            return []
        queues = await _objects(bus, ClusterQueue)
        cohorts = await _objects(bus, Cohort)
        flavors, checks = await _objects(bus, ResourceFlavor), await _objects(bus, AdmissionCheck)
        return findings_of(Promises(runners, flavors, [*queues, *cohorts], checks, announced))
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
        *_older(given),
        *_failed_hooks(given.runners),
        *_lacking(given.runners),
        *_promised(given),
        *_uncovered(given),
        *_without_variants(given),
    ]


def _conflicts(runners: Iterable[Runner]) -> Iterator[Finding]:
    for runner in runners:
        for condition in runner.status.conditions if runner.status is not None else ():
            if condition.type == NAME_CONFLICT and condition.status == "True":
                todo = f"give one of them a user, or an ADMIT_RUNNER, of its own: {PAGE}"
                yield wrong(f"runner {runner.metadata.name}", condition.message, todo)


def _failed_hooks(runners: Iterable[Runner]) -> Iterator[Finding]:
    """The machines that are drained since their prolog or epilog failed."""
    for runner in runners:
        known = condition_of(runner.status.conditions) if runner.status is not None else None
        if known is not None and known.status == "True":
            name = runner.metadata.name
            todo = f"mend the machine, then `admit undrain runner {name}`: {PAGE}#prolog-and-epilog"
            yield wrong(f"runner {name}", f"it is drained: {known.message}", todo)


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


def _older(given: Promises) -> Iterator[Finding]:
    """The runners of an earlier version, beside runners that announce machines."""
    for announced in given.announced:
        if announced.older:
            yield note(
                f"runner {announced.consumer or announced.runner}",
                "it is of an earlier version, which starts also what is placed on others: while it "
                "is announced no flavor gets covered, and no workload is placed on machines",
                f"start it with this version: {UPGRADE}; if it is gone for good, `admit delete "
                f"runner {announced.consumer or announced.runner}`",
            )


def _promised(given: Promises) -> Iterator[Finding]:
    """The quota of covered flavors that is larger than the machines, and covered flavors of which
    no machine has the labels."""
    machines = _machines(given)
    promised = _quota(given.queues)
    for flavor in given.flavors:
        name = flavor.metadata.name
        if name not in given.covered:
            continue
        fitting = _fitting(flavor, machines)
        for resource, quota in sorted(promised.get(name, {}).items()):
            offered = sum(capacity.get(resource, 0) for _, capacity in fitting)
            if quota > offered:
                lacks = "" if fitting else f"; none has {_labels(flavor)}"
                yield note(
                    f"flavor {name}",
                    f"ClusterQueues promise {render(resource, quota)} {resource} of it, "
                    f"{len(fitting):,} {'runner offers' if len(fitting) == 1 else 'runners offer'} "
                    f"{render(resource, offered)}{lacks}",
                    f"workloads above that wait for a machine: lower the quota, or start runners "
                    f"with the labels of the flavor: {PAGE}",
                )


def _uncovered(given: Promises) -> Iterator[Finding]:
    """The flavors with quota of devices that are not covered since no machine has their labels."""
    machines = _machines(given)
    promised = _quota(given.queues)
    if not any(machine.devices for machine, _ in machines):
        return
    for flavor in given.flavors:
        name = flavor.metadata.name
        devices = sorted(
            resource
            for resource, quota in promised.get(name, {}).items()
            if quota and is_extended(resource)
        )
        if devices and name not in given.covered and not _fitting(flavor, machines):
            yield note(
                f"flavor {name}",
                f"no runner has {_labels(flavor)}, so its workloads are not placed on machines: "
                f"any runner starts them, and no {devices[0]} is assigned",
                f"start runners with --label, or correct spec.nodeLabels of the flavor: {PAGE}",
            )


def _without_variants(given: Promises) -> Iterator[Finding]:
    """The ClusterQueues that offer several covered flavors of one resource, and try the first
    one only."""
    for queue in given.queues:
        if (
            not isinstance(queue, ClusterQueue)
            or queue.spec.machines == "Off"
            or queue.spec.concurrent_admission is not None
        ):
            continue
        for group in queue.spec.resource_groups:
            names = [flavor.name for flavor in group.flavors if flavor.name in given.covered]
            if len(names) > 1:
                yield note(
                    f"clusterqueue {queue.metadata.name}",
                    f"workloads that lack room on machines of one of its {len(names)} covered "
                    f"flavors ({_some(names)}) do not try the next one: it has no "
                    "concurrentAdmission",
                    f"set spec.concurrentAdmission, which tries all of them at once: {VARIANTS}",
                )


def _labels(flavor: ResourceFlavor) -> str:
    labels = [f"{key}={value}" for key, value in sorted(flavor.spec.node_labels.items())]
    return f"the {'label' if len(labels) == 1 else 'labels'} {' and '.join(labels)}"


def _fitting(
    flavor: ResourceFlavor, machines: Iterable[tuple[Machine, dict[str, int]]]
) -> list[tuple[Machine, dict[str, int]]]:
    """The machines with the labels of the flavor, and what they have."""
    labels = flavor.spec.node_labels.items()
    return [(machine, has) for machine, has in machines if labels <= machine.labels.items()]


def _machines(given: Promises) -> list[tuple[Machine, dict[str, int]]]:
    """The machines of all runners, each with all its amounts: of devices the number of units."""
    machines = [machine for runner in given.runners if (machine := _machine(runner)) is not None]
    return [(machine, capacity_of(machine, units_of(machine))) for machine in machines]


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
