"""The plan's queues, applied through the public request, and how the scheduler sees them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from admittance.api.units import render
from admittance.cli.bench.generator import RESOURCE, Plan, PlannedQueue
from admittance.events.applying import Apply, ApplyReply
from admittance.events.requests import Queues, QueuesReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError, Unavailable

FLAVOR: Final = "bench"
TOGETHER: Final = 200
"""Manifests in one request; a payload must stay well below one MiB."""

_encode = msgspec.json.Encoder().encode
_applied = msgspec.json.Decoder(ApplyReply)
_queues = msgspec.json.Decoder(QueuesReply)


async def create(bus: Bus, plan: Plan, *, timeout: float = 60.0) -> None:
    """Applies flavor and queues, and waits until the scheduler knows them as active.

    Raises SetupError with the first problem, and Unavailable.
    """
    manifests = manifests_of(plan)
    deadline = clock.monotonic() + timeout
    for start in range(0, len(manifests), TOGETHER):
        part = tuple(msgspec.Raw(_encode(m)) for m in manifests[start : start + TOGETHER])
        data = await ask(bus, "admit.api.apply", _encode(Apply(objects=part)), deadline)
        reply = _applied.decode(data)
        if reply.error or reply.problems:
            raise SetupError(f"the queues were refused: {(*reply.problems, reply.error)[0]}")
    names = {queue.name for queue in plan.queues}
    while True:
        statuses = (await state(bus, deadline)).cluster_queues
        if names <= {status.name for status in statuses if status.active}:
            return
        if clock.monotonic() > deadline:
            raise SetupError("the scheduler did not take up the queues in time: see `admit doctor`")
        await asyncio.sleep(0.1)


def manifests_of(plan: Plan) -> list[dict[str, Any]]:
    """Flavors, checks and queues of the plan, in the order in which they are applied."""
    flavors = dict.fromkeys(name for queue in plan.queues for name in flavors_of(queue))
    return [
        *(_manifest("ResourceFlavor", name, {}) for name in flavors),
        *(
            _manifest("AdmissionCheck", name, {"controllerName": f"bench/{name}"})
            for name in checks_of(plan)
        ),
        *(_cluster_queue(queue) for queue in plan.queues),
        *(
            _manifest("LocalQueue", queue.name, {"clusterQueue": queue.name}, queue.namespace)
            for queue in plan.queues
        ),
    ]


def flavors_of(queue: PlannedQueue) -> list[str]:
    """The queue's flavors, the best first."""
    return [f"{FLAVOR}-{n}" for n in range(queue.variants)] or [FLAVOR]


def checks_of(plan: Plan) -> list[str]:
    """Every admission check of the plan's queues, each once."""
    return sorted({name for queue in plan.queues for name in queue.checks})


async def state(bus: Bus, deadline: float) -> QueuesReply:
    """Counters and usage of all ClusterQueues. Raises Unavailable after deadline, in monotonic
    seconds."""
    return _queues.decode(
        await ask(bus, "admit.api.queues", _encode(Queues(local_queues=False)), deadline)
    )


async def ask(bus: Bus, subject: str, data: bytes, deadline: float) -> bytes:
    """Repeats a request until it is answered or the deadline (monotonic seconds) passes."""
    while True:
        try:
            return await bus.request(subject, data, max(0.5, deadline - clock.monotonic()))
        except Unavailable:
            if clock.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


def _manifest(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _cluster_queue(queue: PlannedQueue) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "cohortName": queue.cohort,
        "namespaceSelector": {},
        "preemption": {
            "reclaimWithinCohort": queue.reclaim,
            "withinClusterQueue": queue.within,
        },
        "resourceGroups": [
            {
                "coveredResources": [RESOURCE],
                "flavors": [
                    {"name": name, "resources": [_quota(queue, 0 if n < queue.full else None)]}
                    for n, name in enumerate(flavors_of(queue))
                ],
            }
        ],
    }
    if queue.variants:
        spec["concurrentAdmission"] = {"migrationConstraints": {"mode": "UpgradeOnly"}}
    if queue.checks:
        spec["admissionChecks"] = list(queue.checks)
    if not queue.cohort:
        del spec["cohortName"]
    return _manifest("ClusterQueue", queue.name, spec)


def _quota(queue: PlannedQueue, nominal: int | None) -> dict[str, Any]:
    given = queue.nominal if nominal is None else nominal
    quota: dict[str, Any] = {"name": RESOURCE, "nominalQuota": render(RESOURCE, given)}
    if queue.borrowing is not None:
        quota["borrowingLimit"] = render(RESOURCE, queue.borrowing)
    if queue.lending is not None:
        quota["lendingLimit"] = render(RESOURCE, queue.lending)
    return quota
