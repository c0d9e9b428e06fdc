"""Checks, the scheduler, runners, queues and users at once: in any order, the invariants hold in
every revision, and no workload is stuck. docs/spec/lifecycle.md#1.4, #3.4, #7.1 A24, #7.3 L7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import pytest

from admittance.events import facts
from admittance.events.shapes import PodSetUpdate
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.stored import head
from support.cores.stepped_scheduler import groups
from support.cores.timed_cores import TimedCores, cores_with_queue
from support.examples import THOROUGH, examples

scenario = pytest.mark.scenario
CHECKS = ("c1", "c2")
Late = tuple[str, str, int | None, bool]
"""Check, state, delay, and whether it judged the first cycle rather than the present one."""

STATES: list[tuple[str, int | None]] = [
    ("Pending", None),
    ("Ready", None),
    ("Retry", None),
    ("Retry", 7),
    ("Rejected", None),
]
LATE: list[Late] = [
    (check, state, after, first)
    for check, (state, after), first in product(CHECKS, STATES, (True, False))
]


def steps(cores: TimedCores, delay: int | None, *, admitted: bool) -> Iterator[str]:
    """The eight steps of the race, each where something else may come in between."""
    cores.submit("w", "cq", "8")
    yield "created"
    decisions = cores.cycle(apply=False, later=0)
    yield "decided"
    for decision in decisions:
        cores.apply(decision)
    yield "reserved"
    if admitted:
        for check in CHECKS:
            if cores.has("w"):
                cores.answer("w", check, "Ready")
        cores.go()
        yield "admitted"
    cores.answer("w", "c1", "Retry", after=delay)
    yield "evicted"
    cores.answer("w", "c1", "Retry", after=delay)
    yield "said twice"
    cores.stop("w")
    yield "released"
    cores.now += timedelta(seconds=5)
    cores.set_timers()
    due = cores.next_timer()
    if due is not None and due.want.at <= cores.now:
        cores.fire(due)
    yield "woken"
    decisions = cores.cycle(apply=False, later=0)
    yield "decided anew"
    for decision in decisions:
        cores.apply(decision)
    yield "reserved anew"


POINTS = 9
FIRST_DELAYS = (None, 5)


def play(delay: int | None, admitted: bool, late: dict[int, list[Late]]) -> None:
    """The steps with late verdicts after some of them; then all checks report Ready, and the
    workload must be admitted, unless a check rejected it."""
    cores = cores_with_queue(*CHECKS)
    cores.slow_jobs.add("w")
    for number, _ in enumerate(steps(cores, delay, admitted=admitted)):
        for check, state, after, first in late.get(number, ()):
            cycle = {"cycle": 0} if first else {}
            cores.answer("w", check, state, after=after, **cycle)
    ends_well(cores)


def ends_well(cores: TimedCores) -> None:
    """Makes all checks report Ready, and checks that the workload is then admitted, unless it was
    rejected."""
    cores.slow_jobs.clear()
    for _ in range(6):
        cores.stop("w") if cores.phase("w") in ("Evicting", "Rejected", "Deactivated") else None
        cores.go()
        if cores.phase("w") == "QuotaReserved":
            for check in cores.rows("w"):
                cores.report("w", check, "Ready")
        if cores.phase("w") in ("Admitted", "Running", "Rejected"):
            return
        cores.advance(200)
    raise AssertionError(f"stuck: {cores.phase('w')}\n{cores.stored('w')}")


@scenario("L7")
@pytest.mark.parametrize("admitted", [False, True], ids=["reserved", "admitted"])
@pytest.mark.parametrize("delay", FIRST_DELAYS, ids=["without delay", "with a delay"])
def test_a_late_verdict_at_any_point_of_the_race(delay: int | None, admitted: bool) -> None:
    for point in range(POINTS + admitted):
        for behavior in LATE:
            play(delay, admitted, {point: [behavior]})


@scenario("L7")
@pytest.mark.parametrize("delay", FIRST_DELAYS, ids=["without delay", "with a delay"])
def test_two_late_verdicts_at_any_two_points_of_the_race(delay: int | None) -> None:
    slow = [
        behavior
        for behavior in LATE
        if behavior[0] == "c2" and behavior[1] in ("Retry", "Rejected") and behavior[3]
    ]
    points = combinations_with_replacement(range(POINTS), 2)
    tried = list(product(points, product(slow, slow)))
    # Of nine verdicts, every fourth: all pairs of points, and all pairs of verdicts, are tried.
    for (first, second), (first_order, other) in tried[:: 1 if THOROUGH else 4]:
        late: dict[int, list[Late]] = {first: [first_order]}
        late.setdefault(second, []).append(other)
        play(delay, False, late)


LIMITS = Limits(
    pods_ready=PodsReadyLimits(timeout=timedelta(seconds=50), backoff_base=20, backoff_max=40),
    drain=timedelta(seconds=100),
)


class Chaos:
    """Users, checks, timers, the runner and the scheduler act in a random order. Decisions of the
    scheduler are written some time after they were made, in their order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        preemption = {"withinClusterQueue": "Any"}
        self.cores = cores_with_queue(*CHECKS, limits=LIMITS, preemption=preemption)
        self.cores.put("ResourceFlavor", "other")
        self.cores.queue("cq", **self.a_queue())
        self.undecided: list[facts.Decision] = []
        self.others = 0
        self.cores.slow_jobs.add("w")

    def a_queue(
        self, nominal: str = "10", of_flavor: tuple[str, ...] = (), other: str = "", **more: Any
    ) -> dict[str, Any]:
        """``of_flavor``: the checks of the first flavor. ``other``: quota of a second one, without
        checks of its own."""
        offered = groups(
            **({"default": nominal, "other": other} if other else {"default": nominal})
        )
        offered[0]["flavors"][0]["admissionChecks"] = list(of_flavor)
        return {
            "resourceGroups": offered,
            "admissionChecks": list(CHECKS),
            "preemption": {"withinClusterQueue": "LowerPriority"},
            **more,
        }

    def run(self, moves: int) -> None:
        self.cores.submit("w", "cq", "8")
        kinds: list[Callable[[], None]] = [
            *[self.verdict] * 10,
            *[self.decide] * 5,
            *[self.write] * 5,
            *[self.time] * 4,
            *[self.stop] * 3,
            self.pods,
            self.switch,
            self.configure,
            self.preempt,
            self.defer,
            self.end,
        ]
        for _ in range(moves):
            self.random.choice(kinds)()
        while self.undecided:
            self.write()
        self.cores.queue("cq", **self.a_queue())
        for name in self.living_others():
            self.cores.publish(facts.Deleted, name)
        self.cores.go()
        if not head(self.cores.stored("w")).active:
            self.cores.publish(facts.Activated, "w")
        ends_well(self.cores)

    def verdict(self) -> None:
        name = self.random.choice(["w", "w", *self.living_others()])
        cycle = self.cores.stored(name).status.admission_cycle
        check = self.random.choice(CHECKS)
        state, after = self.random.choice([*STATES[:-1], *STATES])
        judged = max(0, cycle - self.random.choice((0, 0, 0, 1, 2, 5)))
        more: dict[str, Any] = {"after": after} if after else {}
        if state == "Ready" and self.random.random() < 0.5:
            more["pod_set_updates"] = (PodSetUpdate(name="main", labels={check: "on"}),)
        reason = "PreemptionRequired" if self.random.random() < 0.1 else ""
        self.cores.answer(name, check, state, cycle=judged, reason=reason, **more)

    def living_others(self) -> list[str]:
        """The others that are still there."""
        names = [f"high-{number}" for number in range(self.others)]
        return [name for name in names if self.cores.has(name)]

    def end(self) -> None:
        for name in self.living_others()[:1]:
            self.cores.publish(self.random.choice((facts.Finished, facts.Deleted)), name)

    def defer(self) -> None:
        policy = self.random.choice(("Anytime", "AfterCheckPassedOrOnDemand"))
        self.cores.check(self.random.choice(CHECKS), preemptionPolicy=policy)

    def decide(self) -> None:
        if self.cores.scheduler.has_work():
            self.undecided += self.cores.cycle(apply=False, later=0)

    def write(self) -> None:
        if self.undecided:
            self.cores.apply(self.undecided.pop(0))

    def time(self) -> None:
        """Due timers are applied at once; the scheduler and its decisions lag behind."""
        cores = self.cores
        cores.now += timedelta(seconds=self.random.choice((1, 5, 7, 20, 60)))
        cores.scheduler.wake(now=cores.now)
        cores.set_timers()
        due = cores.next_timer()
        if due is not None and due.want.at <= cores.now:
            cores.fire(due)

    def stop(self) -> None:
        if self.cores.phase("w") in ("Evicting", "Rejected", "Deactivated"):
            self.cores.stop("w")
            self.cores.slow_jobs.add("w")

    def pods(self) -> None:
        if self.cores.phase("w") == "Admitted":
            self.cores.ready("w")
        elif self.cores.phase("w") == "Running":
            self.cores.not_ready("w")

    def switch(self) -> None:
        kind = facts.Deactivated if head(self.cores.stored("w")).active else facts.Activated
        self.cores.publish(kind, "w")

    def configure(self) -> None:
        self.cores.queue(
            "cq",
            **self.random.choice(
                [
                    self.a_queue(),
                    self.a_queue("5"),
                    self.a_queue(stopPolicy="Hold"),
                    self.a_queue(stopPolicy="HoldAndDrain"),
                    self.a_queue(admissionChecks=["c1"]),
                    self.a_queue(admissionChecks=[]),
                    self.a_queue(admissionChecks=["c1"], of_flavor=("c2",)),
                    self.a_queue(admissionChecks=[], of_flavor=CHECKS),
                    self.a_queue("5", admissionChecks=["c1"], of_flavor=("c2",), other="10"),
                    self.a_queue(admissionChecks=[], of_flavor=("c2",), other="10"),
                ]
            ),
        )

    def preempt(self) -> None:
        name = f"high-{self.others}"
        self.others += 1
        self.cores.submit(name, "cq", "8", priority=self.others)


@scenario("A24")
@pytest.mark.parametrize("hundred", range(examples(10)))
def test_any_order_of_writes_keeps_the_invariants(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        try:
            Chaos(seed).run(30)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
