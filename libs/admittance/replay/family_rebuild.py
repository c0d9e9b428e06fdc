"""Rebuilds a family that a leader wrote before the leader crashed, without recording the commit.
The module is pure.

One commit may write several workloads of a family, so all facts about the family are folded. The
commits of the crashed leader are unknown, so facts are folded one by one. Facts that name a
revision show the revision of a write: a runner, for example, names the revision that admitted or
evicted its job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from admittance.control.commit import LogMessage, Put
from admittance.control.controller import Controller
from admittance.control.fold import fold
from admittance.control.submissions import claim_of
from admittance.control.workloads import VersionedWorkload
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import Undecodable, decode
from admittance.events.subjects import OBJECTS, workload_key
from admittance.events.system import Adopted
from admittance.workload.change import with_status


class RevisionRange(NamedTuple):
    """A workload was written an unknown number of times after revision ``after``, the last time at
    revision ``upto``."""

    after: int
    upto: int


def with_named_revision(
    known: VersionedWorkload, fact: Fact, span: RevisionRange
) -> VersionedWorkload:
    """The workload with the revision that a runner names, in place of a guessed one."""
    workload = known.workload
    if workload is None:
        return known
    match fact:
        case facts.Stopped(reason="RunnerEnded"):
            # The fact does not say that an eviction stopped the job.
            return known
        case facts.Stopped(revision=revision) if workload.status.evicted_revision != 0:
            field, present = "evicted_revision", workload.status.evicted_revision
        case facts.Started() | facts.PodsReady() | facts.PodsNotReady() | facts.Finished():
            revision = fact.revision
            field, present = "admitted_revision", workload.status.admitted_revision
        case _:
            return known
    # Only a revision inside the span is a guess, so a revision outside the span stays.
    if not span.after < revision <= span.upto or not span.after <= present <= span.upto:
        return known
    return known._replace(workload=with_status(workload, **{field: revision}))


def adopted_families(
    controller: Controller, adopted: Mapping[str, Adopted], messages: Iterable[LogMessage]
) -> dict[str, dict[str, Adopted]]:
    """The adopted workloads of each family, by the key of the parent. ``messages``: facts that the
    adopted workloads may contain, including submissions of variants that the controller does not
    know yet."""
    found: dict[str, dict[str, Adopted]] = {}
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
        family = found.setdefault(parent, {})
        family[key] = adopted[key]
        if parent in adopted:
            family[parent] = adopted[parent]
    return found


class FamilyRebuild:
    """Rebuilds one family. ``finished``: a function that returns a finished workload by key and
    uid."""

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
        """The last write of each workload that changed."""

    def fold(self, messages: Iterable[LogMessage]) -> None:
        """Folds the facts that the stored values of the family contain, in order."""
        last = max(one.fact for one in self._family.values())
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
            found = with_named_revision(known, fact, span)
            if found is not known:
                self._controller.workloads.keep(key, found)
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
        """Sets the revision of the last write of ``key``, if that write can have had this
        revision."""
        put, adopted = self.puts.get(key), self._family.get(key)
        if put is None or adopted is None:
            return
        if self._controller.workloads.get(key).revision < revision <= adopted.revision:
            self._keep(put, revision)


def fact_of(message: LogMessage) -> Fact | None:
    """The fact of a message; None: the message is not a fact."""
    try:
        return decode(message.subject, message.data)
    except Undecodable:
        return None


def _named(fact: Fact) -> Iterator[tuple[str, int]]:
    """The keys and revisions of the workloads that a decision names."""
    if isinstance(fact, facts.Decision):
        yield workload_key(fact.namespace, fact.name), fact.revision
    if isinstance(fact, facts.Assigned):
        others = (*fact.preempts, *((fact.migrates_from,) if fact.migrates_from else ()))
        for one in others:
            yield workload_key(one.namespace, one.name), one.revision
