"""What `admit up` does about its own server: it starts a dead one anew, and restarts one that takes
no more writes after its disk was full.

A nats-server whose write failed takes none to that stream before it is restarted, also with space
on the disk again (`runtime.probing`). It is our child, no other program depends on it, services
reconnect within a second, and what was acknowledged is on the disk: so a restart costs a second,
and waiting for a person costs everything until then. It is restarted only when three things hold:
the disk was full, there is room again, and a write is still not acknowledged. Before there is room
a restart would help nothing, and a server that takes writes by itself again needs none.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import Final

import structlog

from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, SetupError, Unavailable
from admittance.runtime.nats_server.probing import refusals
from admittance.runtime.nats_server.server import ROOM_NEEDED, EmbeddedServer

CHECK_SECONDS: Final = 0.2
FULL: Final = 1 << 20
"""Bytes free: with fewer the disk counts as full."""
PROBE_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 5.0
"""Before a server that cannot be asked is asked again."""

log = structlog.get_logger()


class Disk:
    """The disk of the server's folder. ``was_full``: since the last `recovered`."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._folder = server.data_dir
        self.was_full = False

    def look(self) -> None:
        """Notes a full disk, and says so once."""
        free = self._free()
        if free < FULL and not self.was_full:
            self.was_full = True
            log.error("disk_full", folder=str(self._folder), needed=f"{ROOM_NEEDED >> 20} MiB")

    def has_room(self) -> bool:
        return self._free() >= ROOM_NEEDED

    def recovered(self) -> None:
        """Writes are taken again."""
        self.was_full = False
        log.info("disk_has_room", folder=str(self._folder))

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free


async def watch(server: EmbeddedServer, serves: asyncio.Event) -> None:
    """Keeps the server running, and taking writes, until cancelled. Services reconnect by
    themselves."""
    serves.set()
    disk = Disk(server)
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        disk.look()
        if not server.alive():
            log.error("server_died")
            server.leave()
            await _start(server, disk)
        elif disk.was_full and disk.has_room():
            if await _is_stuck(server):
                log.warning("server_restarted", reason="it took no writes after a full disk")
                await server.stop()
                await _start(server, disk)
            disk.recovered()


async def _start(server: EmbeddedServer, disk: Disk) -> None:
    while True:
        while not disk.has_room():
            disk.look()
            await asyncio.sleep(CHECK_SECONDS)
        try:
            await server.start()
        except SetupError:
            if disk.has_room():
                raise
        else:
            return


async def _is_stuck(server: EmbeddedServer) -> bool:
    """Whether a stream does not acknowledge a write."""
    while server.alive():
        try:
            bus = await Bus.connect(server.url, name="admit-up")
        except AdmittanceError as error:
            log.warning("server_not_asked", reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        try:
            refused = await refusals(bus, seconds=PROBE_SECONDS)
        finally:
            await bus.close()
        return any(isinstance(error, Unavailable) for error in refused.values())
    return False
