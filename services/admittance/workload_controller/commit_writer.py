"""Performs commits of the workload-controller, in the order described in
`admittance.control.commit`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

import structlog

from admittance.api.workload import TTL_AFTER_FINISHED, TTL_MIN
from admittance.control.batch import fold
from admittance.control.commit import (
    Commit,
    DeadLetterLimiter,
    LogMessage,
    Message,
    Put,
)
from admittance.control.controller import HEADER_FACT, Controller, key_of_fact
from admittance.control.workloads import VersionedWorkload
from admittance.events.base import (
    HEADER_MSG_ID,
    HEADER_RIGHTS,
    HEADER_SCHEMA,
    HEADER_TRACE,
    SCHEMA_VERSION,
)
from admittance.events.reader import SetAside, number
from admittance.events.requests.history import SettledReply
from admittance.events.subjects import BUCKET, GUARD_KEY, RELEASES
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import BATCH_MAX, Bus, Outgoing
from admittance.runtime.bus.messages import UnusableDelivery, publish_dead_letters, with_retries
from admittance.runtime.bus.puller import Delivery
from admittance.runtime.errors import BusRefused, BusUnavailable, StaleRevision, Superseded, TooBig
from admittance.runtime.leader import lease_store
from admittance.runtime.leader.barriers import write_echoes
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.runtime.telemetry.object_faults import faults
from admittance.runtime.telemetry.tracing import trace_id
from admittance.workload import stored
from admittance.workload.change import with_log
from admittance.workload.conditions import Type, is_true
from admittance.workload_controller.journal import HistoryRecorder
from admittance.workload_controller.workload_metrics import WorkloadMetrics

SERVICE: Final = "workload-controller"
ATTEMPTS: Final = 20
"""The most times that a batch of facts is folded again because another writer changed the workloads
of its facts."""
OUTCOMES_MAX: Final = 20_000
RELEASED: Final = RELEASES.removesuffix(">")

log = structlog.get_logger()


class CommitWriter:
    """Performs the commits of one leader of the workload-controller. ``outcomes``: the outcomes of
    the newest facts, by the facts' sequence. ``metrics``: None if metrics are off.
    """

    def __init__(
        self,
        bus: Bus,
        controller: Controller,
        guard: WriteGuard,
        puts: WorkloadWriter,
        history: HistoryRecorder,
        metrics: WorkloadMetrics | None,
    ) -> None:
        self._bus = bus
        self._controller = controller
        self._guard = guard
        self._puts = puts
        self._history = history
        self._metrics = metrics
        self._letters = DeadLetterLimiter()
        self._deferred: list[Message] = []
        """Messages about the quota of finished workloads, which no service waits for: they are
        published together with the next messages, since a publication of its own would cost as much
        as ten messages."""
        self._deferred_keys: set[str] = set()
        self.outcomes: OrderedDict[int, SettledReply] = OrderedDict()

    async def perform(self, batch: list[LogMessage]) -> None:
        """Folds a batch of facts into the workloads and performs the resulting commits."""
        controller = self._controller
        rest = batch
        if self._deferred_keys and not self._deferred_keys.isdisjoint(map(key_of_fact, batch)):
            # The next write of a workload replaces its outbox.
            await self.publish_deferred()
        attempts = 0
        loaded: dict[str, None] = {}
        """The keys of workloads that were read from the bucket for this batch; after the batch,
        finished workloads among them are dropped from memory.
        """
        while rest:
            now, begun = clock.now(), clock.monotonic()
            for key in controller.missing(rest):
                loaded[key] = None
                await with_retries(partial(self._reload, key))
            commit = fold(controller, rest, now, controller.errors)
            record_errors(controller)
            letters = self._letters.of(commit.dead, clock.monotonic()) if commit.dead else []
            bad = [UnusableDelivery(_delivery(letter.logged), letter.reason) for letter in letters]
            await publish_dead_letters(self._bus, SERVICE, bad)
            await publish_messages(self._bus, commit.notes)
            messages, unsure = await self._put(commit, now)
            if unsure:
                attempts += 1
                if self._metrics is not None:
                    self._metrics.conflicts.add((), len(unsure))
                if attempts > ATTEMPTS:
                    raise RuntimeError(f"{len(unsure)} workloads change whenever they are written")
                loaded |= dict.fromkeys(unsure)
            if messages:
                self._deferred += messages
                await self.publish_deferred()
            if unsure:
                continue
            for key in (*loaded, *(put.key for put in commit.puts)):
                controller.outbox_published(key)
            await with_retries(partial(write_echoes, self._bus, commit.echoes))
            self._note(commit)
            if self._metrics is not None:
                self._metrics.settled(controller, rest, commit.outcomes)
                applied = len(rest) - len(commit.rest)
                self._metrics.committed(applied, clock.monotonic() - begun)
            rest = commit.rest

    @property
    def has_deferred(self) -> bool:
        """Whether messages of performed commits are not published yet; until then the facts of
        these commits may not be acknowledged."""
        return bool(self._deferred)

    async def publish_deferred(self) -> None:
        """Publishes the messages that can wait."""
        await publish_messages(self._bus, self._deferred)
        self._deferred.clear()
        self._deferred_keys.clear()

    async def _put(self, commit: Commit, now: datetime) -> tuple[list[Message], list[str]]:
        """Writes the puts of the commit. Returns the messages to publish for the stored puts, and
        the keys of workloads for which the facts must be folded again."""
        controller = self._controller
        messages: list[Message] = []
        unsure: list[str] = []
        written: list[tuple[str, int]] = []
        for put, outcome in await self._puts.write(commit.puts):
            if isinstance(outcome, int):
                written.append((put.key, outcome))
                if self._metrics is not None and put.workload is not None:
                    before = controller.workloads.get(put.key).workload
                    self._metrics.written(controller, before, put.workload)
                made = controller.committed(put, outcome, now)
                if len(made) == 1 and _can_wait(put, made[0]):
                    self._deferred += made
                    self._deferred_keys.add(put.key)
                else:
                    messages += made
                _log_write(put, outcome)
            elif outcome is None or isinstance(outcome, StaleRevision):
                await with_retries(partial(self._reload, put.key))
                # The stored value may be this leader's own put, or a put of a previous leader that
                # did not publish its outbox. The facts are folded again, because later facts of the
                # batch were judged by the old value: a decision of the scheduler that is based on
                # the stored value would be ignored, and the scheduler would assume the decision
                # forever.
                messages += controller.outbox(put.key, now)
                unsure.append(put.key)
            else:
                raise outcome
        self._history.note(commit.through, now, written, unsure)
        return messages, unsure

    async def _reload(self, key: str) -> None:
        controller = self._controller
        before = controller.workloads.get(key)
        entry = await bucket.get(self._bus, key)
        if entry is None:
            controller.workloads.gone(key)
            return
        controller.load(entry.key, entry.value, entry.revision, entry.headers)
        known = controller.workloads.get(key)
        if known.fact > controller.read:
            controller.limit_fact(key, await lease_store.end_of_log(self._bus))
        tell_unreadable(controller)
        if known.unreadable and before.workload is not None:
            await self._mend(key, before, entry.revision)

    async def _mend(self, key: str, before: VersionedWorkload, revision: int) -> None:
        """Replaces an unreadable value in the bucket by the workload as this leader knows it. The
        write includes the guard, so a superseded leader cannot overwrite a newer value. The
        messages in the workload's outbox are published already. Raises StaleRevision,
        BusUnavailable or Superseded if the write did not succeed.
        """
        assert before.workload is not None, "the caller looked"
        workload = with_log(before.workload, before.fact, ())
        put = bucket.put_message(key, stored.encode(workload), expected=revision)
        try:
            written = await self._guard.write([put])
        except (StaleRevision, BusUnavailable):
            await self._guard.take()
            raise
        self._controller.workloads.keep(
            key, VersionedWorkload(workload, written, before.fact, before.trace)
        )
        log.warning("workload_repaired", key=key, revision=written)

    def _note(self, commit: Commit) -> None:
        self.outcomes.update(commit.outcomes)
        while len(self.outcomes) > OUTCOMES_MAX:
            self.outcomes.popitem(last=False)


def _can_wait(put: Put, message: Message) -> bool:
    """Whether the only message of a put is about the quota of a workload that has finished."""
    released = message.subject.startswith(RELEASED)
    return released and put.workload is not None and is_true(put.workload, Type.FINISHED)


def _log_write(put: Put, revision: int) -> None:
    """Logs the write of a workload; the name of the log line is that of the last outbox entry."""
    _, namespace, name = put.key.split(".")
    says = put.workload.status.log.says if put.workload is not None else ()
    what = [say.what for say in says if not say.what.startswith("check_")]
    # A write without an outbox entry only stores a fact that is on the log, so its log line has the
    # level debug.
    write = log.info if what else log.debug
    write(
        f"workload_{what[-1]}" if what else "workload_written",
        namespace=namespace,
        workload=name,
        revision=revision,
        fact=put.fact,
        trace=trace_id(put.trace),
    )


def _delivery(logged: LogMessage) -> Delivery:
    return Delivery(logged.subject, logged.data, logged.headers, logged.sequence)


MARKER_SECONDS: Final = 7 * 86_400.0
"""Seconds for which the delete marker of a workload is kept: longer than any pause of a stale
leader."""

PutOutcome: TypeAlias = int | BusRefused | None
"""The revision of a stored put, or the error of a refused put; None if it is unknown whether the
bucket has stored the put."""


def seconds_kept(annotations: Mapping[str, str], most: float) -> float:
    """How long a finished workload is kept: as long as its annotation says, but from
    `TTL_MIN` to ``most``, the deployment's setting."""
    written = annotations.get(TTL_AFTER_FINISHED, "")
    if not written.isascii() or not written.isdecimal() or len(written) > 10:
        return most
    return min(most, max(float(TTL_MIN), float(written)))


