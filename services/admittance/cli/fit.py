"""Whether a workload could ever start, checked before it is submitted.

A command after ``admit submit`` is refused if its workload could never start. Manifests are
accepted with a warning instead, as in Kubernetes: their queues may be created or enlarged later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from admittance.api.reading.objects import encode
from admittance.api.workload import Workload
from admittance.cli.show.objects import field, lookup
from admittance.cli.support import kinds, output
from admittance.cli.support.errors import AnswerIsNo, NotAllowed
from admittance.cli.support.link import Link
from admittance.events.whatif import Fit, FitReply
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry

ASKED_MAX: Final = 100
"""One call checks at most this many different workloads."""

CURRENT_SECONDS: Final = 5.0
"""The scheduler's answer that a workload could never start counts once the scheduler has read the
newest manifests, or after this time.
"""
PAUSE_SECONDS: Final = 0.05

HEALTH_SECONDS: Final = 0.5
DOCKER: Final = "docker"

_CONFIGURATION: Final = (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE, kinds.COHORT, kinds.FLAVOR)


async def _answer(bus: Link, workload: Workload) -> FitReply | None:
    """The scheduler's answer about the workload; None if the scheduler does not answer. An answer
    that the workload could never start counts only if it is current.
    """
    namespace = workload.metadata.namespace
    request = Fit(workload=msgspec.Raw(encode(workload)))
    newest: int | None = None
    deadline = clock.monotonic() + CURRENT_SECONDS
    while True:
        try:
            reply = await bus.ask("fit", request, FitReply, namespace=namespace)
        except AnswerIsNo:
            return None
        if reply.error:
            return None
        if reply.fits:
            return reply
        if newest is None:
            newest = await _newest(bus, namespace)
        if reply.seen >= newest or clock.monotonic() >= deadline:
            return reply
        await asyncio.sleep(PAUSE_SECONDS)


def _sentence(reply: FitReply) -> str:
    if _has_no_queue(reply):
        return reply.message
    return (
        f"clusterqueue {reply.cluster_queue} can never hold it, even if empty "
        f"({reply.reason}): {reply.message}"
    )


def _has_no_queue(reply: FitReply) -> bool:
    return not reply.cluster_queue or reply.reason == "NoSuchQueue"


def refusal(reply: FitReply) -> str:
    """The error for a command that is not submitted, with what its workload would wait for."""
    if _has_no_queue(reply):
        until = "the queue is created"
    elif reply.reason == "NoMatchingFlavor":
        until = "the queue offers a flavor for it"
    else:
        until = "the quota is raised"
    return f"not submitted: {_sentence(reply)}; --anyway submits it, and it waits until {until}"


async def _newest(bus: Link, namespace: str) -> int:
    """The newest revision of the objects that define quota, and of the LocalQueues of the
    namespace, as far as this login may read them."""

    async def read(pattern: str) -> list[Entry]:
        try:
            return await bus.read_all(pattern)
        except NotAllowed:
            return []

    patterns = [pattern for kind in _CONFIGURATION for pattern in kind.patterns(namespace)]
    each = await asyncio.gather(*map(read, patterns))
    return max((entry.revision for entries in each for entry in entries), default=0)


async def refuse_misfit(bus: Link, workload: Workload, *, anyway: bool = False) -> None:
    """Raises AnswerIsNo if the queue does not exist or can never hold the workload, unless
    ``anyway``. Warns about requests for which no quota is charged."""
    if anyway:
        if (reply := await _answer(bus, workload)) is not None:
            _warn_of_uncharged("the workload", reply)
        return
    namespace, queue = workload.metadata.namespace, workload.spec.queue_name
    if await bus.get(kinds.LOCAL_QUEUE.object_key(namespace, queue)) is None:
        raise AnswerIsNo(
            f"not submitted: LocalQueue {namespace}/{queue} does not exist; "
            "--anyway submits it, and it waits until the queue is created"
        )
    reply = await _answer(bus, workload)
    if reply is None:
        return
    if not reply.fits:
        await _refuse_unknown_flavors(bus, workload, reply.cluster_queue)
        raise AnswerIsNo(refusal(reply))
    _warn_of_uncharged("the workload", reply)


async def _refuse_unknown_flavors(bus: Link, workload: Workload, cluster_queue: str) -> None:
    """Raises AnswerIsNo if the workload allows only flavors that the ClusterQueue does not have.
    ``cluster_queue``: "" if the scheduler does not know the LocalQueue."""
    allowed = workload.spec.admission_constraints
    wanted = allowed.allowed_resource_flavors if allowed is not None else None
    if not wanted or not cluster_queue:
        return
    found = await lookup(bus, kinds.CLUSTER_QUEUE.object_key("", cluster_queue))
    if found is None:
        return
    groups = field(found.plain(), "spec", "resourceGroups", default=[])
    offered = dict.fromkeys(one["name"] for group in groups for one in group.get("flavors") or ())
    if offered.keys().isdisjoint(wanted):
        raise AnswerIsNo(
            f"not submitted: clusterqueue {cluster_queue} has no flavor {' or '.join(wanted)}, "
            f"it has {', '.join(offered) or 'none'}; "
            "--anyway submits it, and it waits until the queue has that flavor"
        )


async def warn_of_misfits(bus: Link, workloads: Iterable[tuple[str, Workload]]) -> None:
    """Warns about each subject (a workload by name) that its queue can never hold, and about
    requests for which no quota is charged; missing queues are left out.
    """
    asked: dict[tuple[str, bytes], list[tuple[str, Workload]]] = {}
    for subject, workload in workloads:
        key = workload.metadata.namespace, msgspec.json.encode(workload.spec)
        asked.setdefault(key, []).append((subject, workload))
    groups = list(asked.values())[:ASKED_MAX]
    answers = await asyncio.gather(*(_answer(bus, group[0][1]) for group in groups))
    for group, reply in zip(groups, answers, strict=True):
        if reply is None:
            continue
        others = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
        subject = f"{group[0][0]}{others}"
        why = "" if reply.fits else _sentence(reply)
        # A missing queue is left out here, because `submit` warns about it once for all workloads.
        if why and "does not exist" not in why:
            output.warn(f"{subject}: {why}")
        _warn_of_uncharged(subject, reply)


def _warn_of_uncharged(subject: str, reply: FitReply) -> None:
    for resource, why in reply.uncharged.items():
        output.warn(f"{subject}: no quota is charged for {resource}: {why}")


async def warn_of_images(bus: Link, workloads: Sequence[tuple[str, Workload]]) -> None:
    """Warns about the subjects (workloads by name) that need a container engine, if no runner has
    one.
    """
    if not any(wants_engine(workload) for _, workload in workloads):
        return
    from admittance.cli.up.readiness import health

    runners = [one for one in await health(bus.bus, seconds=HEALTH_SECONDS) if _is_runner(one)]
    executors = {one.details.get("executor", DOCKER) for one in runners}
    if not runners or DOCKER in executors:
        return
    for warning in engine_warnings(workloads):
        output.warn(warning)


def wants_engine(workload: Workload) -> bool:
    """Whether a container engine runs the workload in another way than a local process."""
    return bool(next(images(workload), None) or mounts(workload))


def engine_warnings(workloads: Sequence[tuple[str, Workload]]) -> list[str]:
    """What is different for each subject (a workload by name) without a container engine; one
    warning for all workloads with the same difference."""
    subjects: dict[str, list[str]] = {}
    for subject, workload in workloads:
        for difference in _differences(workload):
            subjects.setdefault(difference, []).append(subject)
    return [
        f"{first}{f' (and {len(more)} more like it)' if more else ''}: {difference}"
        for difference, (first, *more) in subjects.items()
    ]


def _differences(workload: Workload) -> Iterator[str]:
    for image, has_command in images(workload):
        if has_command:
            yield (
                "no runner has a container engine: the command runs as a local process, without "
                f"image {image}"
            )
        else:
            yield (
                f"no runner has a container engine, so image {image} cannot run, and the job will "
                "fail; start one with `admit serve runner --executor docker`, or give a command"
            )
    if paths := mounts(workload):
        yield (
            f"no runner has a container engine: nothing is mounted at {', '.join(paths)}; a "
            "process finds the folders of its volumes by ADMITTANCE_VOLUME_<NAME>"
        )


def mounts(workload: Workload) -> list[str]:
    """The paths at which a container with a command would find a volume, and a process does not."""
    paths: dict[str, None] = {}
    for pods in workload.spec.pod_sets:
        spec = pods.template.spec
        same = {(one.name, one.host_path.path) for one in spec.volumes if one.host_path}
        for container in (*spec.init_containers, *spec.containers):
            if container.command or container.args:
                for mount in container.volume_mounts:
                    if mount.sub_path or (mount.name, mount.mount_path) not in same:
                        paths[mount.mount_path] = None
    return list(paths)


def _is_runner(one: object) -> bool:
    return getattr(one, "service", "") == "runner"


def images(workload: Workload) -> Iterator[tuple[str, bool]]:
    """Images of the workload's containers, without duplicates, and whether the container has a
    command. If one container of a pod has a command, containers without one are left out, as the
    local runner leaves them out.
    """
    seen: dict[tuple[str, bool], None] = {}
    for pods in workload.spec.pod_sets:
        main = pods.template.spec.containers
        given = [one for one in main if one.command or one.args]
        for one in (*pods.template.spec.init_containers, *(given or main)):
            if one.image:
                seen[one.image, bool(one.command or one.args)] = None
    yield from seen
