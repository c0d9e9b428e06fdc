"""The workload of a program that holds quota itself: what it asks for, what it has, and whether it
has lost it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from admittance.api.runners import Runner
from admittance.api.workload import Workload
from admittance.client.kinds import RUNNER
from admittance.client.requests.link import Link
from admittance.client.requests.objects import find_all
from admittance.client.requests.submissions.commands import CommandOptions, workload_of_command
from admittance.events.placement import Placement
from admittance.folders import MachineFacts
from admittance.phases import Phase
from admittance.runtime import clock
from admittance.runtime.process.this_machine import machine_facts
from admittance.workload.conditions import Type, find, find_true
from admittance.workload.phase import phase
from admittance.workload.stored import StoredWorkload

HOSTNAME: Final = "kubernetes.io/hostname"
ALL_DEVICES: Final = "ADMITTANCE_DEVICES"
VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "nvidia.com/": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "amd.com/": ("ROCR_VISIBLE_DEVICES",),
}
"""The variables that show devices to the libraries of their maker, by the beginning of resources.
"""


async def workload_to_hold(
    link: Link, options: CommandOptions, namespace: str, lease_seconds: int
) -> Workload:
    """The workload of a program that holds quota itself: on the machine of this process, if a
    runner serves it. Raises BadInput."""
    workload = await workload_of_command(link, options, namespace)
    readable, _ = await find_all(link, RUNNER, None)
    runners = [runner for each in readable if (runner := each.decoded(Runner)) is not None]
    here = runner_here(runners, machine_facts())
    spec = replace(workload.spec, lease_duration_seconds=lease_seconds)
    if here:
        [pods] = spec.pod_sets
        selects = {**pods.template.spec.node_selector, HOSTNAME: here}
        pod = replace(pods.template.spec, node_selector=selects)
        pods = replace(pods, template=replace(pods.template, spec=pod))
        spec = replace(spec, pod_sets=(pods,))
    return replace(workload, spec=spec)


def runner_here(runners: Iterable[Runner], machine: MachineFacts) -> str:
    """The host name by which pods select this machine, by preference that of a runner with the same
    file systems; "": no runner serves the machine. Pure."""
    if not machine.boot_id:
        return ""
    here: dict[str, bool] = {}
    for runner in runners:
        if runner.status is not None and runner.status.boot_id == machine.boot_id:
            host = runner.metadata.labels.get(HOSTNAME, runner.metadata.name)
            same_files = runner.status.mount_namespace == machine.mount_namespace
            here[host] = here.get(host, False) or same_files
    return min(here, key=lambda name: (not here[name], name), default="")


def devices_of(placement: Placement) -> dict[str, tuple[str, ...]]:
    """The ids of the assigned devices by resource, each once. Pure."""
    devices: dict[str, tuple[str, ...]] = {}
    for part in placement:
        for resource, units in part.devices.items():
            # The unit of a device that several jobs share is ``<id>::<slice>``.
            ids = (unit.partition("::")[0] for unit in units)
            devices[resource] = tuple(dict.fromkeys((*devices.get(resource, ()), *ids)))
    return devices


def variables_of(devices: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The environment variables that show a program its devices, and hide all others. Pure."""
    shown = {name: "" for names in VARIABLES.values() for name in names}
    for maker, names in VARIABLES.items():
        ids = [each for name, ids in devices.items() if name.startswith(maker) for each in ids]
        shown.update(dict.fromkeys(names, ",".join(ids)))
    shown[ALL_DEVICES] = ",".join(each for ids in devices.values() for each in ids)
    return shown


def why_lost(workload: StoredWorkload | None, held: StoredWorkload) -> str:
    """Why a program has lost the quota that it held, as a sentence; "": it has it. ``workload``: as
    it is stored now; None: it is deleted. ``held``: as it was admitted. Pure."""
    if workload is None or workload.metadata.uid != held.metadata.uid:
        return "the workload was deleted"
    where = phase(workload, clock.now())
    if where is Phase.FINISHED:
        finished = find(workload, Type.FINISHED)
        assert finished is not None, "the phase is Finished"
        return f"{finished.reason}: {finished.message}"
    if evicted := find_true(workload, Type.EVICTED):
        return f"{evicted.reason}: {evicted.message}"
    admitted_again = workload.status.restarts != held.status.restarts
    if where not in (Phase.ADMITTED, Phase.RUNNING) or admitted_again:
        return f"its quota was released, and it is {where}"
    return ""
