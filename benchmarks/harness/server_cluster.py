"""Several nats-servers as one cluster on loopback, or a single one, for tests and benchmarks.

Each server can be killed, paused and restarted, and keeps its port and folder. All share one
machine, so the cluster does not survive the failure of that machine. A locked cluster has the users
of a locked `admit up`; its servers include one folder of users.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from admittance.access.users import User
from admittance.backoff import Backoff
from admittance.bench.system import add_load_user
from admittance.cli.up.lock import Lock
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, BusUnavailable, is_temporary
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.nats_server.embedded_server import ClusterServer, EmbeddedServer
from admittance.runtime.tasks import until_returned
from admittance.services import RUNNER

NAME: Final = "admittance"
USERS: Final = 'include "../auth/auth.conf"'
"""The line of each server's configuration in a locked cluster. The server takes the path as
relative to its own folder."""


class ServerCluster:
    """``size`` servers with their data below ``folder``, numbered from 0.

    ``locked``: the servers demand credentials. ``access``: the login of the test or benchmark,
    which may do everything in the account of the services."""

    RUNNERS: Final = 2
    """The most runners of a locked cluster; each has a user of its own."""

    def __init__(
        self, folder: Path, size: int = 3, *, locked: bool = False, users: Sequence[User] = ()
    ) -> None:
        """``users``: further users of a locked cluster, besides the users that a locked `admit up`
        makes."""
        self.size = size
        self._lock = Lock(folder) if locked else None
        self._users = AuthStore(folder / "auth")
        if locked:
            more = [f"runner-{number}" for number in range(1, self.RUNNERS)]
            runners = [User(name=name, role="runner", key="") for name in more]
            self._users.provide([*runners, *users])
        self.access = add_load_user(folder / "auth") if locked else NO_OPTIONS
        ports = free_ports(2 * size)
        self._ports, routes = ports[:size], ports[size:]
        self._folders = [folder / f"server-{number}" for number in range(size)]
        self._members = [
            ClusterServer(NAME, f"n{number}", routes[number], tuple(routes))
            for number in range(size)
        ]
        self._servers: dict[int, EmbeddedServer] = {}
        self._paused: set[int] = set()

    @property
    def url(self) -> str:
        """All addresses, in the format of ADMIT_NATS_URL."""
        return ",".join(map(self.url_of, range(self.size)))

    def variables_of(self, service: str, number: int = 0) -> dict[str, str]:
        """The variables with which an instance of a service, or "admin", logs in; {} if the cluster
        is open. ``number``: of the instance."""
        if self._lock is None:
            return {}
        if service != RUNNER.name:
            return self._lock.access(service).environment({})
        name = f"runner-{number}" if number else self._lock.runner
        login = ConnectionOptions(creds=self._users.credentials_of(name))
        return login.environment({"ADMIT_RUNNER": name})

    def credentials_of(self, user: str) -> str:
        """The credentials file of a user of a locked cluster."""
        return self._users.credentials_of(user)

    def url_of(self, number: int) -> str:
        """The address of one server."""
        return f"nats://127.0.0.1:{self._ports[number]}"

    def number_of(self, name: str) -> int:
        """The number of the server with this name."""
        return next(n for n, member in enumerate(self._members) if member.name == name)

    def name_of(self, number: int) -> str:
        """The server's name."""
        return self._members[number].name

    @property
    def pids(self) -> list[int]:
        """The processes of the servers."""
        return [server.pid for server in self._servers.values()]

    @property
    def up(self) -> list[int]:
        """The servers that run and are not paused."""
        return sorted(set(self._servers) - self._paused)

    async def start(self, *numbers: int) -> str:
        """Starts these servers, or all, and returns all addresses. Each server listens then, but
        the cluster may not have a leader yet. Raises SetupError."""
        chosen = [n for n in numbers or range(self.size) if n not in self._servers]
        servers = {
            n: EmbeddedServer(
                self._folders[n],
                port=self._ports[n],
                # A single server of a cluster would wait for others.
                member=self._members[n] if self.size > 1 else None,
                accounts=USERS if self._lock else "",
            )
            for n in chosen
        }
        # A server that fails to start cleans up itself; `stop` ends the others.
        self._servers |= servers
        await asyncio.gather(*(server.start() for server in servers.values()))
        return self.url

    async def formed(self, timeout: float = 60.0) -> None:
        """Waits until JetStream has a leader. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            bus = await until_returned(
                self.connect, Backoff(0.1, 0.5), lambda *_: None, on=BusUnavailable
            )
        await bus.close()

    async def connect(self, number: int | None = None) -> Bus:
        """A connection to one server, or to any that runs. Raises BusUnavailable."""
        url = self.url if number is None else self.url_of(number)
        return await Bus.connect(url, name="cluster", access=self.access)

    async def kill(self, number: int) -> None:
        """Kills a server (``kill -9``) and waits for the end of its process."""
        server = self._servers.pop(number)
        self._paused.discard(number)
        os.kill(server.pid, signal.SIGKILL)
        await server.stop()

    def pause(self, number: int) -> None:
        """Pauses a server (SIGSTOP): it keeps its connections and does not answer."""
        os.kill(self._servers[number].pid, signal.SIGSTOP)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """Ends a pause (SIGCONT)."""
        os.kill(self._servers[number].pid, signal.SIGCONT)
        self._paused.discard(number)

    async def stop(self) -> None:
        """Stops all servers, also paused ones."""
        for number in list(self._paused):
            self.resume(number)
        servers, self._servers = list(self._servers.values()), {}
        await asyncio.gather(*(server.stop() for server in servers), return_exceptions=True)

    # Streams. -----------------------------------------------------------------------------

    async def make_streams(self) -> None:
        """Creates all streams and buckets with a replica on each server, and waits until the
        replicas are up to date. Raises TimeoutError."""
        bus = await self.connect()

        def failed(error: AdmittanceError, _pause: float) -> None:
            if not is_temporary(error):
                raise error

        try:
            async with asyncio.timeout(60.0):
                ensure = partial(streams.ensure, bus, replicas=self.size)
                await until_returned(ensure, Backoff(0.1, 0.5), failed, on=AdmittanceError)
            await self.healthy(bus, [stream.name for stream in streams.all_streams()])
        finally:
            await bus.close()

    async def stream_leader(self, bus: Bus, stream: str) -> int | None:
        """The server that leads the stream, or None."""
        if self.size == 1:
            return 0
        try:
            info: dict[str, Any] = await bus.api(f"STREAM.INFO.{stream}", timeout=2.0)
        except AdmittanceError:
            return None
        leader = (info.get("cluster") or {}).get("leader")
        return self.number_of(leader) if leader else None

    async def healthy(self, bus: Bus, streams: Sequence[str], timeout: float = 60.0) -> None:
        """Waits until each stream has a leader and up-to-date replicas. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            for stream in streams:
                while not await self._current(bus, stream):  # noqa: ASYNC110  (no event)
                    await asyncio.sleep(0.2)

    async def _current(self, bus: Bus, stream: str) -> bool:
        try:
            info = await bus.api(f"STREAM.INFO.{stream}", timeout=2.0)
        except AdmittanceError:
            return False
        if self.size == 1:
            return True
        cluster = info.get("cluster") or {}
        others = cluster.get("replicas") or []
        # A replica that was added a moment ago is missing here at first.
        return (
            bool(cluster.get("leader"))
            and len(others) == info["config"]["num_replicas"] - 1
            and all(replica.get("current") and not replica.get("offline") for replica in others)
        )


def free_ports(count: int) -> list[int]:
    """Different free ports of loopback."""
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(int(probe.getsockname()[1]))
        return ports
