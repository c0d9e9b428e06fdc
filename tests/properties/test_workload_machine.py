"""Random facts in any order: a workload takes only transitions of the table, the invariants of
docs/spec/lifecycle.md#1.4 hold in every revision, a repeated verdict counts once, and a workload
can always be admitted again.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admittance.api.checks import RetryStrategy
from admittance.events import facts
from admittance.events.shapes import PodSetUpdate, Refusal
from admittance.workload.change import FactOutcome
from admittance.workload.due_times import TimerKind, due_times
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.phase import Phase, is_stopping
from admittance.workload.stored import decode, encode
from admittance.workload.transition_context import CheckRules
from support.builders import Around
from support.cores.tracked_workload import HOLD, ME, STOP, TrackedWorkload
from support.examples import examples

WIDE = ("a", "b")
FLAVORS = {"default": (), "spot": ("s",), "other": ("a", "t")}
NAMES = ("a", "b", "s", "t", "absent")
RULES = (
    CheckRules("a", "ctl-a", timeout_seconds=40),
    CheckRules("b", "ctl-b", retry=RetryStrategy(strategy="backoff", base_delay="5s", jitter=0.5)),
    CheckRules("s", "ctl-s", retry=RetryStrategy(base_delay="7s", max_retries=2)),
    CheckRules("t", "ctl-t", timeout_seconds=20),
)
READY = PodsReadyLimits(
    timeout=timedelta(seconds=15), recovery=timedelta(seconds=9), backoff_limit=2, backoff_base=8
)
UPDATES = {
    "none": (),
    "zone a": (PodSetUpdate(name="main", labels={"zone": "a"}),),
    "zone b": (PodSetUpdate(name="main", labels={"zone": "b"}),),
}

checks = st.sampled_from(NAMES)
delays = st.sampled_from([None, None, 0, 3, 20, 100_000_000])
ages = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 5, -1])


class WorkloadMachine(RuleBasedStateMachine):
    """One workload, all facts there are, and a clock that never goes back."""

    @initialize(gate=st.booleans(), limited=st.booleans(), longest=st.sampled_from([None, 30]))
    def begin(self, gate: bool, limited: bool, longest: int | None) -> None:
        limits = Limits(
            pods_ready=READY if limited else None,
            drain=timedelta(seconds=50),
            check_delay=timedelta(seconds=200),
            requeue_after=gate,
        )
        around = Around(WIDE, limits=limits, rules=RULES)
        around.per_flavor = dict(FLAVORS)
        more: dict[str, Any] = {} if longest is None else {"maximumExecutionTimeSeconds": longest}
        self.tracked = TrackedWorkload(around, **more)

    @property
    def is_alive(self) -> bool:
        return self.tracked.workload is not None

    @precondition(lambda self: self.is_alive)
    @rule(
        check=checks,
        state=st.sampled_from(["Pending", "Ready", "Ready", "Retry", "Retry", "Rejected", "Maybe"]),
        after=delays,
        ago=ages,
        updates=st.sampled_from(sorted(UPDATES)),
        foreign=st.sampled_from([False] * 9 + [True]),
        why=st.sampled_from(["", "PreemptionRequired"]),
    )
    def a_check_judges(
        self,
        check: str,
        state: str,
        after: int | None,
        ago: int,
        updates: str,
        foreign: bool,
        why: str,
    ) -> None:
        judged = 0
        for again in (False, True):
            before = self.tracked.workload
            self.tracked.verdict(
                check,
                state,
                after,
                cycle=self.tracked.status.admission_cycle - ago if not again else judged,
                controller="another" if foreign else None,
                pod_set_updates=UPDATES[updates] if state == "Ready" else (),
                reason=why,
            )
            judged = before.status.admission_cycle - ago if before and not again else 0
            if foreign or state == "Maybe" or again:
                assert self.tracked.outcome is not FactOutcome.APPLIED
                assert self.tracked.workload is before
                assert self.tracked.reason

    @precondition(lambda self: self.is_alive)
    @rule()
    def all_checks_pass(self) -> None:
        for name in sorted(self.tracked.states):
            self.tracked.verdict(name, "Ready")
        self.tracked.confirmed()

    @precondition(lambda self: self.is_alive)
    @rule(flavor=st.sampled_from(sorted(FLAVORS)))
    def the_scheduler_assigns(self, flavor: str) -> None:
        if self.tracked.phase is Phase.PENDING and self.tracked.around.stopped is None:
            self.tracked.assigned(flavor)

    @precondition(lambda self: self.is_alive)
    @rule(how=st.sampled_from(["confirm", "revoke", "preempt", "refuse"]))
    def the_scheduler_decides(self, how: str) -> None:
        common = {**ME, "revision": self.tracked.revision, "seen": 0, "domain": "queue-cq"}
        match how:
            case "confirm":
                self.tracked.confirmed()
            case "revoke":
                self.tracked.happens(facts.Revoked(**common, reason="QuotaChanged"))
            case "preempt":
                self.tracked.preempted()
            case "refuse":
                why = Refusal(reason="WaitingForQuota", message="m")
                self.tracked.happens(facts.Refused(**common, refusal=why))

    @precondition(lambda self: self.is_alive)
    @rule(how=st.sampled_from(["ready", "not ready", "stopped", "stopped", "lost", "old"]))
    def the_runner_reports(self, how: str) -> None:
        match how:
            case "ready" | "not ready":
                self.tracked.ready(ready=how == "ready")
            case "stopped":
                self.tracked.stopped()
            case "lost":
                at = self.tracked.status.admitted_revision
                self.tracked.happens(facts.Stopped(**ME, revision=at, reason="NodeFailures"))
            case "old":
                before = self.tracked.workload
                self.tracked.happens(facts.Stopped(**ME, revision=1))
                self.tracked.happens(facts.Finished(**ME, revision=1))
                assert self.tracked.workload is before

    @precondition(lambda self: self.is_alive)
    @rule(how=st.sampled_from(["off", "on", "on", "hold", "let go", "priority"]))
    def the_user_asks(self, how: str) -> None:
        match how:
            case "off":
                self.tracked.off()
            case "on":
                self.tracked.on()
            case "hold":
                self.tracked.happens(facts.Held(**ME))
            case "let go":
                self.tracked.happens(facts.Released(**ME))
            case "priority":
                self.tracked.happens(facts.Reprioritized(**ME, priority=self.tracked.revision))

    @precondition(lambda self: self.is_alive)
    @rule(kind=st.sampled_from(["finish", "delete"]), really=st.sampled_from([False] * 7 + [True]))
    def it_ends(self, kind: str, really: bool) -> None:
        if really:
            self.tracked.happens((facts.Finished if kind == "finish" else facts.Deleted)(**ME))

    @precondition(lambda self: not self.is_alive)
    @rule()
    def a_namesake_comes(self) -> None:
        self.tracked = TrackedWorkload(self.tracked.around, now=self.tracked.now)

    @precondition(lambda self: self.is_alive)
    @rule(
        wide=st.sampled_from([WIDE, WIDE, ("a",), ("b", "t"), ()]),
        spot=st.sampled_from([("s",), (), ("s", "t")]),
        hindrance=st.sampled_from([None, None, None, HOLD, STOP]),
    )
    def the_queue_changes(self, wide: tuple[str, ...], spot: tuple[str, ...], hindrance) -> None:  # type: ignore[no-untyped-def]
        self.tracked.around.checks = wide
        self.tracked.around.per_flavor = {**FLAVORS, "spot": spot}
        self.tracked.stops(hindrance)

    @precondition(lambda self: self.is_alive)
    @rule(seconds=st.sampled_from([0.5, 1, 6, 25, 120]))
    def time_passes(self, seconds: float) -> None:
        self.tracked.later(seconds)

    @precondition(lambda self: self.is_alive)
    @rule(kind=st.sampled_from([*map(str, TimerKind), "nothing"]))
    def a_timer_fires_early(self, kind: str) -> None:
        times = due_times(self.tracked.stored, self.tracked.now, self.tracked.around)
        early = kind not in times or times[TimerKind(kind)] > self.tracked.now
        before = self.tracked.workload
        self.tracked.due(kind)
        if early:
            assert self.tracked.workload is before

    @precondition(lambda self: self.is_alive)
    @rule()
    def the_next_timer_fires(self) -> None:
        times = due_times(self.tracked.stored, self.tracked.now, self.tracked.around)
        if times:
            kind, at = min(times.items(), key=lambda item: item[1])
            self.tracked.now = max(at, self.tracked.now)
            self.tracked.due(kind)
            assert self.tracked.outcome is FactOutcome.APPLIED, self.tracked.reason

    @precondition(lambda self: self.is_alive)
    @invariant()
    def it_is_stored_as_it_is(self) -> None:
        written = encode(self.tracked.stored)
        assert encode(decode(written)) == written

    def teardown(self) -> None:
        """From every state the workload can be brought to run, unless it has finished."""
        if not hasattr(self, "life") or not self.is_alive:
            return
        tracked = self.tracked
        if tracked.phase is Phase.FINISHED:
            return
        if tracked.stored.metadata.deletion_timestamp is not None:
            tracked.stopped()
            assert tracked.workload is None
            return
        tracked.stops(None)
        tracked.on()
        if is_stopping(tracked.stored):
            tracked.stopped()
        tracked.stops(None)
        tracked.happens(facts.Released(**ME))
        if tracked.phase is Phase.BACKOFF:
            tracked.later(100_000).due()
        if tracked.phase is Phase.PENDING:
            tracked.assigned()
        for name in sorted(tracked.states):
            tracked.verdict(name, "Ready")
        tracked.confirmed()
        if tracked.phase is not Phase.RUNNING:
            assert tracked.phase is Phase.ADMITTED


TestWorkloadMachine = WorkloadMachine.TestCase
TestWorkloadMachine.settings = settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None
)

VERDICTS = {
    "Rejected": ("Rejected", None),
    "Retry +60": ("Retry", 60),
    "Retry": ("Retry", None),
    "Pending": ("Pending", None),
    "Ready": ("Ready", None),
}


@pytest.mark.scenario("A5", "A6")
@given(said=st.lists(st.sampled_from(sorted(VERDICTS)), min_size=2, max_size=4))
@settings(max_examples=examples(60), deadline=None)
def test_the_gravest_verdict_of_a_batch_wins_in_any_order(said: list[str]) -> None:
    ids = set()
    for order in permutations(range(len(said))):
        tracked = TrackedWorkload(Around([f"c{index}" for index in range(len(said))])).assigned()
        for index in order:
            state, after = VERDICTS[said[index]]
            tracked.verdict(f"c{index}", state, after, cycle=0)
        tracked.confirmed()
        ids.add(tracked.phase)
    want = Phase.ADMITTED
    for word, phase in (
        ("Pending", Phase.QUOTA_RESERVED),
        ("Retry", Phase.PENDING),
        ("Retry +60", Phase.BACKOFF),
        ("Rejected", Phase.REJECTED),
    ):
        want = phase if word in said else want
    assert ids == {want}
