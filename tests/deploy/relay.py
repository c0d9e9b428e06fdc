"""Lets containers reach a server of the tests that listens at loopback only.

A container of the deployment's network takes connections and passes them through a Unix socket to
this machine, where a thread passes them on to the server. So nothing listens at an address of this
machine that anything else could reach, and the engine's networks need no gateway.
"""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from containers import Deployment, docker

PORT = 8000
"""At which the container listens, in its own network."""
SOCKET = "server"

IN_THE_CONTAINER = f"""
import asyncio

async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()

async def pass_on(reader, writer):
    inner, outer = await asyncio.open_unix_connection("/relay/{SOCKET}")
    await asyncio.gather(copy(reader, outer), copy(inner, writer))

async def main():
    async with await asyncio.start_server(pass_on, "0.0.0.0", {PORT}) as server:
        await server.serve_forever()

asyncio.run(main())
"""


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port)) as inner:
            back = threading.Thread(target=_copy, args=(inner, self.request), daemon=True)
            back.start()
            _copy(self.request, inner)
            back.join()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: Path, port: int) -> None:
        self.port = port
        super().__init__(str(path), _Connection)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end, how in ((source, socket.SHUT_RD), (target, socket.SHUT_WR)):
        with suppress(OSError):
            end.shutdown(how)


@contextmanager
def relayed(deployment: Deployment, image: str, name: str, port: int) -> Iterator[None]:
    """For so long the deployment's containers reach 127.0.0.1:port of this machine as ``name``,
    port `PORT`. ``image`` has a Python."""
    # Short, because the path of a socket may have some 100 characters.
    with tempfile.TemporaryDirectory(prefix="relay-") as folder:
        path = Path(folder) / SOCKET
        with _Server(path, port) as server:
            path.chmod(0o666)
            Path(folder).chmod(0o755)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            container = f"{deployment.project}-{name}"
            started = subprocess.run(
                [
                    *("docker", "run", "--detach", "--init", "--name", container),
                    *("--network", f"{deployment.project}_default", "--network-alias", name),
                    *("--volume", f"{folder}:/relay:ro", "--user", f"{os.getuid()}"),
                    *(image, "python3", "-c", IN_THE_CONTAINER),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert started.returncode == 0, started.stderr
            try:
                yield
            finally:
                docker("rm", "--force", container)
                server.shutdown()
