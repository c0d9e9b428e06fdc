"""How many of Kueue's cases are answered as Kueue does, table by table; ``python -m
conformance.counts`` (from tests/) prints it.

In scope are all cases of the packages of the scheduler. A case is out of it when what it tries is
not offered here: a gate away from its default, a kind of object, a subsystem that comes elsewhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from conformance import differences
from conformance.tables import ROOT, read

PACKAGES: Final = ("scheduler", "flavorassigner", "preemption", "queue", "cache", "priority")

UNPLAYED: Final[dict[str, str]] = {
    "scheduler/TestSchedulerWhenWorkloadModifiedConcurrently": (
        "revisions order concurrent writes: see the simulation"
    ),
    "preemption/TestPreemptionMessage": "our sentences are our own, and carry numbers",
    "priority/TestGetPriorityFromPriorityClass": "PriorityClass of pods is no kind of ours",
    "priority/TestGetPriorityFromWorkloadPriorityClass": (
        "classes are resolved at the door, with tests of its own"
    ),
}
"""Tables that are not played, and why: out of scope."""

SKIPPED: Final[dict[str, frozenset[str]]] = {
    "queue/TestBestEffortFIFORequeueIfNotPresent": frozenset(
        row["name"]
        for row in read("queue/TestBestEffortFIFORequeueIfNotPresent")
        if row["given"].get("reason") == "PreemptionFailed"
    ),
    "queue/TestStrictFIFORequeueIfNotPresent": frozenset(
        row["name"]
        for row in read("queue/TestStrictFIFORequeueIfNotPresent")
        if row["given"].get("reason") == "PreemptionFailed"
    ),
}  # fmt: skip
"""Cases for which there is nothing to try, as their tests say."""

NOT_OFFERED: Final = ("gate", "no kind of ours", "is played with such a queue")
"""Words of a reason that puts a case out of scope."""


class Count(NamedTuple):
    """Counts of one table: all cases, those in scope, and those with Kueue's answer."""

    table: str
    cases: int
    in_scope: int
    same: int


def reasons() -> dict[tuple[str, str], str]:
    """Table and case to why it is answered differently."""
    reasons: dict[tuple[str, str], str] = {}
    for name, cases in {
        "TestCandidatesOrdering": differences.ORDERING,
        "TestSatisfiesPreemptionPolicy": differences.POLICIES,
        "TestEntryOrdering": differences.ENTRY_ORDER,
    }.items():
        reasons |= {(name, case): reason for case, reason in cases.items()}
    return reasons | differences.SCHEDULE | differences.ASSIGN


def counts() -> list[Count]:
    """Every table of the packages."""
    by_table = reasons()
    by_case = differences.PENDING | differences.ENTRIES | differences.CACHE
    counted: list[Count] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).glob("*.json")):
            table = f"{package}/{path.stem}"
            in_scope = same = 0
            cases = read(table)
            for case in cases:
                reason = by_table.get((path.stem, case["name"])) or by_case.get(case["name"])
                if table in UNPLAYED:
                    continue
                if reason is not None and any(words in reason for words in NOT_OFFERED):
                    continue
                in_scope += 1
                same += reason is None and case["name"] not in SKIPPED.get(table, ())
            counted.append(Count(table, len(cases), in_scope, same))
    return counted


def main() -> None:
    """Prints the counts."""
    rows = counts()
    for row in (*rows, Count("all", *(sum(column) for column in zip(*(r[1:] for r in rows),
                                                                    strict=True)))):  # fmt: skip
        print(f"{row.table:60} {row.cases:4} cases {row.in_scope:4} in scope {row.same:4} as Kueue")  # noqa: T201


if __name__ == "__main__":
    main()