class WorkloadWriter:
    """Writes workloads to the bucket. ``finished_seconds``: how long the bucket keeps a finished
    workload that does not ask for less.
    """

    def __init__(self, bus: Bus, *, finished_seconds: float) -> None:
        self._bus = bus
        self._finished_seconds = finished_seconds

    async def write(self, puts: Sequence[Put]) -> list[tuple[Put, PutOutcome]]:
        """Writes first the puts without a group, then the groups; returns each put with its
        outcome.
        """
        alone, groups = split_groups(puts)
        outcomes = await self._alone(alone)
        for batch in pack_groups(groups, BATCH_MAX):
            outcomes += await self.write_groups(batch)
        return list(zip([*alone, *chain.from_iterable(groups)], outcomes, strict=True))

    async def _alone(self, puts: list[Put]) -> list[PutOutcome]:
        """Writes puts that belong to no group; returns the outcome of each put."""
        try:
            messages = [self._message(put) for put in puts]
            # A put may be sent twice: after a StaleRevision the caller reads the key again, so it
            # does not matter which of the two was stored.
            return list(await self._bus.publish_all(messages, repeat_puts=True))
        except BusUnavailable as error:
            log.warning("commit_unknown", error=str(error), puts=len(puts))
            return [None] * len(puts)

    async def write_groups(self, groups: list[list[Put]]) -> list[PutOutcome]:
        """Writes groups of puts, each group as a whole or not at all; returns the outcome of each
        put. Several groups share one atomic batch. If the server refuses the batch, each group is
        written in a batch of its own, since the server does not say which key was stale.
        """
        puts = list(chain.from_iterable(groups))
        try:
            last = await self._bus.atomic([self._message(put) for put in puts])
        except BusUnavailable as error:
            log.warning("commit_unknown", error=str(error), puts=len(puts))
            return [None] * len(puts)
        except BusRefused as refused:
            if len(groups) == 1:
                return [refused] * len(puts)
            return [outcome for group in groups for outcome in await self.write_groups([group])]
        return list(range(last - len(puts) + 1, last + 1))

    def _message(self, put: Put) -> Outgoing:
        headers = {HEADER_TRACE: put.trace} if put.trace else {}
        if put.workload is None or put.value is None:
            headers[HEADER_FACT] = str(put.fact)
            return bucket.delete_message(
                put.key, expected=put.expected, headers=headers, ttl_seconds=MARKER_SECONDS
            )
        keep = None
        if is_true(put.workload, Type.FINISHED):
            keep = seconds_kept(put.workload.metadata.annotations, self._finished_seconds)
        return bucket.put_message(
            put.key, put.value, expected=put.expected, headers=headers, ttl_seconds=keep
        )


