"""Reads the inputs of a past decision from the bus: the decision, the configuration of its
scheduler, and the bucket as the scheduler had it; and the bucket at any past moment of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from admittance.control.checkpoint import BadCheckpoint, unpack
from admittance.control.commit import LogMessage
from admittance.events import subjects
from admittance.events.reader import BROKEN, BucketEntry, Unreadable
from admittance.events.stored.checkpoints import CheckpointMade, Commits, Committed
from admittance.events.stored.formats import read_commits
from admittance.events.system import Epoch
from admittance.replay.bucket_rebuild import BucketRebuild, CannotRebuild, RebuildStart, manifest_of
from admittance.replay.decision import revisions_needed
from admittance.replay.log_messages import log_message
from admittance.replay.logged_decisions import LoggedDecision, logged_decision
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.checkpoints import checkpoints
from admittance.runtime.bus.history import StoredMessage, message_by_direct_get, read_messages
from admittance.scheduling.state.config import Config, config_from
from admittance.workload.limits import Limits, limits_from

_epoch = msgspec.json.Decoder(Epoch)


class NoDecision(ValueError):
    """The message is no decision that can be repeated, or its epoch is unknown."""


async def decision_at(bus: Bus, sequence: int) -> LoggedDecision:
    """The decision at that sequence of the log. Raises NoDecision."""
    message = await message_by_direct_get(bus, sequence)
    if message is None:
        state = (await bus.api(f"STREAM.INFO.{subjects.STREAM}"))["state"]
        raise NoDecision(
            f"the log has no message {sequence}: it goes from {state['first_seq']} "
            f"to {state['last_seq']}"
        )
    logged = log_message(sequence, message.subject, message.data, message.headers, clock.now())
    target = logged_decision(logged)
    if target is None:
        raise NoDecision(f"message {sequence}, {logged.subject}, is not a decision of a scheduler")
    if target.decision.time is None:
        raise NoDecision(f"decision {sequence} does not say when it was made")
    return target


async def config_of(bus: Bus, target: LoggedDecision) -> Config:
    """The configuration of the scheduler that made the decision, from its epoch."""
    message = await message_by_direct_get(bus, target.epoch)
    if message is None:
        return Config()
    try:
        return config_from(_epoch.decode(message.data).config)
    except BROKEN as error:
        raise NoDecision(f"epoch {target.epoch} has unknown settings: {error}") from None


PAGE: Final = 500
PATIENCE_SECONDS: Final = 5.0
"""How long the command waits for the workload-controller to record the commit of a new decision."""

_READ: Final = frozenset(tuple(pattern.split(".")[:3]) for pattern in subjects.READ_BY_CONTROLLER)


class Source(NamedTuple):
    """How a snapshot was rebuilt. ``checkpoint``: id of the checkpoint from which the rebuild
    began; "": it began with the first fact of the log. ``facts``: number of facts that were applied
    after the beginning.
    """

    checkpoint: str
    facts: int


async def gather(
    bus: Bus, target: LoggedDecision
) -> tuple[dict[int, Sequence[BucketEntry]], list[Source], list[LoggedDecision]]:
    """Snapshots of the bucket at each needed revision, and the decisions before the target
    decision.
    """
    snapshots: dict[int, Sequence[BucketEntry]] = {}
    sources: list[Source] = []
    before: dict[int, LoggedDecision] = {}
    for seen in revisions_needed(target.decision):
        if seen in snapshots:
            continue
        snapshots[seen], source, decisions = await _decision_inputs(bus, target, seen)
        sources.append(source)
        before |= {decision.sequence: decision for decision in decisions}
    return snapshots, sources, [before[sequence] for sequence in sorted(before)]


class PastBucket(NamedTuple):
    """The bucket as it was, made again from the log. ``unknown``: keys of the workloads that cannot
    be made again; ``finished``: keys of those that had finished before the checkpoint, of which
    nothing else is known."""

    entries: list[BucketEntry]
    unknown: Set[str]
    finished: Set[str]


async def facts_before(bus: Bus, revision: int, sequence: int) -> int:
    """How many messages of the log `bucket_at` reads for this moment. Raises CannotRebuild."""
    made = await _checkpoint_before(bus, revision)
    return max(0, sequence - (made.through if made is not None else 0))


async def bucket_at(bus: Bus, revision: int, sequence: int) -> PastBucket:
    """The bucket after the fact with the sequence ``sequence`` of the log. ``revision``: the newest
    revision of a workload then. Raises CannotRebuild and NoDecision."""
    past, _ = await _rebuild(bus, revision, sequence, None)
    return PastBucket(past.entries(), past.unknown, past.finished_before)


class _InFlight:
    """The decisions of the domain of a decision that were in flight before it."""

    def __init__(self, target: LoggedDecision) -> None:
        self._target = target
        self.decisions: list[LoggedDecision] = []

    def note(self, logged: LogMessage) -> None:
        """Adds the message if it is such a decision."""
        if logged.sequence >= self._target.sequence:
            return
        decision = logged_decision(logged)
        if decision is not None and decision.decision.domain == self._target.decision.domain:
            self.decisions.append(decision)

    def committed(self, commit: Committed) -> None:
        """A decision is no longer in flight when the scheduler has read its effect in the
        bucket."""
        done = commit.through if not commit.unsure else 0
        self.decisions = [each for each in self.decisions if each.sequence > done]


async def _decision_inputs(
    bus: Bus, target: LoggedDecision, seen: int
) -> tuple[list[BucketEntry], Source, list[LoggedDecision]]:
    in_flight = _InFlight(target)
    past, source = await _rebuild(bus, seen, target.sequence, in_flight)
    own = f"workload.{target.decision.namespace}.{target.decision.name}"
    if own in past.unknown:
        raise CannotRebuild("the state of the workload is not known at the decision")
    return past.entries(), source, in_flight.decisions


async def _rebuild(
    bus: Bus, seen: int, sequence: int, in_flight: _InFlight | None
) -> tuple[BucketRebuild, Source]:
    """Rebuilds the bucket up to the revision ``seen``, and notes the decisions before the fact
    ``sequence``. Without ``in_flight``, ``seen`` is of a workload, and manifests count up to that
    fact."""
    made, rows = await _start(bus, seen)
    records = await _commits(
        bus, made.told if made is not None else 0, sequence, waits=in_flight is not None
    )
    if (made is None and not (records and records[0].begins)) or any(
        record.gap for record in records
    ):
        raise CannotRebuild("some commits before the moment were not recorded by their leader")
    through = made.through if made is not None else 0
    start = RebuildStart(made.revision, made.floor) if made is not None else RebuildStart()
    objects = [message async for message in _messages(bus, ["admit.object.>"], through)]
    if in_flight is None:
        written = (manifest_of(each).revision for each in objects if each.sequence <= sequence)
        seen = max(seen, *written, start.revision)
    past = BucketRebuild(start, rows, objects, seen=seen)
    limits = {epoch: await _limits(bus, epoch) for epoch in {begun.epoch for begun in records}}
    facts = _messages(bus, ["admit.>"], through)
    last_read = folded = 0
    for record, commit in _after(records, through, start.revision):
        upto = max(commit.through, *(adopted.fact for adopted in commit.adopted), 0)
        batch: list[LogMessage] = []
        while last_read < upto:
            logged = await anext(facts, None)
            if logged is None:
                break
            last_read = logged.sequence
            batch.append(logged)
            if in_flight is not None:
                in_flight.note(logged)
        batch = [logged for logged in batch if is_read(logged.subject)]
        past.add_facts(batch)
        folded += len(batch)
        if not past.perform(commit, record.floor, limits[record.epoch]):
            break
        if in_flight is not None:
            in_flight.committed(commit)
    while in_flight is not None and last_read < sequence:
        logged = await anext(facts, None)
        if logged is None:
            break
        last_read = logged.sequence
        in_flight.note(logged)
    return past, Source(made.id if made is not None else "", folded)


async def _limits(bus: Bus, epoch: int) -> Limits:
    """The limits of the leader of the workload-controller that published ``epoch``."""
    message = await message_by_direct_get(bus, epoch)
    if message is None:
        return Limits()
    try:
        return limits_from(_epoch.decode(message.data).config)
    except (KeyError, *BROKEN) as error:
        raise NoDecision(f"epoch {epoch} has unknown limits: {error}") from None


async def _start(bus: Bus, seen: int) -> tuple[CheckpointMade | None, Sequence[Any]]:
    """The newest complete checkpoint not newer than ``seen``, with its rows; None: the log still
    has its first fact. Raises CannotRebuild as `_checkpoint_before` does.
    """
    broken: set[str] = set()
    while True:
        made = await _checkpoint_before(bus, seen, broken)
        if made is None:
            return None, ()
        parts = [
            message.data
            async for message in _messages(
                bus, [f"{subjects.CHECKPOINT_PART}{made.id}"], 0, stream=subjects.CHECKPOINTS
            )
        ]
        with suppress(BadCheckpoint):
            return made, list(unpack(made, parts))
        broken.add(made.id)


async def _checkpoint_before(
    bus: Bus, seen: int, broken: Set[str] = frozenset()
) -> CheckpointMade | None:
    """The newest checkpoint not newer than ``seen`` that is not in ``broken``; None: there is none,
    and the log still has its first fact. Raises CannotRebuild if it has lost that fact.
    """
    state = (await bus.api(f"STREAM.INFO.{subjects.STREAM}"))["state"]
    first = int(state["first_seq"])
    for made in reversed(await checkpoints(bus)):
        if made.revision <= seen and first <= made.through + 1 and made.id not in broken:
            return made
    if first <= 1:
        return None
    raise CannotRebuild(
        f"the log has neither all facts up to revision {seen} nor a checkpoint before it"
    )


async def _commits(bus: Bus, after: int, sequence: int, *, waits: bool) -> list[Commits]:
    """The recorded commits after message ``after``, up to the commit that includes the fact
    ``sequence``. ``waits``: that commit is awaited if it is not recorded yet.
    """
    records: list[Commits] = []
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while True:
        page = await read_messages(
            bus, [subjects.COMMITS], after=after, limit=PAGE, stream=subjects.CHECKPOINTS
        )
        for message in page:
            try:
                record = read_commits(message.data)
            except Unreadable:
                continue  # No leader wrote this record: a record of a leader is valid.
            records.append(record)
            if any(commit.through >= sequence for commit in record.commits):
                return records
        if page:
            after = page[-1].sequence
            continue
        if not waits:
            return records
        if clock.monotonic() > deadline:
            raise CannotRebuild(
                "the workload-controller has recorded no later commit; is it running?"
            )
        await asyncio.sleep(0.1)


def _after(
    records: Sequence[Commits], through: int, revision: int
) -> list[tuple[Commits, Committed]]:
    """The commits after the sequence and revision at which the rebuild begins."""
    return [
        (record, commit)
        for record in records
        for commit in record.commits
        if commit.through > through
        or (record.newest > revision and (commit.keys or commit.adopted))
    ]


def is_read(subject: str) -> bool:
    """Whether the workload-controller reads messages that have this subject."""
    parts = tuple(subject.split(".", 3)[:3])
    return parts in _READ or parts[:2] in (("admit", "object"), ("admit", "user"))


async def _messages(
    bus: Bus, filters: Sequence[str], after: int, *, stream: str = subjects.STREAM
) -> AsyncIterator[LogMessage]:
    """Yields messages in order, read page by page."""
    while True:
        page: list[StoredMessage] = await read_messages(
            bus, filters, after=after, limit=PAGE, stream=stream
        )
        for message in page:
            yield log_message(
                message.sequence, message.subject, message.data, message.headers, message.time
            )
        if len(page) < PAGE:
            return
        after = page[-1].sequence
