"""Computes the worker containers that a request needs, whether the engine has room for these
workers, and which workers are lost. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from admittance.providers.builtin import CLASS, INSTALLATION, REQUEST

MANAGED: Final = "admittance.dev/managed"
CPU: Final = "admittance.dev/cpu-milli"
MEMORY: Final = "admittance.dev/memory"
HOST_DETAIL: Final = "host"
CONTAINERS_DETAIL: Final = "containers"

CPU_MILLI_MIN: Final = 10
MEMORY_MIN: Final = 6 * 1024 * 1024
"""The smallest memory limit that engines accept."""
MEASURED: Final = frozenset({"cpu", "memory"})
IGNORED: Final = frozenset({"pods", "ephemeral-storage"})

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class PodGroup(NamedTuple):
    """The equal pods of one pod set in a request: their number, and the resources that each pod
    needs."""

    pod_set: str
    pods: int
    needs: Mapping[str, int]


class WorkerSpec(NamedTuple):
    """A worker container to start. ``cpu_milli`` and ``memory``: the limits of the container; 0
    means no limit.
    """

    name: str
    cpu_milli: int
    memory: int


class ListedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker container of any installation, as the engine lists it."""

    container: str
    name: str
    installation: str
    request_id: str
    provisioning_class: str
    state: str
    cpu_milli: int = 0
    memory: int = 0

    @property
    def runs(self) -> bool:
        """Whether the container counts as running."""
        return self.state in ("running", "paused")


class EngineCapacity(NamedTuple):
    """The cpu and memory of the machine on which the engine runs."""

    host: str
    cpu_milli: int
    memory: int


class NoWorkers(NamedTuple):
    """Why no workers are booked for a request. ``ever``: whether there may be room after other
    requests have ended.
    """

    message: str
    ever: bool


def workers_of(request_id: str, wanted: Sequence[PodGroup]) -> tuple[WorkerSpec, ...] | NoWorkers:
    """Returns one worker container for each pod, with a name derived from the request; or why no
    engine can run such containers.
    """
    digest = blake2b(request_id.encode(), digest_size=6).hexdigest()
    specs: list[WorkerSpec] = []
    for at, group in enumerate(wanted):
        foreign = sorted(name for name, much in group.needs.items() if much and _is_foreign(name))
        if foreign:
            message = (
                f"pods of {group.pod_set} need {', '.join(foreign)}, which containers cannot have"
            )
            return NoWorkers(message, ever=False)
        cpu, memory = group.needs.get("cpu", 0), group.needs.get("memory", 0)
        plain = _UNSAFE.sub("-", group.pod_set)[:40]
        specs += (
            WorkerSpec(
                f"admit-{digest}-{at}-{plain}-{number}",
                max(cpu, CPU_MILLI_MIN) if cpu else 0,
                max(memory, MEMORY_MIN) if memory else 0,
            )
            for number in range(group.pods)
        )
    return tuple(specs)


def _is_foreign(resource: str) -> bool:
    return resource not in MEASURED and resource not in IGNORED


def lack_of_room(
    request_id: str,
    workers: Sequence[WorkerSpec],
    listed: Collection[ListedWorker],
    room: EngineCapacity,
    workers_max: int,
) -> NoWorkers | None:
    """Why the engine has no room for the workers beside the running workers of other requests; None
    if there is room."""
    others = [worker for worker in listed if worker.request_id != request_id and worker.runs]
    sums = (
        ("cpu (thousandths)", _cpu(workers), _cpu(others), room.cpu_milli),
        ("memory (bytes)", _memory(workers), _memory(others), room.memory),
        ("workers", len(workers), len(others), workers_max),
    )
    for what, needed, used, most in sums:
        if needed + used > most:
            message = f"{room.host} has {most - used} of {most} {what} left, {needed} are needed"
            return NoWorkers(message, ever=needed <= most)
    return None


def _cpu(of: Collection[WorkerSpec] | Collection[ListedWorker]) -> int:
    return sum(worker.cpu_milli for worker in of)


def _memory(of: Collection[WorkerSpec] | Collection[ListedWorker]) -> int:
    return sum(worker.memory for worker in of)


def labels_of(
    worker: WorkerSpec, request_id: str, provisioning_class: str, installation: str
) -> dict[str, str]:
    """The labels of the worker's container, which `worker_of` reads."""
    return {
        MANAGED: "true",
        INSTALLATION: installation,
        REQUEST: request_id,
        CLASS: provisioning_class,
        CPU: str(worker.cpu_milli),
        MEMORY: str(worker.memory),
    }


def worker_of(listed: Mapping[str, Any]) -> ListedWorker | None:
    """The worker that an entry in the engine's list of containers describes; None if the container
    is not a worker."""
    labels = listed.get("Labels") or {}
    if labels.get(MANAGED) != "true" or REQUEST not in labels:
        return None
    names = listed.get("Names") or [""]
    return ListedWorker(
        container=str(listed["Id"]),
        name=str(names[0]).lstrip("/"),
        installation=labels.get(INSTALLATION, ""),
        request_id=labels[REQUEST],
        provisioning_class=labels.get(CLASS, ""),
        state=str(listed.get("State", "")),
        cpu_milli=_whole_number(labels.get(CPU, "")),
        memory=_whole_number(labels.get(MEMORY, "")),
    )


def _whole_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def details_of(room: EngineCapacity, workers: Sequence[WorkerSpec]) -> dict[str, str]:
    """The details of a provisioned request, which `missing_containers` reads."""
    names = ",".join(worker.name for worker in workers)
    return {HOST_DETAIL: room.host, CONTAINERS_DETAIL: names}


def missing_containers(
    details: Mapping[str, str], listed: Collection[ListedWorker]
) -> tuple[str, ...]:
    """The names of a request's booked worker containers that do not run any more."""
    booked = filter(None, details.get(CONTAINERS_DETAIL, "").split(","))
    running = {worker.name for worker in listed if worker.runs}
    return tuple(name for name in booked if name not in running)


def lost_message(names: Sequence[str], listed: Collection[ListedWorker], host: str) -> str:
    """A sentence that names the lost workers."""
    states = {worker.name: worker.state for worker in listed}
    shown = [f"{name} ({states.get(name, 'gone')})" for name in names[:5]]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"workers are lost on {host}: {', '.join(shown)}{more}"
