"""`BucketCopy`: a system in memory over a copy of the bucket, in which decisions follow each other
until nothing changes.

Of runners only the stopping of evicted jobs is simulated. Checks are not simulated: a workload that
waits for a check keeps waiting.

The result of a simulation shows a family as one workload, its parent. Evictions and reservations of
a variant are reported for the parent; a parent without an admission is shown as its best variant
with reserved quota."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from admittance.control.commit import Message, Put
from admittance.events import reasons
from admittance.events.base import Fact
from admittance.events.facts import Stopped
from admittance.events.reader import BucketEntry
from admittance.events.shapes import PreemptedBy
from admittance.events.subjects import workload_key
from admittance.scheduling.state.config import Config
from admittance.system.local_system import LocalSystem
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


class Eviction(NamedTuple):
    """A simulated eviction, in which a workload loses its quota. ``held``: the workload before the
    eviction; ``wave``: the number of rounds in which evicted jobs had stopped before this eviction.
    """

    held: StoredWorkload
    reason: str
    message: str
    preempted: PreemptedBy | None
    wave: int


class BucketCopy(LocalSystem):
    """A system in memory over one copy of the bucket, and records of what happened in the
    simulation.

    ``wave``: the number of rounds in which evicted jobs have stopped so far. ``before``: each
    workload that the simulation wrote, as it was before the first write; None: the workload did not
    exist. ``reserved``: for each workload that got quota, the ``wave`` at that moment.
    ``preempted``: the victims of each preemptor. ``cut_off``: the simulation ended early, at a
    limit. A variant appears in the records under the key of its parent."""

    def __init__(
        self,
        entries: Iterable[BucketEntry],
        config: Config,
        now: datetime,
        limits: Limits | None = None,
    ) -> None:
        core_config = msgspec.structs.replace(config, refusal_delay=NEVER)
        super().__init__(now, core_config, limits, outboxes=False, gap=MESSAGE)
        self.wave = 0
        self.before: dict[Key, StoredWorkload | None] = {}
        self.evictions: dict[Key, Eviction] = {}
        self.reserved: dict[Key, int] = {}
        self.preempted: dict[Key, list[str]] = {}
        self.cut_off = False
        self._kin: dict[Key, dict[Key, None]] = {}
        self._family: dict[Key, Key] = {}
        self._stopping: dict[Key, None] = {}
        self.load(entries)
        self._left = DECISIONS_PER_WORKLOAD_MAX * (len(self.controller.workloads) + 1_000)

    # The bucket. --------------------------------------------------------------------------------

    def load(self, entries: Iterable[BucketEntry]) -> None:
        super().load(entries)
        for _, known in self.controller.workloads.items():
            workload = known.workload
            if workload is None:
                continue
            name = (workload.metadata.namespace, workload.metadata.name)
            if is_variant(workload):
                self._join(name, workload)
            elif is_stopping(workload):
                self._stopping[name] = None

    def _join(self, name: Key, variant: StoredWorkload) -> None:
        family = (name[0], owner_of(variant)[0])
        self._family[name] = family
        self._kin.setdefault(family, {})[name] = None

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
        there = [variant for name in kin if (variant := self.workload(name)) is not None]
        reserved = [
            variant
            for variant in there
            if holds_quota(variant)
            and not is_stopping(variant)
            and owner_of(variant)[1] == workload.metadata.uid
        ]
        return min(reserved, key=lambda variant: head(variant).sibling_index or 0, default=workload)

    def has_workload(self, key: Key) -> bool:
        """Whether the bucket copy has the workload; also True if the workload had finished before
        the bucket was copied."""
        return self.stored_workload(*key) is not None

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

    def store(self, put: Put) -> list[Message]:
        name = names_of(put.key)
        present = self.workload(name) or put.workload
        if present is not None and is_variant(present) and name not in self._family:
            self._join(name, present)
        key = self.family(name)
        old = self.shown(key)
        self.before.setdefault(key, old)
        messages = super().store(put)
        if put.workload is not None and is_variant(put.workload):
            self._join(name, put.workload)
        self._note(key, old, self.shown(key))
        return messages

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
            worked = self.scheduler.has_work()
            decided: Sequence[Fact] = self.run_cycle() if worked else ()
            # The scheduler's refusals of variants are needed, and never delayed: the
            # variant-controller chooses the next gate to open by them.
            decided = decided or self.orders() or self.scheduler.refusals(now=self.now)
            if not decided and not worked:
                return
            self.now += CYCLE
            self._left -= len(decided)
            if self._left < 0:
                self.cut_off = True
                return
            self.apply_facts(*decided)

    def stop(self, key: Key) -> None:
        """Publishes the fact ``stopped`` for the workload, if its job is being stopped."""
        if key in self._stopping:
            del self._stopping[key]
            self._publish_stopped([key])

    def describe_loss(self, key: Key, message: str) -> None:
        """Gives the workload's loss of quota another message, if it has lost quota."""
        eviction = self.evictions.get(key)
        if eviction is not None:
            self.evictions[key] = eviction._replace(message=message)

    def _stop(self) -> None:
        """Publishes the fact ``stopped`` for every evicted workload."""
        keys = list(self._stopping)
        self._stopping.clear()
        self._publish_stopped(keys)

    def _publish_stopped(self, keys: Sequence[Key]) -> None:
        """Publishes the fact ``stopped`` on the simulated log for each workload, as runners do."""
        stopped = []
        for key in keys:
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
        self.apply_facts(*stopped)

    def clear_records(self) -> None:
        """Clears the records of reservations, evictions and writes, so that only later ones are
        reported."""
        self.wave = 0
        for notes in (self.before, self.evictions, self.reserved, self.preempted):
            notes.clear()


def is_variant(workload: StoredWorkload) -> bool:
    """Whether the workload is a variant of a parent."""
    return head(workload).role == VARIANT
