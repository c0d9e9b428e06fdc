"""Workloads that lack room, in groups with equal needs.

When a machine gains room, the first workload of a group shows for all of them whether there is
enough: so the work grows with the number of different needs, and not with the number of workloads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from datetime import datetime

Order = tuple[int, datetime, str]
"""The place of a workload among those that wait; the last part is its key."""


class WaitingGroups:
    """Each workload is in one group at most, in its order."""

    def __init__(self) -> None:
        self._groups: dict[object, list[Order]] = {}
        self._of: dict[str, tuple[object, Order]] = {}

    def put(self, order: Order, needs: object) -> None:
        """Puts a workload into the group of its needs."""
        key = order[2]
        if self._of.get(key) == (needs, order):
            return
        self.remove(key)
        self._of[key] = needs, order
        insort(self._groups.setdefault(needs, []), order)

    def remove(self, key: str) -> None:
        """Removes a workload, if it is in a group."""
        needs, order = self._of.pop(key, (None, None))
        if order is None:
            return
        group = self._groups[needs]
        del group[bisect_left(group, order)]
        if not group:
            del self._groups[needs]

    def __contains__(self, key: str) -> bool:
        return key in self._of

    def heads(self) -> list[Order]:
        """The first workload of each group."""
        return [group[0] for group in self._groups.values()]

    def next_of(self, needs: object) -> Order | None:
        """The first workload of a group; None: the group is empty."""
        group = self._groups.get(needs)
        return group[0] if group else None

    def needs(self, key: str) -> object:
        """The needs of a workload that is in a group."""
        return self._of[key][0]
