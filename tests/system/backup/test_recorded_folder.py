"""A data folder that an earlier version left in the middle of a story is carried on with."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tarfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml

from admittance.events.requests.replays import Replay
from admittance.replay.answer import answer
from admittance.runtime.bus.bus import Bus
from recorded.finish import finish_all
from recorded.player import ADMIT, Player
from recorded.story import CONFIGURATION, NAMESPACE
from support.programs.old_version import unpack
from support.servers import TestServer, within

pytestmark = pytest.mark.bus

RECORDED = Path(__file__).parents[2] / "recorded"
EXPECTED = json.loads((RECORDED / "2026-11-22.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the recorded data folder."""
    with tarfile.open(RECORDED / "2026-11-22.tar.xz") as packed:
        unpack(packed, tmp_path)
    return tmp_path / "data"


async def test_recorded_objects_and_decisions_read_as_they_were(folder: Path) -> None:
    server = TestServer(folder)
    url = await server.start()
    try:
        async with await nats.connect(url) as nc:
            player = Player(nc, url, verdicts={})
            listed = json.loads(await player.admit("get", "wl", "-n", NAMESPACE, "-o", "json"))
        assert {w["metadata"]["name"]: _stored(w) for w in listed["items"]} == {
            name: _stored(w) for name, w in EXPECTED["workloads"].items()
        }
        bus = await Bus.connect(url, name="replays")
        for decision in EXPECTED["decisions"]:
            reply = await answer(bus, Replay(sequence=decision["sequence"]))
            assert reply.same == decision["same"], reply
        await bus.close()
    finally:
        await server.stop()


async def test_recorded_workloads_all_finish(folder: Path, tmp_path: Path) -> None:
    async with _up(folder, tmp_path) as url, await nats.connect(url) as nc:
        ready = {"state": "Ready", "message": "fine"}
        player = Player(nc, url, verdicts={}, otherwise=ready)
        await player.start()
        await player.catch_up()
        await finish_all(player)
        facts = await player.admit("events", "-n", NAMESPACE, "-o", "json")
        ended = Counter(
            event["subject"].rsplit(".", 1)[-1]
            for event in map(json.loads, facts.splitlines())
            if event["subject"].split(".")[2] == "finished"
        )
        assert max(ended.values()) == 1


def _stored(listed: dict[str, Any]) -> dict[str, Any]:
    """The object without what the command derives."""
    status = dict(listed.get("status", {}))
    status.pop("admissionChecksConditions", None)
    return {**listed, "status": status}


@asynccontextmanager
async def _up(folder: Path, tmp_path: Path) -> AsyncIterator[str]:
    config = tmp_path / "configuration.yaml"
    config.write_text(yaml.safe_dump(CONFIGURATION))
    with (tmp_path / "services.log").open("wb") as log:
        up = await asyncio.create_subprocess_exec(
            ADMIT, "up", "--insecure", "--no-runner", "--port", "0", "--data-dir", folder,
            "--config", config,
            stdout=asyncio.subprocess.PIPE, stderr=log, env=os.environ,
        )  # fmt: skip
    assert up.stdout is not None
    try:
        yield (await within(up.stdout.readline())).decode().split()[1]
    finally:
        up.send_signal(signal.SIGTERM)
        await within(up.wait())
