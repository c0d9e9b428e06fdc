"""The facts of a runner about pods that failed and run again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from admittance.cli.show.sections import retry_lines
from admittance.events.shapes import PodRetries, PodRetry
from admittance.runner.host.run_journal import RETRIES_SHOWN, RunJournal
from admittance.runner.runs.run_checks import REPORT_SECONDS_MAX, FailureReports

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def journal(*lines: dict[str, Any]) -> RunJournal:
    run_journal = RunJournal()
    run_journal.feed("".join(json.dumps(line) + "\n" for line in lines).encode())
    return run_journal


def retry(pod: str, failed: int, due: float | None, left: int | None = None) -> dict[str, Any]:
    return {"e": "retry", "p": pod, "message": f"{pod} failed", "failed": failed, "due": due,
            "left": left}  # fmt: skip


def test_the_journal_has_the_waiting_pods_and_their_times() -> None:
    run_journal = journal(
        retry("main-0", 1, 110.0, 5),
        retry("main-1", 2, 104.0),
        retry("main-2", 3, None, -1),
        {"e": "start", "p": "main-0", "pid": 7, "t": 1},
    )
    assert run_journal.failures.summary(NOON, 100.0) == PodRetries(
        failed=3,
        given_up=1,
        waiting=1,
        pods=(PodRetry(pod="main-1", at=NOON + timedelta(seconds=4)),),
        message="main-2 failed",
    )
    assert journal({"e": "up"}).failures.summary(NOON, 100.0) is None


def test_only_the_first_pods_that_wait_are_named() -> None:
    run_journal = journal(*(retry(f"main-{n}", n + 1, 200.0 - n) for n in range(50)))
    said = run_journal.failures.summary(NOON, 100.0)
    assert said is not None
    assert (said.waiting, len(said.pods), said.pods[0].pod) == (50, RETRIES_SHOWN, "main-49")


def test_failures_are_published_soon_and_then_less_and_less_often() -> None:
    reports, reported = FailureReports(), []
    for second in range(0, 86_400, 2):
        if reports.take("run", second // 2 + 1, second):
            reported.append(second)
    assert reported[:5] == [0, 30, 90, 210, 450]
    assert len(reported) < 32
    assert reported[-1] - reported[-2] == REPORT_SECONDS_MAX
    assert not reports.take("run", 10, 10**6), "nothing new has failed"
    reports.keep(())
    assert reports.take("run", 1, 10**6)


def test_failed_pods_are_lines_for_people() -> None:
    pods = (PodRetry(pod="main-0", at=NOON + timedelta(seconds=8), left=5),)
    said = PodRetries(failed=3, given_up=1, waiting=12, pods=pods, message="pod main-0 failed: x")
    assert retry_lines(said, NOON) == (
        "pods failed 3 times, 12 wait to run again (the next at 2026-01-01T12:00:08Z), 1 index has "
        "failed for good: pod main-0 failed: x",
        "main-0 runs again at 2026-01-01T12:00:08Z (in 8s); 5 retries left after it",
        "11 more pods wait longer",
    )
    assert retry_lines(None, NOON) == ()
