"""Which containers a request needs, whether an engine has room for them, and what has become of
them. Pure.
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
"""Less than that no engine takes."""
MEASURED: Final = frozenset({"cpu", "memory"})
IGNORED: Final = frozenset({"pods", "ephemeral-storage"})

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class PodGroup(NamedTuple):
    """So many pods, each of which needs so much."""

    pod_set: str
    pods: int
    needs: Mapping[str, int]


class Worker(NamedTuple):
    """A container to be. ``cpu_milli`` and ``memory``: its limits; 0: none was asked for."""

    name: str
    cpu_milli: int
    memory: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A container of some Admittance, as the engine shows it. ``state``: the engine's word."""

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
        """It is there for whoever booked it."""
        return self.state in ("running", "paused")


class Room(NamedTuple):
    """What the engine's machine has."""

    host: str
    cpu_milli: int
    memory: int


class NoRoom(NamedTuple):
    """Why nothing is booked. ``ever``: there will be room when others leave."""

    message: str
    ever: bool


def workers_of(request_id: str, wanted: Sequence[PodGroup]) -> tuple[Worker, ...] | NoRoom:
    """A container for each pod, whose names are the same for the same request; or why an engine
    never has such."""
    digest = blake2b(request_id.encode(), digest_size=6).hexdigest()
    found: list[Worker] = []
    for at, one in enumerate(wanted):
        foreign = sorted(name for name, much in one.needs.items() if much and _is_foreign(name))
        if foreign:
            told = f"pods of {one.pod_set} need {', '.join(foreign)}, which no container is given"
            return NoRoom(told, ever=False)
        cpu, memory = one.needs.get("cpu", 0), one.needs.get("memory", 0)
        plain = _UNSAFE.sub("-", one.pod_set)[:40]
        found += (
            Worker(
                f"admit-{digest}-{at}-{plain}-{number}",
                max(cpu, CPU_MILLI_MIN) if cpu else 0,
                max(memory, MEMORY_MIN) if memory else 0,
            )
            for number in range(one.pods)
        )
    return tuple(found)


def _is_foreign(resource: str) -> bool:
    return resource not in MEASURED and resource not in IGNORED


def lack_of_room(
    request_id: str,
    workers: Sequence[Worker],
    there: Collection[Found],
    room: Room,
    workers_max: int,
) -> NoRoom | None:
    """What stands in the way of starting them beside what is there; None: nothing does."""
    others = [one for one in there if one.request_id != request_id and one.runs]
    sums = (
        ("cpu (thousandths)", _cpu(workers), _cpu(others), room.cpu_milli),
        ("memory (bytes)", _memory(workers), _memory(others), room.memory),
        ("workers", len(workers), len(others), workers_max),
    )
    for what, asked, used, most in sums:
        if asked + used > most:
            told = f"{room.host} has {most - used} of {most} {what} left, {asked} are asked for"
            return NoRoom(told, ever=asked <= most)
    return None


def _cpu(of: Collection[Worker] | Collection[Found]) -> int:
    return sum(one.cpu_milli for one in of)


def _memory(of: Collection[Worker] | Collection[Found]) -> int:
    return sum(one.memory for one in of)


def labels_of(
    worker: Worker, request_id: str, provisioning_class: str, installation: str
) -> dict[str, str]:
    """By which it is found again, and counted."""
    return {
        MANAGED: "true",
        INSTALLATION: installation,
        REQUEST: request_id,
        CLASS: provisioning_class,
        CPU: str(worker.cpu_milli),
        MEMORY: str(worker.memory),
    }


def found_of(listed: Mapping[str, Any]) -> Found | None:
    """A container as the engine lists it; None: it is nobody's worker."""
    labels = listed.get("Labels") or {}
    if labels.get(MANAGED) != "true" or REQUEST not in labels:
        return None
    names = listed.get("Names") or [""]
    return Found(
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


def details_of(room: Room, workers: Sequence[Worker]) -> dict[str, str]:
    """What is told of a booking; `lost` reads it again."""
    names = ",".join(one.name for one in workers)
    return {HOST_DETAIL: room.host, CONTAINERS_DETAIL: names}


def lost(details: Mapping[str, str], there: Collection[Found]) -> tuple[str, ...]:
    """Which of the containers that were booked run no more."""
    booked = filter(None, details.get(CONTAINERS_DETAIL, "").split(","))
    running = {one.name for one in there if one.runs}
    return tuple(name for name in booked if name not in running)


def told_of(names: Sequence[str], there: Collection[Found], host: str) -> str:
    """A sentence about workers that are lost."""
    states = {one.name: one.state for one in there}
    shown = [f"{name} ({states.get(name, 'gone')})" for name in names[:5]]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"workers are lost on {host}: {', '.join(shown)}{more}"
