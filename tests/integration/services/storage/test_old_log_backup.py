"""A log and a bucket that are not of one time."""

from __future__ import annotations

import asyncio
import json

import pytest

from admittance.runtime.bus.bucket import put_message
from admittance.runtime.bus.bus import Bus
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, queues

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


async def test_a_log_older_than_the_bucket_is_reported_and_services_run(
    cluster: Cluster, bus: Bus
) -> None:
    """One value with a fact beyond the log is enough; any program may have written the value."""
    manifest = a_manifest("w") | {"status": {"log": {"fact": 1000}}}
    await bus.publish(put_message("workload.ns.w", json.dumps(manifest).encode(), expected=0))
    controller = await cluster.start("workload-controller")

    async def is_reported() -> bool:
        await asyncio.sleep(0)
        return "restore log and bucket from one backup" in controller.log

    await eventually(is_reported)
    await apply(bus, *queues("a"))
    assert controller.status is None
    assert "Traceback" not in controller.log
