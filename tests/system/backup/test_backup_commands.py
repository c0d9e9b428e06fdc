"""What `admit backup` and `admit restore` refuse, and copying through a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.msg import Msg

from admittance.backup import taking
from admittance.backup.taking import ATTEMPTS
from admittance.cli.support.options import Call, UrlFrom
from admittance.cli.system.backup import backup
from admittance.client.errors import RequestFailed
from admittance.events.requests.services import HealthReply
from admittance.runtime.bus import streams
from admittance.runtime.bus.bucket import put_message, read_all
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats_server import snapshots
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.snapshots import SnapshotEnded, take_snapshot
from recorded.player import ADMIT
from support.processes.fork_server import Answer, run_admit
from support.servers import TestServer, within

pytestmark = pytest.mark.bus


VALUES = [Random(number).randbytes(5_000) for number in range(60)]
"""More than two parts of a snapshot: they cannot be compressed, and a part has 128 KiB."""


async def values(bus: Bus) -> list[tuple[bytes | None, int]]:
    """The stored values with their revisions."""
    pairs = [(entry.value, entry.revision) for entry in await read_all(bus, "workload.>")]
    return sorted(pairs, key=lambda pair: pair[1])


class Pair:
    """A server with all streams and some objects, an empty server, and a backup of the first."""

    def __init__(self, old: str, new: str, file: Path) -> None:
        self.old = old
        self.new = new
        self.file = file

    async def streams_of_new(self) -> list[str]:
        async with await nats.connect(self.new) as nc:
            return [stream.config.name or "" for stream in await nc.jetstream().streams_info()]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    servers = [TestServer(tmp_path / name) for name in ("old", "new")]
    old, new = [await server.start() for server in servers]
    bus = await Bus.connect(old, name="test")
    await streams.ensure(bus)
    puts = [put_message(f"workload.ns.w{n}", value, expected=0) for n, value in enumerate(VALUES)]
    await bus.publish_all(puts)
    await bus.close()
    made = Pair(old, new, tmp_path / "FILE")
    done = await admit(old, "backup", str(made.file))
    assert done.status == 0, done.err
    yield made
    for server in servers:
        await server.stop()


async def admit(url: str, *words: str) -> Answer:
    return await asyncio.to_thread(run_admit, *words, env={"ADMIT_NATS_URL": url})


def error_of(done: Answer) -> str:
    """The one error line of a command that failed."""
    assert done.status in (1, 2), done
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.err
    assert "Traceback" not in done.err
    return errors[0]


async def test_a_restore_refuses_a_server_that_has_streams(pair: Pair) -> None:
    said = error_of(await admit(pair.old, "restore", str(pair.file)))
    assert "has the streams ADMITTANCE_CHECKPOINTS, KV_admittance_claims" in said
    assert "restore into an empty server" in said


async def test_a_restore_refuses_a_damaged_file_before_it_changes_anything(pair: Pair) -> None:
    whole = pair.file.read_bytes()
    pair.file.write_bytes(whole[: len(whole) // 2])
    said = error_of(await admit(pair.new, "restore", str(pair.file)))
    assert said.endswith("was cut: its end is missing; take another backup, or copy it again")
    place = whole.index(b"KV_admittance/0") + 600
    pair.file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    said = error_of(await admit(pair.new, "restore", str(pair.file)))
    assert said.endswith("KV_admittance/0 has another checksum; nothing was restored")
    assert await pair.streams_of_new() == []


async def test_a_restore_refuses_replicas_that_one_server_cannot_hold(pair: Pair) -> None:
    said = error_of(await admit(pair.new, "restore", str(pair.file), "--replicas", "3"))
    assert "cannot hold 3 replicas" in said
    assert "`--replicas N` restores with another number; nothing was restored" in said
    assert await pair.streams_of_new() == []
    assert (await admit(pair.new, "restore", str(pair.file), "--replicas", "1")).status == 0


async def test_a_restore_refuses_while_a_service_runs(pair: Pair) -> None:
    async with await nats.connect(pair.new) as nc:

        async def health(message: Msg) -> None:
            reply = HealthReply(service="scheduler", instance="a", ready=False, lag=0)
            await message.respond(msgspec.json.encode(reply))

        await nc.subscribe("admit.api.health", cb=health)
        await nc.flush()
        said = error_of(await admit(pair.new, "restore", str(pair.file)))
    assert said == "error: services are running (scheduler): stop them before a restore"


async def test_a_backup_needs_a_deployment(pair: Pair, tmp_path: Path) -> None:
    said = error_of(await admit(pair.new, "backup", str(tmp_path / "other")))
    assert f"Admittance was never set up at {pair.new}" in said
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("failures", [1, ATTEMPTS])
async def test_a_snapshot_that_the_server_ends_is_tried_again(
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failures: int,
) -> None:
    why = "the server ended the snapshot of KV_admittance: 408 No Flow Response"
    left = [SnapshotEnded(why)] * failures

    async def take(bus: Bus, stream: str, begin: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if stream == "KV_admittance" and left:
            parts: list[bytes] = []
            _, state = await take_snapshot(bus, stream, lambda _: parts.append)
            begin(state)(parts[0])
            raise left.pop()
        return await take_snapshot(bus, stream, begin)

    monkeypatch.setattr(snapshots, "take_snapshot", take)
    monkeypatch.setattr(taking, "PAUSE_SECONDS", 0.0)
    target = tmp_path / "again"
    call = Call(url=pair.old, url_from=UrlFrom.OPTION)
    if failures == ATTEMPTS:
        with pytest.raises(RequestFailed) as failed:
            await backup.function(call, str(target))
        assert failed.value.lines == (f"the backup is not complete: {why}; try again",)
        assert not target.exists()
    else:
        assert await backup.function(call, str(target)) == 0
        done = await admit(pair.new, "restore", str(target))
        assert done.status == 0, done.err
    said = capsys.readouterr().err.splitlines()
    assert said.count(f"{why}: trying again") == min(failures, ATTEMPTS - 1)


async def test_a_data_folder_is_made_from_a_backup(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "auth").mkdir(mode=0o700)
    (folder / "auth" / "kept").touch()
    words = ("restore", str(pair.file), "--data-dir", str(folder))
    whole = pair.file.read_bytes()
    pair.file.write_bytes(whole[:2000])
    assert error_of(await admit(pair.new, *words)).endswith("copy it again")
    pair.file.write_bytes(whole)
    done = await admit(pair.new, *words)
    assert (done.status, done.out) == (0, "")
    (line,) = done.err.splitlines()
    assert line.endswith(f": `admit up --data-dir {folder}` serves it")
    assert sorted(path.name for path in folder.iterdir()) == ["auth", "lock", "nats"]
    assert (folder / "auth" / "kept").exists()
    said = error_of(await admit(pair.new, *words))
    assert said.startswith(f"error: {folder} has the data of a deployment: restore into a new")
    server = EmbeddedServer(folder)
    bus = await Bus.connect(await server.start(), name="test")
    try:
        assert await values(bus) == [(value, place) for place, value in enumerate(VALUES, 1)]
        assert streams.problems_of(await streams.stream_infos(bus)) == []
        said = error_of(await admit(pair.new, *words))
        assert f"uses {folder}: end it" in said
    finally:
        await bus.close()
        await server.stop()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--nats", "nats://127.0.0.1:1"], "--nats and --data-dir are two places to restore to"),
        (["--creds", "x.creds"], "--creds is for a server that runs: leave it out"),
        (["--replicas", "3"], "a data folder has one server, and so one replica"),
    ],
)
def test_options_of_a_server_do_not_go_with_a_data_folder(options: list[str], why: str) -> None:
    done = run_admit("restore", "FILE", "--data-dir", "data", *options)
    assert why in error_of(done)


async def test_a_pipe_copies_one_server_to_another(pair: Pair) -> None:
    line = f"'{ADMIT}' --nats {pair.old} backup - | '{ADMIT}' --nats {pair.new} restore -"
    shell = await asyncio.create_subprocess_shell(line, stderr=asyncio.subprocess.PIPE)
    _, err = await within(shell.communicate())
    assert shell.returncode == 0, err.decode()
    bus = await Bus.connect(pair.new, name="test")
    try:
        assert await values(bus) == [(value, place) for place, value in enumerate(VALUES, 1)]
        assert streams.problems_of(await streams.stream_infos(bus)) == []
    finally:
        await bus.close()
