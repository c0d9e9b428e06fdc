"""Objects of foreign kinds that are named like ours do not stop any service, nor its next start."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admittance.api.kinds import KINDS
from admittance.events.requests.manifests import Delete, DeleteReply
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, ask, eventually, is_reserved, queues, settled, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

SERVICES = ("workload-controller", "scheduler", "variant-controller", "provisioning-check")
NAMES = {"ClusterQueue": "cq", "LocalQueue": "lq-cq", "ResourceFlavor": "default"}


def a_foreign(kind: str, group: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": NAMES.get(kind, "ns"), **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata}


async def _reserves(bus: Bus, name: str) -> None:
    (sequence,) = await submit(bus, [a_manifest(name, queue="lq-cq")])
    assert (await settled(bus, sequence)).outcome == "applied"
    await eventually(lambda: is_reserved(bus, name))


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
    assert {result.outcome for result in reply.results} == {"created"}
    await _reserves(bus, "first")
    for process in started:
        await process.stop()
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


@pytest.mark.parametrize(
    ("key", "outcome", "error"),
    [
        pytest.param("clusterqueue.cq", "", "in use by Workload ns/job", id="a queue in use"),
        pytest.param("flavor.default", "", "in use by ClusterQueue cq", id="a flavor in use"),
        pytest.param("workload.ns.job", "", "`admit delete workload job -n ns`", id="a workload"),
        pytest.param("_admittance.manifests", "", "never deleted", id="a key of the services"),
        pytest.param("flavor.none", "absent", "", id="a key without a value"),
        pytest.param("flavor.unused", "deleted", "", id="an object that nothing uses"),
        pytest.param("job_apps.ns.ns", "deleted", "", id="a foreign object"),
        pytest.param("clusterqueue.broken", "deleted", "", id="a value that no service can read"),
        pytest.param("clusterqueue.ns.cq", "deleted", "", id="a key that no object can have"),
        pytest.param("_admittance.x", "deleted", "", id="a key that no service knows"),
        pytest.param("workload.ns.broken", "deleted", "", id="an unreadable workload"),
    ],
)
async def test_a_stored_key_is_deleted_unless_it_is_needed(
    cluster: Cluster, bus: Bus, key: str, outcome: str, error: str
) -> None:
    for service in SERVICES[:2]:
        await cluster.start(service)
    flavor = {**queues()[0], "metadata": {"name": "unused"}}
    await apply(bus, *queues("cq", cpu=40), flavor, a_foreign("Job", "apps", "ns"))
    await _reserves(bus, "job")
    keys = ("clusterqueue.broken", "clusterqueue.ns.cq", "_admittance.x", "workload.ns.broken")
    for broken in keys:
        await bus.publish(bucket.put_message(broken, b"{", expected=0))
    request = Delete(kind="", name="", stored=key)
    reply = await ask(bus, "admit.api.delete", request, DeleteReply)
    assert (reply.outcome, error in reply.error) == (outcome, True), reply
    entry = await bucket.get(bus, key)
    assert (entry is None or entry.value is None) == (outcome != "")
    await _reserves(bus, "another")
