"""`DependentActs` keeps the workloads that wait for others, and returns the acts that say which
dependencies are met. The module is pure. docs/spec/arrays.md#5."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from admittance.acts import Act, ParentActs, SentActs
from admittance.api.dependencies import DEPENDENCIES_GATE
from admittance.api.workload import NO_RESULT, SUCCEEDED, DependencyRow, gate_names
from admittance.arrays.known_arrays import places_of_indexes
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.events.subjects import WorkloadName, workload_name
from admittance.phases import Phase
from admittance.workload.arrays.elements import indexes_of
from admittance.workload.conditions import Type, find_true, gated_by, is_true, unmet
from admittance.workload.stored import StoredWorkload, head


class Target(NamedTuple):
    """A workload that others wait for. ``result``: None while it has not finished, else whether it
    succeeded. ``indexes``, ``results``: of an array, its indexes and their letters."""

    uid: str
    revision: int
    started: bool
    result: bool | None
    indexes: tuple[int, ...] = ()
    results: str = ""


class Dependent(NamedTuple):
    """A workload whose gate of dependencies is closed. ``noted``: why one of them can never be met,
    as the workload has it; "": it has nothing. ``active``: whether it is active."""

    uid: str
    revision: int
    rows: tuple[DependencyRow, ...]
    noted: str
    active: bool


class Verdict(Enum):
    """What became of a dependency."""

    WAITS = "waits"
    MET = "met"
    NEVER = "never"


def target_of(stored: StoredWorkload, revision: int) -> Target:
    """Returns what is kept of a workload that others wait for."""
    finished = find_true(stored, Type.FINISHED)
    result = None if finished is None else finished.reason == reasons.SUCCEEDED
    started = is_true(stored, Type.ADMITTED) or stored.status.started_at is not None
    uid = stored.metadata.uid
    counts = stored.status.array
    if counts is None:
        return Target(uid, revision, started, result)
    runs = any(counts.states.get(phase) for phase in (Phase.ADMITTED, Phase.RUNNING))
    started = runs or any(letter in "sf" for letter in counts.results)
    return Target(uid, revision, started, result, indexes_of(stored), counts.results)


def dependent_of(stored: StoredWorkload, revision: int) -> Dependent | None:
    """Returns what is kept of a workload that waits for others; None: it does not wait."""
    rows = stored.status.dependencies
    if not rows or DEPENDENCIES_GATE not in gate_names(gated_by(stored)):
        return None
    if is_true(stored, Type.FINISHED) or stored.metadata.deletion_timestamp is not None:
        return None
    return Dependent(
        uid=stored.metadata.uid,
        revision=revision,
        rows=rows,
        noted=unmet(stored),
        active=head(stored).active,
    )


def judge(row: DependencyRow, target: Target | None) -> tuple[Verdict, str]:
    """What became of a dependency, and why it can never be met. ``target`` None: no workload has
    the name."""
    name = row.workload
    if target is None or target.uid != row.uid:
        return Verdict.NEVER, f"{name} was deleted"
    succeeded = target.result
    if row.index is not None:
        name = f"{name}[{row.index}]"
        place = places_of_indexes(target.indexes)[row.index]
        letter = target.results[place]
        succeeded = None if letter == NO_RESULT else letter == SUCCEEDED
        if succeeded is None and target.result is not None:
            succeeded = False  # The array has ended, and the element with it.
    match row.condition:
        case "started":
            if target.started:
                return Verdict.MET, ""
            said = f"{name} ended before it started"
            return (Verdict.WAITS, "") if succeeded is None else (Verdict.NEVER, said)
        case "any" if succeeded is not None:
            return Verdict.MET, ""
        case "ok" | "failed" if succeeded is not None:
            if succeeded is (row.condition == "ok"):
                return Verdict.MET, ""
            return Verdict.NEVER, f"{name} {'succeeded' if succeeded else 'failed'}"
    return Verdict.WAITS, ""


class DependentActs(ParentActs):
    """All workloads that wait for others, and the acts about them. A target in `unknown` is not
    judged.

    Only workloads that are waited for are kept as targets. A target that was not decoded when it
    was read is in `unknown`, until `apply_target` gives it."""

    def __init__(self) -> None:
        super().__init__(SentActs(facts.ElementsCounted))
        self._dependents: dict[WorkloadName, Dependent] = {}
        self._by_target: dict[WorkloadName, set[WorkloadName]] = {}
        self._targets: dict[WorkloadName, Target | None] = {}
        self.unknown: dict[WorkloadName, None] = {}

    # What changes. ------------------------------------------------------------------

    def wants(self, key: str) -> bool:
        """Whether a workload waits for the workload with the key ``key``."""
        return bool(self._by_target) and workload_name(key) in self._by_target

    def apply(self, key: str, stored: StoredWorkload | None, revision: int, now: datetime) -> None:
        """Records the stored workload with the key ``key``; None: the workload was deleted."""
        name = workload_name(key)
        after = None if stored is None else dependent_of(stored, revision)
        self._put_dependent(name, after)
        if stored is not None:
            self._sent.through(stored.status.log.fact, now)
        if name in self._by_target:
            self.apply_target(name, stored, revision)

    def ordinary(self, key: str) -> None:
        """Records that the workload with the key ``key`` waits for no other, and no workload waits
        for it."""
        if self._dependents:
            self._put_dependent(workload_name(key), None)

    def apply_target(
        self, name: WorkloadName, stored: StoredWorkload | None, revision: int
    ) -> None:
        """Records a workload that others wait for; None: it does not exist."""
        self.unknown.pop(name, None)
        if name not in self._by_target:
            return
        known = self._targets.get(name)
        if stored is not None and known is not None and known.revision > revision:
            return  # It was read directly, and the watch is behind.
        self._targets[name] = target_of(stored, revision) if stored is not None else None
        self._changed.update(dict.fromkeys(self._by_target[name]))

    def _put_dependent(self, name: WorkloadName, after: Dependent | None) -> None:
        before = self._dependents.pop(name, None)
        if before is None and after is None:
            return
        old = set() if before is None else set(_targets(name, before))
        new = set() if after is None else set(_targets(name, after))
        for target in old - new:
            self._by_target[target].discard(name)
            if not self._by_target[target]:
                del self._by_target[target]
                self._targets.pop(target, None)
                self.unknown.pop(target, None)
        for target in new - old:
            if target not in self._by_target:
                self._by_target[target] = set()
                self.unknown[target] = None
            self._by_target[target].add(name)
        if after is None:
            self._forget_acts(name)
            return
        self._dependents[name] = after
        self._changed[name] = None

    # Acts. --------------------------------------------------------------------------

    def parent_of(self, fact: Fact) -> WorkloadName:
        """The workload that a fact is about."""
        return WorkloadName(fact.namespace, fact.name)

    def _acts_of(self, parent: WorkloadName, now: datetime) -> list[Act]:
        dependent = self._dependents.get(parent)
        if dependent is None:
            return []
        required = list(self._required(parent, dependent))
        due_acts, again = self._sent.to_publish(parent, required, now)
        self._times.set(parent, again)
        return due_acts

    def _required(self, name: WorkloadName, dependent: Dependent) -> Iterator[Act]:
        met: list[int] = []
        never = ""
        for place, row in enumerate(dependent.rows):
            if row.since is not None or row.elementwise:
                continue
            target = _target(name, row)
            if target in self.unknown:
                continue
            verdict, why = judge(row, self._targets.get(target))
            if verdict is Verdict.MET:
                met.append(place)
            elif verdict is Verdict.NEVER:
                never = never or why
        if not met and (not dependent.active or never == dependent.noted):
            never = ""  # The workload has it already.
        if met or never:
            fact = facts.DependenciesJudged(
                namespace=name.namespace,
                name=name.name,
                uid=dependent.uid,
                met=tuple(met),
                never=never,
            )
            yield Act(fact, "dependencies", (tuple(met), never), dependent.revision)

    def __len__(self) -> int:
        return len(self._dependents)


def _target(name: WorkloadName, row: DependencyRow) -> WorkloadName:
    return WorkloadName(name.namespace, row.workload)


def _targets(name: WorkloadName, dependent: Dependent) -> Iterator[WorkloadName]:
    for row in dependent.rows:
        if row.since is None and not row.elementwise:
            yield _target(name, row)
