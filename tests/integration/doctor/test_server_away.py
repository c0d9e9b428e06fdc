"""`admit doctor` on three servers of which one is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.doctor.finding import Finding
from admittance.doctor.streams import stream_findings, write_findings
from admittance.runtime.bus.streams import stream_infos
from support.requests import eventually
from support.three_servers import three_servers

pytestmark = pytest.mark.bus


async def test_a_server_of_the_cluster_that_is_away_is_named(tmp_path: Path) -> None:
    async with three_servers(tmp_path) as servers:
        bus = await servers.connect(0)
        try:
            findings: list[Finding] = []

            async def nothing_is_wrong() -> bool:
                findings[:] = stream_findings(await stream_infos(bus))
                return all(finding.state == "ok" for finding in findings)

            async def one_is_away() -> bool:
                findings[:] = [
                    finding
                    for finding in stream_findings(await stream_infos(bus))
                    if "away" in finding.found
                ]
                return bool(findings)

            async def writes_are_taken() -> bool:
                return [finding.state for finding in await write_findings(bus)] == ["ok"]

            await eventually(nothing_is_wrong)
            gone = 2
            await servers.kill(gone)
            await eventually(one_is_away)
            assert [finding.what for finding in findings] == [f"server {servers.name_of(gone)}"]
            assert "it has replicas of" in findings[0].found
            assert "start the server" in findings[0].todo
            # A stream takes writes again after the election that follows the kill of its leader.
            await eventually(writes_are_taken)
        finally:
            await bus.close()
