"""Objects of foreign kinds that are named like ours do not stop any service, nor its next start."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admittance.api.kinds import KINDS
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.workload.phase import holds_quota
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, queues, settled, submit, workload

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

SERVICES = ("workload-controller", "scheduler", "variant-controller", "provisioning-check")
NAMES = {"ClusterQueue": "cq", "LocalQueue": "lq-cq", "ResourceFlavor": "default"}


def a_foreign(kind: str, group: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": NAMES.get(kind, "ns"), **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata}


async def _reserves(bus: Bus, name: str) -> None:
    (sequence,) = await submit(bus, [a_manifest(name, queue="lq-cq")])
    assert (await settled(bus, sequence)).outcome == "applied"

    async def reserved() -> bool:
        found = await workload(bus, name)
        return found is not None and holds_quota(found)

    await eventually(reserved)


async def test_all_services_work_and_start_on_a_bucket_with_foreign_kinds_named_like_ours(
    cluster: Cluster, bus: Bus
) -> None:
    started = [await cluster.start(service) for service in SERVICES]
    foreign = [
        a_foreign(kind, group, namespace)
        for kind in KINDS
        for group in ("apps", "example.com")
        for namespace in ("", "ns")
    ]
    reply = await apply(bus, *queues("cq", cpu=40), *foreign)
    assert {one.outcome for one in reply.results} == {"created"}
    await _reserves(bus, "first")
    for one in started:
        await one.stop()
    # Values that no version of Admittance writes: a foreign object at a key of ours, and keys with
    # a name too many or too few.
    for key, value in (
        ("clusterqueue.other", a_foreign("ClusterQueue", "apps", "")),
        ("clusterqueue.ns.cq", a_foreign("ClusterQueue", "apps", "ns")),
        ("localqueue.lq-cq", a_foreign("LocalQueue", "apps", "")),
        ("job.ns.j", a_foreign("Job", "batch", "ns")),
    ):
        await bus.publish(bucket.put_message(key, json.dumps(value).encode(), expected=0))
    for service in SERVICES:
        await cluster.start(service)
    await _reserves(bus, "second")
    assert (await apply(bus, *queues("cq", cpu=41))).results[1].outcome == "changed"
