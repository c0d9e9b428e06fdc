"""One sibling preempts at a time, the better one first. docs/spec/lifecycle.md#4.8.

Computed from stored workloads only: preemptors of evictions, held quota, open gates.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.api.workload import FAMILY_GATE
from admittance.events.base import Fact
from admittance.events.facts import Assigned, Refused
from admittance.events.subjects import workload_key
from admittance.family import PREEMPTION_TIMEOUT, rules_of
from admittance.workload.conditions import Type, find, is_false, is_true
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants.seen import Manifests
from simulation.invariants.siblings import VARIANT, Families
from simulation.transcript import Broken

if TYPE_CHECKING:
    from simulation.invariants.seen import Seen


GATED: Final = "AdmissionGated"


class _Suspect(NamedTuple):
    """By ``fact`` the workload at ``key`` got quota, while a better one was blocked ``since``."""

    key: str
    better: str
    since: int
    fact: int


class Exclusive:
    """Checks that only one sibling of a family preempts at a time, from the preemptors named by
    evictions."""

    def __init__(self, seen: dict[str, Seen], families: Families, around: Manifests) -> None:
        self._seen = seen
        self._around = around
        self._families = families
        self._victims: dict[str, set[str]] = {}
        """Key of a variant to the workloads that were evicted for its present attempt."""
        self._blocked: dict[str, int] = {}
        """Key of a variant that its gate blocks, to the fact since which the gate blocks it."""
        self._ended: dict[str, tuple[int, int]] = {}
        """Key of a variant that its gate no longer blocks, to the first and the last fact of the
        time in which the gate blocked it."""
        self._suspects: list[_Suspect] = []
        self._sure: list[_Suspect] = []
        """Suspects of which all earlier decisions are written, so that their order is known."""
        self._judged: dict[str, list[int]] = {}
        """Key of a workload to the sequences of its decisions, without refusals because of its
        gate."""
        self._opened: dict[str, datetime] = {}
        self._closed: dict[str, int] = {}
        """Key of a variant to the revision at which its gate was found closed."""
        self._last_open: dict[str, int] = {}
        """Uid of a parent to the revision at which one of its variants lost its open gate."""
        self._chosen: dict[str, tuple[int, int]] = {}
        """Key of a workload to its newest assignment, and the revision its scheduler had seen."""

    def saw(self, key: str, before: Seen, after: Seen, now: datetime) -> None:
        """Checks a new version of any workload; ``now``: the time without clock skew."""
        new = after.workload
        if new is not None and new.status.preempted_by is not None:
            old = before.workload
            by = new.status.preempted_by
            if old is None or old.status.preempted_by != by:
                self._taken(key, after, by.by, by.by_uid, now)
        if after.role != VARIANT and before.role != VARIANT:
            return
        if new is None or not head(new).active or (before.usage and not after.usage):
            self._victims.pop(key, None)
        if key in self._opened and (new is None or not is_open(new)):
            self._last_open[before.family] = after.revision
        if new is None:
            self._blocked.pop(key, None)
            self._opened.pop(key, None)
            self._closed.pop(key, None)
            return
        if is_blocked(new):
            self._blocked.setdefault(key, new.status.log.fact)
        elif key in self._blocked:
            self._ended[key] = self._blocked.pop(key), new.status.log.fact
        if is_open(new):
            self._opened.setdefault(key, now)
            self._closed.pop(key, None)
        else:
            self._opened.pop(key, None)
            self._closed.setdefault(key, after.revision)
        if _gets(before, after):
            for wrong in self._passed_over(key, before, after):
                raise Broken(f"{key} gets quota, and {wrong}")
            if new.status.pending_preemption is not None and not is_open(new):
                raise Broken(f"{key} plans to preempt, and its gate is closed (4.8)")

    def decided(self, key: str, decision: Fact, sequence: int) -> None:
        """Records a decision that a scheduler has published."""
        if isinstance(decision, Refused) and decision.refusal.reason == GATED:
            return
        self._judged.setdefault(key, []).append(sequence)
        if isinstance(decision, Assigned):
            self._chosen[key] = sequence, decision.seen
            if decision.preempts or decision.pending_preemption:
                self._has_waited(key)
        self._sure = [claim for claim in self._sure if claim.better != key]

    def acknowledged(self, through: int) -> None:
        """The workload-controller has written the effects of all facts up to this sequence."""
        for suspect in self._suspects:
            if suspect.fact <= through:
                since, until = self._ended.get(suspect.better, (0, 0))
                # What was decided for the better one before may be written after it, or be void.
                judged = self._judged.get(suspect.better, ())
                first = any(suspect.since < sequence < suspect.fact for sequence in judged)
                if not first and (since != suspect.since or until > suspect.fact):
                    self._sure.append(suspect)
        self._suspects = [suspect for suspect in self._suspects if suspect.fact > through]

    def _has_waited(self, key: str) -> None:
        """Called when workloads are evicted for the variant at ``key``: raises Broken if a worse
        sibling got quota first. The scheduler may have found no room for the better sibling without
        publishing it."""
        for claim in self._sure:
            if claim.better == key:
                raise Broken(f"{claim.key} got quota, and the better {key} had no chance")

    def _taken(self, victim: str, seen: Seen, by: str, by_uid: str, now: datetime) -> None:
        """Checks an eviction: the workload lost its quota to ``by``."""
        namespace, _, name = by.partition("/")
        key = workload_key(namespace, name)
        preemptor = self._seen.get(key)
        if preemptor is None or preemptor.role != VARIANT or preemptor.workload is None:
            return
        if preemptor.workload.metadata.uid != by_uid:
            return
        if seen.family == preemptor.family:
            raise Broken(f"{victim} was preempted by its sibling {by} (4.6)")
        if self._closed.get(key, _decided(seen, by_uid) + 1) <= _decided(seen, by_uid):
            raise Broken(f"{victim} is preempted for {by}, which has a closed gate (4.8)")
        for other in self._families.members(preemptor.family):
            if other != key and self._holds(other, now):
                raise Broken(f"{victim} goes for {by}, and others have gone for {other} (4.8)")
        self._has_waited(key)
        self._victims.setdefault(key, set()).add(victim)

    def _holds(self, key: str, now: datetime) -> bool:
        """Whether workloads were evicted for the variant and its attempt to preempt is not over."""
        member = self._seen[key]
        if not self._victims.get(key) or member.workload is None or member.where == "finished":
            return False
        if is_true(member.workload, Type.EVICTED) or is_true(member.workload, Type.ADMITTED):
            return False
        since = self._opened.get(key)
        in_time = since is not None and now < since + PREEMPTION_TIMEOUT
        return bool(member.usage) or (in_time and bool(list(self._stopping(key))))

    def _stopping(self, key: str) -> Iterator[str]:
        """The workloads that were evicted for the variant and still hold their quota."""
        for victim in sorted(self._victims.get(key, ())):
            member = self._seen.get(victim)
            if member is None or member.workload is None or not member.usage:
                continue
            by = member.workload.status.preempted_by
            if by is not None and workload_key(*by.by.split("/", 1)) == key:
                yield victim

    def _passed_over(self, key: str, before: Seen, after: Seen) -> Iterator[str]:
        """Yields why a better sibling should have got quota first, while no sibling is admitted. A
        variant that gets what it was promised was chosen when it was promised."""
        chosen_before = before.workload is not None and before.workload.status.promised is not None
        assert after.workload is not None
        members = self._families.members(after.family)
        alive = {
            name: member.workload for name, member in members.items() if member.workload is not None
        }
        if any(is_true(variant, Type.ADMITTED) for name, variant in alive.items() if name != key):
            return
        mine = head(after.workload).sibling_index or 0
        fact = after.workload.status.log.fact
        any_open = any(is_open(variant) for variant in alive.values()) or self._was_open(key, after)
        for name, variant in alive.items():
            if name == key or (head(variant).sibling_index or 0) >= mine or not competes(variant):
                continue
            if not self._is_offered(variant):
                continue
            since = self._blocked.get(name)
            waits = since is not None and since < fact and not is_open(variant) and not any_open
            if since is not None and waits and not chosen_before:
                self._suspects.append(_Suspect(key, name, since, fact))
            if is_open(variant) and not members[name].usage and list(self._stopping(name)):
                yield f"{name} is better and its victims have not stopped (4.8)"

    def _was_open(self, key: str, after: Seen) -> bool:
        """Whether a sibling had an open gate in the state from which the scheduler assigned the
        variant."""
        assert after.workload is not None
        sequence, seen = self._chosen.get(key, (0, 0))
        lost = self._last_open.get(after.family, 0)
        return sequence == after.workload.status.log.fact and lost > seen

    def _is_offered(self, variant: StoredWorkload) -> bool:
        """Whether the variant's queue still has a variant of that name."""
        where = variant.metadata.namespace, head(variant).queue_name
        local = self._around.locals.get(where)
        queue = self._around.queues.get(local.spec.cluster_queue) if local is not None else None
        rules = rules_of(queue.spec) if queue is not None else None
        return rules is not None and rules.tag(head(variant).variant) is not None


