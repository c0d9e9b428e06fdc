"""The simulation bites where checks judge: without a mechanism of two-stage admission, what that
mechanism keeps from happening happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from admittance.control.objects import Objects
from admittance.events.facts import CheckReported, TimerDue
from admittance.scheduling.cycle import recheck
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.in_flight import PodsReadyTracker
from admittance.workload.change import Change, ignored, with_status
from admittance.workload.conditions import Type, find
from admittance.workload.families import reconcile
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.moves import check_verdicts
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import QueueChanged, TransitionContext
from admittance.workload.transitions import transition
from simulation.courses import Courses
from simulation.mechanisms import Mechanisms
from simulation.plots import checked, planned
from simulation.run import run
from simulation.scenario import Scenario

LIMIT = 1500
"""Seeds tried; a breach is found in the first few hundred."""
Plot = Callable[[Random], Scenario]
Moves = Callable[[StoredWorkload | None, Any, TransitionContext], Change]


def _of_any_cycle(workload: StoredWorkload | None, fact: Any, at: TransitionContext) -> Change:
    if isinstance(fact, CheckReported) and workload is not None:
        fact = replace(fact, cycle=workload.status.admission_cycle)
    return transition(workload, fact, at)


def _without_rounds(workload: StoredWorkload | None, fact: Any, at: TransitionContext) -> Change:
    if isinstance(fact, CheckReported) and workload is not None:
        known = workload.status.rounds_since
        status = replace(workload.status, rounds_since=workload.status.admission_cycle)
        change = transition(replace(workload, status=status), fact, at)
        if change.workload is None or change.workload.status.rounds_since != status.rounds_since:
            return change
        return change._replace(workload=with_status(change.workload, rounds_since=known))
    return transition(workload, fact, at)


def _without_frost(workload: StoredWorkload | None, fact: Any, at: TransitionContext) -> Change:
    change = transition(workload, fact, at)
    if not isinstance(fact, CheckReported) or change.workload is None or workload is None:
        return change
    before, after = find(workload, Type.EVICTED), find(change.workload, Type.EVICTED)
    if after is None or after.reason != "AdmissionCheck" or before == after:
        return change
    rows = tuple(
        replace(row, state="Pending", requeue_after_seconds=None, pod_set_updates=())
        for row in change.workload.status.admission_checks
    )
    return change._replace(workload=with_status(change.workload, admission_checks=rows))


def _without_drain(workload: StoredWorkload | None, fact: Any, at: TransitionContext) -> Change:
    if isinstance(fact, TimerDue) and fact.kind == "drain":
        return ignored(workload, "NoDrain")
    return transition(workload, fact, at)


def _without_asking_later(
    workload: StoredWorkload | None, fact: Any, at: TransitionContext
) -> Change:
    change = transition(workload, fact, at)
    if not isinstance(fact, QueueChanged):
        return change
    says = tuple(say for say in change.says if say.what != "check_requested")
    return change._replace(says=says)


@pytest.mark.parametrize(
    ("moves", "breach"),
    [
        pytest.param(
            _without_asking_later, "listed and never asked", id="asking checks that come later"
        ),
        pytest.param(
            _of_any_cycle,
            "does not count|nobody said",
            id="a verdict on an earlier reservation would judge this one",
        ),
        pytest.param(
            _without_rounds,
            "Retry of .* counts, and had no effect",
            id="a slow check would never be heard beside a fast one",
        ),
        pytest.param(
            _without_frost,
            "no row says so|went while it waits",
            id="delays would be lost with the rows that hold them",
        ),
        pytest.param(
            _without_drain,
            "stuck in its eviction|never comes to rest|waits",
            id="a runner that says nothing would hold quota for ever",
        ),
    ],
)
def test_without(moves: Moves, breach: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "transition", moves)
    seed = _broken_as(breach, Mechanisms())
    monkeypatch.undo()
    assert not run(seed, plot=checked).broken


def test_without_waiting_for_parameters_checks_would_be_asked_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Objects, "missing_parameters", lambda *_: "")
    _broken_as("without its parameters", Mechanisms())


def test_without_pacing_a_check_would_send_a_workload_round_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unpaced(*given: Any) -> tuple[Any, Any]:
        workload, _, _, want, _ = given
        return workload, want

    monkeypatch.setattr(check_verdicts, "paced", unpaced)
    _broken_as("sends it round at once", Mechanisms())


def test_without_comparing_the_schedules_a_lost_one_would_never_come_due() -> None:
    def forgetful(rng: Random) -> Scenario:
        return checked(rng)._replace(lost_timers=(4.0, 8.0, 16.0, 32.0))

    without = Mechanisms(timers_compared=False)
    breach = "waits|stuck|never comes to rest|reserved for ever"
    seed = _broken_as(breach, without, forgetful)
    assert not run(seed, plot=forgetful).broken


def test_without_the_recheck_it_would_be_admitted_beside_its_victims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recheck, "decide_victims", lambda *_: None)
    monkeypatch.setattr(recheck.quota_reduction, "exceeded_cell", lambda *_, **__: None)
    seed = _broken_as("is admitted, and .* over quota", Mechanisms(), planned)
    monkeypatch.undo()
    assert not run(seed, plot=planned).broken


def test_without_waiting_for_pods_others_would_get_quota_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = PodsReadyLimits(timeout=timedelta(seconds=30), block_admission=True)

    def slow(rng: Random) -> Scenario:
        return checked(rng)._replace(
            courses=Courses(slow=1.0),
            config=Config(block_admission=True),
            limits=Limits(pods_ready=waiting),
        )

    monkeypatch.setattr(PodsReadyTracker, "blocks", lambda *_: False)
    seed = _broken_as("gets quota while the pods of", Mechanisms(), slow)
    monkeypatch.undo()
    assert not run(seed, plot=slow).broken


def _broken_as(breach: str, mechanisms: Mechanisms, plot: Plot = checked) -> int:
    for seed in range(LIMIT):
        if re.search(breach, run(seed, mechanisms, plot=plot).broken):
            return seed
    raise AssertionError(f"nothing happened in {LIMIT} seeds")