async def publish_messages(bus: Bus, messages: Iterable[Message]) -> None:
    """Publishes messages without waiting for each acknowledgement. Their ids make it safe to send
    them again, so a server that does not answer in time does not end the leadership. Raises
    BusRefused or, after several attempts, BusUnavailable if the log has not stored some of the
    messages."""
    outgoing = [outgoing_of(message) for message in messages]
    outcomes = await with_retries(partial(bus.publish_all, outgoing))
    for one, outcome in zip(outgoing, outcomes, strict=True):
        if isinstance(outcome, TooBig):
            # A message that is too long is left out: another attempt would fail, too, and block the
            # facts of all other workloads.
            log.error("message_too_long", subject=one.subject, bytes=len(one.data))
        elif isinstance(outcome, BusRefused):
            raise outcome


def outgoing_of(message: Message) -> Outgoing:
    """The message with the standard headers of a fact, ready to publish."""
    headers = {HEADER_MSG_ID: message.id, HEADER_SCHEMA: SCHEMA_VERSION}
    if message.trace:
        headers[HEADER_TRACE] = message.trace
    if message.rights:
        headers[HEADER_RIGHTS] = message.rights
    return Outgoing(message.subject, message.data, headers)


def split_groups(puts: Sequence[Put]) -> tuple[list[Put], list[list[Put]]]:
    """Returns the puts that belong to no group, and the groups of the other puts."""
    alone = [put for put in puts if not put.group]
    groups: dict[int, list[Put]] = {}
    for put in puts:
        if put.group:
            groups.setdefault(put.group, []).append(put)
    return alone, list(groups.values())


