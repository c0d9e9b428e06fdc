"""One trace from the first publish through every service."""

from __future__ import annotations

import json

import pytest

from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.telemetry.tracing import start, trace_id
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, queues
from support.servers import LIMIT

pytestmark = pytest.mark.bus


async def test_every_message_that_follows_a_submission_has_its_trace(
    cluster: Cluster, bus: Bus
) -> None:
    for service in ("workload-controller", "scheduler", "runner"):
        await cluster.start(service)
    await apply(bus, *queues("cq"))
    traceparents: dict[str, str] = {}
    subscription = await bus.nc.subscribe("admit.workload.*.ns.w")
    context = start()
    said = {"namespace": "ns", "name": "w", "workload": a_manifest("w", queue="lq-cq")}
    subject = "admit.workload.submitted.ns.w"
    await bus.publish(Outgoing(subject, json.dumps(said).encode(), {"traceparent": context}))

    async def ended() -> bool:
        while subscription.pending_msgs:
            message = await subscription.next_msg(timeout=LIMIT)
            what = message.subject.split(".")[2]
            traceparents[what] = (message.headers or {}).get("traceparent", "")
        return "finished" in traceparents

    await eventually(ended)
    traced = {what: trace_id(traceparent) for what, traceparent in traceparents.items()}
    wanted = ("submitted", "assigned", "quota_reserved", "admitted", "started", "finished")
    assert {what: traced.get(what) for what in wanted} == dict.fromkeys(wanted, trace_id(context))
    assert len({traceparent[36:52] for traceparent in traceparents.values()}) == len(
        traceparents
    ), "each a span of its own"


async def test_a_runner_that_comes_late_carries_the_trace_on(cluster: Cluster, bus: Bus) -> None:
    for service in ("workload-controller", "scheduler"):
        await cluster.start(service)
    await apply(bus, *queues("cq"))
    admitted = await bus.nc.subscribe("admit.workload.admitted.ns.w")
    started = await bus.nc.subscribe("admit.workload.started.ns.w")
    context = start()
    said = {"namespace": "ns", "name": "w", "workload": a_manifest("w", queue="lq-cq")}
    subject = "admit.workload.submitted.ns.w"
    await bus.publish(Outgoing(subject, json.dumps(said).encode(), {"traceparent": context}))
    await admitted.next_msg(timeout=30)
    await cluster.start("runner")
    message = await started.next_msg(timeout=30)
    assert trace_id((message.headers or {}).get("traceparent", "")) == trace_id(context)
