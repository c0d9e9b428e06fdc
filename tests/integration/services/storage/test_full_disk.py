"""A full disk under a server of its own: the errors of publishers and `admit doctor`; services
continue once the server accepts writes again."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from admittance.cli.support.options import Call
from admittance.cli.up.server_watch import watch
from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.doctor.finding import OK, WRONG
from admittance.doctor.streams import write_findings
from admittance.events.codec import encode
from admittance.events.facts import Finished
from admittance.events.subjects import subject_of
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.tasks import cancel_and_wait
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, health, queues, submit, workload
from support.servers import TestServer, within

pytestmark = pytest.mark.bus


TOO_LONG = Finished(namespace="ns", name="w", message="x" * 16_000)
"""For what is left of the last page of a file on a full disk."""


class Disk:
    """A file system of its own, so small that a test can fill it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(1 << 20)):
                    pass
            except OSError:
                return

    def free(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128m,mode=700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_disk_is_reported_and_services_continue_after_it(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admittance.client.requests.link.ASK_SECONDS", 1.0)
    server = TestServer(disk.folder)
    call = Call(url=await server.start())
    bus = await Bus.connect(call.url, name="test")
    await streams.ensure(bus)
    cluster = Cluster(server, tmp_path)
    process = await cluster.start("workload-controller")
    try:
        await apply(bus, *queues("cq"))
        assert [finding.state == OK for finding in await write_findings(bus)] == [True]

        disk.fill()
        with pytest.raises(RequestFailed, match=r"did not acknowledge the write.*admit doctor"):
            link = Link(bus, shown_url=call.url, namespace="default", has_login=False)
            await link.publish(TOO_LONG)
        by_name = {finding.what: finding for finding in await write_findings(bus, seconds=1.0)}
        assert by_name["stream ADMITTANCE"].state == WRONG
        assert "restart nats-server" in by_name["stream ADMITTANCE"].todo

        async def service_reports_its_writes() -> bool:
            """A login that may not write a probe learns it from the services."""
            reported = [finding.what for reply in await health(bus) for finding in reply.findings]
            return "writes of workload-controller" in reported

        await eventually(service_reports_its_writes)

        disk.free()
        await server.restart_after_kill()
        await bus.connected()

        async def all_take_writes() -> bool:
            return [finding.state == OK for finding in await write_findings(bus, seconds=1.0)] == [
                True
            ]

        await eventually(all_take_writes)
        await within(submit(bus, [a_manifest("w", queue="lq-cq")]))

        async def it_is_stored() -> bool:
            return await workload(bus, "w") is not None

        await eventually(it_is_stored)
        assert process.status is None, process.log
    finally:
        await cluster.stop()
        await bus.close()
        await server.stop()


@pytest.mark.parametrize("adopted", [False, True], ids=["its own", "adopted after the full disk"])
async def test_admit_up_restarts_a_server_that_takes_no_writes_after_a_full_disk(
    disk: Disk, adopted: bool
) -> None:
    server = EmbeddedServer(disk.folder)
    bus = await Bus.connect(await server.start(), name="test")
    await streams.ensure(bus)
    if not adopted:
        watching = asyncio.create_task(watch(server, asyncio.Event()))
    before = server.pid
    message = Outgoing(subject_of(TOO_LONG), encode(TOO_LONG))
    try:
        disk.fill()
        with pytest.raises(BusUnavailable):
            await bus.publish(message, timeout=1.0)
        disk.free()
        if adopted:
            server.leave()
            await server.start()
            watching = asyncio.create_task(watch(server, asyncio.Event()))

        async def it_takes_the_message() -> bool:
            with suppress(BusUnavailable):
                return await bus.publish(message, timeout=1.0) > 0
            return False

        await eventually(it_takes_the_message)
        assert server.pid != before
    finally:
        await cancel_and_wait(watching)
        await bus.close()
        await server.stop()


async def test_missing_streams_are_not_called_full(bare_bus: Bus) -> None:
    assert await write_findings(bare_bus, seconds=1.0) == []


async def test_a_probe_of_writes_leaves_no_message(bus: Bus, cluster: Cluster) -> None:
    await cluster.start("workload-controller")
    await apply(bus, *queues("cq"))

    async def probes() -> int:
        count = 0
        for name in (stream.name for stream in streams.all_streams()):
            info = await bus.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
            count += sum("probe" in subject for subject in info["state"].get("subjects") or ())
        return count

    assert [finding.state == OK for finding in await write_findings(bus)] == [True]
    assert await probes() == 0
    assert all(reply.ready for reply in await health(bus, at_least=1))
    letters = await bus.api("STREAM.INFO.ADMITTANCE", {"subjects_filter": "admit.deadletter.>"})
    assert not letters["state"].get("subjects")
