"""The table of moves is what the machine does: long random runs take no way that the table does
not have (`TrackedWorkload` looks at each), and every way that it has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from admittance.api.checks import RetryStrategy
from admittance.api.dependencies import DEPENDENCIES_GATE
from admittance.api.workload import GATED_BY, DependencyRow
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.shapes import PendingPreemption, PodSetUpdate, Refusal
from admittance.workload.change import with_status
from admittance.workload.due_times import due_times
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.phase import Phase
from admittance.workload.transition_context import CheckRules, FlavorParts
from admittance.workload.transitions import MOVES
from support.builders import Around
from support.cores.placed_job import PlacedJob
from support.cores.tracked_workload import HOLD, ME, STOP, TrackedWorkload
from support.examples import examples

LIVES = 2000
STEPS = 60
FLAVORS = {"default": (), "spot": ("s",), "other": ("a", "t")}
RULES = (
    CheckRules("a", "ctl-a", timeout_seconds=40),
    CheckRules("b", "ctl-b", retry=RetryStrategy(strategy="backoff", base_delay="5s")),
    CheckRules("s", "ctl-s", retry=RetryStrategy(base_delay="7s"), timeout_seconds=10),
    CheckRules("t", "ctl-t", retry=RetryStrategy(base_delay="7s", max_retries=1),
               timeout_seconds=20),
)  # fmt: skip
DECISION = {**ME, "revision": 0, "seen": 0, "domain": "queue-cq"}


class Walk(TrackedWorkload):
    """A lifecycle that records the transitions that it took."""

    taken: set[tuple[Phase, type[Fact], Phase | None]] = set()  # noqa: RUF012 - of all walks

    def _is_a_way(self, before: Phase, fact: Fact) -> None:
        super()._is_a_way(before, fact)
        after = None if self.workload is None else self.phase
        self.taken.add((before, type(fact), after))


def a_tracked_workload(chance: Random) -> Walk:
    ready = PodsReadyLimits(
        timeout=timedelta(seconds=15),
        recovery=timedelta(seconds=9),
        backoff_limit=chance.choice([0, 1, 3]),
        backoff_base=8,
    )
    limits = Limits(
        pods_ready=chance.choice([None, ready]),
        drain=timedelta(seconds=50),
        requeue_after=chance.random() < 0.9,
    )
    around = Around(("a", "b"), limits=limits, rules=RULES)
    around.per_flavor = dict(FLAVORS)
    longest: dict[str, Any] = chance.choice([{}, {"maximumExecutionTimeSeconds": 30}])
    return Walk(around, **longest)


def step(tracked: Walk, chance: Random) -> None:
    pick = chance.choice
    match chance.randrange(20):
        case 0 | 1:
            if tracked.phase is Phase.PENDING and tracked.around.stopped is None:
                tracked.assigned(pick(sorted(FLAVORS)))
        case 2 | 3:
            zone = PodSetUpdate(name="main", labels={"zone": pick("ab")})
            for name in sorted(tracked.states):
                tracked.verdict(
                    name, "Ready", pod_set_updates=(zone,) if chance.random() < 0.2 else ()
                )
            tracked.confirmed()
        case 4 | 5:
            state = pick(["Pending", "Ready", "Retry", "Retry", "Retry", "Rejected"])
            after = pick([None, 0, 5, 40]) if state == "Retry" else None
            tracked.verdict(pick("abst"), state, after, ago=pick([0, 0, 0, 1, 2]))
        case 6:
            tracked.ready(ready=pick([True, True, False]))
        case 7 | 8:
            tracked.stopped()
        case 9:
            plan = PendingPreemption()
            refusal = Refusal(reason="WaitingForQuota", message="m")
            tracked.happens(
                pick(
                    [
                        facts.Revoked(**DECISION, reason="QuotaChanged"),
                        facts.Preempted(**DECISION, reason="InClusterQueue", message="m"),
                        facts.Refused(**DECISION, refusal=refusal),
                        facts.Planned(**DECISION, pending_preemption=plan),
                        facts.Reprioritized(**ME, priority=tracked.revision),
                    ]
                )
            )
        case 10:
            if chance.random() < 0.3:
                at = tracked.status.admitted_revision
                tracked.happens(facts.Stopped(**ME, revision=at, reason="NodeFailures"))
        case 11:
            if chance.random() < 0.3:
                tracked.off()
        case 12:
            tracked.on()
        case 13:
            tracked.happens(pick([facts.Held, facts.Released, facts.Released])(**ME))
        case 14:
            tracked.around.checks = pick([("a", "b"), ("a", "b"), ("a",), ("b", "t"), ()])
            tracked.around.per_flavor = {**FLAVORS, "spot": pick([("s",), (), ("s", "t")])}
            tracked.stops(pick([None, None, None, HOLD, STOP]))
        case 15:
            tracked.later(pick([0.5, 1, 6, 25]))
        case 16 | 17 | 18:
            times = due_times(tracked.stored, tracked.now, tracked.around)
            if times:
                kind = pick(sorted(times))
                tracked.now = max(times[kind], tracked.now)
                tracked.due(kind)
        case 19:
            going = tracked.phase not in (Phase.PENDING, Phase.BACKOFF, Phase.QUOTA_RESERVED)
            if chance.random() < (0.5 if going else 0.1):
                tracked.happens(pick([facts.Finished, *[facts.Deleted] * 5])(**ME))


class PlacedWalk(PlacedJob, Walk):
    """The life of a job with parts on two machines."""


def live_in_parts(chance: Random) -> None:
    """Random reports about the parts of a job, from its admission on."""
    job = PlacedWalk()
    for _ in range(12):
        if job.workload is None or job.phase is Phase.FINISHED:
            return
        part = chance.choice([1, 2])
        match chance.randrange(13):
            case 0 | 1 | 2:
                ready, lost = facts.PodsReady, facts.PodsNotReady
                kinds: list[type[facts.JobFact]] = [ready, ready, lost]
                job.says(chance.choice(kinds), part)
            case 3 | 4:
                job.says(facts.Finished, part, succeeded=chance.random() < 0.7)
            case 5:
                job.part_lost(part)
            case 6 | 7 | 8:
                job.part_stopped(part)
            case 9:
                job.preempted()
            case 10:
                retry = chance.choice(["Retry", "Rejected"])
                job.verdict("machines", retry, 40, controller="admittance.dev/machines")
            case 11:
                job.off()
            case 12:
                job.later(600).due("drain")


def rare() -> None:
    """Transitions that chance hardly ever reaches."""
    fact = Walk(Around(["a", "b", "c"])).assigned()
    for name in "ab":
        zone = PodSetUpdate(name="main", labels={"zone": name})
        fact.verdict(name, "Ready", pod_set_updates=(zone,))
    assert fact.lists("a", "b").phase is Phase.REJECTED
    other = Walk(Around(["a"])).admitted().happens(facts.Deleted(**ME)).verdict("a", "Rejected")
    assert other.happens(facts.Finished(**ME)).workload is None
    other = Walk().admitted().happens(facts.Deleted(**ME)).off()
    assert other.happens(facts.Finished(**ME)).workload is None
    fourth = Walk(Around(["a"])).assigned()
    pool = PodSetUpdate(name="main", node_selector={"pool": "small"})
    fourth.verdict("a", "Ready", pod_set_updates=(pool,))
    fourth.around.flavors = {"default": FlavorParts({"pool": "big"})}
    assert fourth.confirmed().phase is Phase.REJECTED
    third = Walk(Around(["a"])).assigned().verdict("a", "Ready")
    third.around.gone = ("default",)
    assert third.confirmed().conditions["Requeued"] == ("True", "FlavorsChanged")


def held() -> None:
    """Renewals and the end of a lease in every phase of a workload that a program holds."""
    lives: dict[Phase, Callable[[Walk], object]] = {
        Phase.PENDING: lambda life: life,
        Phase.BACKOFF: lambda life: life.assigned().verdict("a", "Retry", 60),
        Phase.QUOTA_RESERVED: lambda life: life.assigned(),
        Phase.ADMITTED: lambda life: life.admitted(),
        Phase.RUNNING: lambda life: life.admitted().ready(),
        Phase.EVICTING: lambda life: life.admitted().verdict("a", "Retry", 60),
        Phase.DEACTIVATED: lambda life: life.admitted().off(),
        Phase.REJECTED: lambda life: life.admitted().verdict("a", "Rejected"),
    }
    for where, reach in lives.items():
        for deleted in (False, True):
            for end in (True, False):
                life = Walk(Around(["a"]), leaseDurationSeconds=45)
                reach(life)
                assert life.phase is where
                if deleted and where in (Phase.EVICTING, Phase.DEACTIVATED, Phase.REJECTED):
                    life.happens(facts.Deleted(**ME))
                life.later(40).happens(facts.Renewed(**ME)).later(40).due("lease")
                assert life.reason == "TooEarly"
                if end:
                    life.happens(facts.Renewed(**ME, ended=True, succeeded=False, exit_code=3))
                else:
                    life.later(5).due("lease")
                if life.workload is not None:
                    assert life.phase is Phase.FINISHED
                    reason = "Failed" if end else "LeaseExpired"
                    assert life.conditions["Finished"] == ("True", reason)


def waiting() -> None:
    """Verdicts on a dependency of workloads that have no quota."""
    never = facts.DependenciesJudged(**ME, never="prep failed")
    met = facts.DependenciesJudged(**ME, met=(0,))
    retried = Walk(Around(["a"])).assigned().verdict("a", "Retry", 60)
    rejected = Walk(Around(["a"])).assigned().verdict("a", "Rejected")
    lives = (
        (Walk(), met, Phase.PENDING),
        (Walk(), never, Phase.DEACTIVATED),
        (retried, met, Phase.BACKOFF),
        (Walk(Around(["a"])).assigned().verdict("a", "Retry", 60), never, Phase.DEACTIVATED),
        (Walk().off(), never, Phase.DEACTIVATED),
        (rejected, never, Phase.REJECTED),
    )
    for life, fact, phase in lives:
        assert life.workload is not None
        rows = (DependencyRow(workload="prep", uid="u"),)
        waits = with_status(life.workload, dependencies=rows)
        notes = {GATED_BY: DEPENDENCIES_GATE}
        life.workload = replace(waits, metadata=replace(waits.metadata, annotations=notes))
        assert life.happens(fact).phase is phase


@pytest.mark.scenario("A24")
def test_random_lives_use_exactly_the_transitions_of_the_table() -> None:
    rare()
    waiting()
    held()
    for seed in range(1500):
        live_in_parts(Random(seed))
    for seed in range(LIVES):
        if seed >= examples(LIVES) and not untaken():
            break
        chance = Random(seed)
        tracked = a_tracked_workload(chance)
        for _ in range(STEPS):
            if tracked.workload is None:
                tracked = a_tracked_workload(chance)
            try:
                step(tracked, chance)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    assert untaken() == set()


def untaken() -> set[tuple[str, str, str]]:
    """The moves of the table that no life has taken."""
    return {
        (way.id, str(where), fact.__name__)
        for (where, fact), legal in MOVES.items()
        for way in legal.ways
        if (where, fact, way.to) not in Walk.taken
    }
