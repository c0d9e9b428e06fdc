"""How often each preemptor has preempted each victim: by direct calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from admittance.api.workload import PreemptionCount
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.state.config import Config


class Victim:
    """A victim, with the counts in its status."""

    def __init__(self) -> None:
        self.preemptions: tuple[PreemptionCount, ...] = ()


def test_counts_follow_the_status_of_each_victim() -> None:
    state = SimpleNamespace(config=Config(), preemption_counts={}, loop_guarded={})
    guard = LoopGuard(cast(Any, state))
    one, other = cast(Any, Victim()), cast(Any, Victim())
    twice = PreemptionCount(by="ns/a", by_uid="uid-a", count=2)
    once = PreemptionCount(by="ns/b", by_uid="uid-b", count=1)
    steps: tuple[tuple[Any, tuple[PreemptionCount, ...], dict[str, dict[Any, Any]]], ...] = (
        (one, (twice,), {"uid-a": {one: twice}}),
        (other, (twice, once), {"uid-a": {one: twice, other: twice}, "uid-b": {other: once}}),
        (one, (once,), {"uid-a": {other: twice}, "uid-b": {other: once, one: once}}),
        (other, (), {"uid-b": {one: once}}),
        (one, (), {}),
    )
    state.loop_guarded = {one: "guarded", other: "guarded"}
    for victim, counts, known in steps:
        guard.note(victim, counts)
        assert state.preemption_counts == known
        assert (victim in state.loop_guarded) is bool(counts)
    preemptor = cast(Any, SimpleNamespace(uid="uid-a"))
    one.preemptions = (twice, once)
    assert (guard.times(preemptor, one), guard.times(preemptor, other)) == (3, 1)
