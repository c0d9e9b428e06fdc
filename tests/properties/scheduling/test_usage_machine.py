"""Random arrivals and ends of workloads: the queue or user with the least usage is served first,
and all instances compute the same sums."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admittance.events.requests.queues import PendingQuery
from admittance.scheduling.fairsharing.usage import (
    NANO,
    Account,
    reached_fraction,
    remaining_fraction,
    weighted_sum,
)
from admittance.scheduling.state.config import Config, UsageFairSharing
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.lanes import user_key
from support.cores.stepped_scheduler import NOON, SteppedScheduler, groups
from support.examples import examples

MINUTE = timedelta(minutes=1)
SHARING = UsageFairSharing(
    usage_half_life_time=timedelta(minutes=20), usage_sampling_interval=timedelta(minutes=5)
)
LOCALS = ("a", "b", "c")

amounts = st.integers(1, 8)
minutes = st.integers(1, 90)


@given(seconds=st.floats(0, 1e6), more=st.floats(0, 1e6))
def test_consumed_usage_only_decays(seconds: float, more: float) -> None:
    assert (
        0
        <= remaining_fraction(SHARING, seconds + more)
        <= remaining_fraction(SHARING, seconds)
        <= 1
    )
    assert 0 <= reached_fraction(SHARING, seconds) <= reached_fraction(SHARING, seconds + more) <= 1


@given(
    amount=st.integers(0, 10**15),
    weight=st.floats(0.1, 100),
    heavier=st.floats(0.1, 100),
)
def test_a_heavier_local_queue_never_has_a_worse_place(
    amount: int, weight: float, heavier: float
) -> None:
    used = {"cpu": amount}
    assert weighted_sum(SHARING, used, weight + heavier) <= weighted_sum(SHARING, used, weight)
    assert weighted_sum(SHARING, used, 0.0) > weighted_sum(SHARING, used, weight)


@given(
    steps=st.lists(st.tuples(minutes, amounts, st.booleans()), max_size=12),
    looks=st.lists(st.integers(0, 600), max_size=12),
)
def test_reading_usage_does_not_change_it(
    steps: list[tuple[int, int, bool]], looks: list[int]
) -> None:
    """An account that was settled at other moments as well comes to the same sum."""
    quiet, watched = (Account(SHARING, 1.0, NOON) for _ in range(2))
    moments: list[tuple[datetime, int | None, bool]] = [
        (NOON + step * MINUTE, None, False) for step in looks
    ]
    now, running = NOON, 0
    for pause, amount, starts in steps:
        now += pause * MINUTE
        if starts or running < amount:
            running += amount
            moments.append((now, amount, True))
        else:
            running -= amount
            moments.append((now, amount, False))
    for when, change, starts in sorted(moments, key=lambda moment: moment[0]):
        for account in (quiet, watched):
            if change is None:
                if account is watched:
                    account.stop({}, when)
            elif starts:
                account.start({"cpu": change * NANO}, {"cpu": NANO}, when)
            else:
                account.stop({"cpu": change * NANO}, when)
    end = now + 600 * MINUTE
    difference = quiet.at(end).get("cpu", 0) - watched.at(end).get("cpu", 0)
    assert abs(difference) <= 100, "a billionth is lost in each step at most"


class UsageMachine(RuleBasedStateMachine):
    """One ClusterQueue by usage, three LocalQueues and three users, and a standby scheduler that
    receives the same events. ``usage_of``: what has a usage."""

    usage_of = "LocalQueue"

    def key(self, name: str) -> Key:
        """The key of the usage of the LocalQueue or user."""
        return ("ns", name) if self.usage_of == "LocalQueue" else user_key("cq", name)

    @initialize()
    def begin(self) -> None:
        self.scheduler = self._a_scheduler()
        self.number = 0
        self.running: list[str] = []

    def _a_scheduler(self) -> SteppedScheduler:
        scheduler = SteppedScheduler(Config(admission_fair_sharing=SHARING))
        scope = {"admissionMode": "UsageBasedAdmissionFairSharing", "usageOf": self.usage_of}
        scheduler.cluster_queue("cq", admissionScope=scope, resourceGroups=groups(default="8"))
        for name in LOCALS:
            scheduler.put("LocalQueue", name, {"clusterQueue": "cq"}, namespace="ns")
        return scheduler

    @rule(
        local=st.sampled_from(LOCALS),
        user=st.sampled_from(LOCALS),
        cpu=amounts,
        priority=st.integers(0, 3),
    )
    def submit(self, local: str, user: str, cpu: int, priority: int) -> None:
        self.number += 1
        name = f"w{self.number}"
        self.scheduler.submit(name, local, str(cpu), priority=priority, user=user)

    @rule()
    def cycle(self) -> None:
        self.running += self.scheduler.cycle()

    @precondition(lambda self: self.running)
    @rule(at=st.integers(0, 99))
    def finish(self, at: int) -> None:
        self.scheduler.finish(self.running.pop(at % len(self.running)))

    @rule(pause=minutes)
    def wait(self, pause: int) -> None:
        self.scheduler.now += pause * MINUTE
        self.scheduler.core.wake(now=self.scheduler.now)

    @rule()
    def refuse(self) -> None:
        before = self._values()
        for name in self.scheduler.cycle(confirm=False):
            metadata = self.scheduler.stored[name].metadata
            revision = next(d.revision for d in self.scheduler.decided if d.name == name)
            self.scheduler.core.forget(metadata.namespace, name, revision)
        assert self._values() == before, "what was not taken costs nothing"

    def _values(self) -> dict[str, float]:
        accounts = self.scheduler.core._state.accounts
        assert accounts is not None
        usage = {}
        for name in LOCALS:
            account = accounts.of(self.key(name))
            assert account is not None or self.usage_of == "User"
            usage[name] = account.value if account is not None else 0.0
        return usage

    @invariant()
    def the_head_is_of_a_queue_or_user_that_used_least(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        values = self._values()
        rows = self.scheduler.core.pending(PendingQuery()).rows
        is_of_users = self.usage_of == "User"
        used = [values[row.user if is_of_users else row.local_queue] for row in rows]
        assert used == sorted(used), "workloads are not ordered by usage"
        for row in rows:
            assert self.scheduler.core.explain("ns", row.name, now=self.scheduler.now).position == (
                row.position
            )
        competing = [row for row in rows if not row.parked]
        head = self.scheduler.core._state.queues["cq"].head()
        assert (head.key[1] if head is not None else None) == (
            competing[0].name if competing else None
        )

    @invariant()
    def a_successor_comes_to_the_same_sums(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        mine = self.scheduler.core._state.accounts
        assert mine is not None
        other = self._a_scheduler()
        other.now = self.scheduler.now
        # Everything is written down, however little has changed: as if each had just been.
        for name in LOCALS:
            mine._unsaved.setdefault(self.key(name), self.scheduler.now)
        for key, record in self.scheduler.core.usages_to_write(
            now=self.scheduler.now, at_once=True
        ):
            other.core.apply_usage(*key, record)
        for name in self.running:
            other.write("ns", name, self.scheduler.stored[name])
        later = self.scheduler.now + 60 * MINUTE
        theirs = other.core._state.accounts
        assert theirs is not None
        for name in LOCALS:
            ours, two = mine.of(self.key(name)), theirs.of(self.key(name))
            if self.usage_of == "User" and (ours is None or two is None):
                assert not (ours or two), f"one of them has no account of {name}"
                continue
            assert ours is not None and two is not None
            assert abs(ours.at(later).get("cpu", 0) - two.at(later).get("cpu", 0)) <= 1_000


UsageMachine.TestCase.settings = settings(
    max_examples=examples(25),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestUsage = UsageMachine.TestCase


class UserUsageMachine(UsageMachine):
    """The same with the usage of users."""

    usage_of = "User"


UserUsageMachine.TestCase.settings = UsageMachine.TestCase.settings
TestUserUsage = UserUsageMachine.TestCase
