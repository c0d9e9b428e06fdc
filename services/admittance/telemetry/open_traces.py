"""Keeps the traces of sampled workloads that have not ended, in bounded memory.

The log is the store: the trace of a workload that is not in memory, because the workload began
before this process or was forgotten, is rebuilt from the workload's history when its next fact
comes. The spans that ended in this history were exported before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import Final, TypeAlias, TypeVar

import msgspec

from admittance.events.names import BadToken
from admittance.events.reader import BROKEN
from admittance.events.span_ids import trace_id_of
from admittance.events.subjects import USER_FACTS, WorkloadName, address_of
from admittance.traces.builder import TraceBuilder, parent_of
from admittance.traces.spans import LoggedFact, Span

KEPT_MAX: Final = 10_000
"""The most workloads with traces in memory; a family of workloads counts as one."""
OVER_MAX: Final = 100_000
"""The most workloads that the process remembers as ended, or as not sampled."""

T = TypeVar("T")
Sampled: TypeAlias = Callable[[str, str], bool]
"""A function that says whether a trace is exported. Its arguments: the trace id, and the id of the
sampled span of the program that submitted the workload ("" if there is none)."""
History: TypeAlias = Callable[[WorkloadName, Iterable[str]], Awaitable[list[LoggedFact]]]
"""A function that returns, in the order of the log, all facts about a workload, about the stored
workloads of its family, and about other workloads of the namespace that the caller names."""

PERSONS: Final = frozenset(
    {"activated", "deactivated", "held", "released", "reprioritized", "deleted"}
)
"""The facts about workloads that commands publish, where the server demands no credentials."""
ENDS: Final = frozenset({"deleted", "finished"})
"""The facts, among those that persons may publish, after which no service may publish anything
about the workload."""


class _About(msgspec.Struct):
    uid: str = ""
    revision: int = 0


_about: Final = msgspec.json.Decoder(_About)


class OpenTraces:
    """Makes spans from the facts of the log, which must come in order. ``history`` reads the
    earlier facts about a workload from the log again."""

    def __init__(self, sampled: Sampled, history: History, *, kept_max: int = KEPT_MAX) -> None:
        self._sampled = sampled
        self._history = history
        self._kept_max = kept_max
        self._builder = TraceBuilder(self._keep)
        self._used: dict[WorkloadName, None] = {}
        """The workloads in memory, except variants. The workload with the oldest last fact comes
        first."""
        self._parents: dict[WorkloadName, WorkloadName] = {}
        """The parent of each variant in memory."""
        self._variants: dict[WorkloadName, set[str]] = {}
        """The names of the variants of each parent in memory."""
        self._over: dict[WorkloadName, None] = {}
        self._forgotten: dict[WorkloadName, int] = {}
        """For each workload that was forgotten: the sequence of the last fact that this process had
        read at that moment."""
        self._first = 0
        """The sequence of the first fact that this process has read."""

    def __len__(self) -> int:
        return len(self._used)

    async def read(self, logged: LoggedFact) -> list[Span]:
        """Reads the next fact of the log. Returns the spans that end with this fact."""
        self._first = self._first or logged.sequence
        name = _workload(logged.subject)
        if name is None:
            return []
        spans: list[Span] = []
        if name not in self._builder:
            if not self._may_be_sampled(name, logged):
                return []
            spans = await self._restore(name, logged)
        spans += self._builder.feed(logged)
        if _submits(logged):
            self._register(logged)
        self._note(name, logged.sequence)
        return spans

    # Sampling. --------------------------------------------------------------------------

    def _keep(self, root: Span) -> bool:
        return self._sampled(root.trace_id, root.parent_id if root.remote else "")

    def _may_be_sampled(self, name: WorkloadName, logged: LoggedFact) -> bool:
        """Whether the workload, which is not in memory, can have a sampled trace. Facts of services
        carry the trace of their workload; facts of persons begin a trace of their own, and matter
        only if no service publishes a fact about the workload after them.
        """
        submits = _submits(logged)
        if name in self._over and not submits:
            return False
        about = _About() if submits else _about_of(logged)
        matters = submits or _verb(logged.subject) in ENDS
        if not submits and _is_of_person(logged, about):
            return matters
        context = logged.traceparent
        if context:
            parent = context[36:52] if int(context[-1], 16) & 1 else ""
            sampled = self._sampled(context[3:35], parent)
        elif about.uid:
            sampled = self._sampled(trace_id_of(about.uid), "")
        else:
            return matters
        if not sampled:
            self._note_over(name)
        return sampled

    # Memory. ----------------------------------------------------------------------------

    async def _restore(self, name: WorkloadName, logged: LoggedFact) -> list[Span]:
        """Rebuilds the trace of the workload, or of its family, from the facts before ``logged``.
        Returns the spans that end with earlier facts which this process had read without knowing
        that the workload is sampled.
        """
        before: list[LoggedFact] = []
        if _submits(logged):
            self._over.pop(name, None)
            parent = parent_of(logged)
            owner = WorkloadName(name.namespace, parent)
            if not parent or owner in self._builder or owner in self._over:
                return []
        else:
            before = await self._before(logged, name, name.name)
            parent = next((parent_of(fact) for fact in reversed(before) if _is_of(fact, name)), "")
            owner = WorkloadName(name.namespace, parent)
        known = self._variants.get(owner, set())
        if parent and not {parent, *known} <= {_name_in(fact) for fact in before}:
            # The bucket no longer has the family, so the history lacks it. The variants in memory
            # are rebuilt, too.
            before = await self._before(logged, owner, name.name, *known)
        builder = TraceBuilder(self._keep)
        spans: list[Span] = []
        for fact in before:
            ended = builder.feed(fact)
            if ended and fact.sequence >= self._unread_since(fact):
                spans += ended
        self._builder.take_over(builder)
        for fact in before:
            if _submits(fact):
                self._register(fact)
        return spans

    def _unread_since(self, logged: LoggedFact) -> float:
        """The sequence of the first fact about the workload that this process read without making a
        span; infinite if the workload is in memory."""
        name = _workload(logged.subject)
        if name is None or name in self._builder:
            return inf
        return self._forgotten.get(name, self._first - 1) + 1

    async def _before(
        self, logged: LoggedFact, workload: WorkloadName, *also: str
    ) -> list[LoggedFact]:
        facts = await self._history(workload, also)
        return [fact for fact in facts if fact.sequence < logged.sequence]

    def _register(self, logged: LoggedFact) -> None:
        name = _workload(logged.subject)
        parent = parent_of(logged)
        if name is None or not parent or name not in self._builder:
            return
        owner = WorkloadName(name.namespace, parent)
        self._parents[name] = owner
        self._variants.setdefault(owner, set()).add(name.name)
        self._used.setdefault(owner)

    def _note(self, name: WorkloadName, sequence: int) -> None:
        """Notes that the workload has had a fact, and forgets the workload with the oldest last
        fact if there are too many in memory."""
        first = self._parents.get(name, name)
        self._used.pop(first, None)
        if first in self._builder:
            self._used[first] = None
        else:
            for variant in self._variants.get(first, ()):
                self._note_over(WorkloadName(first.namespace, variant))
            self._remove(first)
        if name not in self._builder:
            self._note_over(name)
        if len(self._used) > self._kept_max:
            oldest = next(iter(self._used))
            self._builder.forget(*oldest)
            for one in (oldest.name, *self._variants.get(oldest, ())):
                _remember(self._forgotten, WorkloadName(oldest.namespace, one), sequence)
            self._remove(oldest)

    def _note_over(self, name: WorkloadName) -> None:
        _remember(self._over, name, None)

    def _remove(self, first: WorkloadName) -> None:
        self._used.pop(first, None)
        for variant in self._variants.pop(first, ()):
            self._parents.pop(WorkloadName(first.namespace, variant), None)


def _remember(remembered: dict[WorkloadName, T], name: WorkloadName, value: T) -> None:
    remembered[name] = value
    if len(remembered) > OVER_MAX:
        del remembered[next(iter(remembered))]


def _workload(subject: str) -> WorkloadName | None:
    try:
        address = address_of(subject)
    except BadToken:
        return None
    return WorkloadName(address.namespace, address.name)


def _name_in(logged: LoggedFact) -> str:
    workload = _workload(logged.subject)
    return workload.name if workload is not None else ""


def _is_of(logged: LoggedFact, name: WorkloadName) -> bool:
    """Whether the fact is a submission of the workload."""
    return _submits(logged) and _workload(logged.subject) == name


def _verb(subject: str) -> str:
    """The word in the fact's subject that says what happened to the workload, such as
    ``admitted``."""
    return subject.split(".", 4)[3 if subject.startswith(USER_FACTS) else 2]


def _about_of(logged: LoggedFact) -> _About:
    try:
        return _about.decode(logged.data)
    except BROKEN:
        return _About()


def _is_of_person(logged: LoggedFact, about: _About) -> bool:
    """Whether a person may have published the fact."""
    if logged.subject.startswith("admit.workload."):
        verb = _verb(logged.subject)
        # A runner's fact ``finished`` names the admission by its revision; a person's fact has no
        # revision.
        return verb in PERSONS or (verb == "finished" and not about.revision)
    return logged.subject.startswith(USER_FACTS)


def _submits(logged: LoggedFact) -> bool:
    about_workload = logged.subject.startswith(("admit.workload.", USER_FACTS))
    return about_workload and _verb(logged.subject) == "submitted"
