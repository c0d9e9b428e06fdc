"""The report about jobs that save their state: what it lets pass, and what it finds broken."""

from __future__ import annotations

import pytest
from benchmarks.job_traces import JobFacts, JobRun, verdict_on

TRACE = ["start 0 7", "step 1 7", "saved 1 7", "start 1 9", "step 2 9", "done 2 9"]
RUNS = [JobRun(4, "stopped"), JobRun(6, "succeeded")]
TOLD = JobFacts(finished=1, started=2, stopped=1, succeeded=True)


def test_a_stopped_and_resumed_job_keeps_every_guarantee() -> None:
    verdict = verdict_on("j", 2, TRACE, RUNS, TOLD)
    assert verdict.broken == ()
    assert (verdict.runs, verdict.saves, verdict.steps, verdict.lost) == (2, 1, 2, 0)


def test_steps_that_nothing_had_saved_are_counted() -> None:
    trace = ["start 0 7", "step 1 7", "start 0 9", "step 1 9", "step 2 9", "done 2 9"]
    assert verdict_on("j", 2, trace, RUNS, TOLD).lost == 1


@pytest.mark.parametrize(
    ("trace", "runs", "job", "sentence"),
    [
        (TRACE[:3], RUNS, TOLD, "j: succeeded at 1 of 2"),
        (TRACE, RUNS, TOLD._replace(succeeded=False), "j: has not succeeded in the end"),
        (TRACE, RUNS, TOLD._replace(finished=2), "j: finished stands 2 times on the log"),
        ([*TRACE, "step 2 7"], RUNS, TOLD, "j: run 7 lived beside run 9"),
        (
            TRACE,
            [JobRun(4, "succeeded"), JobRun(6, "stopped")],
            TOLD,
            "j: had a result at 4 and ran again at 6",
        ),
    ],
)
def test_a_broken_guarantee_is_reported_as_a_sentence(
    trace: list[str], runs: list[JobRun], job: JobFacts, sentence: str
) -> None:
    assert verdict_on("j", 2, trace, runs, job).broken == (sentence,)


def test_a_rerun_that_never_began_breaks_nothing() -> None:
    runs = [JobRun(4, "succeeded"), JobRun(6, "stopped", began=False)]
    assert verdict_on("j", 2, TRACE, runs, TOLD).broken == ()
