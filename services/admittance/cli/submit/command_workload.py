"""Builds a workload from the command line of ``admit submit``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

from msgspec.structs import replace

from admittance.api.problems import ManifestError
from admittance.api.reading.from_job import GPU, from_command
from admittance.api.workload import AdmissionConstraints, Workload
from admittance.cli.show import objects
from admittance.cli.show.objects import Found
from admittance.cli.support import kinds
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.cli.support.link import Link
from admittance.runtime import chance

DEFAULTS: Final = {"cpu": "1", "memory": "1Gi"}
"""Default requests, for resources that the queue covers."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so that no suffix is a word, and no letters that look alike."""


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of the command line. ``requests``: quantity by resource, only the given ones.
    ``flavors``: the allowed ones; empty: any."""

    command: Sequence[str]
    queue: str | None = None
    name: str | None = None
    requests: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    priority: int | None = None
    priority_class: str | None = None
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    max_seconds: int | None = None
    flavors: Sequence[str] = ()


async def workload_of(bus: Link, options: CommandOptions) -> Workload:
    """The workload for these options, with defaults for the queue and the requests.

    Raises BadInput with all problems, one line each.
    """
    namespace = bus.call.namespace
    queue = options.queue or await _only_queue(bus, namespace)
    asked = {**await _defaults(bus, namespace, queue), **options.requests}
    try:
        workload = from_command(
            options.command,
            name=options.name or f"{stem(options.command)}-{suffix()}",
            namespace=namespace,
            queue=queue,
            cpu=asked.get("cpu", 0),
            memory=asked.get("memory", 0),
            gpu=asked.get(GPU, 0),
            count=options.count,
            priority=options.priority,
            priority_class=options.priority_class or "",
            env=options.env,
            image=options.image,
        )
    except ManifestError as error:
        raise BadInput(*map(str, error.problems)) from None
    return replace(
        workload,
        metadata=replace(workload.metadata, labels=dict(options.labels)),
        spec=replace(
            workload.spec,
            maximum_execution_time_seconds=options.max_seconds,
            admission_constraints=allowing(options.flavors),
        ),
    )


def allowing(flavors: Sequence[str]) -> AdmissionConstraints | None:
    """Constraints that allow only these flavors; None if none are given."""
    if not flavors:
        return None
    return AdmissionConstraints(allowed_resource_flavors=tuple(dict.fromkeys(flavors)))


def suffix() -> str:
    """Five random letters for a unique name."""
    return "".join(chance.choice(_LETTERS) for _ in range(5))


def stem(command: Sequence[str]) -> str:
    """The first part of a generated name, from the name of the program."""
    program = PurePath(command[0]).name if command else ""
    plain = re.sub(r"[^a-z0-9]+", "-", program.lower()).strip("-")
    return plain[:40].strip("-") or "workload"


async def _only_queue(bus: Link, namespace: str) -> str:
    """The only LocalQueue of the namespace. Raises AnswerIsNo or BadInput if there is not one."""
    [pattern] = kinds.LOCAL_QUEUE.patterns(namespace)
    names = [Found(e.key, b"", e.revision).name for e in await bus.read_all(pattern)]
    if len(names) == 1:
        return names[0]
    if not names:
        raise AnswerIsNo(
            f"namespace {namespace} has no localqueue; apply one, or choose another with -n"
        )
    raise BadInput(f"which queue? name one with -q: {', '.join(sorted(names))}")


async def _defaults(bus: Link, namespace: str, queue: str) -> dict[str, str]:
    """Default requests, without resources that the ClusterQueue does not cover."""
    local = await _plain(bus, kinds.LOCAL_QUEUE.object_key(namespace, queue))
    name = objects.field(local, "spec", "clusterQueue", default="")
    if not name:
        return dict(DEFAULTS)
    cluster = await _plain(bus, kinds.CLUSTER_QUEUE.object_key("", name))
    groups = objects.field(cluster, "spec", "resourceGroups", default=[])
    covered = {resource for group in groups for resource in group.get("coveredResources") or []}
    if not covered:
        return dict(DEFAULTS)
    return {resource: amount for resource, amount in DEFAULTS.items() if resource in covered}


async def _plain(bus: Link, key: str) -> dict[str, Any]:
    entry = await bus.get(key)
    if entry is None or entry.value is None:
        return {}
    return Found(entry.key, entry.value, entry.revision).plain()
