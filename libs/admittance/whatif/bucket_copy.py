"""`BucketCopy`: a copy of the bucket in memory, and the cores of the services, which decide on the
copy and write to it without a bus.

The workload-controller's core folds each simulated fact at once. The cores of the scheduler and the
variant-controller get each workload that the workload-controller's core writes. Of runners only the
stopping of evicted jobs is simulated. Checks are not simulated: a workload that waits for a check
keeps waiting.

The result of a simulation shows a family as one workload, its parent. Evictions and reservations of
a variant are reported for the parent; a parent without an admission is shown as its best variant
with reserved quota."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.kinds import OBJECT_KINDS
from admittance.control.batch import fold
from admittance.control.commit import LogMessage, Put
from admittance.control.controller import Controller
from admittance.control.workloads import VersionedWorkload
from admittance.events import reasons
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.facts import Decision, Stopped
from admittance.events.reader import BROKEN, BucketEntry, Reader
from admittance.events.requests import SettledReply
from admittance.events.shapes import ConsumedUsage, PreemptedBy
from admittance.events.subjects import USAGE, subject_of, workload_key
from admittance.lease import Fence
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.variants.core import FamilyActs
from admittance.workload.bucket_reader import names_of
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.limits import Limits
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of

MESSAGE: Final = timedelta(microseconds=1)
"""Simulated time between two messages of the simulated log, so that no two messages have the same
time."""
CYCLE: Final = timedelta(milliseconds=1)
"""Simulated time between two cycles of the scheduler, so that the reservations of two cycles have
different times."""
NEVER: Final = timedelta(days=10_000)
"""Delay of the simulated scheduler's refusals: never published, because refusals only
inform users."""
WAVES_MAX: Final = 100
DECISIONS_PER_WORKLOAD_MAX: Final = 20

Key = tuple[str, str]
_usage = Reader(ConsumedUsage)


class Eviction(NamedTuple):
    """A simulated eviction, in which a workload loses its quota. ``held``: the workload before the
    eviction; ``wave``: the number of rounds in which evicted jobs had stopped before this eviction.
    """

    held: StoredWorkload
    reason: str
    message: str
    preempted: PreemptedBy | None
    wave: int


class BucketCopy:
    """The cores of the services over one copy of the bucket, and records of what happened in the
    simulation.

    ``wave``: the number of rounds in which evicted jobs have stopped so far. ``before``: each
    workload that the simulation wrote, as it was before the first write; None: the workload did not
    exist. ``reserved``: for each workload that got quota, the ``wave`` at that moment.
    ``preempted``: the victims of each preemptor. ``cut_off``: the simulation ended early, at a
    limit. ``unreadable``: keys of the bucket with values that cannot be decoded. A variant appears
    in the records under the key of its parent."""

    def __init__(
        self,
        entries: Iterable[BucketEntry],
        config: Config,
        now: datetime,
        limits: Limits | None = None,
    ) -> None:
        self.now = now
        self.wave = 0
        self.before: dict[Key, StoredWorkload | None] = {}
        self.evictions: dict[Key, Eviction] = {}
        self.reserved: dict[Key, int] = {}
        self.preempted: dict[Key, list[str]] = {}
        self.cut_off = False
        self.revision = 0
        self.controller = Controller(b"", limits)
        self.core = Scheduler(msgspec.structs.replace(config, refusal_delay=NEVER))
        enabled = self.controller.queues.limits.families
        self.families = FamilyActs(enabled=enabled, coalesce=timedelta(0))
        self._kin: dict[Key, dict[Key, None]] = {}
        self._family: dict[Key, Key] = {}
        self.unreadable: list[str] = []
        self._stopping: dict[Key, None] = {}
        self._finished: dict[str, BucketEntry] = {}
        self._load(entries)
        self._sequence = self.controller.newest_fact
        self._left = DECISIONS_PER_WORKLOAD_MAX * (len(self.controller.workloads) + 1_000)

    # The bucket. --------------------------------------------------------------------------------

    def _load(self, entries: Iterable[BucketEntry]) -> None:
        for entry in entries:
            self.revision = max(self.revision, entry.revision)
            try:
                self._take(entry)
            except BROKEN:
                # A value that cannot be decoded does not stop the simulation, as it does not stop
                # the services.
                self.unreadable.append(entry.key)
        self.unreadable += self.controller.unreadable
        self.controller.settle_load(0)
        self.core.seen(self.revision)
        self._own()

    def _take(self, entry: BucketEntry) -> None:
        prefix = entry.key.partition(".")[0]
        if prefix == USAGE:
            if entry.value is not None:
                self.core.apply_usage(*names_of(entry.key), _usage(entry.value))
            return
        self.controller.load(entry.key, entry.value, entry.revision, entry.headers)
        if prefix != "workload":
            self._apply_object(entry.key, entry.revision)
            return
        key = names_of(entry.key)
        workload = self.controller.workloads.get(entry.key).workload
        self._apply_workload(entry.key, key, workload, entry.revision)
        if workload is None:
            return
        if is_true(workload, Type.FINISHED):
            self._finished[entry.key] = entry
        elif is_stopping(workload) and not is_variant(workload):
            self._stopping[key] = None

    def _apply_workload(
        self, key: str, name: Key, workload: StoredWorkload | None, revision: int
    ) -> None:
        """Passes a workload to the cores of the scheduler and the variant-controller."""
        self.core.apply_workload(*name, workload, revision, now=self.now)
        self.families.apply(key, workload, revision, self.now)
        if workload is not None and is_variant(workload):
            family = (name[0], owner_of(workload)[0])
            self._family[name] = family
            self._kin.setdefault(family, {})[name] = None

    def _apply_object(self, key: str, revision: int) -> None:
        """Passes a manifest to the cores of the scheduler and the variant-controller."""
        kind = OBJECT_KINDS.get(key.partition(".")[0])
        if kind is None:
            return
        namespace, name = names_of(key)
        kept = self.controller.objects.get(key)
        obj = kept.object if kept is not None else None
        self.core.apply_object(kind, namespace, name, obj, revision)
        self.families.apply_object(kind, namespace, name, obj, self.now)

    def _own(self) -> None:
        for domain in self.core.domains() - self.core.owned():
            self.core.own(domain)

    def put_object(self, key: str, manifest: Any, value: bytes) -> int:
        """Writes a manifest to the bucket copy (None: deletes the object) and passes it to the
        cores; returns the revision of the write. The manifest affects workloads only when
        `publish_message` folds the message about the manifest."""
        self.revision += 1
        self.controller.keep_object(key, manifest, value, self.revision)
        self._apply_object(key, self.revision)
        self._own()
        return self.revision

    def workload(self, key: Key) -> StoredWorkload | None:
        """Returns the workload as it is in the bucket copy now; None: the workload does not exist,
        or it had finished before the bucket was copied."""
        return self.controller.workloads.get(workload_key(*key)).workload

    def family(self, key: Key) -> Key:
        """Returns the key of a variant's parent; for any other workload its own key."""
        return self._family.get(key, key)

    def shown(self, key: Key) -> StoredWorkload | None:
        """Returns the workload as the result of the simulation shows it: as it is in the bucket
        copy now; for a parent without an admission its best variant with reserved quota, if it has
        one."""
        workload = self.workload(key)
        kin = self._kin.get(key)
        if workload is None or not kin or holds_quota(workload):
            return workload
        there = [one for name in kin if (one := self.workload(name)) is not None]
        reserved = [
            one
            for one in there
            if holds_quota(one)
            and not is_stopping(one)
            and owner_of(one)[1] == workload.metadata.uid
        ]
        return min(reserved, key=lambda one: head(one).sibling_index or 0, default=workload)

    def has_workload(self, key: Key) -> bool:
        """Whether the bucket copy has the workload; also True if the workload had finished before
        the bucket was copied."""
        return self.workload(key) is not None or workload_key(*key) in self._finished

    def workloads(self) -> Iterable[tuple[Key, StoredWorkload]]:
        """Yields all workloads that have not finished, without variants, each as `shown` returns
        it."""
        for _, known in self.controller.workloads.items():
            workload = known.workload
            if workload is None or is_true(workload, Type.FINISHED):
                continue
            key = (workload.metadata.namespace, workload.metadata.name)
            if key not in self._family:
                yield key, (self.shown(key) or workload) if key in self._kin else workload

    # The log. -----------------------------------------------------------------------------------

    def publish(self, facts: Iterable[Fact]) -> list[SettledReply]:
        """Publishes facts on the simulated log and folds them; returns the outcome of each fact."""
        batch = []
        for fact in facts:
            fence = Fence(fact.domain, 1) if isinstance(fact, Decision) else None
            batch.append(self._logged(subject_of(fact), encode(fact), fence))
        return self._fold(batch)

    def publish_message(self, subject: str, data: bytes) -> None:
        """Publishes a message about a manifest on the simulated log and folds it."""
        self._fold([self._logged(subject, data, None)])

    def _logged(self, subject: str, data: bytes, fence: Fence | None) -> LogMessage:
        self._sequence += 1
        self.now += MESSAGE
        return LogMessage(self._sequence, subject, data, self.now, fence)

    def _fold(self, batch: list[LogMessage]) -> list[SettledReply]:
        """Folds messages of the simulated log and writes the changed workloads to the bucket copy;
        returns the outcome of each message."""
        outcomes: dict[int, SettledReply] = {}
        rest = batch
        while rest:
            for name in self.controller.missing(rest):
                self.controller.load(*self._finished[name])
            commit = fold(self.controller, rest, self.now)
            for put in commit.puts:
                self._put(put)
            outcomes |= commit.outcomes
            rest = commit.rest
        if batch:
            self.controller.acknowledged(batch[-1].sequence)
        return [outcomes.get(one.sequence, SettledReply(outcome="applied")) for one in batch]

    def _put(self, put: Put) -> None:
        self.revision += 1
        name = names_of(put.key)
        workloads = self.controller.workloads
        present = workloads.get(put.key).workload or put.workload
        if present is not None and is_variant(present):
            self._family.setdefault(name, (name[0], owner_of(present)[0]))
        key = self.family(name)
        old = self.shown(key)
        self.before.setdefault(key, old)
        # `Controller.committed` is not called here: it would also encode facts to publish, which
        # the simulation does not need.
        workloads.keep(put.key, VersionedWorkload(put.workload, self.revision, put.fact, put.trace))
        self._apply_workload(put.key, name, put.workload, self.revision)
        self._note(key, old, self.shown(key))
        workloads.let_go(put.key)

    def _note(self, key: Key, old: StoredWorkload | None, new: StoredWorkload | None) -> None:
        held = old is not None and holds_quota(old) and not is_stopping(old)
        holds = new is not None and holds_quota(new)
        stopping = new is not None and is_stopping(new)
        if stopping:
            self._stopping[key] = None
        else:
            self._stopping.pop(key, None)
        if holds and not stopping and not held:
            self.reserved[key] = self.wave
        lost = held and (not holds or stopping)
        if lost and old is not None and (new is None or not is_true(new, Type.FINISHED)):
            self._lose(key, old, new)

    def _lose(self, key: Key, old: StoredWorkload, new: StoredWorkload | None) -> None:
        reason, message = reasons.DELETED, "The workload is deleted"
        evicted = find(new, Type.EVICTED) if new is not None else None
        if new is not None and (evicted is None or evicted.status != "True"):
            evicted = find(new, Type.QUOTA_RESERVED)
        if evicted is not None:
            reason, message = evicted.reason, evicted.message
        if new is not None and reason == reasons.VARIANT_EVICTED:
            # For an evicted parent report the cause of the eviction, which its variant's condition
            # has.
            variant = self.workload((key[0], new.status.admitted_variant))
            evicted = find(variant, Type.EVICTED) if variant is not None else None
            if variant is not None and evicted is not None and evicted.status == "True":
                new, reason, message = variant, evicted.reason, evicted.message
        by = new.status.preempted_by if new is not None and reason == reasons.PREEMPTED else None
        if by is not None:
            namespace, _, name = by.by.partition("/")
            preemptor = self.family((namespace, name))
            by = msgspec.structs.replace(by, by="/".join(preemptor))
            self.preempted.setdefault(preemptor, []).append("/".join(key))
        self.evictions.setdefault(key, Eviction(old, reason, message, by, self.wave))

    # Deciding. ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Runs cycles of the scheduler and stops evicted jobs, in turn, until nothing changes or a
        limit is reached."""
        self.decide()
        while self._stopping and not self.cut_off:
            if self.wave == WAVES_MAX:
                self.cut_off = True
                return
            self.wave += 1
            self._stop()
            self.decide()

    def decide(self) -> None:
        """Runs cycles of the scheduler until the cores have nothing to decide. No evicted job stops
        between these cycles."""
        while True:
            worked = self.core.has_work()
            decided: Sequence[Fact] = decisions(self.core, self.now) if worked else ()
            # The scheduler's refusals of variants are needed, and never delayed: the
            # variant-controller chooses the next gate to open by them.
            decided = decided or self.families.orders(self.now) or self.core.refusals(now=self.now)
            if not decided and not worked:
                return
            self.now += CYCLE
            self._left -= len(decided)
            if self._left < 0:
                self.cut_off = True
                return
            self.publish(decided)

    def _stop(self) -> None:
        """Publishes the fact ``stopped`` on the simulated log for every evicted workload, as
        runners do."""
        stopped = []
        for key in list(self._stopping):
            workload = self.workload(key)
            assert workload is not None, "it is stopping"
            stopped.append(
                Stopped(
                    namespace=key[0],
                    name=key[1],
                    uid=workload.metadata.uid,
                    time=self.now,
                    revision=workload.status.evicted_revision,
                )
            )
        self._stopping.clear()
        self.publish(stopped)

    def clear_records(self) -> None:
        """Clears the records of reservations, evictions and writes, so that only later ones are
        reported."""
        self.wave = 0
        for notes in (self.before, self.evictions, self.reserved, self.preempted):
            notes.clear()


def is_variant(workload: StoredWorkload) -> bool:
    """Whether the workload is a variant of a parent."""
    return head(workload).role == VARIANT


def decisions(core: Scheduler, now: datetime) -> Sequence[Decision]:
    """Runs one cycle of the scheduler's core; returns its decisions, without refusals."""
    core.wake(now=now)
    return core.cycle(now=now)
