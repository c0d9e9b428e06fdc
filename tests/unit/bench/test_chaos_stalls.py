"""How long admissions stalled for each kind of fault, by the times of the log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from benchmarks.chaos import InjectedFault, Stall, longest_stalls

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def struck(kind: str, began: float, mended: float, until: float) -> InjectedFault:
    return InjectedFault(kind, at(began), at(mended), at(until))


def test_a_stall_is_the_longest_gap_that_touches_the_fault() -> None:
    times = [at(n) for n in (0, 10, 11, 19, 20, 21, 40)]
    stalls = longest_stalls([struck("kill", 10.5, 15, 20.5)], times)
    assert stalls == [Stall("kill", 1, 4.5, 8.0, 4.0)]


def test_of_each_kind_the_worst_counts_and_the_worst_kind_is_first() -> None:
    times = [at(n) for n in (0, 1, 4, 5, 6, 16, 17, 18)]
    stalls = longest_stalls(
        [struck("kill", 1.5, 2, 4.5), struck("pause", 6.5, 7, 16.5), struck("kill", 17, 17, 18)],
        times,
    )
    assert [(stall.kind, stall.times, stall.longest) for stall in stalls] == [
        ("pause", 1, 10.0),
        ("kill", 2, 3.0),
    ]


def test_a_run_without_admissions_has_no_stall() -> None:
    assert longest_stalls([struck("kill", 1, 2, 3)], []) == [Stall("kill", 1, 1.0, 0.0, 0.0)]
