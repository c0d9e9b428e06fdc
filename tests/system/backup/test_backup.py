"""A deployment that is lost in the middle of a story is restored from a backup."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from nats.aio.client import Client

from admittance.access.users import User
from admittance.backup.archive import check
from admittance.backup.restoring import LOST_MAX
from admittance.cli.up.readiness import until_ready
from admittance.events.subjects import RESTORED
from admittance.runtime.bus import bucket
from admittance.runtime.bus.streams import KV_LOG
from admittance.services import SERVICES as EVERY_SERVICE
from recorded.finish import CAN_FINISH, finish_all
from recorded.player import Player, condition
from recorded.story import CONFIGURATION, NAMESPACE, workload
from support.cluster import Cluster
from support.processes.fork_server import Answer, run_admit
from support.programs.old_version import unpack
from support.servers import TestServer, until, within
from support.three_servers import SERVICES, services_on, three_servers

pytestmark = pytest.mark.bus

RECORDED = Path(__file__).parents[2] / "recorded" / "2026-11-22.tar.xz"
SOON = "soon"
"""A workload with a check that delays it so shortly that the time is past after the restore."""


class Stream:
    """Submits workloads one after the other, and ends the job of each that is admitted."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.submitted: list[str] = []
        """Workloads with an acknowledged submission."""
        self.finished: list[str] = []
        """Workloads with an acknowledged end."""

    async def run(self) -> None:
        await asyncio.gather(self._submit(), self.finish_all())

    async def _submit(self) -> None:
        for number in range(100_000):
            name = f"more-{number}"
            fact = {"workload": workload(name, "plain", cpu=1)}
            await self._player.say(f"admit.workload.submitted.{NAMESPACE}.{name}", name, **fact)
            self.submitted.append(name)
            await asyncio.sleep(0.02)

    async def finish_all(self) -> None:
        """Ends the job of each admitted workload, until cancelled."""
        while True:
            for name in [name for name in self._player.running if name.startswith("more-")]:
                await self._player.finish(name)
                self.finished.append(name)
            await asyncio.sleep(0.005)


async def test_an_old_open_deployment_continues_on_three_locked_servers(tmp_path: Path) -> None:
    with tarfile.open(RECORDED) as packed:
        unpack(packed, tmp_path)
    config = tmp_path / "configuration.yaml"
    config.write_text(yaml.safe_dump(CONFIGURATION))
    old = TestServer(tmp_path / "data")
    url = await old.start()
    services = Cluster(old, tmp_path)
    file = tmp_path / "all.backup"
    for service in SERVICES:
        await services.start(service, ADMIT_CONFIG=str(config))
    async with await nats.connect(url) as nc:
        retry = {"state": "Retry", "message": "busy", "requeueAfterSeconds": 1}
        player = Player(nc, url, verdicts={SOON: retry})
        await player.start()
        await player.catch_up()
        stream = Stream(player)
        flowing = asyncio.create_task(stream.run())
        await _submit(player, SOON, "checked")
        await player.until(SOON, lambda workload: bool(_row(workload).get("retryCount")))
        await until(lambda: len(stream.finished) >= 20)
        submitted, finished = list(stream.submitted), list(stream.finished)
        last = await _newest_revision(nc)
        done = await _admit(url, "backup", str(file))
        flowing.cancel()
        before = {name: await player.workload(name) for name in CAN_FINISH}
    assert done.status == 0, done.err
    for process in services.processes:
        await process.kill()
    await old.kill()

    saver = User(name="saver", role="backup", key="")
    folder = tmp_path / "cluster"
    folder.mkdir()
    async with three_servers(folder, locked=True, with_streams=False, users=[saver]) as servers:
        creds = servers.credentials_of(saver.name)
        admin = servers.variables_of("admin")["ADMIT_NATS_CREDS"]
        done = await _admit(servers.url, "restore", str(file), "--replicas", "3", creds=creds)
        assert done.status == 0, done.err
        core = await servers.connect()
        player = Player(
            core.nc,
            servers.url,
            verdicts={},
            otherwise={"state": "Ready", "message": "fine"},
            creds=admin,
        )
        after = {name: await player.workload(name) for name in CAN_FINISH}
        assert after == before
        with file.open("rb") as source:
            streams = check("FILE", source).contents.streams
        (end,) = (stream.end for stream in streams if stream.name == KV_LOG)
        # No fact of the restored log names a later revision.
        assert end >= last
        restored = await bucket.get(core, RESTORED)
        assert restored is not None
        assert restored.revision == end + LOST_MAX + 1
        async with services_on(servers, folder, each=1, ADMIT_CONFIG=str(config)):
            for service in SERVICES:
                await within(until_ready(core, EVERY_SERVICE[service]))
            await player.start()
            for name in finished:
                await player.until(name, condition("Finished"))
            await player.catch_up()
            finishing = asyncio.create_task(Stream(player).finish_all())
            await finish_all(player, [SOON, *submitted])
            finishing.cancel()
            facts = await player.admit("events", "-n", NAMESPACE, "-o", "json")
            checks = await _admit(servers.url, "doctor", creds=admin)
            again = str(tmp_path / "again.backup")
            done = await _admit(servers.url, "backup", again, creds=creds)
            refused = await _admit(servers.url, "backup", again, creds=admin)
        await core.close()
    admitted = Counter(
        event["subject"].rsplit(".", 1)[-1]
        for event in map(json.loads, facts.splitlines())
        if event["subject"].split(".")[2] == "admitted"
    )
    assert {name: admitted[name] for name in finished} == dict.fromkeys(finished, 1)
    assert "3 replica(s)" in checks.out
    assert done.status == 0, done.err
    assert refused.status == 1
    assert "; a backup needs a login with the role backup: `admit auth add backup" in refused.err


async def _newest_revision(nc: Client) -> int:
    answer = await nc.request(f"$JS.API.STREAM.INFO.{KV_LOG}")
    return int(json.loads(answer.data)["state"]["last_seq"])


async def _submit(player: Player, name: str, queue: str) -> None:
    fact = {"workload": workload(name, queue, cpu=1)}
    await player.say(f"admit.workload.submitted.{NAMESPACE}.{name}", name, **fact)


def _row(stored: dict[str, Any]) -> dict[str, Any]:
    rows = stored.get("status", {}).get("admissionChecks", [])
    return rows[0] if rows else {}


async def _admit(url: str, *words: str, creds: str = "") -> Answer:
    env = {"ADMIT_NATS_URL": url, "ADMIT_NATS_CREDS": creds}
    return await within(asyncio.to_thread(run_admit, *words, env=env))
