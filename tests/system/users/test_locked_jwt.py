"""A server with an operator: services, programs and people with JWTs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.requests import queues
from system.users.locked import Locked

pytestmark = pytest.mark.bus


async def test_job_passes_through_all_services_with_jwts(tmp_path: Path) -> None:
    locked = Locked(tmp_path, jwt=True)
    await locked.start()
    try:
        manifests = tmp_path / "queues.yaml"
        manifests.write_text(yaml.safe_dump_all(queues("a", namespace="team-a")))
        await locked.admit("root", "apply", "-f", str(manifests))
        job = ("submit", "-n", "team-a", "-q", "lq-a", "--name", "job", "--wait")
        await locked.admit("ada", *job, "--", "echo", "through the border")
        show = ("-n", "team-a")
        assert await locked.admit("ada", "logs", "workload", "job", *show) == "through the border\n"
        assert "by ada" in await locked.admit("ada", "events", "--workload", "job", *show)
        refused = await locked.run("bob", "get", "wl", "job", *show)
        assert refused.status == 1
        assert "may not" in refused.err
        for process in locked.cluster.processes:
            lines = [line for line in process.log.splitlines() if "permission" in line.lower()]
            assert lines == [], process.service
    finally:
        await locked.stop()
