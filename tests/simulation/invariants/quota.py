"""What is charged to the queues: regular workloads each for itself, a family as one.

For each flavor and resource, a family is charged the maximum over its variants, since only one of
them runs. Plainly, and sharing nothing with the scheduler's ledger. docs/spec/lifecycle.md#4.6.

A reservation that plans to preempt either goes on, and its victims go; or it gives up, and they
stay. What a workload gets must be within quota in every combination of these ends, so `worlds`
looks at each. Nothing is shared with `admittance.scheduling.state.held.shared_quota`.
docs/spec/lifecycle.md#2.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations
from typing import TYPE_CHECKING, Final

from admittance.events.subjects import workload_key
from admittance.workload.conditions import Type, find
from admittance.workload.phase import holds_quota
from admittance.workload.stored import PARENT, VARIANT, StoredWorkload, head, owner_of
from simulation.invariants.reference_quota import Usage, usage_of

if TYPE_CHECKING:
    from simulation.invariants.seen import Seen


Account = tuple[str, str]
"""ClusterQueue and the charged account: a regular workload's key, or a family's uid."""


class Accounts:
    """``usage``: by ClusterQueue."""

    def __init__(self) -> None:
        self.usage: dict[str, Usage] = {}
        self._held: dict[Account, dict[str, Usage]] = {}
        self._accounts: dict[str, Account] = {}

    def put(self, key: str, queue: str, owner: str, usage: Usage) -> Usage:
        """What the workload at that key holds from now on, nothing if ``usage`` is empty; ``owner``
        of those that are charged together is the same. The charge as it is where it has grown."""
        was, now = self._accounts.pop(key, None), (queue, owner)
        before = most(self._held.get(now, {}).values())
        if was is not None:
            self._set(was, key, {})
        if not usage:
            return {}
        self._accounts[key] = now
        self._set(now, key, usage)
        after = most(self._held[now].values())
        return {fr: much for fr, much in after.items() if much > before.get(fr, 0)}

    def without(self, gone: Iterable[str]) -> Mapping[str, Usage]:
        """The charged quota if the workloads at those keys held none."""
        gone = set(gone)
        left = {queue: dict(held) for queue, held in self.usage.items()}
        for account in {self._accounts[key] for key in gone if key in self._accounts}:
            held = self._held[account]
            rest = most(usage for key, usage in held.items() if key not in gone)
            mine = left[account[0]]
            for fr, much in most(held.values()).items():
                mine[fr] -= much - rest.get(fr, 0)
        return left

    def _set(self, account: Account, key: str, usage: Usage) -> None:
        held = self._held.setdefault(account, {})
        booked = self.usage.setdefault(account[0], {})
        for fr, much in most(held.values()).items():
            booked[fr] = booked.get(fr, 0) - much
        if usage:
            held[key] = usage
        else:
            held.pop(key, None)
        for fr, much in most(held.values()).items():
            booked[fr] = booked.get(fr, 0) + much
        if not held:
            del self._held[account]


def most(usages: Iterable[Usage]) -> Usage:
    """The element-wise maximum."""
    total: Usage = {}
    for usage in usages:
        for fr, much in usage.items():
            total[fr] = max(total.get(fr, 0), much)
    return total


MOST: Final = 4
"""With up to so many planners every combination is tried; with more, none, each planner alone, and
all."""


PLANS_MAX: Final = 12
"""With up to so many plans, `charged` looks at every way in which they end."""


class Replans:
    """The changes of plans that the scheduler published, and which of them were written."""

    def __init__(self) -> None:
        self._stated: dict[str, list[int]] = {}
        self._written: set[int] = set()

    def logged(self, key: str, sequence: int) -> None:
        """Records that the scheduler published another plan for the workload."""
        self._stated.setdefault(key, []).append(sequence)

    def stored(self, key: str, fact: int) -> None:
        """Records that a stored version of the workload contains the fact."""
        if fact in self._stated.get(key, ()):
            self._written.add(fact)

    def holds(self, key: str, before: int) -> bool:
        """Whether the workload's newest plan that was published before that fact was written."""
        stated = [revision for revision in self._stated.get(key, ()) if revision < before]
        return not stated or stated[-1] in self._written


