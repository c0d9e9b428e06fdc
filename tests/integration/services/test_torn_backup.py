"""A log and a bucket that are not of one time."""

from __future__ import annotations

import asyncio
import json

import pytest

from admittance.runtime.bucket import put_message
from admittance.runtime.bus import Bus

from builders import a_manifest
from processes import Fleet, eventually

pytestmark = pytest.mark.bus


async def test_a_log_that_is_older_than_the_bucket_is_refused_in_one_line(
    fleet: Fleet, bus: Bus
) -> None:
    """Its new facts would be taken for old ones, and skipped."""
    manifest = a_manifest("w") | {"status": {"log": {"fact": 1000}}}
    await bus.publish(put_message("workload.ns.w", json.dumps(manifest).encode(), expected=0))
    controller = await fleet.start("workload-controller")

    async def told() -> bool:
        await asyncio.sleep(0)
        return "restore both from one backup" in controller.log

    await eventually(told)
    assert "Traceback" not in controller.log
