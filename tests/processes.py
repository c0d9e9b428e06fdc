"""Services as real processes, and what a test says to them over the bus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from admittance.events.requests import Apply, ApplyReply, Health, HealthReply, Settled, SettledReply
from admittance.runtime.bus.bucket import Entry, get, read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload import stored
from admittance.workload.stored import StoredWorkload

from servers import LIMIT, within

MODULES = {
    "workload-controller": "admittance.workload_controller",
    "scheduler": "admittance.scheduler",
    "retry-timer": "admittance.retry_timer",
    "variant-controller": "admittance.variant_controller",
    "provisioning-check": "admittance.provisioning_check",
    "provider-pool": "admittance.provider_pool",
    "provider-kubernetes": "admittance.provider_kubernetes",
    "provider-docker": "admittance.provider_docker",
    "provider-aws": "admittance.provider_aws",
    "runner": "admittance.runner",
}


class ServiceProcess:
    """One service as a process of its own, killed, paused and resumed at will."""

    def __init__(self, service: str, url: str, folder: Path, instance: str, **env: str) -> None:
        self.service = service
        self.instance = instance
        self._log = folder / f"{service}-{instance}.log"
        self._env = {
            **os.environ,
            "ADMIT_NATS_URL": url,
            "ADMIT_INSTANCE": instance,
            "ADMIT_DATA_DIR": str(folder / f"data-{instance}"),
            "ADMIT_LEASE_SECONDS": "1",
            "ADMIT_LOG": "json",
            **env,
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> ServiceProcess:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", MODULES[self.service], env=self._env, stdout=log, stderr=log
            )
        return self

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def status(self) -> int | None:
        """How it ended; None: it has not, or was killed."""
        return self._process.returncode if self._process is not None else None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """kill -9, at once."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        await self._process.wait()
        self._process = None

    async def stop(self) -> None:
        """SIGTERM, and the end awaited."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.resume()
            self._signal(signal.SIGTERM)
        await within(self._process.wait())


class Fleet:
    """The services of one test."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.processes: list[ServiceProcess] = []

    async def start(self, service: str, instance: str = "", **env: str) -> ServiceProcess:
        name = instance or f"{service}-{len(self.processes)}"
        process = ServiceProcess(service, self._url, self._folder, name, **env)
        self.processes.append(process)
        return await process.start()

    async def stop(self) -> None:
        for process in reversed(self.processes):
            await process.stop()


async def eventually(claim: Callable[[], Awaitable[bool]], limit: float = LIMIT) -> None:
    """Waits until claim holds, with a limit."""

    async def poll() -> None:
        while not await claim():  # noqa: ASYNC110  # it happens in another process
            await asyncio.sleep(0.02)

    await within(poll(), limit)


async def ask(bus: Bus, subject: str, question: Any, reply: type[Any]) -> Any:
    """The answer of an endpoint; asks again until a service answers."""
    data = msgspec.json.encode(question)

    async def patient() -> Any:
        while True:
            try:
                message = await bus.nc.request(subject, data, timeout=2)
            except Exception:
                await asyncio.sleep(0.05)
                continue
            return msgspec.json.decode(message.data, type=reply)

    return await within(patient())


async def apply(bus: Bus, *objects: dict[str, Any]) -> ApplyReply:
    """Applies manifests; fails the test when they are refused."""
    raws = tuple(msgspec.Raw(json.dumps(one).encode()) for one in objects)
    reply: ApplyReply = await ask(bus, "admit.api.apply", Apply(objects=raws), ApplyReply)
    assert reply.error == ""
    return reply


async def settled(bus: Bus, sequence: int) -> SettledReply:
    """What became of the fact at sequence."""
    reply: SettledReply = await ask(
        bus, "admit.api.settled", Settled(sequence=sequence), SettledReply
    )
    return reply


async def submit(bus: Bus, manifests: Iterable[dict[str, Any]]) -> list[int]:
    """Publishes submissions, pipelined; their sequences."""
    outgoing = []
    for manifest in manifests:
        meta = manifest["metadata"]
        said = {"namespace": meta["namespace"], "name": meta["name"], "workload": manifest}
        subject = f"admit.workload.submitted.{meta['namespace']}.{meta['name']}"
        outgoing.append(Outgoing(subject, json.dumps(said).encode()))
    outcomes = await bus.publish_all(outgoing)
    return [outcome for outcome in outcomes if isinstance(outcome, int)]


async def workload(bus: Bus, name: str, namespace: str = "ns") -> StoredWorkload | None:
    """The workload as it is in the bucket."""
    entry: Entry | None = await get(bus, f"workload.{namespace}.{name}")
    return None if entry is None or entry.value is None else stored.decode(entry.value)


async def workloads(bus: Bus) -> list[StoredWorkload]:
    """All of them."""
    entries = await read_all(bus, "workload.>")
    return [stored.decode(entry.value) for entry in entries if entry.value is not None]


async def health(bus: Bus) -> list[HealthReply]:
    """What every living instance says of itself."""
    inbox = bus.nc.new_inbox()
    subscription = await bus.nc.subscribe(inbox)
    found: list[HealthReply] = []
    await bus.nc.publish("admit.api.health", msgspec.json.encode(Health()), reply=inbox)
    with contextlib.suppress(TimeoutError):
        while True:
            message = await subscription.next_msg(timeout=0.3)
            if message.data:
                found.append(msgspec.json.decode(message.data, type=HealthReply))
    await subscription.unsubscribe()
    return found


def queues(
    *names: str, cpu: int = 4, cohort: str = "", namespace: str = "ns", **spec: Any
) -> list[dict[str, Any]]:
    """A flavor, and for each name a ClusterQueue with a LocalQueue ``lq-<name>``."""
    version = "kueue.x-k8s.io/v1beta2"
    flavor = {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    made: list[dict[str, Any]] = [flavor]
    for name in names:
        quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
        group = {"coveredResources": ["cpu"], "flavors": [quota]}
        made.append(
            {
                "apiVersion": version,
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": {
                    "namespaceSelector": {},
                    "resourceGroups": [group],
                    **({"cohortName": cohort} if cohort else {}),
                    **spec,
                },
            }
        )
        made.append(
            {
                "apiVersion": version,
                "kind": "LocalQueue",
                "metadata": {"name": f"lq-{name}", "namespace": namespace},
                "spec": {"clusterQueue": name},
            }
        )
    return made
