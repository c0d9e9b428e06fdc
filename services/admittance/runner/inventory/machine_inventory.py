"""The inventory of this machine: what is detected, changed by what options say."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from admittance.events.stored.machines import RunnerInventory, RunnerTaint
from admittance.events.system import RunnerStarts
from admittance.folders import MachineFacts
from admittance.job_rules.machine_options import GivenMachine, shown
from admittance.runner.inventory.device_list import DeviceList
from admittance.runner.inventory.devices import Detected
from admittance.runtime.errors import SetupError
from admittance.runtime.process.this_machine import ROOT, cpu_milli, memory_bytes

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of Kubernetes for what Linux calls an architecture."""
MAKERS: Final = ("nvidia.com/", "amd.com/")
"""How resources begin that are always devices."""


class AnnouncedRunner(NamedTuple):
    """What a runner announces of itself, beside its machine. ``id``: that of its data folder.
    ``starts``: which jobs it starts; None: all. ``messages``: what its machine cannot do."""

    id: str
    name: str
    executor: str
    starts: RunnerStarts | None = None
    messages: tuple[str, ...] = ()


def inventory_of(
    given: GivenMachine,
    facts: MachineFacts,
    runner: AnnouncedRunner,
    known: DeviceList,
    *,
    detect: Callable[[Path], Detected],
    root: Path = ROOT,
) -> RunnerInventory:
    """What the runner announces of its machine. It reads files and may start a child process, so it
    blocks. ``facts``: what identifies the machine. ``known``: its devices, also those of earlier
    looks. ``detect``: finds devices below the folder that stands for /. Raises SetupError if an
    option contradicts the machine."""
    offered = known.look(detect(root))
    devices = offered.devices
    counted: dict[str, int] = dict.fromkeys((*given.devices, *known.resources()), 0)
    for device in devices:
        counted[device.resource] = counted.get(device.resource, 0) + device.slices
    for resource in given.capacity.keys() & counted.keys():
        raise SetupError(
            f"{shown('capacity')} {resource}: this machine has devices of it, which "
            f"{shown('devices')} chooses"
        )
    amounts = {"cpu": cpu_milli(root), "memory": memory_bytes(root)}
    capacity = {name: amount for name, amount in amounts.items() if amount}
    host = facts.host
    return RunnerInventory(
        id=runner.id,
        name=runner.name,
        host=host,
        version=version("admittance"),
        boot_id=facts.boot_id,
        mount_namespace=facts.mount_namespace,
        capacity={**capacity, **counted, **given.capacity},
        devices=devices,
        labels={**default_labels(host), **given.labels},
        taints=tuple(
            RunnerTaint(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in given.taints
        ),
        executors=(runner.executor,),
        starts=runner.starts,
        messages=(*runner.messages, *offered.messages, *_without_devices(given.capacity)),
    )


def _without_devices(capacity: Mapping[str, int]) -> Iterator[str]:
    """What is missing where options say how many GPUs there are, but not which."""
    for resource in sorted(capacity):
        if capacity[resource] and resource.startswith(MAKERS):
            yield (
                f"{shown('capacity')} {resource}={capacity[resource]} assigns no device: a job "
                f"that gets {resource} sees none; name each with --device {resource}=IDS"
            )


def default_labels(host: str) -> dict[str, str]:
    """The labels that each machine has, as a node of Kubernetes."""
    machine = platform.machine()
    return {
        "kubernetes.io/hostname": host[:63].strip("-._").lower(),
        "kubernetes.io/arch": ARCHITECTURES.get(machine, machine),
        "kubernetes.io/os": platform.system().lower(),
    }
