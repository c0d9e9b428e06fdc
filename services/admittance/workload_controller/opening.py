"""What a new leader does before it reads facts: the secret, the bucket, what went unsaid."""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from admittance.api.kinds import KINDS
from admittance.events.system import ObjectApplied
from admittance.runtime.bucket import BucketReader, Entry
from admittance.runtime.bus import Bus, Outgoing
from admittance.runtime.errors import Refused
from admittance.runtime.history import last
from admittance.runtime.message_ids import deployment_secret
from admittance.workload_controller.commit import Message
from admittance.workload_controller.decide import Controller
from admittance.workload_controller.statement import statement

log = structlog.get_logger()
_applied = msgspec.json.Decoder(ObjectApplied)


async def open_controller(bus: Bus, floor: int) -> tuple[Controller, list[str], asyncio.Task[None]]:
    """The controller with the bucket read, the keys of workloads with something unsaid, and a task
    that goes on reading manifests: one that a predecessor wrote while it fell must not be missed.
    """
    controller = Controller(await deployment_secret(bus))
    everything = BucketReader(bus)
    async for entries in everything.batches():
        _load(controller, entries)
        if everything.loaded.is_set():
            break
    await everything.close()
    unsaid = controller.settle_load(floor)
    await _restate(bus, controller)
    ours = [kind.token for kind in KINDS.values() if kind.token not in ("workload", "job")]

    async def follow() -> None:
        manifests = BucketReader(bus, [f"{token}.>" for token in ours])
        try:
            async for entries in manifests.batches():
                _load(controller, entries)
        finally:
            await manifests.close()

    return controller, unsaid, asyncio.create_task(follow(), name="manifests")


def _load(controller: Controller, entries: list[Entry]) -> None:
    for entry in entries:
        controller.load(entry.key, entry.value, entry.revision, entry.headers)


async def _restate(bus: Bus, controller: Controller) -> None:
    """States the manifests that were written but, the writer dying between, not stated."""
    kept = [kept for _, kept in controller.objects]
    missed: list[Message] = []
    for start in range(0, len(kept), 200):
        part = kept[start : start + 200]
        statements = [statement(controller, one) for one in part]
        found = await asyncio.gather(*(last(bus, said.subject) for said in statements))
        for one, said, before in zip(part, statements, found, strict=True):
            if before is None or _applied.decode(before.data).revision < one.revision:
                missed.append(said)
    outgoing = [Outgoing(said.subject, said.data, {"Nats-Msg-Id": said.id}) for said in missed]
    for outcome in await bus.publish_all(outgoing):
        if isinstance(outcome, Refused):
            raise outcome
    if missed:
        log.info("manifests_restated", count=len(missed))
