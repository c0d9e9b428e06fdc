"""The consumed usage of LocalQueues outlives the scheduler that counted it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.api.fields.units import parse
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.requests.queues import LocalUsage, Queues, QueuesReply
from admittance.events.shapes import ConsumedUsage
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, ask, eventually, is_admitted, queues, submit, workload

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

VERSION = "kueue.x-k8s.io/v1beta2"
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
admissionFairSharing:
  usageHalfLifeTime: 168h
  usageSamplingInterval: 5m
"""


@pytest.fixture
def configuration(tmp_path: Path) -> dict[str, str]:
    """The environment of a scheduler that shares by usage."""
    path = tmp_path / "configuration.yaml"
    path.write_text(CONFIGURATION)
    return {"ADMIT_CONFIG": str(path)}


def by_usage() -> list[dict[str, Any]]:
    """A ClusterQueue of 4 cpus with fair usage; its LocalQueues are greedy and modest."""
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    made = [
        manifest
        for manifest in queues("cq", admissionScope=scope)
        if manifest["kind"] != "LocalQueue"
    ]
    for name in ("greedy", "modest"):
        metadata = {"name": name, "namespace": "ns"}
        local = {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": metadata}
        made.append({**local, "spec": {"clusterQueue": "cq"}})
    return made


async def used(bus: Bus, name: str) -> LocalUsage | None:
    """The scheduler's answer about a LocalQueue."""
    reply: QueuesReply = await ask(bus, "admit.api.queues.ns", Queues(), QueuesReply)
    used = [queue.used for queue in reply.local_queues if queue.name == name]
    return used[0] if used else None


async def run_and_finish(bus: Bus, name: str) -> None:
    """Submits a workload of LocalQueue greedy that takes all quota, and ends it."""
    await submit(bus, [a_manifest(name, queueName="greedy", requests={"cpu": "4"})])
    await eventually(lambda: is_admitted(bus, name))
    stored = await workload(bus, name)
    assert stored is not None
    done = facts.Finished(
        namespace="ns",
        name=name,
        uid=stored.metadata.uid,
        revision=stored.status.admitted_revision,
        succeeded=True,
    )
    await bus.publish(Outgoing(subject_of(done), encode(done)))


async def is_written(bus: Bus, name: str) -> bool:
    entry = await get(bus, f"_usage.ns.{name}")
    if entry is None or entry.value is None:
        return False
    record = msgspec.json.decode(entry.value, type=ConsumedUsage)
    return parse(record.consumed_resources.get("cpu", "0")) > 0


async def is_served_first(bus: Bus, name: str, other: str) -> bool:
    """The one is admitted, and the other waits."""
    assert not await is_admitted(bus, other), "the LocalQueue that used more was served first"
    return await is_admitted(bus, name)


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_the_next_scheduler_continues_with_the_usage_history(
    bus: Bus, cluster: Cluster, configuration: dict[str, str], how: str
) -> None:
    await cluster.start("workload-controller")
    first = await cluster.start("scheduler", **configuration)
    await apply(bus, *by_usage())
    await run_and_finish(bus, "past")
    if how == "kill":
        await eventually(lambda: is_written(bus, "greedy"))
    before = await used(bus, "greedy")
    assert before is not None and before.value
    await (first.kill() if how == "kill" else first.stop())
    # Both wait, so that the next one has the choice; age and priority speak for greedy.
    await submit(bus, [a_manifest("more", queueName="greedy", requests={"cpu": "4"}, priority=9)])
    await submit(bus, [a_manifest("less", queueName="modest", requests={"cpu": "4"})])
    await eventually(lambda: _is_there(bus, "less"))
    await cluster.start("scheduler", **configuration)
    await eventually(lambda: is_served_first(bus, "less", "more"))
    after = await used(bus, "greedy")
    assert after is not None and after.value is not None
    assert after.value == pytest.approx(before.value, rel=0.1)


async def test_a_restarted_workload_controller_skips_consumed_facts(
    bus: Bus, cluster: Cluster, configuration: dict[str, str]
) -> None:
    controller = await cluster.start("workload-controller")
    await cluster.start("scheduler", **configuration)
    await apply(bus, *by_usage())
    await run_and_finish(bus, "past")
    await eventually(lambda: is_written(bus, "greedy"))
    await controller.kill()
    await cluster.start("workload-controller")
    await submit(bus, [a_manifest("more", queueName="greedy", requests={"cpu": "4"})])
    await eventually(lambda: is_admitted(bus, "more"))


async def _is_there(bus: Bus, name: str) -> bool:
    return await workload(bus, name) is not None
