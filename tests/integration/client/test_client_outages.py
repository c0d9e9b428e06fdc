"""A client outlasts a lost server, and a program with open clients ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

from admittance.client import Client, Unavailable
from admittance.runtime.bus.bus import Bus, Outgoing
from support.servers import LIMIT, TestServer, within

pytestmark = pytest.mark.bus


def put(name: str) -> Outgoing:
    manifest = {"kind": "ResourceFlavor", "metadata": {"name": name}}
    return Outgoing(f"$KV.admittance.flavor.{name}", json.dumps(manifest).encode())


async def test_a_watch_misses_nothing_while_the_server_restarts(
    bus: Bus, nats_server: TestServer
) -> None:
    await bus.publish(put("one"))
    async with await Client.connect(nats_server.url) as client, client.watch("flavors") as changes:
        assert (await within(anext(changes))).object.name == "one"
        await bus.publish(put("two"))
        assert (await within(anext(changes))).object.name == "two"
        waits = asyncio.create_task(anext(changes))
        await nats_server.kill()
        with pytest.raises(Unavailable, match=r"is lost|failed"):
            await within(client.pending())
        nats_server.server = type(nats_server.server)(
            nats_server.folder, port=int(nats_server.url.rpartition(":")[2])
        )
        await nats_server.server.start()
        gone = Outgoing("$KV.admittance.flavor.one", b"", {"KV-Operation": "DEL"})
        await bus.publish(gone)
        change = await within(waits)
        assert (change.object.name, change.deleted) == ("one", True)


PROGRAM = """
import asyncio, atexit, os, sys, threading

def late():
    try:
        client.get("flavor", "x")
    except Closed as error:
        sys.stdout.write(f"late: {error}\\n")

atexit.register(late)  # It runs after what is registered later.
from admittance.client import Client, Closed, NotFound, SyncClient, WrongUse
client = SyncClient.connect(sys.argv[1])
child = os.fork()
if not child:
    try:
        client.get("flavor", "x")
    except WrongUse as error:
        print("child:", str(error).partition(",")[0].rstrip("0123456789"), flush=True)
    os._exit(0)
os.waitpid(child, 0)
try:
    client.get("flavor", "x")
except NotFound:
    print("parent: not found", flush=True)

def follow():
    try:
        for change in client.watch("flavors"):
            print("changed", change)
    except Closed as error:
        sys.stdout.write(f"follow: {error}\\n")

threading.Thread(target=follow, daemon=True).start()

async def forgotten():
    other = await Client.connect(sys.argv[1])
    kept.append(other.watch("flavors"))
    waits = asyncio.ensure_future(anext(kept[0]))
    await asyncio.sleep(0.05)

kept = []
asyncio.run(forgotten())
"""


async def test_a_program_ends_with_an_open_sync_client(bus: Bus, nats_server: TestServer) -> None:
    del bus  # It makes the bucket.
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, nats_server.url],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["child: the client was connected by process ", "parent: not found"]
    assert "late: Python ends, and its clients are closed" in lines
    assert done.stderr == ""
    assert done.returncode == 0
