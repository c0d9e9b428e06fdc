"""Jobs of the chaos benchmarks: submits them, reads the log, and judges the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from admittance import services
from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.events import codec
from admittance.events.base import Fact
from admittance.events.reading_requests import Usage, UsageReply, UsageSum
from admittance.events.requests import Events, EventsReply
from admittance.events.subjects import RELEASES
from admittance.runtime import clock
from admittance.runtime.bus import bucket, streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import read_messages
from admittance.runtime.errors import Unavailable
from admittance.runtime.process.service import WithUp
from admittance.usage.runs import Run, run_of
from admittance.workload import stored
from admittance.workload.phase import phase
from benchmarks.trail import Replay, Trail

SERVICES: Final = tuple(
    name for name, one in services.SERVICES.items() if one.with_up is WithUp.ALWAYS
)
STREAMS: Final = tuple(stream.name for stream in streams.all_streams())
QUEUES: Final = 4
QUOTA_MILLI: Final = 4000
SCRIPT: Final = 'echo "start $JOB $$" >>"$TRAIL"; sleep 0.5; echo "end $JOB $$" >>"$TRAIL"'

_events = msgspec.json.Decoder(EventsReply)
_usage = msgspec.json.Decoder(UsageReply)
_encode = msgspec.json.Encoder().encode


def submission_of(name: str, queue: str, trail: Path) -> bytes:
    """The submission of one job that writes its beginning and its end to trail."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "JOB", "value": name}, {"name": "TRAIL", "value": str(trail)}],
        "resources": {"requests": {"cpu": "1"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "queueName": queue,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }
    return _encode({"namespace": "default", "name": name, "workload": manifest})


def broken_promises(
    jobs: int, unfinished: Sequence[str], found: Trail, booked: Replay
) -> list[str]:
    """Every broken promise, a sentence each."""
    broken: list[str] = []
    if unfinished:
        broken.append(f"{len(unfinished)} jobs are not finished, such as {unfinished[0]}")
    if len(found.ended) != jobs:
        broken.append(f"{jobs - len(found.ended)} jobs never came to their end")
    if found.overlapping:
        broken.append(f"{len(found.overlapping)} jobs ran twice at once: {found.overlapping[0]}")
    if found.peak > QUEUES * QUOTA_MILLI // 1000:
        broken.append(f"{found.peak} jobs ran at once")
    if booked.over:
        broken.append(f"over quota: {booked.over[0]}")
    return broken


async def create_queues(bus: Bus, *, timeout: float = 60.0) -> None:
    """Makes the queues of the jobs, as soon as services answer."""
    made = tuple(
        PlannedQueue(
            f"chaos-{n}", "cq", f"c-{n % 2}", "default", QUOTA_MILLI, 0, None, "Never", "Never"
        )
        for n in range(QUEUES)
    )
    await generator.create(bus, BenchPlan(made, ()), timeout=timeout)


async def unfinished_of(bus: Bus) -> list[str]:
    """Keys of the jobs that are not finished."""
    entries = await bucket.read_all(bus, "workload.>")
    now = clock.now()
    return [
        entry.key
        for entry in entries
        if entry.value is not None and phase(stored.decode(entry.value), now=now) != "Finished"
    ]


async def read_log(bus: Bus, *, timeout: float = 60.0) -> list[Fact]:
    """All facts about workloads that the log has, oldest first."""
    told: list[Fact] = []
    after = 0
    deadline = clock.monotonic() + timeout
    while True:
        data = _encode(Events(after=after, limit=500))
        reply = _events.decode(await generator.ask(bus, "admit.api.events", data, deadline))
        if reply.error:
            raise Unavailable(reply.error)
        for entry in reply.entries:
            with suppress(codec.Undecodable):
                told.append(codec.decode(entry.subject, bytes(entry.data)))
            after = entry.sequence
        if reply.complete:
            return told


async def wrong_sums(bus: Bus, *, timeout: float = 60.0) -> list[str]:
    """A sentence for each ClusterQueue whose sums of usage differ from the plain sums of the facts
    on the log."""
    runs = await _runs(bus)
    plain: dict[str, Counter[str]] = {}
    for run in runs:
        sums = plain.setdefault(run.cluster_queue, Counter())
        sums.update({"runs": int(run.admitted and bool(run.outcome)), run.outcome: 1})
        for _, resource, booked in run.amounts:
            sums[resource] += booked * (run.until - run.since)
    since = min((run.since for run in runs), default=0)
    day = clock.from_nanoseconds(since * 1_000_000_000).date().isoformat()
    request = _encode(Usage(by=("cluster-queue",), since=day))
    deadline = clock.monotonic() + timeout
    reply = _usage.decode(await generator.ask(bus, "admit.api.usage", request, deadline))
    if reply.error:
        raise Unavailable(reply.error)
    told = {one.group[0]: _told(one) for one in reply.sums}
    expected = {
        queue: {name: count for name, count in sums.items() if name and count}
        for queue, sums in plain.items()
    }
    return [
        f"usage of {queue}: {told.get(queue)} in place of {expected.get(queue)}"
        for queue in sorted(told.keys() | expected.keys())
        if told.get(queue) != expected.get(queue)
    ]


async def _runs(bus: Bus) -> list[Run]:
    """The runs that the log reports. Of two reports about one admission the later one counts."""
    found: dict[tuple[str, int], Run] = {}
    after = 0
    while page := await read_messages(bus, [RELEASES], after=after):
        for one in page:
            run = run_of(one.data, one.sequence)
            found[run.key] = run
        after = page[-1].sequence
    return list(found.values())


def _told(one: UsageSum) -> dict[str, int]:
    """The counts of a sum that are not 0; of ``cpu`` the milliseconds."""
    counts = {
        "runs": one.runs,
        "finished": one.finished,
        "failed": one.failed,
        "evicted": one.evicted,
        "cpu": round(float(one.resource_seconds.get("cpu", "0")) * 1000),
    }
    return {name: count for name, count in counts.items() if count}
