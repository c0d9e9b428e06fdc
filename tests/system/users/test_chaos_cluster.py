"""Two of every service on a locked cluster of three servers that is broken; `chaos --servers 3
--locked` in small."""

from __future__ import annotations

import pytest
from benchmarks import chaos, faults
from benchmarks.chaos import ChaosPlan
from benchmarks.harness import fleet

from support.processes.forked_system import start


async def test_jobs_survive_a_cluster_that_starts_and_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "start", start)
    kinds = (faults.LEADER_KILLED, faults.QUORUM_PAUSED)
    plan = ChaosPlan(kinds=kinds, scale=0.2, locked=True, kill_every=2.0)
    lines = await chaos.run_chaos(plan)
    assert lines[-1].endswith("no process ended by itself")