def pack_groups(groups: Iterable[list[Put]], most: int) -> Iterator[list[list[Put]]]:
    """Packs groups into batches of at most ``most`` puts. A group is never split: a group of more
    than ``most`` puts gets a batch of its own, which the bus refuses.
    """
    batch: list[list[Put]] = []
    length = 0
    for group in groups:
        if batch and length + len(group) > most:
            yield batch
            batch, length = [], 0
        batch.append(group)
        length += len(group)
    if batch:
        yield batch


GUARD_PAUSE_SECONDS: Final = 0.02
GUARD_ANSWER_SECONDS: Final = 1.0
GUARD_ANSWER_SECONDS_MAX: Final = 10.0
"""How long the first move of the guard waits for an answer, since a leader of the bucket that is
lost never gives one; each further attempt waits twice as long, up to the longest wait.
"""


class WriteGuard:
    """Ensures that only the current leader writes manifests, and that this leader knows which
    writes were stored. ``epoch``: the epoch of the leader's lease, which is the value of the guard
    key.

    The workload-controller judges a decision of the scheduler by the queues that were in the bucket
    before the decision. So no manifest may be stored without the leader's knowledge: neither a late
    write of a previous leader, nor a write of the leader itself that it gave up. Every write of
    manifests is therefore one atomic batch that also writes the guard key and expects the guard
    key's last revision. To move the guard, at takeover or when a write is given up, means to write
    the guard key alone: then every earlier write that expects an older revision of it fails.
    """

    def __init__(self, bus: Bus, epoch: int) -> None:
        self._bus = bus
        self._epoch = epoch
        self._revision: int | None = None

    async def take(self) -> None:
        """Moves the guard, so that the bucket can no longer store an earlier write of manifests.
        Raises Superseded if the guard key has a newer epoch.
        """
        patience = GUARD_ANSWER_SECONDS
        while True:
            try:
                self._revision = await self._bus.publish(self._put(), timeout=patience)
                return
            except StaleRevision:
                pass
            except BusUnavailable:
                patience = min(2 * patience, GUARD_ANSWER_SECONDS_MAX)
                # The attempt is repeated: until the guard is moved, the bucket could still store an
                # earlier write.
                await asyncio.sleep(GUARD_PAUSE_SECONDS)
                continue
            with suppress(BusUnavailable, BusRefused):
                await self._look()
            await asyncio.sleep(GUARD_PAUSE_SECONDS)

    async def _look(self) -> None:
        entry = await bucket.get(self._bus, GUARD_KEY)
        value = entry.value if entry is not None else None
        # An epoch is a sequence of the log, so a value beyond the log's end is invalid.
        epoch = number(value, most=await lease_store.end_of_log(self._bus))
        if epoch is not None and epoch > self._epoch:
            raise Superseded(f"the leader with epoch {epoch} writes the manifests now")
        if value and epoch is None and entry is not None:
            log_set_aside(
                SetAside(
                    f"KV_{BUCKET}", GUARD_KEY, entry.revision, "it names no epoch: written over"
                )
            )
        self._revision = entry.revision if entry is not None else 0

    def _put(self) -> Outgoing:
        value = str(self._epoch).encode()
        return bucket.put_message(GUARD_KEY, value, expected=self._revision)

    async def write(self, puts: Sequence[Outgoing]) -> int:
        """Writes all puts of manifests in one atomic batch with the guard key. Returns the revision
        of the last put; the earlier puts have the revisions directly before it.

        Raises StaleRevision if nothing is stored, and BusUnavailable if the outcome is unknown:
        then the bucket may have stored the puts, but stores them no more after a later `take`.
        """
        last = await self._bus.atomic([self._put(), *puts])
        self._revision = last - len(puts)
        return last


def record_errors(controller: Controller) -> None:
    """Records the exceptions of the core that concerned one object."""
    if controller.errors:
        faults.record_all(SERVICE, controller.errors)
        controller.errors.clear()


def tell_unreadable(controller: Controller) -> None:
    """Logs the stored values that the core could not read."""
    record_errors(controller)
    while controller.unreadable:
        key, reason = controller.unreadable.popitem()
        log_set_aside(SetAside(f"KV_{BUCKET}", key, 0, reason))
