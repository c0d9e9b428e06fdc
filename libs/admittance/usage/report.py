"""Answers questions about usage from summaries: sums by queue, namespace, user, flavor or label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Final, TypeAlias

from msgspec.structs import replace

from admittance.api.fields.names import label_key_error
from admittance.events.requests.reading import UsageSum
from admittance.usage.periods import Period, Span, days_between, periods_between
from admittance.usage.summary import Counts, RowKey, SummaryKey

BY: Final = ("cluster-queue", "namespace", "queue", "user", "flavor", "day", "month")
"""By what sums are made, besides labels; ``queue``: by LocalQueue, which has a namespace."""
LABEL: Final = "label:"
"""Begins a word like ``label:team``: by the values of this label."""
Group: TypeAlias = tuple[str, ...]


def grouping(words: Sequence[str]) -> tuple[str, ...]:
    """The words, checked. Raises ValueError for a word by which no sums are made, or that is named
    twice."""
    for word in words:
        key = word.removeprefix(LABEL)
        if key != word and (error := label_key_error(key)):
            raise ValueError(f'"{word}": {error}')
        if key == word and word not in BY:
            raise ValueError(f'"{word}" is not one of {", ".join(BY)}, {LABEL}KEY')
        if words.count(word) > 1:
            raise ValueError(f"{word} is named twice")
    return tuple(words)


def label_keys(by: Iterable[str]) -> tuple[str, ...]:
    """The keys of the labels among the words, in their order."""
    return tuple(word.removeprefix(LABEL) for word in by if word.startswith(LABEL))


def periods_of(by: Sequence[str], first: date, last: date) -> list[Period]:
    """The periods that a report of these days has to add: the fewest ones, or each day."""
    if "day" not in by:
        return periods_between(first, last)
    return [Period("day", day.isoformat()) for day in days_between(first, last)]


def span_of(by: Sequence[str]) -> Span:
    """Of which periods the parts of a run are added that still holds quota."""
    return "day" if "day" in by else "month"


class UsageReport:
    """Sums by the words ``by``, in their order; without a word one sum of everything. The rows have
    the values of `label_keys` of the words."""

    def __init__(self, by: Sequence[str]) -> None:
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
        labels = iter(row.labels)
        return tuple(
            [
                next(labels) if word.startswith(LABEL) else _value(about, row, word)
                for word in self._by
            ]
        )

    def result(self) -> list[tuple[Group, Counts]]:
        """The groups in their order, without groups of zeros."""
        groups = [group for group in self.sums.items() if not group[1].is_empty()]
        return sorted(groups, key=lambda group: group[0])


def _value(about: SummaryKey, row: RowKey, word: str) -> str:
    match word:
        case "cluster-queue":
            return about.cluster_queue
        case "namespace":
            return about.namespace
        case "queue":
            return f"{about.namespace}/{row.queue}"
        case "user":
            return row.user
        case "day":
            return about.period.name
        case "month":
            return about.period.name[:7]
    return row.flavor


# Sums as messages. ------------------------------------------------------------------------------


def sum_of(group: Group, counts: Counts, running: int = 0) -> UsageSum:
    """A sum as a message. ``running``: how many workloads of the group hold quota now."""
    return UsageSum(
        group=group,
        runs=counts.runs,
        finished=counts.finished,
        failed=counts.failed,
        evicted=counts.evicted,
        running=running,
        wait_seconds=counts.wait_seconds,
        resource_seconds={
            resource: decimal_of(resource, used)
            for resource, used in sorted(counts.amounts.items())
        },
    )


def decimal_of(resource: str, used: int) -> str:
    """Accounting units as a decimal number: cores for cpu."""
    if resource != "cpu":
        return str(used)
    whole, milli = divmod(used, 1000)
    return f"{whole}.{milli:03}".rstrip("0").rstrip(".") if milli else str(whole)


def added(sums: Iterable[UsageSum], more: Iterable[UsageSum]) -> list[UsageSum]:
    """The sums by group, with those of ``more`` added, in the order of the groups."""
    by_group = {each.group: each for each in sums}
    for each in more:
        known = by_group.get(each.group)
        by_group[each.group] = each if known is None else _plus(known, each)
    return [by_group[group] for group in sorted(by_group)]


_COUNTED: Final = ("runs", "finished", "failed", "evicted", "running", "wait_seconds")


def _plus(one: UsageSum, other: UsageSum) -> UsageSum:
    counts = {name: getattr(one, name) + getattr(other, name) for name in _COUNTED}
    used = dict(one.resource_seconds)
    for resource, seconds in other.resource_seconds.items():
        used[resource] = str(Decimal(used.get(resource, "0")) + Decimal(seconds))
    return replace(one, resource_seconds=dict(sorted(used.items())), **counts)
