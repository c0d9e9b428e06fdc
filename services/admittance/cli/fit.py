"""Whether a workload could ever start, checked before it is submitted.

A command after ``admit submit`` is refused if its workload could never start. Manifests are
accepted with a warning instead, as in Kubernetes: their queues may be created or enlarged later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from admittance.api.workload import Workload
from admittance.cli.support import output
from admittance.cli.support.link import Link
from admittance.client.requests import submissions
from admittance.client.requests.submissions import Spelling
from admittance.events.whatif import FitReply

ASKED_MAX: Final = 100
"""One call checks at most this many different workloads."""

HEALTH_SECONDS: Final = 0.5
DOCKER: Final = "docker"


async def refuse_misfit(bus: Link, workload: Workload, *, anyway: bool, spelled: Spelling) -> None:
    """Raises AnswerIsNo if the queue does not exist or can never hold the workload, unless
    ``anyway``. Warns about requests for which no quota is charged."""
    reply = await submissions.refuse_misfit(bus, workload, anyway=anyway, spelled=spelled)
    if reply is not None:
        _warn_of_uncharged("the workload", reply)
        _warn_of_inactive([reply])


async def warn_of_misfits(bus: Link, workloads: Iterable[tuple[str, Workload]]) -> None:
    """Warns about each subject (a workload by name) that its queue can never hold, and about
    requests for which no quota is charged; missing queues are left out.
    """
    asked: dict[tuple[str, bytes], list[tuple[str, Workload]]] = {}
    for subject, workload in workloads:
        key = workload.metadata.namespace, msgspec.json.encode(workload.spec)
        asked.setdefault(key, []).append((subject, workload))
    groups = list(asked.values())[:ASKED_MAX]
    answers = await asyncio.gather(*(submissions.fit_of(bus, group[0][1]) for group in groups))
    for group, reply in zip(groups, answers, strict=True):
        if reply is None:
            continue
        others = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
        subject = f"{group[0][0]}{others}"
        why = "" if reply.fits else submissions.misfit(reply)
        # A missing queue is left out here, because `submit` warns about it once for all workloads.
        if why and "does not exist" not in why:
            output.warn(f"{subject}: {why}")
        _warn_of_uncharged(subject, reply)
    _warn_of_inactive(reply for reply in answers if reply is not None)


def _warn_of_inactive(replies: Iterable[FitReply]) -> None:
    """Warns once about each ClusterQueue that admits no workloads now."""
    for name, why in sorted({one.cluster_queue: one.inactive for one in replies}.items()):
        if why:
            output.warn(f"ClusterQueue {name} is inactive: {why}; its workloads wait")


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
