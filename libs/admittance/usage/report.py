"""Answers questions about usage from summaries: sums by queue, namespace, user or flavor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias, get_args

from admittance.usage.summary import Counts, RowKey, SummaryKey

By: TypeAlias = Literal["cluster-queue", "namespace", "queue", "user", "flavor"]
BY: Final[tuple[By, ...]] = get_args(By)
"""By what sums are made; ``queue``: by LocalQueue, which has a namespace."""
Group: TypeAlias = tuple[str, ...]


class UsageReport:
    """Sums by the words ``by``, in their order; without a word one sum of everything."""

    def __init__(self, by: Sequence[By]) -> None:
        self._by = tuple(by)
        self._by_flavor = "flavor" in by
        self.sums: dict[Group, Counts] = {}

    def add(self, about: SummaryKey, rows: Iterable[tuple[RowKey, Counts]]) -> set[Group]:
        """Adds the rows of a summary; returns the groups of the rows."""
        groups: set[Group] = set()
        for row, counts in rows:
            if not row.flavor and self._by_flavor:
                continue
            group = self._group(about, row)
            groups.add(group)
            known = self.sums.get(group)
            if known is None:
                known = self.sums[group] = Counts()
            if row.flavor and not self._by_flavor:
                # The row without a flavor has counted the runs.
                known.add(Counts(amounts=counts.amounts))
            else:
                known.add(counts)
        return groups

    def _group(self, about: SummaryKey, row: RowKey) -> Group:
        return tuple([_value(about, row, word) for word in self._by])

    def result(self) -> list[tuple[Group, Counts]]:
        """The groups in their order, without groups of zeros."""
        groups = [group for group in self.sums.items() if not group[1].is_empty()]
        return sorted(groups, key=lambda group: group[0])


def _value(about: SummaryKey, row: RowKey, word: By) -> str:
    match word:
        case "cluster-queue":
            return about.cluster_queue
        case "namespace":
            return about.namespace
        case "queue":
            return f"{about.namespace}/{row.queue}"
        case "user":
            return row.user
        case "flavor":
            return row.flavor
