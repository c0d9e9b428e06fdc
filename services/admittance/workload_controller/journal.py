"""The journal records which facts are in which revisions of workloads, so that the state on which a
decision was based can be rebuilt later.

The journal is written in the background and in batches; no commit waits until the journal has
recorded it. When the next leader reads the bucket, it records as adopted the workloads whose
commits a failed leader did not record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from admittance.control.checkpoint import Snapshot, snapshot
from admittance.control.controller import Controller
from admittance.control.workloads import Workloads
from admittance.events import subjects
from admittance.events.reader import SetAside, Unreadable
from admittance.events.stored.checkpoints import Adopted, Commits, Committed, runs_of
from admittance.events.stored.formats import read_commits
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.bus.history import last
from admittance.runtime.errors import BusRefused, BusUnavailable, TooBig
from admittance.runtime.tasks import BackgroundTasks
from admittance.runtime.telemetry.logger import LogThrottle, log_set_aside
from admittance.workload_controller.checkpoints import CheckpointWriter

PREFIX: Final = "workload."
MESSAGE_MAX: Final = 500_000
"""The most bytes of one journal message, approximately."""
KEY_EXTRA: Final = 60
"""The bytes that a journal message needs for each key, besides the key itself."""
ADOPTED_MAX: Final = 2_000
"""The most workloads that one commit in the journal records as adopted."""
PENDING_MAX: Final = 200_000
"""The most keys in commits that wait to be recorded while the bus is unavailable; with more keys,
the waiting commits are dropped and the journal gets a gap.
"""
GATHER_SECONDS: Final = 0.01
PAUSE_SECONDS: Final = 1.0

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class JournalPosition(NamedTuple):
    """The end of the journal: the newest recorded revision of a workload, and the sequence of the
    last journal message; 0 if the journal is empty.
    """

    newest: int = 0
    sequence: int = 0


async def read_position(bus: Bus) -> JournalPosition:
    """Reads the end of the journal, which an earlier leader may have written. If the last journal
    message cannot be read, the newest recorded revision is 0 and the leader writes a new checkpoint
    immediately.
    """
    try:
        message = await last(bus, subjects.COMMITS, stream=subjects.CHECKPOINTS)
        bucket = await bus.api(f"STREAM.INFO.KV_{subjects.BUCKET}") if message is not None else {}
    except (BusRefused, BusUnavailable):
        return JournalPosition()
    if message is None:
        return JournalPosition()
    newest = int(bucket["state"]["last_seq"])
    try:
        newest_recorded = read_commits(message.data).newest
        if not 0 <= newest_recorded <= newest:
            raise Unreadable(
                f"the journal names revision {newest_recorded} of the bucket of workloads, whose "
                f"newest revision is {newest}"
            )
    except Unreadable as error:
        log_set_aside(
            SetAside(subjects.CHECKPOINTS, subjects.COMMITS, message.sequence, str(error))
        )
        return JournalPosition(0, message.sequence)
    return JournalPosition(newest_recorded, message.sequence)


def unrecorded_workloads(
    workloads: Workloads, entries: Iterable[Entry], after: int
) -> list[Adopted]:
    """The workloads among the loaded entries with a revision greater than ``after``, as adopted
    workloads of the journal."""
    adopted = []
    for entry in entries:
        if entry.revision <= after or not entry.key.startswith(PREFIX):
            continue
        known = workloads.get(entry.key)
        fact = known.fact or workloads.ended_by(entry.key)
        adopted.append(Adopted(key=entry.key[len(PREFIX) :], revision=entry.revision, fact=fact))
    return adopted


class Journal:
    """The journal that one leader writes. ``through``: the sequence of the last fact applied to the
    bucket. ``newest``: the newest revision of a workload in the bucket. ``last_message``: the
    sequence of the last journal message.
    """

    def __init__(
        self, bus: Bus, epoch: int, floor: int, newest: int, *, begins: bool = False
    ) -> None:
        """``begins``: whether no workload existed before the journal, so that a replay from its
        beginning needs no checkpoint."""
        self._bus = bus
        self._epoch = epoch
        self._floor = floor
        self.through = 0
        self.newest = newest
        self.last_message = 0
        self._newest_recorded = newest
        self._pending: list[Committed] = []
        self._keys = 0
        self._number = 0
        self._begins = begins
        self._gap = False
        self._wake = asyncio.Event()

    def note(
        self,
        through: int,
        now: datetime,
        written: Sequence[tuple[str, int]],
        adopted: Sequence[Adopted] = (),
        *,
        unsure: bool = False,
    ) -> None:
        """Adds a commit to the journal, in memory. ``written``: the keys that the commit wrote,
        with their new revisions; ``adopted``: workloads read from the bucket again."""
        if not unsure:
            self.through = max(self.through, through)
        revisions = [revision for _, revision in written]
        for revision in (*revisions, *(each.revision for each in adopted)):
            self.newest = max(self.newest, revision)
        self._pending.append(
            Committed(
                through=through,
                now=now,
                keys=tuple([key[len(PREFIX) :] for key, _ in written]),
                runs=runs_of(revisions),
                adopted=tuple(adopted),
                unsure=unsure,
            )
        )
        self._keys += len(written) + len(adopted) + 1
        if self._keys > PENDING_MAX:
            log.warning("commits_not_recorded", keys=self._keys)
            self._pending.clear()
            self._keys = 0
            self._gap = True
        self._wake.set()

    async def run(self) -> None:
        """Publishes the commits that `note` added, until cancelled."""
        throttle = LogThrottle()
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._wake.clear()
            try:
                await self.flush()
            except (BusRefused, BusUnavailable) as error:
                if throttle.due(clock.monotonic()):
                    log.warning("commits_wait", error=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
                self._wake.set()

    async def flush(self) -> None:
        """Publishes all commits that `note` added. Raises BusRefused or BusUnavailable if the bus
        does not take them; the commits are then kept for the next call.
        """
        while self._pending:
            part, keys = self._part()
            self._newest_recorded = max(
                self._newest_recorded, *(_newest(commit) for commit in part)
            )
            said = Commits(
                epoch=self._epoch,
                floor=self._floor,
                newest=self._newest_recorded,
                commits=tuple(part),
                begins=self._begins,
                gap=self._gap,
            )
            headers = {MESSAGE_ID: f"{self._epoch}/{self._number}"}
            try:
                message = Outgoing(subjects.COMMITS, _encode(said), headers)
                self.last_message = await self._bus.publish(message)
                self._begins = self._gap = False
            except TooBig:
                # The message has a single commit with very many long names, so the journal leaves
                # the commit out and gets a gap.
                log.warning("commit_too_long", keys=keys)
                self._gap = True
            self._number += 1
            if part and self._pending[: len(part)] == part:
                del self._pending[: len(part)]
                self._keys -= keys

    def _part(self) -> tuple[list[Committed], int]:
        """The waiting commits that fit into the next journal message, and their number of keys."""
        keys = length = 0
        for count, commit in enumerate(self._pending):
            long = sum(map(len, commit.keys)) + sum(
                len(workload.key) for workload in commit.adopted
            )
            more = len(commit.keys) + len(commit.adopted) + 1
            if count and length + long + KEY_EXTRA * more > MESSAGE_MAX:
                return self._pending[:count], keys
            keys += more
            length += long + KEY_EXTRA * more
        return list(self._pending), keys


def _newest(commit: Committed) -> int:
    runs = commit.runs
    written = (first + count - 1 for first, count in zip(runs[::2], runs[1::2], strict=True))
    return max((*written, *(workload.revision for workload in commit.adopted)), default=0)


CLOSE_SECONDS: Final = 2.0


class JournalAtTakeover(NamedTuple):
    """The journal and the bucket as a new leader finds them. ``position``: the end of the journal.
    ``adopted``: the workloads that were written after the end of the journal. ``newest``: the
    newest revision of the bucket.
    """

    position: JournalPosition
    adopted: list[Adopted]
    newest: int


class HistoryRecorder:
    """Writes the journal and the checkpoints of one leader. ``lock``: the lock that the leader
    holds while it performs a commit.
    """

    def __init__(
        self,
        bus: Bus,
        lock: asyncio.Lock,
        controller: Controller,
        state: JournalAtTakeover,
        *,
        epoch: int,
        every_seconds: float,
    ) -> None:
        self._controller = controller
        some = bool(len(controller.workloads) or controller.workloads.finished())
        self.journal = Journal(
            bus,
            epoch,
            controller.manifests_floor,
            state.newest,
            begins=not state.position.newest and not some and not controller.read,
        )
        self.journal.last_message = state.position.sequence
        self.journal.through = controller.read
        self.recorder = CheckpointWriter(
            bus, lock, lambda: self.journal.through, self._take, every_seconds
        )
        # The first checkpoint is due at once if workloads were written before the journal began:
        # only a checkpoint records them.
        self._at_once = not state.position.newest and some
        self._adopted = state.adopted if state.position.newest else []
        self._tasks = BackgroundTasks(_log_failure)

    def start(self, now: datetime) -> None:
        """Records the commits that the previous leader did not record, and starts the background
        tasks.
        """
        for start in range(0, len(self._adopted), ADOPTED_MAX):
            part = self._adopted[start : start + ADOPTED_MAX]
            self.journal.note(self.journal.through, now, (), part, unsure=True)
        self._tasks.start(self.journal.run(), name="journal")
        self._tasks.start(self.recorder.run(at_once=self._at_once), name="checkpoints")

    def note(
        self, through: int, now: datetime, written: Sequence[tuple[str, int]], unsure: Sequence[str]
    ) -> None:
        """Adds a commit to the journal, in memory. ``unsure``: the keys of workloads that were read
        again after the write of the workload was refused or got no answer.
        """
        adopted = []
        for key in unsure:
            known = self._controller.workloads.get(key)
            if known.revision:
                name = key[len(PREFIX) :]
                adopted.append(Adopted(key=name, revision=known.revision, fact=known.fact))
        self.journal.note(through, now, written, adopted, unsure=bool(unsure))

    async def close(self) -> None:
        """Stops the background tasks, and publishes the remaining commits of the journal if the bus
        accepts them within `CLOSE_SECONDS`."""
        await self._tasks.end()
        with suppress(BusRefused, BusUnavailable, TimeoutError):
            await asyncio.wait_for(self.journal.flush(), CLOSE_SECONDS)

    def _take(self) -> Snapshot:
        journal = self.journal
        return snapshot(self._controller, journal.through, journal.newest, journal.last_message)


def _log_failure(task: asyncio.Task[Any], error: BaseException) -> None:
    # To apply facts is more important than to record history: the leader continues without the
    # failed task.
    log.error("history_task_failed", what=task.get_name(), error=repr(error))
