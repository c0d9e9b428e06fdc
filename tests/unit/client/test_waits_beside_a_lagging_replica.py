"""A wait for a workload that a replica of the bucket does not have yet."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from admittance.client.errors import NotFound
from admittance.client.requests.objects import BucketObject
from admittance.client.requests.workloads import waits
from admittance.workload.phase import Phase
from support.builders import a_manifest

LINK: Any = None


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_workload_that_a_replica_lacks_is_awaited_if_it_exists(
    monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    stored = BucketObject("workload.ns.w", msgspec.json.encode(a_manifest("w")), 1)

    async def states(*_: object) -> AsyncGenerator[BucketObject | None]:
        yield None
        yield stored

    async def exists(*_: object) -> bool:
        return is_stored

    async def not_found(*_: object) -> NotFound:
        return NotFound("not found")

    monkeypatch.setattr(waits, "_ticking", states)
    monkeypatch.setattr(waits, "is_stored", exists)
    monkeypatch.setattr(waits, "not_found", not_found)
    if is_stored:
        assert await waits.reach(LINK, "ns", "w", Phase.PENDING, None) == stored.workload()
    else:
        with pytest.raises(NotFound):
            await waits.reach(LINK, "ns", "w", Phase.PENDING, None)
