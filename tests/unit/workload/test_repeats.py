"""Counts of preemptions by each preemptor of a workload."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from admittance.api.workload import PreemptionCount
from admittance.events.facts import Preempted
from admittance.workload.moves.eviction import KEPT_FOR, KEPT_MAX, with_preemption
from support.builders import NOON


def by(name: str, seen: int = 7) -> Preempted:
    return Preempted(
        namespace="ns",
        name="w",
        revision=1,
        seen=seen,
        domain="queue-cq",
        reason="InClusterQueue",
        by=f"ns/{name}",
        by_uid=f"uid-{name}",
    )


def test_preemptions_are_counted_per_preemptor() -> None:
    counts: tuple[PreemptionCount, ...] = ()
    for n, name in enumerate(("a", "b", "a", "b", "a")):
        counts = with_preemption(counts, by(name, seen=n), NOON + timedelta(seconds=n))
    assert [(count.by, count.count, count.seen) for count in counts] == [
        ("ns/b", 2, 3),
        ("ns/a", 3, 4),
    ]
    assert counts[-1].last == NOON + timedelta(seconds=4)


def test_the_count_is_dropped_after_two_days() -> None:
    counts = with_preemption((), by("a"), NOON)
    assert with_preemption(counts, by("a"), NOON + KEPT_FOR - timedelta(seconds=1))[0].count == 2
    assert with_preemption(counts, by("a"), NOON + KEPT_FOR)[0].count == 1
    assert [repeat.by for repeat in with_preemption(counts, by("b"), NOON + KEPT_FOR)] == ["ns/b"]


def test_only_the_newest_preemptors_are_kept() -> None:
    counts: tuple[PreemptionCount, ...] = ()
    for n in range(2 * KEPT_MAX):
        counts = with_preemption(counts, by(f"p{n}"), NOON)
        assert len(counts) <= KEPT_MAX
    assert [count.by for count in counts] == [f"ns/p{n}" for n in range(KEPT_MAX, 2 * KEPT_MAX)]


def test_a_preemption_without_a_preemptor_is_not_counted() -> None:
    assert with_preemption((), replace(by("a"), by_uid=""), NOON) == ()
