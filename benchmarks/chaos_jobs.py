"""Jobs of the chaos benchmarks: submits them, reads the log, and judges the results."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.cli.support import services
from admittance.events import codec
from admittance.events.base import Fact
from admittance.events.requests import Events, EventsReply
from admittance.runtime import clock
from admittance.runtime.bus import bucket, streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Unavailable
from admittance.workload import stored
from admittance.workload.phase import phase
from benchmarks.trail import Replay, Trail

SERVICES: Final = tuple(name for name, one in services.SERVICES.items() if one.together)
STREAMS: Final = tuple(stream.name for stream in streams.all_streams())
QUEUES: Final = 4
QUOTA_MILLI: Final = 4000
SCRIPT: Final = 'echo "start $JOB $$" >>"$TRAIL"; sleep 0.5; echo "end $JOB $$" >>"$TRAIL"'

_events = msgspec.json.Decoder(EventsReply)
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
