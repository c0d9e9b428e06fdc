"""Groups of puts share an atomic batch; when one of them is stale, the others still go through."""

from __future__ import annotations

import pytest

from admittance.control.commit import Put
from admittance.runtime.bus.bucket import get, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import StaleRevision
from admittance.workload import stored
from admittance.workload.stored import StoredWorkload
from admittance.workload_controller.commit_writer import WorkloadWriter

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
VALUE = StoredWorkload(api_version="kueue.x-k8s.io/v1beta2", kind="Workload")


async def revision(bus: Bus, name: str) -> int:
    entry = await get(bus, f"workload.ns.{name}")
    return entry.revision if entry is not None else 0


def a_put(name: str, expected: int, group: int) -> Put:
    key = f"workload.ns.{name}"
    return Put(key, expected, stored.encode(VALUE), 1, "", VALUE, group)


async def test_a_stale_group_is_refused_as_a_whole_without_blocking_others(
    bus: Bus,
) -> None:
    for name in "abcd":
        await bus.publish(put_message(f"workload.ns.{name}", b"{}", expected=0))
    at = {name: await revision(bus, name) for name in "abcd"}
    groups = [
        [a_put("a", at["a"], 1), a_put("b", at["b"], 1)],
        [a_put("c", at["c"], 2), a_put("d", at["d"] + 7, 2)],
    ]
    outcomes = await WorkloadWriter(bus, finished_seconds=60.0).write_groups(groups)
    first = [await revision(bus, name) for name in "ab"]
    assert outcomes[:2] == first == [first[0], first[0] + 1]
    assert all(isinstance(outcome, StaleRevision) for outcome in outcomes[2:])
    assert [await revision(bus, name) for name in "cd"] == [at["c"], at["d"]]
