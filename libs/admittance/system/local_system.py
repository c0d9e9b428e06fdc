"""`LocalSystem`: the stored state of a system in memory, and the cores of its services over that
state, without a bus.

Facts go in (`apply_facts`): the workload-controller's core folds them and writes workloads, and
every core gets what was written. Facts come out (`run_cycle`, `orders`, and the timers that are
due): the caller decides which of them are applied, in which order and when. `write` and
`put_object` store what no service has to make first. Time is ``now``, which only the caller
moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from admittance.api.kinds import OBJECT_KINDS
from admittance.api.reading.manifest import decode_object
from admittance.arrays.controller_core import ArrayControllerCore
from admittance.control.batch import fold
from admittance.control.commit import Commit, LogMessage, Message, Put
from admittance.control.controller import HEADER_FACT, Controller
from admittance.control.manifests.objects import key_of
from admittance.control.workloads import VersionedWorkload, with_own_revision
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.facts import Decision
from admittance.events.names import token
from admittance.events.reader import BROKEN, BucketEntry, Reader
from admittance.events.requests.history import SettledReply
from admittance.events.shapes import ConsumedUsage
from admittance.events.subjects import TIMER_DUE, USAGE, subject_of, workload_key
from admittance.lease import Fence
from admittance.scheduling.cycle.decisions import Decided
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.timers.core import Schedules
from admittance.timers.schedules import SetTimer, TimerSlot, due
from admittance.variants.core import FamilyActs
from admittance.workload import stored
from admittance.workload.bucket_reader import names_of
from admittance.workload.conditions import Type, is_true
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload

WORKLOAD: Final = "workload"
APPLIED: Final = SettledReply(outcome="applied")
_usage = Reader(ConsumedUsage)


def apply_entry(scheduler: Scheduler, entry: BucketEntry, now: datetime) -> None:
    """Applies an entry of the bucket to a scheduler's core: a workload, a manifest or a record of
    usage. Other entries are not for a scheduler."""
    key, value, revision, _ = entry
    prefix = key.partition(".")[0]
    if prefix == WORKLOAD:
        workload = stored.decode(value) if value is not None else None
        scheduler.apply_workload(*names_of(key), workload, revision, now=now)
    elif prefix == USAGE:
        scheduler.apply_usage(*names_of(key), _usage(value) if value is not None else None)
    elif prefix in OBJECT_KINDS:
        manifest = decode_object(value).manifest if value is not None else None
        scheduler.apply_object(OBJECT_KINDS[prefix], *names_of(key), manifest, revision)


class LocalSystem:
    """The stored state, and the cores: ``controller``, ``scheduler``, ``families``, ``arrays``
    and ``timers``.

    ``revision``: of the last write of the bucket; ``sequence``: of the last message of the log.
    ``config`` and ``limits``: of cores that start from now on.
    ``schedules``: the timers that stand on the bus. ``kept``: entries of the bucket that no core
    holds: finished workloads, deleted manifests, usage records. ``unreadable``: keys of the bucket
    with values that cannot be decoded."""

    def __init__(
        self,
        now: datetime,
        config: Config | None = None,
        limits: Limits | None = None,
        *,
        timers: bool = False,
        outboxes: bool = True,
        gap: timedelta = timedelta(0),
    ) -> None:
        """``timers``: whether the retry-timer's core takes part. ``outboxes``: whether `perform`
        makes the messages of the workloads' outboxes, which cost as much as the fold. ``gap``: the
        time that each message of the log takes."""
        self.now = now
        self.revision = 0
        self.sequence = 0
        self.kept: dict[str, BucketEntry] = {}
        self.schedules: dict[TimerSlot, SetTimer] = {}
        self.unreadable: list[str] = []
        self.config = config
        self.limits = limits or Limits()
        self._has_timers = timers
        self._outboxes = outboxes
        self._gap = gap
        self._start_cores()
        self._compare_timers()

    def _start_cores(self) -> None:
        self.controller = Controller(b"", self.limits)
        self.scheduler = Scheduler(self.config)
        self.families = FamilyActs(enabled=self.limits.families, coalesce=timedelta(0))
        self.arrays = ArrayControllerCore(coalesce=timedelta(0))
        self.timers = Schedules(self.limits)

    def _compare_timers(self) -> None:
        standing = {slot: order.want.expected for slot, order in self.schedules.items()}
        self.timers.begin_comparison()
        self.timers.compare(standing, self.now)

    # The bucket. --------------------------------------------------------------------------------

    def load(self, entries: Iterable[BucketEntry]) -> None:
        """Reads a whole bucket, in the order of revisions."""
        for entry in entries:
            self.revision = max(self.revision, entry.revision)
            try:
                self._load(entry)
            except BROKEN:
                # A value that cannot be decoded stops no service, and no system in memory.
                self.unreadable.append(entry.key)
        self.unreadable += self.controller.unreadable
        self.controller.settle_load(self.sequence)
        self.sequence = max(self.sequence, self.controller.newest_fact)
        self.scheduler.seen(self.revision)
        self.own_all()

    def _load(self, entry: BucketEntry) -> None:
        prefix = entry.key.partition(".")[0]
        if prefix == USAGE:
            self.kept[entry.key] = entry
            if entry.value is not None:
                self.scheduler.apply_usage(*names_of(entry.key), _usage(entry.value))
            return
        self.controller.load(*entry)
        if prefix != WORKLOAD:
            if entry.value is None:
                self.kept[entry.key] = entry
            self._object_changed(entry.key, entry.revision)
            return
        workload = self.controller.workloads.get(entry.key).workload
        if workload is not None and is_true(workload, Type.FINISHED):
            self.kept[entry.key] = entry
        self._workload_changed(entry.key, workload, entry.revision)

    def entries(self) -> list[BucketEntry]:
        """Returns the whole bucket as it is now, in the order of revisions."""
        held = {
            key: BucketEntry(key, kept.value, kept.revision)
            for key, kept in self.controller.objects
        }
        for key, known in self.controller.workloads.items():
            value = stored.encode(known.workload) if known.workload is not None else None
            headers = {HEADER_FACT: str(known.fact)} if value is None else {}
            held[key] = BucketEntry(key, value, known.revision, headers)
        return sorted((held | self.kept).values(), key=lambda entry: entry.revision)

    def restart(self) -> None:
        """All cores start anew and read the bucket, and the timers that stand on the bus."""
        entries = self.entries()
        self._start_cores()
        self.load(entries)
        self._compare_timers()

    def restart_scheduler(self) -> None:
        """The scheduler starts anew and reads the bucket; all other cores continue."""
        self.scheduler = Scheduler(self.config)
        for entry in self.entries():
            apply_entry(self.scheduler, entry, self.now)
        self.scheduler.seen(self.revision)
        self.own_all()

    def own_all(self) -> None:
        """Makes the scheduler own every domain."""
        for domain in self.scheduler.domains() - self.scheduler.owned():
            self.scheduler.own(domain)

    def stored_workload(self, namespace: str, name: str) -> StoredWorkload | None:
        """Returns the workload as it is stored now, also a finished one; None: there is none."""
        key = workload_key(namespace, name)
        known = self.controller.workloads.get(key).workload
        entry = self.kept.get(key) if known is None else None
        if entry is None or entry.value is None:
            return known
        return with_own_revision(stored.decode(entry.value), entry.revision)

    def write(self, namespace: str, name: str, workload: StoredWorkload | None) -> int:
        """Stores a workload as it is, without a fact that leads to it; None: deletes it. Returns
        the revision of the write."""
        key = workload_key(namespace, name)
        fact = workload.status.log.fact if workload is not None else 0
        before = self.controller.workloads.get(key).workload
        self.revision += 1
        self.sequence = max(self.sequence, fact)
        self.controller.workloads.keep(key, VersionedWorkload(workload, self.revision, fact))
        ended = workload is not None and is_true(workload, Type.FINISHED)
        self._written(key, before, workload, stored.encode(workload) if ended else None)
        return self.revision

    def apply_manifest(self, manifest: Mapping[str, Any], namespace: str = "") -> int:
        """Writes a manifest as a user writes it. ``namespace``: of an object that names none.
        Returns the revision of the write. Raises ManifestError if the manifest is invalid."""
        decoded = decode_object(manifest, namespace=namespace).manifest
        return self.put_object(key_of(decoded), decoded, msgspec.json.encode(manifest))

    def put_object(self, key: str, manifest: Any, value: bytes) -> int:
        """Writes a manifest; None: deletes it. Returns the revision of the write. The manifest
        affects workloads only when `apply_message` gets the message about it."""
        self.revision += 1
        self.controller.keep_object(key, manifest, value, self.revision)
        if manifest is None:
            self.kept[key] = BucketEntry(key, None, self.revision)
        else:
            self.kept.pop(key, None)
        self._object_changed(key, self.revision)
        self.own_all()
        return self.revision

    def _object_changed(self, key: str, revision: int) -> None:
        kind = OBJECT_KINDS.get(key.partition(".")[0])
        if kind is None:
            return
        namespace, name = names_of(key)
        kept = self.controller.objects.get(key)
        manifest = kept.object if kept is not None else None
        self.scheduler.apply_object(kind, namespace, name, manifest, revision)
        self.families.apply_object(kind, namespace, name, manifest, self.now)
        if self._has_timers and kind == "AdmissionCheck":
            self.timers.apply_check(name, self.controller.queues.check(name), self.now)

    def _written(
        self,
        key: str,
        before: StoredWorkload | None,
        after: StoredWorkload | None,
        value: bytes | None,
    ) -> None:
        """The workload is stored at ``revision``. ``value``: needed of a finished workload only."""
        if after is not None and is_true(after, Type.FINISHED):
            self.kept[key] = BucketEntry(key, value, self.revision)
        else:
            self.kept.pop(key, None)
        self._workload_changed(key, after, self.revision)
        self.saw(key, before, after)

    def _workload_changed(self, key: str, workload: StoredWorkload | None, revision: int) -> None:
        self.scheduler.apply_workload(*names_of(key), workload, revision, now=self.now)
        self.families.apply(key, workload, revision, self.now)
        self.arrays.apply(key, workload, revision, self.now)
        if self._has_timers:
            self.timers.apply(key, workload, revision, self.now)

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        """Called after each write of a workload, for subclasses that look at it; None: there was no
        workload, or there is none any more."""

    # The log. -----------------------------------------------------------------------------------

    def apply_facts(self, *facts: Fact) -> list[SettledReply]:
        """Publishes facts in one batch, and folds them; returns the outcome of each."""
        batch = [self.logged_fact(fact) for fact in facts]
        outcomes = self.fold(batch)
        return [outcomes.get(message.sequence, APPLIED) for message in batch]

    def apply_message(self, subject: str, data: bytes) -> None:
        """Publishes a message, such as that about a manifest, and folds it."""
        self.fold([self.logged(subject, data)])

    def logged_fact(self, fact: Fact, time: datetime | None = None) -> LogMessage:
        """Puts a fact on the log, which `fold` has to get. A decision has the fence of the first
        leader of its domain. ``time``: when it was published, ``now`` unless given."""
        fence = Fence(fact.domain, 1) if isinstance(fact, Decision) else None
        return self.logged(subject_of(fact), encode(fact), fence, time)

    def logged(
        self,
        subject: str,
        data: bytes,
        fence: Fence | None = None,
        time: datetime | None = None,
        trace: str = "",
    ) -> LogMessage:
        """Puts a message on the log. ``trace``: its traceparent."""
        self.sequence += 1
        self.now += self._gap
        return LogMessage(self.sequence, subject, data, time or self.now, fence, trace=trace)

    def fold(self, batch: list[LogMessage]) -> dict[int, SettledReply]:
        """Folds messages of the log and performs the commits; returns what became of those that
        were not applied, by their sequence."""
        outcomes: dict[int, SettledReply] = {}
        rest = batch
        while rest:
            loaded = self.controller.missing(rest)
            commit = self.fold_once(rest)
            self.perform(commit)
            for key in loaded:
                self.controller.workloads.let_go(key)
            outcomes |= commit.outcomes
            rest = commit.rest
        if batch:
            self.controller.acknowledged(batch[-1].sequence)
        return outcomes

    def fold_once(self, batch: list[LogMessage]) -> Commit:
        """Folds messages of the log into one commit, which `perform` has to get."""
        for key in self.controller.missing(batch):
            self.controller.load(*self.kept[key])
        return fold(self.controller, batch, self.now)

    def perform(self, commit: Commit) -> list[Message]:
        """Stores what the commit writes; returns the messages that the workload-controller
        publishes with it."""
        messages = list(commit.notes)
        for put in commit.puts:
            messages += self.store(put)
        for put in commit.puts:
            self.controller.outbox_published(put.key)
        return messages

    def store(self, put: Put) -> list[Message]:
        """Stores one workload of a commit; returns the messages of its outbox."""
        workloads = self.controller.workloads
        before = workloads.get(put.key)
        assert put.expected == before.revision, put.key
        messages: list[Message] = []
        self.revision += 1
        if self._outboxes:
            messages = self.controller.committed(put, self.revision, self.now)
        else:
            known = VersionedWorkload(put.workload, self.revision, put.fact, put.trace)
            workloads.keep(put.key, known)
        self._written(put.key, before.workload, put.workload, put.value)
        return messages

    # Facts out. ---------------------------------------------------------------------------------

    def run_cycle(self) -> list[Decided]:
        """Runs one cycle of the scheduler; returns its decisions, without refusals, and
        applies none of them."""
        self.scheduler.wake(now=self.now)
        return self.scheduler.cycle(now=self.now)

    def orders(self) -> list[Fact]:
        """Returns the facts that the variant-controller and the array-controller publish now."""
        return self.families.orders(self.now) + self.array_orders()

    def array_orders(self) -> list[Fact]:
        """Returns the facts that the array-controller publishes now."""
        for name in list(self.arrays.dependents.unknown):
            target = self.stored_workload(*name)
            self.arrays.dependents.apply_target(name, target, self.revision)
        return self.arrays.orders(self.now)

    def set_timers(self) -> None:
        """Sets the timers on the bus that the retry-timer orders now."""
        for order in self.timers.orders(self.now):
            if isinstance(order, SetTimer):
                self.schedules[order.slot] = order
            else:
                self.schedules.pop(order.slot, None)
            self.timers.done(order, self.now)
        self.timers.take_overdue(self.now)

    def next_timer(self) -> SetTimer | None:
        """Returns the timer on the bus that is due first; None: there is none."""
        return min(self.schedules.values(), key=lambda timer: (timer.want.at, timer), default=None)

    def fire(self, order: SetTimer) -> None:
        """Deletes a timer, and applies the fact that the bus publishes for it."""
        slot = order.slot
        del self.schedules[slot]
        subject = f"{TIMER_DUE}{slot.kind}.{token(slot.namespace)}.{token(slot.name)}"
        self.apply_message(subject, due(order))

    def wakes(self) -> Iterator[datetime]:
        """Yields the times at which a core has something to do if nothing changes until then."""
        first = self.next_timer()
        for at in (
            first.want.at if first is not None else None,
            self.scheduler.next_wake(),
            self.timers.next_order_at(),
            self.timers.next_overdue_at(),
            self.families.wake(),
            self.arrays.wake(),
        ):
            if at is not None:
                yield at
