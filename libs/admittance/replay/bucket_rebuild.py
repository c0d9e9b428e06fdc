"""Rebuilds the bucket as it was at an earlier revision, from a checkpoint and the facts after the
checkpoint. The module is pure.

The workload-controller's core folds the facts again, in the commits that the leader recorded, so
every workload gets the value that the leader wrote. The revisions of the rebuilt workloads come
from the recorded commits. Manifests need no folding: the log has each manifest as it was
written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.api.meta import Condition, ObjectMeta
from admittance.control.batch import fold
from admittance.control.commit import LogMessage, Put
from admittance.control.controller import Controller
from admittance.control.user_requests.submissions import claim_of
from admittance.control.workloads import VersionedWorkload
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.events.codec import Undecodable, decode
from admittance.events.facts import Decision
from admittance.events.reader import BucketEntry
from admittance.events.stored.checkpoints import Adopted, CheckpointRow, Committed, RowKind
from admittance.events.subjects import OBJECTS, workload_key
from admittance.events.system import ObjectApplied
from admittance.workload import stored
from admittance.workload.bucket_reader import names_of
from admittance.workload.change import with_status
from admittance.workload.conditions import Type, is_true
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload, WorkloadStatus


class RevisionRange(NamedTuple):
    """The bucket revisions between which an adopted workload was written an unknown number of
    times: after ``after``, and the last time at ``upto``."""

    after: int
    upto: int


def with_named_revision(
    known: VersionedWorkload, fact: Fact, span: RevisionRange
) -> VersionedWorkload:
    """Returns the workload with its guessed revision of admission or eviction replaced by the
    revision that a runner names in ``fact``."""
    workload = known.workload
    if workload is None:
        return known
    match fact:
        case facts.Stopped() if fact.gives_back:
            # The job stopped because its runner gave it back, so the revision in the fact is not
            # that of an eviction.
            return known
        case facts.Stopped(revision=revision) if workload.status.evicted_revision != 0:
            field, present = "evicted_revision", workload.status.evicted_revision
        case facts.Stopped():
            return known
        case facts.JobFact(revision=revision) | facts.Finished(revision=revision):
            field, present = "admitted_revision", workload.status.admitted_revision
        case _:
            return known
    # Only a revision inside ``span`` is a guess: a revision outside it is exact and stays.
    if not span.after < revision <= span.upto or not span.after <= present <= span.upto:
        return known
    return known._replace(workload=with_status(workload, **{field: revision}))


def adopted_families(
    controller: Controller, adopted: Mapping[str, Adopted], messages: Iterable[LogMessage]
) -> dict[str, dict[str, Adopted]]:
    """Returns the adopted workloads of each family, by the key of the parent. ``messages``: facts
    that may already be folded into the adopted workloads, including submissions of variants that
    the controller does not know yet."""
    families: dict[str, dict[str, Adopted]] = {}
    parents = {}
    for key in adopted:
        ref = controller.workloads.family_of(key)
        if ref is not None:
            parents[key] = ref.parent
    for message in messages:
        fact = fact_of(message)
        claim = claim_of(fact) if isinstance(fact, facts.Submitted) else None
        if fact is not None and claim is not None:
            key = workload_key(fact.namespace, fact.name)
            if key in adopted:
                parents[key] = workload_key(fact.namespace, claim.owner[0])
    for key, parent in parents.items():
        family = families.setdefault(parent, {})
        family[key] = adopted[key]
        if parent in adopted:
            family[parent] = adopted[parent]
    return families


class FamilyRebuild:
    """Rebuilds the workloads of one family that a leader wrote before it crashed, without recording
    the commit. ``finished``: returns a finished workload, given its key and uid.

    One commit may write several workloads of a family, so all facts about the family are folded.
    Which facts the crashed leader folded in one commit is unknown, so the facts are folded one by
    one. Facts that name a revision tell the revision of a write: a runner, for example, names the
    revision that admitted or evicted its job."""

    def __init__(
        self,
        controller: Controller,
        family: Mapping[str, Adopted],
        finished: Callable[[str, str], VersionedWorkload],
    ) -> None:
        self._controller = controller
        self._family = family
        self._finished = finished
        self._since = {key: controller.workloads.get(key).revision for key in family}
        self.puts: dict[str, Put] = {}
        """The last write of each workload of the family that changed, by key."""

    def fold(self, messages: Iterable[LogMessage]) -> None:
        """Folds the facts that are part of the adopted values of the family's workloads, in the
        order of the log."""
        last = max(adopted.fact for adopted in self._family.values())
        for message in messages:
            if message.sequence > last:
                return
            if message.subject.startswith(OBJECTS):
                self._fold_message(message)
                continue
            fact = fact_of(message)
            if fact is None:
                continue
            key = workload_key(fact.namespace, fact.name)
            adopted = self._family.get(key)
            if adopted is None or message.sequence > adopted.fact:
                continue
            for named_key, revision in _named(fact):
                self._use_revision(named_key, revision)
            known = self._controller.workloads.get(key)
            span = RevisionRange(self._since[key], adopted.revision)
            named = with_named_revision(known, fact, span)
            if named is not known:
                self._controller.workloads.keep(key, named)
            self._fold_message(message, fact.uid)

    def _fold_message(self, message: LogMessage, uid: str = "") -> None:
        rest = [message]
        while rest:
            for key in self._controller.missing(rest):
                self._controller.workloads.load(key, self._last_write(key, uid))
            made = fold(self._controller, rest, message.time)
            for put in made.puts:
                if put.key in self._family:
                    self._keep(put, self._controller.workloads.get(put.key).revision)
            if len(made.rest) >= len(rest):
                return
            rest = made.rest

    def _last_write(self, key: str, uid: str) -> VersionedWorkload:
        put = self.puts.get(key)
        if put is None:
            return self._finished(key, uid)
        return VersionedWorkload(put.workload, 0, put.fact, put.trace)

    def _keep(self, put: Put, revision: int) -> None:
        self.puts[put.key] = put
        known = VersionedWorkload(put.workload, revision, put.fact, put.trace)
        self._controller.workloads.keep(put.key, known)
        self._controller.outbox_published(put.key)

    def _use_revision(self, key: str, revision: int) -> None:
        """Sets ``revision`` as the revision of the last write of the workload ``key``, if it lies
        between the known revision of the workload and its adopted revision."""
        put, adopted = self.puts.get(key), self._family.get(key)
        if put is None or adopted is None:
            return
        if self._controller.workloads.get(key).revision < revision <= adopted.revision:
            self._keep(put, revision)


def fact_of(message: LogMessage) -> Fact | None:
    """Decodes the fact in a message; None: the message is not a fact."""
    try:
        return decode(message.subject, message.data)
    except Undecodable:
        return None


def _named(fact: Fact) -> Iterator[tuple[str, int]]:
    """Yields the key and revision of each workload that a decision names: the workload itself, its
    victims, and the sibling that it migrates from."""
    if isinstance(fact, facts.Decision):
        yield workload_key(fact.namespace, fact.name), fact.revision
    if isinstance(fact, facts.Assigned):
        others = (*fact.preempts, *((fact.migrates_from,) if fact.migrates_from else ()))
        for other in others:
            yield workload_key(other.namespace, other.name), other.revision


WORKLOAD: Final = "workload."
_applied = msgspec.json.Decoder(ObjectApplied)


class CannotRebuild(Exception):
    """An earlier state of the bucket cannot be rebuilt, because a needed message was not recorded
    or has expired. The error text names what is missing."""


class RebuildStart(NamedTuple):
    """The state from which a rebuild begins: a checkpoint at ``revision``, or an empty bucket if
    ``revision`` is 0. ``floor``: the workload-controller's `manifests_floor` at the revision of the
    checkpoint."""

    revision: int = 0
    floor: int = 0


class BucketRebuild:
    """Rebuilds the bucket from ``start`` up to the revision ``seen``.

    `BucketRebuild.add_facts` adds the facts after ``start``. `perform` must get the recorded
    commits in order, each commit only when all facts up to its ``through`` have been added."""

    def __init__(
        self,
        start: RebuildStart,
        rows: Iterable[CheckpointRow],
        objects: Iterable[LogMessage],
        *,
        seen: int,
    ) -> None:
        """``rows``: the rows of the checkpoint from which the rebuild starts. ``objects``: all
        ``admit.object.…`` messages about writes after the checkpoint, including messages that were
        published late. Raises CannotRebuild if a message in ``objects`` cannot be read."""
        self.seen = seen
        self.unknown: set[str] = set()
        """Keys of the workloads that cannot be rebuilt as they were at the revision ``seen``."""
        self.finished_before: set[str] = set()
        """Keys of the workloads that had finished before the start of the rebuild, and have no
        value."""
        self._start = start
        self._controller = Controller(b"")
        self._controller.manifests_floor = start.floor
        self._facts: deque[LogMessage] = deque()
        self._entries: dict[str, BucketEntry] = {}
        self._finished: dict[str, VersionedWorkload] = {}
        self._guessed: dict[str, RevisionRange] = {}
        """The adopted workloads by key, each with the range of revisions in which it may have been
        admitted or evicted."""
        for row in rows:
            self._load(row)
        written = {manifest.revision: manifest for manifest in map(manifest_of, objects)}
        self._manifests = deque(manifest for _, manifest in sorted(written.items()))
        while self._manifests and self._manifests[0].revision <= start.revision:
            self._manifests.popleft()

    def _load(self, row: CheckpointRow) -> None:
        key = row.key
        if row.kind is RowKind.FINISHED:
            # Facts about a finished workload change nothing, so a placeholder without a spec can
            # stand for it.
            self.finished_before.add(key)
            self._controller.workloads.keep(
                key, VersionedWorkload(_finished_placeholder(key), row.revision, row.fact)
            )
            return
        value = row.value if row.kind is RowKind.VALUE else None
        self._entries[key] = BucketEntry(key, value, row.revision)
        if key.startswith(WORKLOAD):
            workload = stored.decode(value) if value is not None else None
            self._controller.workloads.load(
                key, VersionedWorkload(workload, row.revision, row.fact)
            )
        else:
            self._controller.load(key, value, row.revision, {})

    def entries(self) -> list[BucketEntry]:
        """Returns the entries of the bucket as it was at ``seen``, in the order of revisions."""
        self._write_manifests(self.seen + 1)
        return sorted(self._entries.values(), key=lambda entry: entry.revision)

    def add_facts(self, facts: Iterable[LogMessage]) -> None:
        """Adds facts from the log after the start of the rebuild, in order. All facts must be of
        types that the workload-controller reads."""
        self._facts.extend(facts)

    def perform(self, commit: Committed, floor: int, limits: Limits | None = None) -> bool:
        """Folds the facts of one recorded commit. ``floor``: the `manifests_floor` of the leader
        that made the commit. ``limits``: the limits of the leader that made the commit; None: the
        default limits. Returns False if the commit reaches beyond the revision ``seen``, so that
        later commits are not needed."""
        self._controller.use_limits(limits or Limits())
        oldest = _oldest_revision(commit)
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
        batch = [message for message in self._facts if message.sequence <= commit.through]
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
        for message in batch:
            self._use_named_revision(message)
        while rest:
            for key in controller.missing(rest):
                controller.workloads.load(key, self._finished_workload(key, _uid_in(key, rest)))
                looked_at.add(key)
            made = fold(controller, rest, now)
            for put in made.puts:
                revision = written.get(put.key)
                if revision is not None:
                    missing.discard(put.key)
                    self._keep(put, revision)
            rest = made.rest
        for key in looked_at:
            controller.workloads.let_go(key)
        # A workload that the commit wrote may not have been rebuilt, for example if it was
        # submitted again after its old facts had expired.
        self.unknown |= missing

    def _use_named_revision(self, message: LogMessage) -> None:
        parts = message.subject.split(".")
        key = f"{WORKLOAD}{'.'.join(parts[-2:])}"
        span = self._guessed.get(key)
        fact = fact_of(message) if span is not None else None
        if span is None or fact is None:
            return
        known = self._controller.workloads.get(key)
        named = with_named_revision(known, fact, span)
        if named is not known:
            self._controller.workloads.keep(key, named)

    def _keep(self, put: Put, revision: int) -> None:
        known = VersionedWorkload(put.workload, revision, put.fact, put.trace)
        self._controller.workloads.keep(put.key, known)
        self._controller.outbox_published(put.key)
        if put.workload is not None and is_true(put.workload, Type.FINISHED):
            self._finished[put.key] = known
        else:
            self._finished.pop(put.key, None)
        if revision <= self.seen:
            self.unknown.discard(put.key)
            self.finished_before.discard(put.key)
            self._entries[put.key] = BucketEntry(put.key, put.value, revision)

    def _finished_workload(self, key: str, uid: str) -> VersionedWorkload:
        """Returns a finished workload. ``uid``: the workload's uid, which is used if this rebuild
        has folded no write of the workload."""
        known = self._finished.get(key)
        if known is None:
            return VersionedWorkload(
                _finished_placeholder(key, uid), 0, self._controller.workloads.ended_by(key)
            )
        return known

    def _adopt_all(self, adopted: Iterable[Adopted], now: datetime) -> None:
        new = {
            key: member
            for member in adopted
            if member.revision
            > max(
                self._start.revision,
                self._controller.workloads.get(key := f"{WORKLOAD}{member.key}").revision,
            )
        }
        for key, member in new.items():
            self._guessed[key] = RevisionRange(
                self._controller.workloads.get(key).revision, member.revision
            )
        for family in adopted_families(self._controller, new, self._facts).values():
            adoption = FamilyRebuild(self._controller, family, self._finished_workload)
            adoption.fold(self._facts)
            for key, member in family.items():
                new.pop(key, None)
                put = adoption.puts.get(key)
                if put is None:
                    self.unknown.add(key)
                else:
                    self._keep(put, member.revision)
        for member in new.values():
            self._adopt(member, now)

    def _adopt(self, adopted: Adopted, now: datetime) -> None:
        """Rebuilds an adopted workload, which has no recorded commits: folds the facts about the
        workload up to ``one.fact``, at the time of the last of these facts."""
        key = f"{WORKLOAD}{adopted.key}"
        tail = f".{adopted.key}"
        own: list[LogMessage] = []
        for message in self._facts:
            if message.sequence > adopted.fact:
                break
            if not message.subject.endswith(tail) and not message.subject.startswith(OBJECTS):
                continue
            fact = fact_of(message)
            before = fact.revision if isinstance(fact, Decision) else 0
            if own and self._controller.workloads.get(key).revision < before < adopted.revision:
                # The decision names the workload's revision ``before``, so the facts until then
                # were written at that revision.
                self._fold(own, own[-1].time, {key: before})
                own = []
            own.append(message)
        self._fold(own, own[-1].time if own else now, {key: adopted.revision})

    # Manifests. -----------------------------------------------------------------------------

    def _write_manifests(self, before: int) -> None:
        while self._manifests and self._manifests[0].revision < before:
            written = self._manifests.popleft()
            self._controller.load(written.key, written.value, written.revision, {})
            self._entries[written.key] = written


def manifest_of(message: LogMessage) -> BucketEntry:
    """Returns the write of a manifest that an ``admit.object.…`` message reports. Raises
    CannotRebuild if the message cannot be read."""
    try:
        applied = _applied.decode(message.data)
        _, _, what, kind, namespace, name = message.subject.split(".")
    except (msgspec.MsgspecError, ValueError) as error:
        raise CannotRebuild(
            f"message {message.sequence} of the log holds no readable manifest: {error}"
        ) from None
    key = f"{kind}.{name}" if namespace == "_" else f"{kind}.{namespace}.{name}"
    return BucketEntry(key, None if what == "deleted" else bytes(applied.object), applied.revision)


def _oldest_revision(commit: Committed) -> int:
    """Returns the lowest revision that a commit wrote or adopted; 0: the commit wrote and adopted
    nothing."""
    return min([*commit.runs[::2], *(workload.revision for workload in commit.adopted)], default=0)


def _uid_in(key: str, batch: Iterable[LogMessage]) -> str:
    """Returns the uid of the workload ``key``, from the first fact about it in the batch that has a
    uid; "": no such fact."""
    tail = f".{key.removeprefix(WORKLOAD)}"
    about = (fact_of(message) for message in batch if message.subject.endswith(tail))
    return next((fact.uid for fact in about if fact is not None and fact.uid), "")


def _finished_placeholder(key: str, uid: str = "") -> StoredWorkload:
    """A placeholder for a finished workload: only names, uid and the condition Finished, no
    spec."""
    namespace, name = names_of(key)
    finished = Condition(type=Type.FINISHED, status="True", reason=reasons.SUCCEEDED)
    return StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid),
        status=WorkloadStatus(conditions=(finished,)),
    )
