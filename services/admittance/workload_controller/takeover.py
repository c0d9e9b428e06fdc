"""The start of a new leader: it reads the secret and the bucket, and finds unpublished messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from admittance.api.kinds import KINDS
from admittance.control.commit import Message
from admittance.control.controller import Controller
from admittance.control.manifest_changes import learn, statements
from admittance.events.reader import Reader, SetAside, Unreadable
from admittance.events.subjects import STREAM
from admittance.events.system import Adopted, ObjectApplied
from admittance.runtime.bus.bucket import BucketReader, Entry
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import Past, last
from admittance.runtime.bus.messages import deployment_secret
from admittance.runtime.errors import Unavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.workload.limits import Limits
from admittance.workload_controller.checkpoints import JournalAtTakeover
from admittance.workload_controller.commit_writer import publish_messages, tell_unreadable
from admittance.workload_controller.durables import Durables
from admittance.workload_controller.journal import told_so_far, untold

_CHECKS: Final = ("admit.object.applied.admissioncheck.", "admit.object.deleted.admissioncheck.")

log = structlog.get_logger()
_applied = Reader(ObjectApplied)


async def open_controller(
    bus: Bus, floor: int, limits: Limits, durables: Durables, on_written: Callable[[], None]
) -> tuple[Controller, list[str], asyncio.Task[None], JournalAtTakeover]:
    """Returns the controller with the bucket loaded, the keys of workloads with an unpublished
    outbox, the task that follows the manifests, and the state of the journal. The task finds
    manifests that a failing previous leader wrote late; it calls ``on_written`` for unknown
    ones."""
    controller = Controller(await deployment_secret(bus), limits)
    told = await told_so_far(bus)
    adopted: list[Adopted] = []
    everything = BucketReader(bus)
    async for entries in everything.batches():
        _load(controller, entries)
        if told.newest:
            adopted += untold(controller.workloads, entries, told.newest)
        if everything.loaded.is_set():
            break
    await everything.close()
    unsaid = controller.settle_load(floor, await lease_store.end_of_log(bus))
    tell_unreadable(controller)
    await _restate(bus, controller, everything.last)
    await durables.settle(controller.objects)
    ours = [kind.token for kind in KINDS.values() if kind.token not in ("workload", "job")]

    async def follow() -> None:
        manifests = BucketReader(bus, [f"{token}.>" for token in ours])
        try:
            async for entries in manifests.batches():
                learned = [
                    learn(controller, one.key, one.value, one.revision, one.headers)
                    for one in entries
                ]
                tell_unreadable(controller)
                said = [one for one in learned if one is not None]
                await _publish(bus, said)
                if any(one.subject.startswith(_CHECKS) for one in said):
                    # Written directly to the bucket, not through the endpoints.
                    await durables.settle(controller.objects)
                if said:
                    on_written()
        finally:
            await manifests.close()

    following = asyncio.create_task(follow(), name="manifests")
    return controller, unsaid, following, JournalAtTakeover(told, adopted, everything.last)


def _load(controller: Controller, entries: list[Entry]) -> None:
    for entry in entries:
        controller.load(entry.key, entry.value, entry.revision, entry.headers)
    tell_unreadable(controller)


async def _restate(bus: Bus, controller: Controller, newest: int) -> None:
    """Publishes the messages that a manifest's writer did not publish before it ended.
    ``newest``: newest revision of the bucket; a message that names a later one is ignored."""
    wanted = list(statements(controller))
    missed: list[Message] = []
    for start in range(0, len(wanted), 200):
        part = wanted[start : start + 200]
        found = await asyncio.gather(*(last(bus, said.subject) for _, said in part))
        for (revision, said), before in zip(part, found, strict=True):
            if before is None or not revision <= _revision_of(before, newest):
                missed.append(said)
    await _publish(bus, missed)


def _revision_of(stated: Past, newest: int) -> int:
    """The revision that a message names; 0: it is unreadable, or no such revision exists."""
    try:
        revision = _applied(stated.data).revision
        if not 0 <= revision <= newest:
            raise Unreadable(f"revision {revision} is behind the end of the bucket, {newest}")
    except Unreadable as error:
        log_set_aside(SetAside(STREAM, stated.subject, stated.sequence, str(error)))
        return 0
    return revision


async def _publish(bus: Bus, missed: list[Message]) -> None:
    """Publishes them until the log has them."""
    while missed:
        with suppress(Unavailable):
            await publish_messages(bus, missed)
            log.info("manifests_restated", count=len(missed))
            return
