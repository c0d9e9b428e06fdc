"""Warnings about submitted workloads: queues, classes, quota or images may not work as intended.

Each function takes workloads with their subjects, by which the sentences name them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from admittance.api.workload import Workload
from admittance.client import kinds
from admittance.client.errors import NotAllowed, RequestFailed
from admittance.client.health import health
from admittance.client.requests.link import Link
from admittance.client.requests.objects import field, lookup
from admittance.client.requests.submissions.fit import fit_of, misfit
from admittance.client.requests.workloads.families import rules_for
from admittance.events.requests.whatif import FitReply

Subjects: TypeAlias = Sequence[tuple[str, Workload]]

ASKED_MAX: Final = 100
"""One call checks at most this many different workloads."""

HEALTH_SECONDS: Final = 0.5
DOCKER: Final = "docker"
RUNNER: Final = "runner"


async def about(link: Link, workload: Workload, fit: FitReply | None = None) -> tuple[str, ...]:
    """All warnings about one submitted workload. ``fit``: the scheduler's answer about it; None:
    the scheduler is asked."""
    told = [("the workload", workload)]
    sentences: list[str] = []
    try:
        for warnings in (queues, classes, min_counts):
            sentences += await warnings(link, told)
        if fit is None:
            sentences += await misfits(link, told)
        else:
            sentences += (*about_fit("the workload", fit), *inactive([fit]))
        sentences += await engines(link, told)
    except RequestFailed as error:
        # The workload is submitted: its caller gets it all the same.
        sentences.append(f"there may be more warnings: {error}")
    return tuple(sentences)


async def queues(link: Link, workloads: Subjects) -> list[str]:
    """Warnings about missing queues: one may be created later, but often its name is a typo; and
    about queues that admit no workloads now, such as a stopped or terminating one."""
    sentences = []
    for namespace, queue in sorted(
        {(workload.metadata.namespace, workload.spec.queue_name) for _, workload in workloads}
    ):
        if not queue:
            sentences.append("the workload names no queue: it waits until it gets one")
            continue
        local = await lookup(link, kinds.LOCAL_QUEUE.object_key(namespace, queue))
        if local is None:
            sentences.append(
                f"LocalQueue {namespace}/{queue} does not exist: the workload waits until it is "
                "created"
            )
            continue
        cluster_queue = field(local.plain(), "spec", "clusterQueue", default="")
        above = await lookup(link, kinds.CLUSTER_QUEUE.object_key("", cluster_queue))
        for name, manifest in (
            (f"LocalQueue {namespace}/{queue}", local),
            (f"ClusterQueue {cluster_queue}", above),
        ):
            if manifest is not None and (why := _closed_because(manifest.plain())):
                sentences.append(f"{name} {why}")
    return sentences


def _closed_because(queue: dict[str, Any]) -> str:
    """Why the queue's manifest lets the queue admit no new workloads; "" if the queue admits
    workloads."""
    if field(queue, "metadata", "deletionTimestamp", default=None):
        return "is being deleted: the workload waits until the queue is created again"
    policy = field(queue, "spec", "stopPolicy", default="")
    if policy in ("", "None"):
        return ""
    return f"has stopPolicy {policy}: the workload waits until the stopPolicy is removed"


async def classes(link: Link, workloads: Subjects) -> list[str]:
    """Warnings about missing classes of workloads that state their priority: such a workload names
    the class only for people, and for later changes of the class."""
    sentences = []
    named = {workload.spec.priority_class_ref for _, workload in workloads}
    for ref in sorted((ref for ref in named if ref is not None), key=lambda ref: ref.name):
        key = kinds.kind_of_manifest(ref.kind, ref.group).object_key("", ref.name)
        try:
            present = await link.get(key)
        except NotAllowed:
            continue  # This login may not read priority classes.
        if present is None:
            sentences.append(f"{ref.kind} {ref.name} does not exist: the stated priority counts")
    return sentences


async def min_counts(link: Link, workloads: Subjects) -> list[str]:
    """Warnings about workloads with a minCount in a queue with variants: such workloads get no
    variants."""
    sentences = []
    known: dict[tuple[str, str], bool] = {}
    for subject, workload in workloads:
        if all(pods.min_count is None for pods in workload.spec.pod_sets):
            continue
        where = (workload.metadata.namespace, workload.spec.queue_name)
        if where not in known:
            known[where] = await rules_for(link, *where) is not None
        if known[where]:
            sentences.append(
                f"{subject}: with a minCount it is a regular workload, and tries no variants, "
                f"although the ClusterQueue of {workload.spec.queue_name} has concurrentAdmission"
            )
    return sentences


async def misfits(link: Link, workloads: Subjects) -> list[str]:
    """Warnings about workloads that their queue can never hold or no machine could start, about
    requests for which no quota is charged, and about inactive queues; `queues` is about missing
    queues."""
    asked: dict[tuple[str, bytes], list[tuple[str, Workload]]] = {}
    for subject, workload in workloads:
        key = workload.metadata.namespace, msgspec.json.encode(workload.spec)
        asked.setdefault(key, []).append((subject, workload))
    groups = list(asked.values())[:ASKED_MAX]
    answers = await asyncio.gather(*(fit_of(link, group[0][1]) for group in groups))
    sentences = []
    for group, reply in zip(groups, answers, strict=True):
        if reply is None:
            continue
        others = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
        subject = f"{group[0][0]}{others}"
        why = "" if reply.fits else misfit(reply)
        if why and "does not exist" not in why:
            sentences.append(f"{subject}: {why}")
        sentences += about_fit(subject, reply)
    return [*sentences, *inactive(reply for reply in answers if reply is not None)]


def inactive(replies: Iterable[FitReply]) -> list[str]:
    """A warning about each ClusterQueue that admits no workloads now."""
    by_queue = sorted({reply.cluster_queue: reply.inactive for reply in replies}.items())
    return [
        f"ClusterQueue {name} is inactive: {why}; its workloads wait"
        for name, why in by_queue
        if why
    ]


def about_fit(subject: str, reply: FitReply) -> list[str]:
    """Warnings about requests for which no quota is charged, and about machines that are all
    unsuited or too small."""
    sentences = [
        f"{subject}: no quota is charged for {resource}: {why}"
        for resource, why in reply.uncharged.items()
    ]
    if reply.machines:
        sentences.append(f"{subject}: {reply.machines}")
    return sentences


async def engines(link: Link, workloads: Subjects) -> list[str]:
    """Warnings about workloads that need a container engine, if no runner has one."""
    if not any(wants_engine(workload) for _, workload in workloads):
        return []
    # In most systems any runner has an engine, so that its answer ends the wait.
    for enough in ((RUNNER, ""), None):
        answers = await health(link.bus, seconds=HEALTH_SECONDS, enough=enough)
        runners = [reply for reply in answers if reply.service == RUNNER]
        if not runners or DOCKER in {runner.details.get("executor", DOCKER) for runner in runners}:
            return []
    return engine_warnings(workloads)


def wants_engine(workload: Workload) -> bool:
    """Whether a container engine runs the workload in another way than a local process."""
    return bool(next(images(workload), None) or mounts(workload))


def engine_warnings(workloads: Subjects) -> list[str]:
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
        same = {(volume.name, volume.host_path.path) for volume in spec.volumes if volume.host_path}
        for container in (*spec.init_containers, *spec.containers):
            if container.command or container.args:
                for mount in container.volume_mounts:
                    if mount.sub_path or (mount.name, mount.mount_path) not in same:
                        paths[mount.mount_path] = None
    return list(paths)


def images(workload: Workload) -> Iterator[tuple[str, bool]]:
    """Images of the workload's containers, without duplicates, and whether the container has a
    command. If one container of a pod has a command, containers without one are left out, as the
    local runner leaves them out.
    """
    seen: dict[tuple[str, bool], None] = {}
    for pods in workload.spec.pod_sets:
        main = pods.template.spec.containers
        given = [container for container in main if container.command or container.args]
        for container in (*pods.template.spec.init_containers, *(given or main)):
            if container.image:
                seen[container.image, bool(container.command or container.args)] = None
    yield from seen
