"""Rebuilds a family that was written by a leader which crashed before it recorded the commit. Pure.

One commit may write several workloads of a family, so the facts about one of them are not enough
to rebuild it. The commits are not known either: the facts are folded one by one. A fact that names
a revision shows which write that was, also later: a runner names the revision that admitted or
evicted its job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from admittance.control.commit import LogMessage, Put
from admittance.control.decide import Controller
from admittance.control.known import VersionedWorkload
from admittance.control.variants import claim_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.checkpoints import Adopted
from admittance.events.codec import Undecodable, decode
from admittance.events.subjects import workload_key
from admittance.replay.pieces import OBJECTS
from admittance.workload.change import with_status


class Span(NamedTuple):
    """Revisions in which a workload was written an unknown number of times: after ``after``, the
    last time at ``upto``."""

    after: int
    upto: int


def restamped(known: VersionedWorkload, fact: Fact, span: Span) -> VersionedWorkload:
    """The workload with the revision named by a runner, in place of a guessed one."""
    workload = known.workload
    if workload is None:
        return known
    match fact:
        case facts.Stopped(reason="RunnerEnded"):
            return known  # not an answer to an eviction
        case facts.Stopped(revision=revision) if workload.status.evicted_revision != 0:
            field, present = "evicted_revision", workload.status.evicted_revision
        case facts.Started() | facts.PodsReady() | facts.PodsNotReady() | facts.Finished():
            revision = fact.revision
            field, present = "admitted_revision", workload.status.admitted_revision
        case _:
            return known
    # A revision before the span is not a guess.
    if not span.after < revision <= span.upto or not span.after <= present <= span.upto:
        return known
    return known._replace(workload=with_status(workload, **{field: revision}))


def families(
    controller: Controller, adopted: Mapping[str, Adopted], heard: Iterable[LogMessage]
) -> dict[str, dict[str, Adopted]]:
    """The adopted workloads of families, by the key of the parent. ``heard``: facts that they may
    contain, with the submissions of variants that the controller does not know yet."""
    found: dict[str, dict[str, Adopted]] = {}
    parents = {}
    for key in adopted:
        ref = controller.workloads.family_of(key)
        if ref is not None:
            parents[key] = ref.parent
    for one in heard:
        fact = fact_of(one)
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


class Adoption:
    """Rebuilds one family. ``ended``: returns what is known of a workload that has ended, by key
    and uid."""

    def __init__(
        self,
        controller: Controller,
        family: Mapping[str, Adopted],
        ended: Callable[[str, str], VersionedWorkload],
    ) -> None:
        self._controller = controller
        self._family = family
        self._ended = ended
        self._since = {key: controller.workloads.get(key).revision for key in family}
        self.puts: dict[str, Put] = {}
        """The last write of each changed workload."""

    def fold(self, heard: Iterable[LogMessage]) -> None:
        """Folds the facts that the family contains, in order."""
        last = max(one.fact for one in self._family.values())
        for one in heard:
            if one.sequence > last:
                return
            if one.subject.startswith(OBJECTS):
                self._take(one)
                continue
            fact = fact_of(one)
            if fact is None:
                continue
            adopted = self._family.get(workload_key(fact.namespace, fact.name))
            if adopted is None or one.sequence > adopted.fact:
                continue
            for key, revision in _named(fact):
                self._was_written(key, revision)
            key = workload_key(fact.namespace, fact.name)
            known = self._controller.workloads.get(key)
            told = restamped(known, fact, Span(self._since[key], adopted.revision))
            if told is not known:
                self._controller.workloads.keep(key, told)
            self._take(one, fact.uid)

    def _take(self, heard: LogMessage, uid: str = "") -> None:
        rest = [heard]
        while rest:
            for key in self._controller.missing(rest):
                self._controller.workloads.load(key, self._past(key, uid))
            made = self._controller.fold(rest, heard.time)
            for put in made.puts:
                if put.key in self._family:
                    self._keep(put, self._controller.workloads.get(put.key).revision)
            if len(made.rest) >= len(rest):
                return
            rest = made.rest

    def _past(self, key: str, uid: str) -> VersionedWorkload:
        put = self.puts.get(key)
        return (
            self._ended(key, uid)
            if put is None
            else VersionedWorkload(put.workload, 0, put.fact, put.trace)
        )

    def _keep(self, put: Put, revision: int) -> None:
        self.puts[put.key] = put
        known = VersionedWorkload(put.workload, revision, put.fact, put.trace)
        self._controller.workloads.keep(put.key, known)
        self._controller.said(put.key)

    def _was_written(self, key: str, revision: int) -> None:
        put, adopted = self.puts.get(key), self._family.get(key)
        if put is None or adopted is None:
            return
        if self._controller.workloads.get(key).revision < revision <= adopted.revision:
            self._keep(put, revision)


def fact_of(heard: LogMessage) -> Fact | None:
    """The fact of a message; None: not a fact."""
    try:
        return decode(heard.subject, heard.data)
    except Undecodable:
        return None


def _named(fact: Fact) -> Iterator[tuple[str, int]]:
    """The workloads that a decision names, with their revisions."""
    if isinstance(fact, facts.Decision):
        yield workload_key(fact.namespace, fact.name), fact.revision
    if isinstance(fact, facts.Assigned):
        others = (*fact.preempts, *((fact.migrates_from,) if fact.migrates_from else ()))
        for one in others:
            yield workload_key(one.namespace, one.name), one.revision
