"""Every stage of a run against every event that may come in it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.events.facts import Finished, PodsReady, Started, Stopped
from admittance.runner.decide import (
    Claimed,
    ClaimLost,
    Close,
    DrainMachine,
    Effects,
    Ended,
    Event,
    JobEvicted,
    MarkOver,
    NotOurs,
    PodsAllReady,
    Publish,
    Release,
    ResultKnown,
    Run,
    ShutDown,
    Stage,
    StartRun,
    StopRun,
    Unstartable,
    Up,
    runs_to_evict,
    step,
)

OF: dict[str, Any] = {"namespace": "team", "name": "train", "uid": "u-1"}


def a_run(
    stage: Stage,
    *,
    evicted: int = 0,
    lost: bool = False,
    leaving: bool = False,
    placed: bool = False,
) -> Run:
    return Run(
        **OF,
        revision=10,
        stage=stage,
        evicted=evicted,
        claim_lost=lost,
        leaving=leaving,
        placed=placed,
    )


def stopped(revision: int, reason: str = "", message: str = "") -> Stopped:
    return Stopped(**OF, revision=revision, reason=reason, message=message)


def finished(
    succeeded: bool, message: str = "", exit_code: int | None = None, *, reason: str = ""
) -> Publish:
    reason = reason or ("Succeeded" if succeeded else "Failed")
    how: dict[str, Any] = {"message": message, "reason": reason, "exit_code": exit_code}
    return Publish(Finished(**OF, revision=10, succeeded=succeeded, **how))


CLAIMING, STARTING, RUNNING = Stage.CLAIMING, Stage.STARTING, Stage.RUNNING
STOPPING, EPILOG, ENDED = Stage.STOPPING, Stage.EPILOG, Stage.ENDED
LOST = stopped(10, "NodeFailures", "gone")


STEP_CASES: dict[str, tuple[Run, Event, Stage, Effects]] = {
    "a won claim starts the job": (a_run(CLAIMING), Claimed(), STARTING, (StartRun(),)),
    "another's claim is left alone": (a_run(CLAIMING), NotOurs(), ENDED, (Close(),)),
    "what was evicted before it was claimed never starts": (
        a_run(CLAIMING, evicted=12),
        Claimed(),
        ENDED,
        (Publish(stopped(12)), MarkOver(), Close()),
    ),
    "a claim that is lost before it is confirmed starts no job": (
        a_run(CLAIMING, lost=True),
        Claimed(),
        ENDED,
        (
            MarkOver(then=stopped(10, "NodeFailures", "the claim was lost before the start")),
            Close(),
        ),
    ),
    "running processes are said to have started": (
        a_run(STARTING),
        Up(),
        RUNNING,
        (Publish(Started(**OF, revision=10)),),
    ),
    "ready pods are said to be ready": (
        a_run(RUNNING),
        PodsAllReady(),
        RUNNING,
        (Publish(PodsReady(**OF, revision=10)),),
    ),
    "started is said once": (a_run(RUNNING), Up(), RUNNING, ()),
    "what can never start has failed": (
        a_run(STARTING),
        Unstartable("no command"),
        ENDED,
        (finished(False, "no command", reason="FailedToStart"), MarkOver(), Close()),
    ),
    "evicted while it starts it stops": (a_run(STARTING), JobEvicted(12), STOPPING, (StopRun(),)),
    "evicted while it runs it stops": (a_run(RUNNING), JobEvicted(12), STOPPING, (StopRun(),)),
    "an eviction before the admission is late": (a_run(RUNNING), JobEvicted(9), RUNNING, ()),
    "success finishes the workload": (
        a_run(RUNNING),
        Ended("succeeded"),
        ENDED,
        (finished(True), MarkOver(), Close()),
    ),
    "failure finishes the workload and says why": (
        a_run(RUNNING),
        Ended("failed", "pod main-0 failed: exit code 3"),
        ENDED,
        (finished(False, "pod main-0 failed: exit code 3"), MarkOver(), Close()),
    ),
    "the exit code of the job is passed on": (
        a_run(RUNNING),
        Ended("failed", "signal 9", 137),
        ENDED,
        (finished(False, "signal 9", 137), MarkOver(), Close()),
    ),
    "an evicted job that stopped is said to have, by the eviction's revision": (
        a_run(STOPPING, evicted=12),
        Ended("stopped", "stopped"),
        ENDED,
        (Publish(stopped(12, message="stopped")), MarkOver(), Close()),
    ),
    "a result from before the stop counts, also in the middle of an eviction": (
        a_run(STOPPING, evicted=12),
        Ended("succeeded"),
        ENDED,
        (finished(True), Publish(stopped(12)), MarkOver(), Close()),
    ),
    "a job stopped by the runner's end is said to be, and given back": (
        a_run(STOPPING, leaving=True),
        Ended("stopped"),
        ENDED,
        (
            Publish(stopped(10, "RunnerEnded", "its runner ended; it runs again under a runner")),
            Release(),
            Close(),
        ),
    ),
    "a placed job that is given back does not start again under its admission": (
        a_run(STOPPING, leaving=True, placed=True),
        Ended("stopped"),
        ENDED,
        (
            Publish(stopped(10, "RunnerEnded", "its runner ended; it runs again under a runner")),
            MarkOver(),
            Close(),
        ),
    ),
    "a placed job that comes to a drained machine is given back for good": (
        a_run(STARTING, placed=True),
        Ended("unprepared", "runner r is drained"),
        ENDED,
        (Publish(stopped(10, "PrologFailed", "runner r is drained")), MarkOver(), Close()),
    ),
    "a machine that cannot be prepared is drained before it gives the job back": (
        a_run(STARTING),
        Ended("unprepared", "runner r: prolog failed", drain="prolog failed"),
        ENDED,
        (
            DrainMachine("PrologFailed", "prolog failed"),
            Publish(stopped(10, "PrologFailed", "runner r: prolog failed")),
            Release(),
            Close(),
        ),
    ),
    "a job that comes to a drained machine is given back": (
        a_run(STARTING),
        Ended("unprepared", "runner r is drained"),
        ENDED,
        (Publish(stopped(10, "PrologFailed", "runner r is drained")), Release(), Close()),
    ),
    "an eviction outweighs a failed prolog": (
        a_run(STOPPING, evicted=12),
        Ended("unprepared", "m", drain="prolog failed"),
        ENDED,
        (
            DrainMachine("PrologFailed", "prolog failed"),
            Publish(stopped(12, message="m")),
            MarkOver(),
            Close(),
        ),
    ),
    "a failed prolog after the loss of the claim gives nothing back": (
        a_run(STOPPING, lost=True),
        Ended("unprepared", "gone", drain="prolog failed"),
        ENDED,
        (DrainMachine("PrologFailed", "prolog failed"), MarkOver(then=LOST), Close()),
    ),
    "a result is published before the epilog ends": (
        a_run(RUNNING),
        ResultKnown(Ended("succeeded")),
        EPILOG,
        (finished(True),),
    ),
    "a result of a job that is being stopped answers the eviction too": (
        a_run(STOPPING, evicted=12),
        ResultKnown(Ended("succeeded")),
        EPILOG,
        (finished(True), Publish(stopped(12))),
    ),
    "the end of a stopped job waits for its epilog": (
        a_run(STOPPING, evicted=12),
        ResultKnown(Ended("stopped")),
        STOPPING,
        (),
    ),
    "after the epilog the run is closed": (
        a_run(EPILOG),
        Ended("succeeded"),
        ENDED,
        (MarkOver(), Close()),
    ),
    "a failed epilog drains the machine": (
        a_run(EPILOG),
        Ended("succeeded", drain="epilog failed"),
        ENDED,
        (DrainMachine("EpilogFailed", "epilog failed"), MarkOver(), Close()),
    ),
    "a failed epilog drains the machine although the result comes with it": (
        a_run(RUNNING),
        Ended("succeeded", drain="epilog failed"),
        ENDED,
        (DrainMachine("EpilogFailed", "epilog failed"), finished(True), MarkOver(), Close()),
    ),
    "an epilog is not stopped": (a_run(EPILOG), ShutDown(), EPILOG, ()),
    "an epilog goes on without its claim": (a_run(EPILOG), ClaimLost(), EPILOG, ()),
    "a job with a result cannot fail to start": (a_run(EPILOG), Unstartable("x"), EPILOG, ()),
    "an eviction during the epilog is answered": (
        a_run(EPILOG),
        JobEvicted(12),
        EPILOG,
        (MarkOver(then=stopped(12)),),
    ),
    "an eviction outweighs the runner's end": (
        a_run(STOPPING, leaving=True, evicted=12),
        Ended("stopped"),
        ENDED,
        (Publish(stopped(12)), MarkOver(), Close()),
    ),
    "a lost job gives its quota back if its claim is not another's": (
        a_run(RUNNING),
        Ended("lost", "gone"),
        ENDED,
        (MarkOver(then=LOST), Close()),
    ),
    "a lost claim stops the job": (a_run(RUNNING), ClaimLost(), STOPPING, (StopRun(),)),
    "after a lost claim only its holder speaks": (
        a_run(STOPPING, lost=True),
        Ended("stopped", "gone"),
        ENDED,
        (MarkOver(then=LOST), Close()),
    ),
    "the runner's end stops the job": (a_run(RUNNING), ShutDown(), STOPPING, (StopRun(),)),
    "the runner's end gives back what was only claimed": (
        a_run(CLAIMING),
        ShutDown(),
        ENDED,
        (Release(), Close()),
    ),
    "an end is told once": (a_run(ENDED), Ended("succeeded"), ENDED, ()),
    "an eviction that comes after the end is answered, unless another runner has it": (
        a_run(ENDED),
        JobEvicted(12),
        ENDED,
        (MarkOver(then=stopped(12)),),
    ),
}


@pytest.mark.parametrize("case", STEP_CASES)
def test_step(case: str) -> None:
    before, event, stage, effects = STEP_CASES[case]
    after, did = step(before, event)
    assert (after.stage, did) == (stage, effects)


EVENTS = st.one_of(
    st.builds(Claimed),
    st.builds(JobEvicted, st.integers(5, 20)),
    st.builds(Up),
    st.builds(PodsAllReady),
    st.builds(Ended, st.sampled_from(["succeeded", "failed", "stopped", "lost", "unprepared"])),
    st.builds(ResultKnown, st.builds(Ended, st.sampled_from(["succeeded", "failed", "stopped"]))),
    st.builds(ClaimLost),
    st.builds(ShutDown),
)


@given(st.lists(EVENTS, max_size=12))
def test_in_any_order_of_events_a_run_starts_and_closes_once(events: list[Event]) -> None:
    run = a_run(CLAIMING)
    done: list[object] = []
    for event in events:
        run, effects = step(run, event)
        done += effects
    assert sum(isinstance(each, StartRun) for each in done) <= 1
    assert sum(isinstance(each, Close) for each in done) == (run.stage is ENDED)
    if run.stage is not EPILOG:
        assert any(isinstance(each, MarkOver | Release) for each in done) == (run.stage is ENDED)
    results = [each for each in done if isinstance(each, Publish)]
    assert sum(isinstance(each.fact, Finished) for each in results) <= 1
    # Quota is given back for an eviction only when nothing runs any more.
    for index, each in enumerate(done):
        if isinstance(each, Publish) and isinstance(each.fact, Stopped):
            assert not any(isinstance(later, StartRun) for later in done[index:])


@given(st.lists(st.builds(JobEvicted, st.integers(11, 20)), min_size=1, max_size=3))
def test_a_runner_without_the_claim_publishes_nothing_about_the_job(evictions: list[Event]) -> None:
    """The job runs on another runner, and its quota would be released too early."""
    run, effects = step(a_run(CLAIMING), NotOurs())
    done = list(effects)
    for event in evictions:
        run, effects = step(run, event)
        done += effects
    assert not any(isinstance(each, Publish) for each in done)


@given(st.lists(EVENTS, max_size=12))
def test_an_event_twice_is_an_event_once(events: list[Event]) -> None:
    run = a_run(CLAIMING)
    for event in events:
        run, _ = step(run, event)
        again, effects = step(run, event)
        assert again == run
        assert all(isinstance(each, StopRun) for each in effects)
        assert msgspec.structs.asdict(again) == msgspec.structs.asdict(run)


@pytest.mark.parametrize(
    ("evicted", "admitted", "expected"),
    [
        pytest.param(12, 10, ["ten"], id="its own eviction"),
        pytest.param(14, 10, ["ten"], id="its own, published again for another reason"),
        pytest.param(58, 55, [], id="that of a later admission, which runs elsewhere"),
        pytest.param(58, 0, ["ten"], id="no later admission is known"),
        pytest.param(12, 55, ["ten"], id="its own, read after a new admission"),
        pytest.param(10, 10, [], id="one before it was admitted"),
    ],
)
def test_which_runs_an_eviction_means(evicted: int, admitted: int, expected: list[str]) -> None:
    runs = {
        "ten": a_run(Stage.STOPPING, evicted=11),
        "other": Run(**OF | {"name": "x"}, revision=1),
    }
    assert runs_to_evict(runs, "team", "train", evicted, admitted) == expected


def test_a_job_that_a_policy_failed_is_finished_with_the_reason_of_the_policy() -> None:
    _, effects = step(a_run(RUNNING), Ended("failed", "m", 3, "BackoffLimitExceeded"))
    assert effects[0] == finished(False, "m", 3, reason="BackoffLimitExceeded")
