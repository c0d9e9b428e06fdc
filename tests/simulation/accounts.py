"""What is charged to the queues: regular workloads each for itself, a family as one.

Of each flavor and resource a family is charged the most that any of its variants holds, since only
one of them ever runs. Plainly, and sharing nothing with the scheduler's ledger.
docs/spec/lifecycle.md#4.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simulation.naive import Usage

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


__all__ = ["Accounts", "most"]
