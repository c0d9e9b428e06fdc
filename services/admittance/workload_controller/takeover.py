"""The start of a new leader of the workload-controller: the leader reads the deployment's secret
and the bucket, and finds messages that the previous leader has not published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from admittance.api.kinds import KINDS
from admittance.control.commit import Message
from admittance.control.controller import Controller
from admittance.control.manifests.object_messages import (
    load_entry,
    message_about_rows,
    messages_about_all,
)
from admittance.control.user_requests.folder_views import FolderSights
from admittance.control.user_requests.runner_rules import AnnouncedRunners
from admittance.events.reader import Reader, SetAside, Unreadable
from admittance.events.stored.checkpoints import Adopted
from admittance.events.stored.formats import read_announcement
from admittance.events.subjects import ANNOUNCED_RUNNERS, CLAIMS, STREAM
from admittance.events.system import ObjectApplied
from admittance.runtime import clock
from admittance.runtime.bus.bucket import BucketReader, Entry, follow_bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage, last
from admittance.runtime.bus.messages import deployment_secret, forget_earlier_secret
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.workload.limits import Limits
from admittance.workload_controller.commit_writer import publish_messages, tell_unreadable
from admittance.workload_controller.durables import Durables
from admittance.workload_controller.journal import (
    JournalAtTakeover,
    read_position,
    unrecorded_workloads,
)

_CHECKS: Final = ("admit.object.applied.admissioncheck.", "admit.object.deleted.admissioncheck.")

PROGRESS_SECONDS: Final = 2.0

log = structlog.get_logger()
_applied = Reader(ObjectApplied)


class LoadedController(NamedTuple):
    """The state with which a new leader starts. ``unpublished``: the keys of workloads with
    messages in their outbox that may not be published yet. ``journal``: the end of the journal as
    the leader found it.
    """

    controller: Controller
    unpublished: list[str]
    journal: JournalAtTakeover


class ReadProgress:
    """How much of the bucket is read, and when to log it: every `PROGRESS_SECONDS`, and not at all
    if the bucket is read sooner. ``start``: monotonic seconds."""

    def __init__(self, start: float) -> None:
        self._logged_at = start
        self._read = 0
        self.total = 0
        """How many entries the bucket has, as far as known."""

    def record(self, count: int, pending: int) -> None:
        """Records that ``count`` further entries are read, and ``pending`` are not received."""
        self._read += count
        self.total = self._read + pending

    @property
    def percent(self) -> int:
        """The part of the entries that is read, rounded down."""
        return 100 * self._read // self.total if self.total else 100

    def is_due(self, now: float) -> bool:
        """Whether to log the progress now; then it counts as logged. ``now``: monotonic seconds."""
        if now - self._logged_at < PROGRESS_SECONDS:
            return False
        self._logged_at = now
        return True


async def load_controller(
    bus: Bus, floor: int, limits: Limits, durables: Durables
) -> LoadedController:
    """Loads the bucket, and publishes those messages about manifests that the log lacks. ``floor``:
    every fact up to this sequence of the log is acknowledged.
    """
    controller = Controller(await deployment_secret(bus), limits)
    await forget_earlier_secret(bus)
    position = await read_position(bus)
    adopted: list[Adopted] = []
    everything = BucketReader(bus, current=True)
    progress = ReadProgress(clock.monotonic())
    async for entries in everything.batches():
        _load(controller, entries)
        if position.newest:
            adopted += unrecorded_workloads(controller.workloads, entries, position.newest)
        progress.record(len(entries), everything.pending)
        if progress.is_due(clock.monotonic()):
            log.info("reading", objects=progress.total, percent=progress.percent)
        if everything.loaded.is_set():
            break
    await everything.close()
    unpublished = controller.settle_load(floor, await lease_store.end_of_log(bus))
    tell_unreadable(controller)
    await _restate(bus, controller, everything.last)
    await durables.settle(controller.objects)
    journal = JournalAtTakeover(position, adopted, everything.last)
    return LoadedController(controller, unpublished, journal)


async def follow_manifests(
    bus: Bus, controller: Controller, durables: Durables, on_written: Callable[[], None]
) -> None:
    """Follows the bucket: loads manifests that a previous leader wrote late, or that another
    program wrote, and calls ``on_written`` after each load. Runs until cancelled.
    """

    async def learn_all(entries: Sequence[Entry]) -> None:
        learned = [
            load_entry(controller, entry.key, entry.value, entry.revision, entry.headers)
            for entry in entries
        ]
        tell_unreadable(controller)
        said = [one for one in learned if one is not None]
        await _publish(bus, said)
        if any(one.subject.startswith(_CHECKS) for one in said):
            # A manifest was written directly to the bucket, not through the endpoints, so the
            # durable consumers that it requires are missing.
            await durables.settle(controller.objects)
        if said:
            on_written()

    ours = [kind.prefix for kind in KINDS.values() if kind.token not in ("workload", "job")]
    await follow_bucket(bus, [f"{prefix}.>" for prefix in ours], learn_all)


async def follow_runners(
    bus: Bus, runners: AnnouncedRunners | None, sights: FolderSights, loaded: asyncio.Event
) -> None:
    """Keeps ``runners`` and ``sights`` equal to the bucket, until cancelled. ``loaded``: is set
    once the runners that were announced before are known."""

    def forget(runner: str) -> None:
        sights.forget(runner)
        if runners is not None:
            runners.forget(runner)

    def learn(entries: Sequence[Entry]) -> None:
        for entry in entries:
            runner = entry.key.partition(".")[2]
            if entry.value is None:
                forget(runner)
                continue
            try:
                announced = read_announcement(entry.value)
            except Unreadable:
                forget(runner)  # `admit doctor` lists the entry
            else:
                sights.note(runner, announced)
                if runners is not None:
                    runners.note(runner, announced.starts)

    await follow_bucket(
        bus, (f"{ANNOUNCED_RUNNERS}.>",), learn, lambda _: loaded.set(), bucket=CLAIMS
    )


def _load(controller: Controller, entries: list[Entry]) -> None:
    for entry in entries:
        controller.load(entry.key, entry.value, entry.revision, entry.headers)
    tell_unreadable(controller)


async def _restate(bus: Bus, controller: Controller, newest: int) -> None:
    """Publishes the messages about manifests that their writer did not publish before it ended.
    ``newest``: the newest revision of the bucket; a message that names a later revision is ignored.
    """
    wanted = list(messages_about_all(controller))
    missed: list[Message] = []
    for start in range(0, len(wanted), 200):
        part = wanted[start : start + 200]
        stored = await asyncio.gather(*(last(bus, said.subject) for _, said in part))
        for (revision, said), before in zip(part, stored, strict=True):
            if before is None or not revision <= _revision_of(before, newest):
                missed.append(said)
    again = message_about_rows(controller, newest)
    await _publish(bus, [*missed, again] if again is not None else missed)


def _revision_of(stated: StoredMessage, newest: int) -> int:
    """The revision of the bucket that a message about a manifest names; 0 if the message is
    unreadable, or if the bucket has no such revision.
    """
    try:
        revision = _applied(stated.data).revision
        if not 0 <= revision <= newest:
            raise Unreadable(f"revision {revision} is beyond the end of the bucket, {newest}")
    except Unreadable as error:
        log_set_aside(SetAside(STREAM, stated.subject, stated.sequence, str(error)))
        return 0
    return revision


async def _publish(bus: Bus, missed: list[Message]) -> None:
    """Publishes the messages, repeatedly until the log has them."""
    while missed:
        with suppress(BusUnavailable):
            await publish_messages(bus, missed)
            log.info("manifests_restated", count=len(missed))
            return
