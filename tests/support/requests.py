"""Requests of users and administrators to the services of a cluster, and what the bucket shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from admittance.events.requests.history import Settled, SettledReply
from admittance.events.requests.manifests import Apply, ApplyReply
from admittance.events.requests.services import Health, HealthReply
from admittance.runtime.bus.bucket import Entry, get, read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload import stored
from admittance.workload.conditions import Type, is_true
from admittance.workload.phase import holds_quota
from admittance.workload.stored import StoredWorkload
from support.servers import LIMIT, within


async def eventually(claim: Callable[[], Awaitable[bool]], limit: float = LIMIT) -> None:
    """Waits until claim holds, with a limit."""

    async def poll() -> None:
        while not await claim():  # noqa: ASYNC110  # it happens in another process
            await asyncio.sleep(0.02)

    await within(poll(), limit)


async def becomes(value: Callable[[], Awaitable[Any]], wanted: object) -> None:
    """Waits until the value is the wanted one, with a limit."""

    async def is_wanted() -> bool:
        return bool(await value() == wanted)

    await eventually(is_wanted)


async def ask(bus: Bus, subject: str, question: Any, reply: type[Any]) -> Any:
    """The answer of an endpoint; asks again until a service answers."""
    data = msgspec.json.encode(question)

    async def patient() -> Any:
        while True:
            try:
                message = await bus.nc.request(subject, data, timeout=LIMIT / 4)
            except Exception:
                await asyncio.sleep(0.05)
                continue
            return msgspec.json.decode(message.data, type=reply)

    return await within(patient())


async def apply(bus: Bus, *objects: dict[str, Any]) -> ApplyReply:
    """Applies manifests; fails the test when they are refused."""
    raws = tuple(msgspec.Raw(json.dumps(manifest).encode()) for manifest in objects)
    reply: ApplyReply = await ask(bus, "admit.api.apply", Apply(objects=raws), ApplyReply)
    assert reply.error == "", reply
    return reply


async def settled(bus: Bus, sequence: int) -> SettledReply:
    """The outcome of the fact at the sequence."""
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


async def is_reserved(bus: Bus, name: str) -> bool:
    """Whether the workload holds quota."""
    current = await workload(bus, name)
    return current is not None and holds_quota(current)


async def is_admitted(bus: Bus, name: str) -> bool:
    current = await workload(bus, name)
    return current is not None and is_true(current, Type.ADMITTED)


async def workloads(bus: Bus) -> list[StoredWorkload]:
    """All of them."""
    entries = await read_all(bus, "workload.>")
    return [stored.decode(entry.value) for entry in entries if entry.value is not None]


async def health(bus: Bus, at_least: int = 0) -> list[HealthReply]:
    """What every living instance says of itself. ``at_least``: so many answers are awaited, however
    long they take; else the last one is the one after which none comes for a while."""
    inbox = bus.nc.new_inbox()
    subscription = await bus.nc.subscribe(inbox)
    replies: list[HealthReply] = []
    await bus.nc.publish("admit.api.health", msgspec.json.encode(Health()), reply=inbox)
    with contextlib.suppress(TimeoutError):
        while True:
            patience = 0.3 if len(replies) >= at_least else LIMIT
            message = await subscription.next_msg(timeout=patience)
            if message.data:
                replies.append(msgspec.json.decode(message.data, type=HealthReply))
    await subscription.unsubscribe()
    return replies


def admission_check(name: str, controller: str = "ctl", **spec: Any) -> dict[str, Any]:
    """The manifest of an AdmissionCheck of the controller."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller, **spec},
    }


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
