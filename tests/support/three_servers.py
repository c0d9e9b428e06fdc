"""Three nats-servers on loopback as one cluster, and services on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.harness.server_cluster import ServerCluster

from admittance.access.users import User
from support.cluster import Cluster

SERVICES: Final = (
    "workload-controller",
    "scheduler",
    "retry-timer",
    "variant-controller",
    "array-controller",
    "provisioning-check",
    "provider-pool",
)


@asynccontextmanager
async def three_servers(
    folder: Path, *, locked: bool = False, with_streams: bool = True, users: Sequence[User] = ()
) -> AsyncIterator[ServerCluster]:
    """A cluster that has a leader, and all streams and buckets with three replicas. ``locked``: the
    servers demand credentials. ``with_streams`` False: the cluster is empty. ``users``: further
    users of a locked cluster, besides the users that a locked `admit up` makes."""
    cluster = ServerCluster(folder, locked=locked, users=users)
    try:
        await cluster.start()
        await cluster.formed()
        if with_streams:
            await cluster.make_streams()
        yield cluster
    finally:
        await cluster.stop()


@asynccontextmanager
async def services_on(
    cluster: ServerCluster,
    folder: Path,
    services: Sequence[str] = SERVICES,
    *,
    each: int = 2,
    **env: str,
) -> AsyncIterator[Cluster]:
    """Services as processes on the cluster, ``each`` instances of a service. ``folder``: for their
    logs and data. ``env``: their variables."""
    copy = Cluster(cluster.url, folder)
    try:
        for service in services:
            for number in range(each):
                name = f"{service}-{number}"
                more = {**env, **cluster.variables_of(service, number)}
                await copy.start(service, name, ADMIT_REPLICAS=str(cluster.size), **more)
        yield copy
    finally:
        await copy.stop()
