"""An object that others need is deleted once they do not need it: a check, a flavor, a queue."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.reading.manifest import decode_object
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.requests.manifests import Delete, DeleteReply
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import check_durables
from admittance.workload.conditions import Type, find, is_true
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import (
    admission_check,
    apply,
    ask,
    becomes,
    eventually,
    is_admitted,
    is_reserved,
    queues,
    settled,
    submit,
    workload,
)

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
CHECK = admission_check("c")


async def delete(bus: Bus, kind: str, name: str) -> DeleteReply:
    reply: DeleteReply = await ask(
        bus, "admit.api.delete", Delete(kind=kind, name=name), DeleteReply
    )
    return reply


async def stands(bus: Bus, key: str) -> str:
    """``kept``, ``going`` or ``gone``."""
    entry = await get(bus, key)
    if entry is None or entry.value is None:
        return "gone"
    meta = decode_object(entry.value).manifest.metadata
    return "kept" if meta.deletion_timestamp is None else "going"


async def until_it_is(bus: Bus, key: str, want: str) -> None:
    await becomes(lambda: stands(bus, key), want)


def without_checks(*names: str) -> list[dict[str, Any]]:
    return queues(*names, cpu=1)


@pytest.mark.scenario("A20")
async def test_a_check_disappears_after_the_last_queue_that_names_it(
    cluster: Cluster, bus: Bus
) -> None:
    first = await cluster.start("workload-controller")
    await apply(bus, CHECK, *queues("one", "two", cpu=1, admissionChecks=["c"]))
    reply = await delete(bus, "AdmissionCheck", "c")
    assert reply.outcome == "deferred"
    assert "ClusterQueue one, ClusterQueue two" in reply.error
    assert await stands(bus, "admissioncheck.c") == "going"
    assert (await delete(bus, "AdmissionCheck", "c")).outcome == "deferred"
    await apply(bus, *without_checks("one"))
    assert await stands(bus, "admissioncheck.c") == "going"
    # The next leader continues where this leader ended.
    await first.kill()
    await cluster.start("workload-controller")
    assert (await delete(bus, "ClusterQueue", "two")).outcome == "deleted"
    await until_it_is(bus, "admissioncheck.c", "gone")
    await becomes(lambda: check_durables.existing(bus), {})


async def test_a_deleted_queue_stays_while_workloads_run_and_admits_no_more(
    cluster: Cluster, bus: Bus
) -> None:
    """The reservation of a workload that does not run yet is taken back."""
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *queues("cq", cpu=2))
    await submit(bus, [a_manifest("runs", queue="lq-cq")])
    await eventually(lambda: is_admitted(bus, "runs"))
    await apply(bus, CHECK, *queues("cq", cpu=2, admissionChecks=["c"]))
    await submit(bus, [a_manifest("waits", queue="lq-cq")])

    await eventually(lambda: is_reserved(bus, "waits"))
    reply = await delete(bus, "ClusterQueue", "cq")
    assert reply.outcome == "deferred"
    assert "Workload ns/runs" in reply.error
    await becomes(lambda: is_reserved(bus, "waits"), False)
    waiting = await workload(bus, "waits")
    assert waiting is not None
    condition = find(waiting, Type.QUOTA_RESERVED)
    assert condition is not None
    assert (condition.reason, condition.message) == (
        "Misconfigured",
        "ClusterQueue cq is being deleted",
    )
    assert await stands(bus, "clusterqueue.cq") == "going"
    running = await workload(bus, "runs")
    assert running is not None
    assert is_true(running, Type.ADMITTED)
    ended = facts.Finished(namespace="ns", name="runs")
    await settled(bus, await bus.publish(Outgoing(subject_of(ended), encode(ended))))
    await until_it_is(bus, "clusterqueue.cq", "gone")
