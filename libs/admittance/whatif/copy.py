"""A copy of the bucket, and both cores that decide and write in it, without a bus between them.

What a service would state on the log is folded by the workload-controller's core at once, and what
that puts is the scheduler's next picture. Of runners there is only that they stop what is evicted;
of checks nothing: whoever waits for one waits on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.kinds import KINDS
from admittance.api.problems import ManifestError
from admittance.events.applying import SettledReply
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.facts import Decision, Stopped
from admittance.events.names import plain, token
from admittance.events.shapes import ConsumedUsage, PreemptedBy
from admittance.events.subjects import EPOCH, USAGE, subject_of, workload_key
from admittance.scheduler.config import Config
from admittance.scheduler.decide import Scheduler
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import StoredWorkload
from admittance.workload_controller.commit import Heard, Put
from admittance.workload_controller.decide import Controller
from admittance.workload_controller.fold import FENCE, FENCE_SUBJECT
from admittance.workload_controller.known import Known

MESSAGE: Final = timedelta(microseconds=1)
"""How much later each message of the log is: who comes first is older."""
CYCLE: Final = timedelta(milliseconds=1)
"""How much later it is after each cycle: reservations made one after the other have an order."""
WAVES_MAX: Final = 100
DECISIONS_PER_WORKLOAD_MAX: Final = 20

Key = tuple[str, str]
_KIND_OF_PREFIX: Final = {
    kind.token: kind.name for kind in KINDS.values() if kind.name not in ("Workload", "Job")
}


class Entry(NamedTuple):
    """What a key of the bucket holds since ``revision``; ``value`` None: it was deleted."""

    key: str
    value: bytes | None
    revision: int
    headers: Mapping[str, str] = {}


class Eviction(NamedTuple):
    """A workload loses its quota. ``held``: as it was before. ``wave``: how often evicted jobs had
    stopped by then."""

    held: StoredWorkload
    reason: str
    message: str
    preempted: PreemptedBy | None
    wave: int


class Copy:
    """Both cores over one bucket. ``wave`` counts how often evicted jobs have stopped.

    ``before``: of each workload that was written, how it stood when the copy was made; None: it was
    not there. ``reserved``: in which wave it got the quota that it holds. ``preempted``: for whom
    others lost their quota, and who they are. ``cut_off``: it went on and on. ``unreadable``: keys
    whose values make no sense.
    """

    def __init__(self, entries: Iterable[Entry], config: Config, now: datetime) -> None:
        self.now = now
        self.wave = 0
        self.before: dict[Key, StoredWorkload | None] = {}
        self.evictions: dict[Key, Eviction] = {}
        self.reserved: dict[Key, int] = {}
        self.preempted: dict[Key, list[str]] = {}
        self.cut_off = False
        self.revision = 0
        self.controller = Controller(b"")
        self.core = Scheduler(config)
        self.unreadable: list[str] = []
        self._stopping: dict[Key, None] = {}
        self._finished: dict[str, Entry] = {}
        self._load(entries)
        self._sequence = self.controller.newest_fact
        self._left = DECISIONS_PER_WORKLOAD_MAX * (len(self.controller.workloads) + 1_000)

    # The bucket. --------------------------------------------------------------------------------

    def _load(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.revision = max(self.revision, entry.revision)
            try:
                self._take(entry)
            except (msgspec.MsgspecError, ManifestError, ValueError):
                # As for the services: a broken value does not hide the rest of the bucket.
                self.unreadable.append(entry.key)
        self.unreadable += self.controller.unreadable
        self.controller.settle_load(0)
        self.core.seen(self.revision)
        self._own()

    def _take(self, entry: Entry) -> None:
        prefix, _, rest = entry.key.partition(".")
        if prefix == USAGE:
            namespace, name = map(plain, rest.split("."))
            if entry.value is not None:
                consumed = msgspec.json.decode(entry.value, type=ConsumedUsage)
                self.core.apply_usage(namespace, name, consumed)
            return
        self.controller.load(entry.key, entry.value, entry.revision, entry.headers)
        if prefix != "workload":
            self._picture(entry.key, entry.revision)
            return
        namespace, name = map(plain, rest.split("."))
        workload = self.controller.workloads.get(entry.key).workload
        self.core.apply_workload(namespace, name, workload, entry.revision, now=self.now)
        if workload is None:
            return
        if is_true(workload, Type.FINISHED):
            self._finished[entry.key] = entry
        elif is_stopping(workload):
            self._stopping[namespace, name] = None

    def _picture(self, key: str, revision: int) -> None:
        """The scheduler hears of a manifest that the controller's core has by now."""
        prefix, _, rest = key.partition(".")
        kind = _KIND_OF_PREFIX.get(prefix)
        if kind is None:
            return
        first, _, second = rest.partition(".")
        namespace, name = (plain(first), plain(second)) if second else ("", plain(first))
        kept = self.controller.objects.get(key)
        obj = kept.object if kept is not None else None
        self.core.apply_object(kind, namespace, name, obj, revision)

    def _own(self) -> None:
        for domain in self.core.domains() - self.core.owned():
            self.core.own(domain)

    def put_object(self, key: str, manifest: Any, value: bytes) -> int:
        """A manifest is written (None: deleted), and heard of by both. Its revision; what follows
        from it for workloads comes with its statement."""
        self.revision += 1
        self.controller.keep_object(key, manifest, value, self.revision)
        self._picture(key, self.revision)
        self._own()
        return self.revision

    def workload(self, key: Key) -> StoredWorkload | None:
        """As it is now; None: there is none, or it has finished long ago."""
        return self.controller.workloads.get(workload_key(*key)).workload

    def has_workload(self, key: Key) -> bool:
        """There is one, even if it has finished long ago."""
        return self.workload(key) is not None or workload_key(*key) in self._finished

    def workloads(self) -> Iterable[tuple[Key, StoredWorkload]]:
        """All that have not finished."""
        for _, known in self.controller.workloads.items():
            workload = known.workload
            if workload is not None and not is_true(workload, Type.FINISHED):
                yield (workload.metadata.namespace, workload.metadata.name), workload

    # The log. -----------------------------------------------------------------------------------

    def say(self, facts: Iterable[Fact]) -> list[SettledReply]:
        """The facts are on the log, and have their effect. What became of each."""
        batch = []
        for fact in facts:
            headers = {}
            if isinstance(fact, Decision):
                headers = {FENCE: "1", FENCE_SUBJECT: f"{EPOCH}{token(fact.domain)}"}
            batch.append(self._heard(subject_of(fact), encode(fact), headers))
        return self.hear(batch)

    def state(self, subject: str, data: bytes) -> None:
        """A message that is about no single workload."""
        self.hear([self._heard(subject, data, {})])

    def _heard(self, subject: str, data: bytes, headers: Mapping[str, str]) -> Heard:
        self._sequence += 1
        self.now += MESSAGE
        return Heard(self._sequence, subject, data, headers, self.now)

    def hear(self, batch: list[Heard]) -> list[SettledReply]:
        """Folds messages of the log in, and writes what comes of it."""
        outcomes: dict[int, SettledReply] = {}
        rest = batch
        while rest:
            for name in self.controller.missing(rest):
                self.controller.load(*self._finished[name])
            commit = self.controller.fold(rest, self.now)
            for put in commit.puts:
                self._put(put)
            outcomes |= commit.outcomes
            rest = commit.rest
        if batch:
            self.controller.acknowledged(batch[-1].sequence)
        return [outcomes.get(one.sequence, SettledReply(outcome="applied")) for one in batch]

    def _put(self, put: Put) -> None:
        self.revision += 1
        _, first, second = put.key.split(".")
        key = plain(first), plain(second)
        workloads = self.controller.workloads
        old = workloads.get(put.key).workload
        self.before.setdefault(key, old)
        # Not `Controller.committed`: that writes out what is to be said, and nobody is told here.
        workloads.keep(put.key, Known(put.workload, self.revision, put.fact, put.trace))
        new = workloads.get(put.key).workload
        self._note(key, old, new)
        workloads.let_go(put.key)
        self.core.apply_workload(*key, put.workload, self.revision, now=self.now)

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
        reason, message = "Deleted", "The workload is deleted"
        evicted = find(new, Type.EVICTED) if new is not None else None
        if new is not None and (evicted is None or evicted.status != "True"):
            evicted = find(new, Type.QUOTA_RESERVED)
        if evicted is not None:
            reason, message = evicted.reason, evicted.message
        by = new.status.preempted_by if new is not None and reason == "Preempted" else None
        self.evictions.setdefault(key, Eviction(old, reason, message, by, self.wave))
        if by is not None:
            namespace, _, name = by.by.partition("/")
            self.preempted.setdefault((namespace, name), []).append("/".join(key))

    # Deciding. ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Everything is decided, evicted jobs stop, and so on until nothing happens any more."""
        self.rest()
        while self._stopping and not self.cut_off:
            if self.wave == WAVES_MAX:
                self.cut_off = True
                return
            self.wave += 1
            self._stop()
            self.rest()

    def rest(self) -> None:
        """Cycles until there is nothing to decide while nobody stops."""
        while self.core.has_work():
            decided = decisions(self.core, self.now)
            self.now += CYCLE
            self._left -= len(decided)
            if self._left < 0:
                self.cut_off = True
                return
            self.say(decided)

    def _stop(self) -> None:
        """Runners say of everybody that is evicted that it has stopped."""
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
        self.say(stopped)

    def begin(self) -> None:
        """What happened up to now is history: it is told no more."""
        self.wave = 0
        for notes in (self.before, self.evictions, self.reserved, self.preempted):
            notes.clear()


def decisions(core: Scheduler, now: datetime) -> Sequence[Decision]:
    """What the scheduler states in one turn, but for refusals: those only tell people why they
    wait, and here that is asked."""
    core.wake(now=now)
    return core.cycle(now=now)
