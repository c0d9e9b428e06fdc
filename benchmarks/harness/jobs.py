"""Jobs that write a trail: their submissions, the log about them, and broken promises.

A job appends ``start <name> <run>`` to its trail when it begins and ``end <name> <run>`` when it
ends, each line at once, so the order of the file is the order in which it happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from admittance.backoff import Backoff
from admittance.bench.connection import until_answered
from admittance.client import kinds
from admittance.client.requests import objects, usage
from admittance.client.requests.link import Link
from admittance.client.requests.workloads import history
from admittance.client.requests.workloads.families import is_variant
from admittance.events import codec, facts
from admittance.events.base import Fact
from admittance.events.requests.history import LogEntry
from admittance.events.requests.reading import UsageSum
from admittance.events.subjects import RELEASES, subject_of
from admittance.runtime import clock
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.errors import BusRefused, BusUnavailable, is_temporary
from admittance.runtime.tasks import until_returned
from admittance.usage.runs import Run, run_of
from admittance.workload.phase import Phase, phase
from benchmarks.harness.trail import Replay, Trail

NAMESPACE: Final = "default"
SCRIPT: Final = 'echo "start $JOB $$" >>"$TRAIL"; sleep 0.5; echo "end $JOB $$" >>"$TRAIL"'
ANSWER_SECONDS: Final = 120.0
"""How long services that were killed may take until they answer."""


def submission(
    name: str,
    queue: str,
    command: Sequence[str] = ("true",),
    env: Mapping[str, object] | None = None,
    *,
    namespace: str = NAMESPACE,
    priority: int = 0,
    grace_seconds: int | None = None,
    containers: int = 1,
) -> facts.Submitted:
    """The submission of a job that runs a command, with one CPU for each container."""
    container: dict[str, Any] = {
        "command": list(command),
        "resources": {"requests": {"cpu": "1"}},
    }
    if env:
        container["env"] = [{"name": key, "value": str(value)} for key, value in env.items()]
    pods: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [{"name": f"c{number}", **container} for number in range(containers)],
    }
    if grace_seconds is not None:
        pods["terminationGracePeriodSeconds"] = grace_seconds
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": pods}}],
        },
    }
    return facts.Submitted(
        namespace=namespace, name=name, workload=msgspec.Raw(msgspec.json.encode(manifest))
    )


def with_trail(name: str, queue: str, trail: Path) -> facts.Submitted:
    """The submission of a job of half a second that writes its beginning and its end to trail."""
    return submission(name, queue, ("sh", "-c", SCRIPT), {"JOB": name, "TRAIL": trail})


async def publish_surely(bus: Bus, fact: Fact, message_id: str) -> int:
    """Publishes a fact again and again until the log has it; returns its sequence. Raises
    BusRefused for a fact that the log will never take."""
    message = Outgoing(subject_of(fact), codec.encode(fact), {MESSAGE_ID: message_id})

    def failed(error: BusRefused | BusUnavailable, _pause: float) -> None:
        if not is_temporary(error):
            raise error

    publish = partial(bus.publish, message, timeout=2.0)
    return await until_returned(
        publish, Backoff(0.05, 0.5), failed, on=(BusRefused, BusUnavailable)
    )


async def phases(link: Link) -> dict[str, Phase]:
    """The phase of each readable workload that is no variant, by name."""
    workloads, _ = await objects.find_all(link, kinds.WORKLOAD, NAMESPACE)
    now = clock.now()
    return {
        each.name: phase(each.workload(), now)
        for each in workloads
        if not is_variant(each.workload())
    }


async def unfinished(link: Link) -> list[str]:
    """The names of the workloads that have not finished; for a family that of its parent."""
    return [name for name, where in (await phases(link)).items() if where is not Phase.FINISHED]


async def read_log(link: Link) -> list[LogEntry]:
    """All messages that the log has, oldest first."""

    async def read() -> list[LogEntry]:
        return [entry async for entry in history.facts_about(link, None, None, follow=False)]

    return await until_answered(read, ANSWER_SECONDS)


def facts_in(entries: Iterable[LogEntry]) -> list[Fact]:
    """The facts among the messages of the log."""
    decoded: list[Fact] = []
    for entry in entries:
        with suppress(codec.Undecodable):
            decoded.append(codec.decode(entry.subject, bytes(entry.data)))
    return decoded


# Promises. --------------------------------------------------------------------------------


def broken_promises(
    jobs: int, unfinished: Sequence[str], trail: Trail, booked: Replay, *, at_once: int
) -> list[str]:
    """Returns one sentence for each broken promise. ``at_once``: how many jobs the quota allows."""
    broken: list[str] = []
    if unfinished:
        broken.append(f"{len(unfinished)} jobs are not finished, such as {unfinished[0]}")
    if len(trail.ended) != jobs:
        broken.append(f"{jobs - len(trail.ended)} jobs never came to their end")
    if trail.overlapping:
        broken.append(f"{len(trail.overlapping)} jobs ran twice at once: {trail.overlapping[0]}")
    if trail.peak > at_once:
        broken.append(f"{trail.peak} jobs ran at once")
    if booked.over:
        broken.append(f"over quota: {booked.over[0]}")
    return broken


async def wrong_sums(link: Link, entries: Iterable[LogEntry]) -> list[str]:
    """A sentence for each ClusterQueue if its sums of usage differ from the plain sums of the facts
    on the log."""
    runs = _runs(entries)
    plain: dict[str, Counter[str]] = {}
    for run in runs:
        sums = plain.setdefault(run.cluster_queue, Counter())
        sums.update({"runs": int(run.admitted and bool(run.outcome)), run.outcome: 1})
        for _, resource, booked in run.amounts:
            sums[resource] += booked * (run.until - run.since)
    day = _day(min((run.since for run in runs), default=0))
    ask = partial(usage.usage, link, ("cluster-queue",), day, None, None)
    reply = await until_answered(ask, ANSWER_SECONDS)
    told = {each.group[0]: _counts(each) for each in reply.sums}
    expected = {
        queue: {name: count for name, count in sums.items() if name and count}
        for queue, sums in plain.items()
    }
    return [
        f"usage of {queue}: {told.get(queue)} in place of {expected.get(queue)}"
        for queue in sorted(told.keys() | expected.keys())
        if told.get(queue) != expected.get(queue)
    ]


def _runs(entries: Iterable[LogEntry]) -> Collection[Run]:
    """The runs that the log reports. Of two reports about one admission the later one counts."""
    prefix = RELEASES.removesuffix(">")
    reports = (
        run_of(bytes(entry.data), entry.sequence)
        for entry in entries
        if entry.subject.startswith(prefix)
    )
    return {run.key: run for run in reports}.values()


def _day(seconds: int) -> date:
    return clock.from_nanoseconds(seconds * 1_000_000_000).date()


def _counts(usage: UsageSum) -> dict[str, int]:
    """The counts of a sum that are not 0; of ``cpu`` the milliseconds."""
    counts = {
        "runs": usage.runs,
        "finished": usage.finished,
        "failed": usage.failed,
        "evicted": usage.evicted,
        "cpu": round(float(usage.resource_seconds.get("cpu", "0")) * 1000),
    }
    return {name: count for name, count in counts.items() if count}
