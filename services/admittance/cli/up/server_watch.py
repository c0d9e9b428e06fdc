"""How `admit up` watches its own nats-server: `admit up` restarts a server that died, or that takes
no writes after its disk was full.

After a failed write a nats-server takes no more writes to the stream of that write until the server
is restarted, even with free space (`runtime/bus/streams.py`). A restart costs about a second:
services reconnect, and acknowledged writes are on disk. The server is restarted only if the disk
was full or the server is older than `admit up`, there is space again, and a write is still not
acknowledged. On a full disk a restart would not help.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import Final

import structlog

from admittance.events.shapes import Finding
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import write_refusals
from admittance.runtime.errors import AdmittanceError, BusUnavailable, SetupError
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats_server.embedded_server import FREE_BYTES_MIN, EmbeddedServer
from admittance.runtime.telemetry.findings import (
    WRONG,
    disk_findings,
    durability_finding,
    report_findings,
)

CHECK_SECONDS: Final = 0.2
FULL: Final = 1 << 20
"""The least number of free bytes: with fewer the disk counts as full."""
PROBE_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 5.0
"""Seconds before the next attempt to reach the server."""

log = structlog.get_logger()


class Disk:
    """The disk of the server's data folder. ``was_full``: the disk has been full at some time since
    the last call of `recovered`. ``is_unsure``: whether the server that an earlier start left
    running may have met a full disk before.
    """

    def __init__(self, server: EmbeddedServer) -> None:
        self._folder = server.data_dir
        self.was_full = False
        self.is_unsure = server.adopted

    def look(self) -> None:
        """Records whether the disk is full, and logs a full disk once."""
        free = self._free()
        if free < FULL and not self.was_full:
            self.was_full = True
            log.error("disk_full", folder=str(self._folder), needed=f"{FREE_BYTES_MIN >> 20} MiB")

    def has_room(self) -> bool:
        return self._free() >= FREE_BYTES_MIN

    def recovered(self) -> None:
        """Records that the server accepts writes again."""
        if self.was_full:
            log.info("disk_has_room", folder=str(self._folder))
        self.was_full = self.is_unsure = False

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free


async def watch(
    server: EmbeddedServer, serves: asyncio.Event, access: ConnectionOptions = NO_OPTIONS
) -> None:
    """Keeps the server running and taking writes until cancelled. Services reconnect by themselves.
    ``access``: the login of the probe writes.
    """
    serves.set()
    disk = Disk(server)
    with report_findings(lambda: _findings(server, disk)):
        await _watch(server, disk, access)


async def _watch(server: EmbeddedServer, disk: Disk, access: ConnectionOptions) -> None:
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        disk.look()
        if not server.alive():
            log.error("server_died")
            server.leave()
            await _start(server, disk)
        elif (disk.was_full or disk.is_unsure) and disk.has_room():
            if await _is_stuck(server, access):
                log.warning("server_restarted", reason="it took no writes after a full disk")
                await server.stop()
                await _start(server, disk)
            disk.recovered()


def _findings(server: EmbeddedServer, disk: Disk) -> list[Finding]:
    """Findings of `admit doctor` about the embedded server that clients of the server
    cannot make.
    """
    findings = [
        durability_finding("nats-server", server.sync_interval()),
        *disk_findings("disk of nats-server", server.data_dir),
    ]
    if disk.was_full:
        findings.append(
            Finding(
                state=WRONG,
                what="nats-server",
                found=f"the disk of {server.data_dir} is or was full, so writes are not "
                "acknowledged",
                todo=f"make space: with {FREE_BYTES_MIN >> 20} MiB free `admit up` restarts its "
                "server: docs/operations.md#the-disk-is-full",
            )
        )
    return findings


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


async def _is_stuck(server: EmbeddedServer, access: ConnectionOptions) -> bool:
    """Whether at least one stream does not acknowledge a probe write."""
    while server.alive():
        try:
            bus = await Bus.connect(server.url, name="admit-up", access=access)
        except AdmittanceError as error:
            log.warning("server_not_asked", reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        try:
            refused = await write_refusals(bus, seconds=PROBE_SECONDS)
        finally:
            await bus.close()
        return any(isinstance(error, BusUnavailable) for error in refused.values())
    return False
