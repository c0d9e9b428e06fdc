"""What is charged to the queues: regular workloads each for itself, a family as one.

Of each flavor and resource a family is charged the most that any of its variants holds, since only
one of them ever runs. Plainly, and sharing nothing with the scheduler's ledger.
docs/spec/lifecycle.md#4.6.

A reservation that plans to preempt either goes on, and its victims go; or it gives up, and they
stay. What a workload gets must be within quota in every combination of these ends, so `worlds`
looks at each. Nothing is shared with `admittance.scheduling.state.shared_quota`.
docs/spec/lifecycle.md#2.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations
from typing import TYPE_CHECKING, Final

from admittance.events.subjects import workload_key
from admittance.workload.conditions import Type, find
from simulation.invariants.naive import Usage

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
        """What would be charged if the workloads at those keys held nothing."""
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
    found: Usage = {}
    for usage in usages:
        for fr, much in usage.items():
            found[fr] = max(found.get(fr, 0), much)
    return found


MOST: Final = 4
"""So many planners are combined in every way; of more, each alone, and all."""


class Replans:
    """Changes of plans that were stated, and which of them were written."""

    def __init__(self) -> None:
        self._stated: dict[str, list[int]] = {}
        self._written: set[int] = set()

    def logged(self, key: str, sequence: int) -> None:
        """Another plan was stated of the workload."""
        self._stated.setdefault(key, []).append(sequence)

    def stored(self, key: str, fact: int) -> None:
        """A version of the workload holds that fact."""
        if fact in self._stated.get(key, ()):
            self._written.add(fact)

    def holds(self, key: str, before: int) -> bool:
        """The newest plan of it that was stated before that fact has come to be."""
        stated = [one for one in self._stated.get(key, ()) if one < before]
        return not stated or stated[-1] in self._written


def planners(seen: Mapping[str, Seen]) -> dict[str, list[str]]:
    """Keys of those that plan to preempt, with those of their victims that are still there."""
    found = {}
    for key, one in seen.items():
        if not one.usage or one.workload is None:
            continue
        pending = one.workload.status.pending_preemption
        if pending is None:
            continue
        victims = []
        for victim in pending.victims:
            other = workload_key(victim.namespace, victim.name)
            about = seen.get(other)
            if about is None or about.workload is None or not about.usage or other == key:
                continue
            reserved = find(about.workload, Type.QUOTA_RESERVED)
            since = reserved.last_transition_time if reserved is not None else None
            if about.workload.metadata.uid == victim.uid and victim.since in (None, since):
                victims.append(other)
        if victims:
            found[key] = victims
    return found


def worlds(
    seen: Mapping[str, Seen], accounts: Accounts, about: str, replans: Replans
) -> Iterator[Mapping[str, Usage]]:
    """What may come to be used, as far as the workload at the key ``about`` holds its quota.

    Whose new plan was assumed and did not come to be is left out: it is in the way of nobody, since
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
        # Whoever is a victim gives up its plan, and a planner that does not go on holds nothing.
        gone |= set(plans) - set(going)
        if about not in gone and not gone & set(going):
            yield accounts.without(gone)


def _combinations(keys: list[str]) -> Iterator[tuple[str, ...]]:
    if len(keys) > MOST:
        return chain([()], ((key,) for key in keys), [tuple(keys)])
    return chain.from_iterable(combinations(keys, size) for size in range(len(keys) + 1))
