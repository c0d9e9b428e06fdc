"""Preemption on a real server: jobs stop before their quota is handed on, reserved quota passes in
one write, and a new scheduler continues a preemption for the same workload."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from admittance.events import facts
from admittance.events.codec import decode
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage, read_messages
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload
from support.builders import a_manifest
from support.cluster import Cluster
from support.processes.fork_server import run_admit
from support.requests import apply, eventually, queues, submit, workload
from support.servers import TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
LOWER = {"withinClusterQueue": "LowerPriority"}


def a_job(name: str, trail: Path, *, priority: int, stops: float = 0.0, runs: str = "") -> Any:
    """A workload that notes its start and its end, and takes its time to stop."""
    body = runs or "while :; do sleep 0.05; done"
    script = (
        f"trap 'sleep {stops}; echo stopped {name} >> {trail}; exit 143' TERM; "
        f"echo started {name} >> {trail}; {body}; echo done {name} >> {trail}"
    )
    container = {
        "name": "main",
        "image": "none",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": {"cpu": "1"}},
    }
    template = {
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 20,
        }
    }
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    return a_manifest(name, queue="lq-cq") | {
        "spec": {"queueName": "lq-cq", "priority": priority, "podSets": pod_sets}
    }


async def facts_on_log(bus: Bus, what: str) -> list[StoredMessage]:
    return await read_messages(bus, [f"admit.workload.{what}.>"])


async def has_fact(bus: Bus, what: str, name: str) -> bool:
    return any(message.subject.endswith(f".{name}") for message in await facts_on_log(bus, what))


async def stored(bus: Bus, name: str) -> StoredWorkload:
    stored = await workload(bus, name)
    assert stored is not None
    return stored


@pytest.mark.servers("real")
async def test_a_job_is_stopped_before_its_quota_is_handed_on(
    cluster: Cluster, bus: Bus, nats_server: TestServer, tmp_path: Path
) -> None:
    trail = tmp_path / "trail"
    for service in ("workload-controller", "scheduler", "runner"):
        await cluster.start(service)
    await apply(bus, *queues("cq", cpu=1, preemption=LOWER))
    await submit(bus, [a_job("low", trail, priority=1, stops=3.0)])
    await eventually(lambda: has_fact(bus, "pods_ready", "low"))
    await submit(bus, [a_job("high", trail, priority=7, runs="true")])
    await eventually(lambda: has_fact(bus, "evicted", "low"))

    # While the job stops its quota stays booked, and the preempting workload says so.
    await eventually(lambda: _waits_for_it(bus))
    assert "stopped low" not in _lines(trail)
    assert is_true(await stored(bus, "low"), Type.QUOTA_RESERVED)
    waits = find(await stored(bus, "high"), Type.QUOTA_RESERVED)
    assert waits is not None
    assert "ns/low at priority 1" in waits.message
    assert "cpu in flavor default, 1 asked, 0 free" in waits.message

    shown = await _admit(nats_server.url, "get", "workload", "low", "-n", "ns", "-o", "yaml")
    assert "InClusterQueue" in shown
    assert "by: ns/high" in shown
    await eventually(lambda: _says(trail, "done high"))
    lines = _lines(trail)
    assert lines[:4] == ["started low", "stopped low", "started high", "done high"]
    (evicted,) = await facts_on_log(bus, "evicted")
    (stopped,) = await facts_on_log(bus, "stopped")
    taken = [
        message
        for message in await facts_on_log(bus, "assigned")
        if message.subject.endswith(".high")
    ]
    assert evicted.sequence < stopped.sequence < taken[0].sequence
    said = decode(evicted.subject, evicted.data)
    assert isinstance(said, facts.Evicted)
    by = said.preempted_by
    assert by is not None and by.grounds is not None
    assert (by.by, by.by_uid) == ("ns/high", (await stored(bus, "high")).metadata.uid)
    assert (by.grounds.by_priority, by.grounds.priority) == (7, 1)
    # It comes back by itself.
    await eventually(lambda: _says(trail, "started low", times=2))

    story = await _admit(nats_server.url, "events", "--workload", "low", "-n", "ns")
    assert "preempted" in story and "high" in story and "stopped" in story


async def _waits_for_it(bus: Bus) -> bool:
    waits = await workload(bus, "high")
    condition = find(waits, Type.QUOTA_RESERVED) if waits is not None else None
    return condition is not None and condition.reason == "WaitingForPreemptedWorkloads"


async def _says(trail: Path, line: str, times: int = 1) -> bool:
    return _lines(trail).count(line) >= times


def _lines(trail: Path) -> list[str]:
    return trail.read_text().splitlines() if trail.exists() else []


async def _admit(url: str, *words: str) -> str:
    env = {"NO_COLOR": "1", "COLUMNS": "400"}
    done = await asyncio.to_thread(run_admit, "--nats", url, *words, env=env)
    assert done.status == 0, done.err
    return done.out


async def _there(bus: Bus, *names: str) -> bool:
    return all([await workload(bus, name) is not None for name in names])


@pytest.mark.servers("real")
async def test_a_new_scheduler_continues_a_preemption_without_repeating_it(
    cluster: Cluster, bus: Bus, tmp_path: Path
) -> None:
    trail = tmp_path / "trail"
    await cluster.start("workload-controller")
    await cluster.start("runner")
    first = await cluster.start("scheduler", "first")
    await apply(bus, *queues("cq", cpu=1, preemption=LOWER))
    await submit(bus, [a_job("low", trail, priority=1, stops=4.0)])
    await eventually(lambda: has_fact(bus, "pods_ready", "low"))
    await submit(bus, [a_job("high", trail, priority=5, runs="true")])
    await eventually(lambda: _waits_for_it(bus))
    await first.kill()
    # A later workload would be first by priority, but the job stops for the earlier one.
    await submit(bus, [a_job("higher", trail, priority=9, runs="true")])
    await eventually(lambda: _there(bus, "higher"))
    await cluster.start("scheduler", "second")

    await eventually(lambda: _says(trail, "done higher"))
    taken = [message.subject.rsplit(".", 1)[1] for message in await facts_on_log(bus, "assigned")]
    assert taken[:3] == ["low", "high", "higher"]
    preempted = [
        message.subject.rsplit(".", 1)[1] for message in await facts_on_log(bus, "preempted")
    ]
    assert preempted.count("low") == 1
