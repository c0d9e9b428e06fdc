"""Finished workloads go from the bucket by themselves, and then their names are free."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload.phase import holds_quota
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, is_reserved, queues, settled, submit, workload

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


async def test_a_name_is_free_again_despite_a_fact_after_the_end(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller")
    await apply(bus, *queues("cq"))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    for fact in (facts.Finished(namespace="ns", name="w"), facts.Held(namespace="ns", name="w")):
        sequence = await bus.publish(Outgoing(subject_of(fact), encode(fact)))
        await settled(bus, sequence)
    # As its TTL does, which is a minute at least.
    await bus.api("STREAM.PURGE.KV_admittance", {"filter": "$KV.admittance.workload.ns.w"})
    assert await get(bus, "workload.ns.w") is None
    (sequence,) = await submit(bus, [a_manifest("w", queue="lq-cq")])
    assert (await settled(bus, sequence)).outcome == "applied"
    stored = await workload(bus, "w")
    assert stored is not None
    assert not holds_quota(stored)


async def test_services_log_one_line_about_a_workload_that_runs_once(
    cluster: Cluster, bus: Bus
) -> None:
    """The runner adds another one: the log of `admit up` grows by 360 bytes for each workload."""
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *queues("cq"))
    with capture_logs() as lines:
        await submit(bus, [a_manifest("w", queue="lq-cq")])
        await eventually(lambda: is_reserved(bus, "w"))
        admission = await get(bus, "workload.ns.w")
        assert admission is not None
        fact = facts.Finished(namespace="ns", name="w", revision=admission.revision)
        await settled(bus, await bus.publish(Outgoing(subject_of(fact), encode(fact))))
    told = [
        line["event"] for line in lines if line.get("workload") and line["log_level"] != "debug"
    ]
    assert told == ["workload_admitted"]
