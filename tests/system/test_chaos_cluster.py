"""Every service on a cluster of three servers that is broken; `chaos --servers 3` in small."""

from __future__ import annotations

from benchmarks import chaos_cluster, faults


async def test_jobs_survive_a_cluster_that_starts_and_breaks() -> None:
    lines = await chaos_cluster.run_cluster_chaos(
        servers=3,
        minutes=0.0,
        seed=1,
        kinds=(faults.LEADER_KILLED, faults.QUORUM_PAUSED),
        scale=0.2,
    )
    assert lines[-1].endswith("no process ended by itself")