def _decided(victim: Seen, by_uid: str) -> int:
    """The newest revision in the scheduler's state when it decided to preempt the victim."""
    assert victim.workload is not None
    rows = victim.workload.status.preemptions
    return max((row.seen for row in rows if row.by_uid == by_uid), default=0)


def _gets(before: Seen, after: Seen) -> bool:
    """Whether the write gives the workload quota or planned quota."""
    if after.usage and not before.usage:
        return True
    now = after.workload.status.promised if after.workload is not None else None
    was = before.workload.status.promised if before.workload is not None else None
    return now is not None and was is None


def is_blocked(variant: StoredWorkload) -> bool:
    """Whether the variant waits because its gate is closed and the variant would have to
    preempt."""
    reserved = find(variant, Type.QUOTA_RESERVED)
    waits = reserved is not None and reserved.reason == GATED
    return waits and is_true(variant, Type.BLOCKED_ON_PREEMPTION_GATES)


def is_open(variant: StoredWorkload) -> bool:
    """Whether the variant's preemption gate is open."""
    return any(
        row.name == FAMILY_GATE and row.position == "Open"
        for row in variant.status.preemption_gates
    )


def competes(variant: StoredWorkload) -> bool:
    """Whether it may be tried, by its own status."""
    return (
        head(variant).active
        and not is_true(variant, Type.FINISHED)
        and not is_false(variant, Type.REQUEUED)
        and not variant.status.stopped_by
        and variant.metadata.deletion_timestamp is None
    )


__all__ = ["Exclusive"]
