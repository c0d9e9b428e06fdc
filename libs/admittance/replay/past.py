"""Rebuilds an earlier state of the bucket from facts, from the first one or a checkpoint. Pure.

The workload-controller's core folds the facts in the same commits as then, so that every workload
comes out as it was written; the controller recorded the revisions. Manifests are on the log as they
were written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from admittance.control.commit import LogMessage, Put
from admittance.control.decide import Controller
from admittance.control.known import VersionedWorkload
from admittance.events.checkpoints import Adopted, Committed, Row, RowKind
from admittance.replay.adopting import Adoption, Span, fact_of, families, restamped
from admittance.replay.pieces import (
    OBJECTS,
    WORKLOAD,
    Entry,
    called,
    decided_at,
    ended,
    manifest_of,
    oldest_of,
)
from admittance.workload import stored
from admittance.workload.conditions import Type, is_true
from admittance.workload.limits import Limits


class Start(NamedTuple):
    """Where folding begins: an empty bucket, or a checkpoint at ``revision``."""

    revision: int = 0
    floor: int = 0


class Past:
    """Rebuilds the bucket from the start up to the revision ``seen``.

    `hear` takes the facts after the start, `perform` the recorded commits in order, each after all
    facts up to its ``through``.
    """

    def __init__(
        self, start: Start, rows: Iterable[Row], objects: Iterable[LogMessage], *, seen: int
    ) -> None:
        """``objects``: every ``admit.object.…`` after the start, also late ones. Raises
        CannotRebuild."""
        self.seen = seen
        self.unknown: set[str] = set()
        """Workloads with an unknown state at ``seen``."""
        self._start = start
        self._controller = Controller(b"")
        self._controller.manifests_floor = start.floor
        self._newest = start.revision
        self._facts: deque[LogMessage] = deque()
        self._picture: dict[str, Entry] = {}
        self._ended: dict[str, VersionedWorkload] = {}
        self._guessed: dict[str, Span] = {}
        """Adopted workloads, with the writes in which they may have been admitted or evicted."""
        for row in rows:
            self._load(row)
        written = {one.revision: one for one in map(manifest_of, objects)}
        self._manifests = deque(one for _, one in sorted(written.items()))
        while self._manifests and self._manifests[0].revision <= start.revision:
            self._manifests.popleft()

    def _load(self, row: Row) -> None:
        key = row.key
        if row.kind is RowKind.FINISHED:
            # For facts, only its end matters.
            self._controller.workloads.keep(
                key, VersionedWorkload(ended(key), row.revision, row.fact)
            )
            return
        value = row.value if row.kind is RowKind.VALUE else None
        self._picture[key] = Entry(key, row.revision, value)
        if key.startswith(WORKLOAD):
            workload = stored.decode(value) if value is not None else None
            self._controller.workloads.load(
                key, VersionedWorkload(workload, row.revision, row.fact)
            )
        else:
            self._controller.load(key, value, row.revision, {})

    def entries(self) -> list[Entry]:
        """The bucket as it was at ``seen``, in the order of revisions."""
        self._write_manifests(self.seen + 1)
        return sorted(self._picture.values(), key=lambda entry: entry.revision)

    def hear(self, facts: Iterable[LogMessage]) -> None:
        """Adds later facts, only of types that the controller reads."""
        self._facts.extend(facts)

    def perform(self, commit: Committed, floor: int, limits: Limits | None = None) -> bool:
        """Folds one commit of a leader with these limits (None: the defaults). False: the commit
        reaches beyond ``seen``, so later ones are not needed."""
        self._controller.queues.limits = limits or Limits()
        oldest = oldest_of(commit)
        if oldest > self.seen:
            return False
        self._controller.manifests_floor = max(self._controller.manifests_floor, floor)
        written = {
            f"{WORKLOAD}{key}": revision
            for key, revision in commit.written()
            if revision > self._start.revision
        }
        if oldest:
            self._write_manifests(min(oldest, self.seen + 1))
        batch = [heard for heard in self._facts if heard.sequence <= commit.through]
        self._fold(batch, commit.now, written)
        self._adopt_all(commit.adopted, commit.now)
        if not commit.unsure:
            while self._facts and self._facts[0].sequence <= commit.through:
                self._facts.popleft()
        return max(written.values(), default=0) <= self.seen

    # Commits. -------------------------------------------------------------------------------

    def _fold(self, batch: list[LogMessage], now: datetime, written: dict[str, int]) -> None:
        controller = self._controller
        missing = set(written)
        looked_at: set[str] = set()
        rest = batch
        for heard in batch:
            self._restamp(heard)
        while rest:
            for key in controller.missing(rest):
                controller.workloads.load(key, self._as_ended(key, called(key, rest)))
                looked_at.add(key)
            made = controller.fold(rest, now)
            for put in made.puts:
                revision = written.get(put.key)
                if revision is not None:
                    missing.discard(put.key)
                    self._keep(put, revision)
            rest = made.rest
        for key in looked_at:
            controller.workloads.let_go(key)
        # Such as one that was submitted again after the old facts had expired from the log.
        self.unknown |= missing

    def _restamp(self, heard: LogMessage) -> None:
        parts = heard.subject.split(".")
        key = f"{WORKLOAD}{'.'.join(parts[-2:])}"
        span = self._guessed.get(key)
        fact = fact_of(heard) if span is not None else None
        if span is None or fact is None:
            return
        known = self._controller.workloads.get(key)
        told = restamped(known, fact, span)
        if told is not known:
            self._controller.workloads.keep(key, told)

    def _keep(self, put: Put, revision: int) -> None:
        known = VersionedWorkload(put.workload, revision, put.fact, put.trace)
        self._controller.workloads.keep(put.key, known)
        self._controller.said(put.key)
        if put.workload is not None and is_true(put.workload, Type.FINISHED):
            self._ended[put.key] = known
        else:
            self._ended.pop(put.key, None)
        if revision <= self.seen:
            self.unknown.discard(put.key)
            self._picture[put.key] = Entry(put.key, revision, put.value)

    def _as_ended(self, key: str, uid: str) -> VersionedWorkload:
        """An ended workload. ``uid``: used when nothing else is known of it."""
        known = self._ended.get(key)
        if known is None:
            return VersionedWorkload(ended(key, uid), 0, self._controller.workloads.ended_by(key))
        return known

    def _adopt_all(self, adopted: Iterable[Adopted], now: datetime) -> None:
        new = {
            key: one
            for one in adopted
            if one.revision
            > max(
                self._start.revision,
                self._controller.workloads.get(key := f"{WORKLOAD}{one.key}").revision,
            )
        }
        for key, one in new.items():
            self._guessed[key] = Span(self._controller.workloads.get(key).revision, one.revision)
        for family in families(self._controller, new, self._facts).values():
            adoption = Adoption(self._controller, family, self._as_ended)
            adoption.fold(self._facts)
            for key, one in family.items():
                new.pop(key, None)
                put = adoption.puts.get(key)
                if put is None:
                    self.unknown.add(key)
                else:
                    self._keep(put, one.revision)
        for one in new.values():
            self._adopt(one, now)

    def _adopt(self, one: Adopted, now: datetime) -> None:
        """Rebuilds a write that was not recorded: folds the facts of this workload up to the last
        one that it contains, at the time of these facts."""
        key = f"{WORKLOAD}{one.key}"
        tail = f".{one.key}"
        own: list[LogMessage] = []
        for heard in self._facts:
            if heard.sequence > one.fact:
                break
            if not heard.subject.endswith(tail) and not heard.subject.startswith(OBJECTS):
                continue
            before = decided_at(heard)
            if own and self._controller.workloads.get(key).revision < before < one.revision:
                # A write in between: a decision names the revision that it was made for.
                self._fold(own, own[-1].time, {key: before})
                own = []
            own.append(heard)
        self._fold(own, own[-1].time if own else now, {key: one.revision})

    # Manifests. -----------------------------------------------------------------------------

    def _write_manifests(self, before: int) -> None:
        while self._manifests and self._manifests[0].revision < before:
            written = self._manifests.popleft()
            self._controller.load(written.key, written.value, written.revision, {})
            self._picture[written.key] = written
