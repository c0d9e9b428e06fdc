"""Services of an earlier version and of this one work on one deployment, in turn and together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
import pytest
import yaml

from admittance.cli.up.readiness import until_ready
from admittance.client.health import health
from admittance.runtime.bus.bus import Bus
from admittance.services import SERVICES as EVERY_SERVICE
from recorded.finish import finish_all
from recorded.player import Player, condition
from recorded.story import CONFIGURATION, OBJECTS, STEPS
from support.cluster import Cluster
from support.programs.old_version import OldService, build_wheel
from support.requests import eventually
from support.servers import TestServer, within

pytestmark = pytest.mark.bus

EARLIER = "3218f96092a9afb98dd66d6d729880c0c5ac71ab"
"""The first commit that promises that its data are carried on with: the end of the eleventh
milestone, with services as processes of their own."""
FIRST = ("workload-controller", "retry-timer", "provisioning-check")
SECOND = ("scheduler", "variant-controller", "provider-pool")


class Mixed:
    """One instance of each service of the earlier version, and one of this version."""

    def __init__(self, site: Path, folder: Path, server: TestServer, bus: Bus, config: str) -> None:
        self._server = server
        self._bus = bus
        self._env = {"ADMIT_CONFIG": config}
        self._new = Cluster(server, folder)
        self.old = {
            name: OldService(site, name, server.url, folder, f"old-{name}", **self._env)
            for name in (*FIRST, *SECOND)
        }

    async def start_old(self) -> None:
        for name, service in self.old.items():
            await service.start()
            if name == "workload-controller":
                await within(until_ready(self._bus, EVERY_SERVICE[name]))
        for name in self.old:
            await within(until_ready(self._bus, EVERY_SERVICE[name]))

    async def start_new(self, *names: str) -> None:
        for name in names:
            await self._new.start(name, f"new-{name}", **self._env)
            await within(until_ready(self._bus, EVERY_SERVICE[name], f"new-{name}"))

    async def kill_new(self, *names: str) -> None:
        for process in self._new.processes:
            if process.service in names:
                await process.kill()

    async def until_leads(self, version: str, *names: str) -> None:
        """Waits until the instances of one version lead."""

        async def leads() -> bool:
            states = {
                reply.instance for reply in await health(self._bus, seconds=0.3) if reply.leads
            }
            return {f"{version}-{name}" for name in names} <= states

        await eventually(leads)

    async def stop(self) -> None:
        for service in self.old.values():
            await service.kill()
        await self._new.stop()


async def test_an_upgrade_and_a_rollback_carry_every_workload_to_its_end(tmp_path: Path) -> None:
    site = await asyncio.to_thread(build_wheel, EARLIER, tmp_path)
    config = tmp_path / "configuration.yaml"
    config.write_text(yaml.safe_dump(CONFIGURATION))
    server = TestServer(tmp_path / "data")
    url = await server.start()
    bus = await Bus.connect(url, name="test")
    mixed = Mixed(site, tmp_path, server, bus, str(config))
    ready = {"state": "Ready", "message": "fine"}
    try:
        async with await nats.connect(url) as nc:
            player = Player(nc, url, verdicts={}, otherwise=ready)
            await player.start()
            first, second, third = STEPS

            # Only the earlier version.
            await mixed.start_old()
            await _apply(player, [*OBJECTS, *first])
            for name in ("running", "judged", "booked", "first-of-family"):
                await player.until(name, condition("Admitted"))

            # Half of the services are led by this version.
            await mixed.start_new(*FIRST, *SECOND)
            for name in FIRST:
                mixed.old[name].pause()
            await mixed.until_leads("new", *FIRST)
            await _apply(player, second)
            await player.until("burst", condition("Evicted"))
            await player.finish("running")
            await player.until("running", condition("Finished"))

            # The other half: the earlier version reads what this version has written.
            for name in FIRST:
                mixed.old[name].resume()
            await mixed.kill_new(*FIRST)
            await mixed.until_leads("old", *FIRST)
            for name in SECOND:
                await mixed.old[name].kill()
            await mixed.until_leads("new", *SECOND)
            await _apply(player, third)
            await player.finish("victim")
            await player.until("wanting", condition("Admitted"))

            # Only this version.
            for name in FIRST:
                await mixed.old[name].kill()
            await mixed.start_new(*FIRST)
            await finish_all(player)
    finally:
        await mixed.stop()
        await bus.close()
        await server.stop()


async def _apply(player: Player, manifests: list[dict[str, object]]) -> None:
    await player.admit("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))