def planners(seen: Mapping[str, Seen]) -> dict[str, list[str]]:
    """Keys of the workloads that plan to preempt, each with the keys of its victims that still hold
    quota."""
    holders = {
        key: member.workload for key, member in seen.items() if member.usage and member.workload
    }
    usages = {}
    for key, planner in holders.items():
        victims = [key_of(victim) for victim in outstanding(planner, holders)]
        if victims:
            usages[key] = victims
    return usages


def key_of(workload: StoredWorkload) -> str:
    """The key of the workload in the bucket."""
    return workload_key(workload.metadata.namespace, workload.metadata.name)


def outstanding(
    planner: StoredWorkload, holders: Mapping[str, StoredWorkload]
) -> Iterator[StoredWorkload]:
    """The planned victims that still hold the quota which they are to give up."""
    pending = planner.status.pending_preemption
    for planned in pending.victims if pending is not None else ():
        victim = holders.get(workload_key(planned.namespace, planned.name))
        if victim is None or victim.metadata.uid != planned.uid:
            continue
        reserved = find(victim, Type.QUOTA_RESERVED)
        if planned.since is None or (reserved and reserved.last_transition_time == planned.since):
            yield victim


def worlds(
    seen: Mapping[str, Seen], accounts: Accounts, about: str, replans: Replans
) -> Iterator[Mapping[str, Usage]]:
    """Yields every usage that is possible while the workload at the key ``about`` holds its quota.
    ``seen``: at least the workloads that hold some.

    A planner whose new plan was assumed and never written is left out: it blocks no workload, since
    the recheck lets it go on only where there is room for it.
    """
    plans = planners(seen)
    if not plans:
        yield accounts.usage
        return
    held = seen[about].workload
    assert held is not None
    sure = {key for key in plans if replans.holds(key, held.status.log.fact)}
    for going in _combinations(sorted(sure)):
        gone = {victim for key in going for victim in plans[key]}
        # A victim gives up its plan, and a planner that does not go on holds nothing.
        gone |= set(plans) - set(going)
        if about not in gone and not gone & set(going):
            yield accounts.without(gone)


def _combinations(keys: list[str]) -> Iterator[tuple[str, ...]]:
    if len(keys) > MOST:
        return chain([()], ((key,) for key in keys), [tuple(keys)])
    return chain.from_iterable(combinations(keys, size) for size in range(len(keys) + 1))


def charged(workloads: Iterable[StoredWorkload]) -> dict[str, Usage]:
    """What counts in each ClusterQueue: of each flavor and resource the most that may come to be
    held there, in any way in which the plans of preemption end (decision 64). Of a family that is
    the most that any of its variants holds, of a regular workload what it holds."""
    holders = {
        key_of(workload): workload
        for workload in workloads
        if head(workload).role != PARENT and holds_quota(workload)
    }
    plans = {
        key: {key_of(victim) for victim in victims}
        for key, holder in holders.items()
        if (victims := list(outstanding(holder, holders)))
    }
    assert len(plans) <= PLANS_MAX, "too many plans to look at each way in which they end"
    usages: dict[str, Usage] = {}
    for number in range(len(plans) + 1):
        for going in map(set, combinations(plans, number)):
            gone = set().union(*(plans[key] for key in going), plans.keys() - going)
            if not gone & going:
                for queue, usage in _held(holders[key] for key in holders.keys() - gone).items():
                    usages[queue] = most((usages.get(queue, {}), usage))
    return usages


def _held(holders: Iterable[StoredWorkload]) -> dict[str, Usage]:
    """What these workloads hold, by ClusterQueue."""
    usages: dict[str, Usage] = {}
    families: dict[str, list[StoredWorkload]] = {}
    for holder in holders:
        if head(holder).role == VARIANT:
            families.setdefault(owner_of(holder)[1], []).append(holder)
        else:
            _add(usages, _queue(holder), _usage(holder))
    for members in families.values():
        _add(usages, _queue(members[0]), most(map(_usage, members)))
    return usages


def _add(total: dict[str, Usage], queue: str, usage: Usage) -> None:
    mine = total.setdefault(queue, {})
    for cell, much in usage.items():
        mine[cell] = mine.get(cell, 0) + much


def _queue(workload: StoredWorkload) -> str:
    assert workload.status.admission is not None, "it holds quota"
    return workload.status.admission.cluster_queue


def _usage(workload: StoredWorkload) -> Usage:
    assert workload.status.admission is not None, "it holds quota"
    return usage_of(workload.status.admission)
