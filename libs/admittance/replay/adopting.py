"""A family as a leader found it, moved by somebody who fell before telling of it. Pure.

What moved one of a family may have moved the others in the same commit, so none of them comes out
by the facts about it alone. In which commits it was is not known either: the facts are folded one
by one, and whoever names a revision tells which write was that; also later: a runner names the
write that admitted or evicted its job.
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
    """The workload was written in between, nobody knows how often: behind ``after``, last at
    ``upto``."""

    after: int
    upto: int


def restamped(known: VersionedWorkload, fact: Fact, span: Span) -> VersionedWorkload:
    """The workload with the revision that a runner names of it, where that was a guess."""
    workload = known.workload
    if workload is None:
        return known
    match fact:
        case facts.Stopped(reason="RunnerEnded"):
            return known  # of no eviction
        case facts.Stopped(revision=revision) if workload.status.evicted_revision != 0:
            field, present = "evicted_revision", workload.status.evicted_revision
        case facts.Started() | facts.PodsReady() | facts.PodsNotReady() | facts.Finished():
            revision = fact.revision
            field, present = "admitted_revision", workload.status.admitted_revision
        case _:
            return known
    # What was stamped before the span is no guess.
    if not span.after < revision <= span.upto or not span.after <= present <= span.upto:
        return known
    return known._replace(workload=with_status(workload, **{field: revision}))


def families(
    controller: Controller, adopted: Mapping[str, Adopted], heard: Iterable[LogMessage]
) -> dict[str, dict[str, Adopted]]:
    """The adopted workloads that are of families, by the key of each parent. ``heard``: what may be
    in them; of variants that nobody knows yet, their submissions are."""
    found: dict[str, dict[str, Adopted]] = {}
    whose = {}
    for key in adopted:
        ref = controller.workloads.family_of(key)
        if ref is not None:
            whose[key] = ref.parent
    for one in heard:
        fact = fact_of(one)
        claim = claim_of(fact) if isinstance(fact, facts.Submitted) else None
        if fact is not None and claim is not None:
            key = workload_key(fact.namespace, fact.name)
            if key in adopted:
                whose[key] = workload_key(fact.namespace, claim.owner[0])
    for key, parent in whose.items():
        family = found.setdefault(parent, {})
        family[key] = adopted[key]
        if parent in adopted:
            family[parent] = adopted[parent]
    return found


class Adoption:
    """Finds out what a family became. ``ended``: what is known of a workload that has ended, given
    a uid by which it may have been called."""

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
        """The last write of each that moved."""

    def fold(self, heard: Iterable[LogMessage]) -> None:
        """Takes in what is in the family, in order."""
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
    """The fact of a message; None: it is none."""
    try:
        return decode(heard.subject, heard.data)
    except Undecodable:
        return None


def _named(fact: Fact) -> Iterator[tuple[str, int]]:
    """The workloads that a decision speaks of, as of a revision."""
    if isinstance(fact, facts.Decision):
        yield workload_key(fact.namespace, fact.name), fact.revision
    if isinstance(fact, facts.Assigned):
        others = (*fact.preempts, *((fact.migrates_from,) if fact.migrates_from else ()))
        for one in others:
            yield workload_key(one.namespace, one.name), one.revision
