"""When pods of a job run again, and when the job has succeeded or failed."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.runner.jobs.job_policy import NEVER, PodSetProgress, as_ranges, delay
from admittance.runner.jobs.pod import Pod

FAIL_42 = {"action": "FailJob", "in": True, "values": [42], "container": "c"}
IGNORE_143 = {"action": "Ignore", "in": True, "values": [143]}
FAIL_INDEX_3 = {"action": "FailIndex", "in": True, "values": [3]}
COUNT_ONLY_1 = {"action": "FailJob", "in": False, "values": [1]}


def progress(parallel: int = 1, completions: int = 1, **policy: Any) -> PodSetProgress:
    if policy:
        policy.setdefault("delays", (10.0, 360.0))
    return PodSetProgress({"parallel": parallel, "completions": completions, "policy": policy})


def play(pods: PodSetProgress, *ends: str) -> list[Any]:
    """Plays the ends of pods at the times that the policy allows: each is ``INDEX:CODE``. Returns,
    for each failure, the seconds until the next start or why the job fails."""
    now, steps = 0.0, []
    for end in ends:
        index, code = map(int, end.split(":"))
        while pods.take(now) is not None:
            pass
        if pods.active < pods.spec["parallel"] and pods.next_start() < NEVER:
            now = max(now, pods.next_start())
            while pods.take(now) is not None:
                pass
        why = pods.fail(index, "c", code, now) if code else None
        pods.end(index, whole=not code)
        if code:
            steps.append(why[0] if why else pods.next_start() - now)
        if why:
            break
    return steps


@pytest.mark.parametrize(
    ("failures", "want"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 360), (10_000, 360)]
)
def test_the_delay_doubles_up_to_six_minutes(failures: int, want: float) -> None:
    assert delay(failures, 10, 360) == want


def test_without_a_policy_the_first_failure_fails_the_job_without_a_reason() -> None:
    pods = progress(2, 2)
    assert pods.take(0.0) == 0
    assert pods.fail(0, "c", 1, 0.0) == ("", "")


FAILURES_CASES: dict[str, tuple[dict[str, Any], list[str], list[Any]]] = {
    "no retry": ({"backoffLimit": 0}, ["0:1"], ["BackoffLimitExceeded"]),
    "two retries": ({"backoffLimit": 2}, ["0:1", "0:1", "0:1"], [10, 20, "BackoffLimitExceeded"]),
    "a retry that succeeds": ({"backoffLimit": 3}, ["0:1", "0:0"], [10]),
    "a code that fails the job": (
        {"backoffLimit": 1, "failureRules": [FAIL_42]},
        ["0:42"],
        ["PodFailurePolicy"],
    ),
    "codes that do not count, but delay": (
        {"backoffLimit": 1, "failureRules": [IGNORE_143]},
        ["0:143", "0:143", "0:1", "0:1"],
        [10, 20, 40, "BackoffLimitExceeded"],
    ),
    "all codes but one": (
        {"backoffLimit": 1, "failureRules": [COUNT_ONLY_1]},
        ["0:1", "0:2"],
        [10, "PodFailurePolicy"],
    ),
    "a code that fails the index": (
        {"perIndex": 1, "failureRules": [FAIL_INDEX_3]},
        ["0:3"],
        [NEVER],
    ),
}


@pytest.mark.parametrize("case", FAILURES_CASES)
def test_failures_of_one_pod(case: str) -> None:
    policy, ends, want = FAILURES_CASES[case]
    pods = progress(**policy)
    assert play(pods, *ends) == want
    assert pods.is_over() == ends[-1].endswith(":0")


def test_after_a_failure_no_pod_of_the_job_starts_before_the_delay_or_a_success() -> None:
    pods = progress(2, 4, backoffLimit=6)
    assert [pods.take(0.0), pods.take(0.0)] == [0, 1]
    pods.fail(0, "c", 1, 0.0)
    pods.end(0, whole=False)
    assert pods.take(9.0) is None
    assert pods.next_start() == 10.0
    pods.end(1, whole=True)
    assert pods.next_start() == 0.0
    assert pods.take(9.0) == 2
    assert pods.take(9.0) == 3, "the retry of index 0 is not due before 10"
    pods.end(2, whole=True)
    assert pods.take(10.0) == 0


def test_a_pod_with_processes_left_is_not_replaced() -> None:
    pods = progress(2, 2, perIndex=5)
    assert [pods.take(0.0), pods.take(0.0)] == [0, 1]
    pods.fail(0, "c", 1, 0.0)
    assert pods.take(100.0) is None
    pods.end(0, whole=False)
    assert pods.take(100.0) == 0


def test_each_index_has_its_own_limit_and_the_job_fails_at_its_end() -> None:
    pods = progress(3, 3, perIndex=1)
    assert play(pods, "0:1", "1:0", "0:1") == [10, NEVER]
    assert pods.failed_indexes == [0]
    assert pods.failure() is None, "index 2 still runs"
    pods.end(2, whole=True)
    assert pods.failure() == ("FailedIndexes", "failed indexes: 0")
    assert not pods.is_over()


def test_more_failed_indexes_than_allowed_fail_the_job_at_once() -> None:
    pods = progress(3, 3, perIndex=0, maxFailed=1)
    assert play(pods, "0:1", "2:1") == [NEVER, "MaxFailedIndexesExceeded"]


@pytest.mark.parametrize(
    ("rules", "succeeded", "over"),
    [
        pytest.param([{"count": 1, "indexes": [[0, 0]]}], [1, 2], False, id="not the leader"),
        pytest.param([{"count": 1, "indexes": [[0, 0]]}], [1, 0], True, id="the leader"),
        pytest.param([{"count": 2, "indexes": [[0, 1], [3, 3]]}], [3, 2], False, id="one of two"),
        pytest.param([{"count": 2, "indexes": [[0, 1], [3, 3]]}], [3, 1], True, id="two of them"),
        pytest.param([{"count": 2}], [3, 1], True, id="any two"),
        pytest.param(
            [{"count": 4}, {"count": 1, "indexes": [[2, 2]]}], [2], True, id="a later rule"
        ),
    ],
)
def test_a_success_policy_ends_the_job(rules: list[Any], succeeded: list[int], over: bool) -> None:
    pods = progress(4, 4, backoffLimit=0, successRules=rules)
    while pods.take(0.0) is not None:
        pass
    for index in succeeded:
        pods.end(index, whole=True)
    assert pods.is_over() == over
    assert pods.next_start() == NEVER


def test_a_work_queue_ends_when_all_pods_have_ended_and_one_has_succeeded() -> None:
    pods = progress(3, 3, backoffLimit=6, workQueue=True)
    while pods.take(0.0) is not None:
        pass
    pods.end(0, whole=True)
    assert not pods.is_over()
    assert pods.fail(1, "c", 1, 0.0) is None
    pods.end(1, whole=False)
    assert pods.take(1000.0) is None, "no pod starts after a success"
    pods.end(2, whole=True)
    assert pods.is_over()


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"backoffLimit": 6}, "retry 1 of 6 in 10 s"),
        ({"perIndex": 2, "backoffLimit": 9}, "retry 1 of 2 in 10 s"),
        ({"perIndex": 0}, "its index has failed"),
    ],
)
def test_people_read_when_a_pod_runs_again(policy: dict[str, Any], text: str) -> None:
    pods = progress(**policy)
    pods.take(5.0)
    pods.fail(0, "c", 1, 5.0)
    assert pods.retry_text(0, 5.0) == text


@pytest.mark.parametrize(
    ("indexes", "text"), [([], ""), ([4], "4"), ([3, 1, 2, 7], "1-3,7"), ([0, 2], "0,2")]
)
def test_indexes_are_written_as_ranges(indexes: list[int], text: str) -> None:
    assert as_ranges(indexes) == text


def test_a_pod_of_a_run_that_ends_needs_no_look_and_has_failed_if_it_was_to_start_again() -> None:
    """Otherwise the shim would look at it without a pause until its processes have ended."""
    spec = {"name": "main", "init": [], "main": [], "parallel": 1, "completions": 1}
    pod = Pod(PodSetProgress({**spec, "policy": {"podDeadline": 5.0}}), 0, 10.0)
    assert pod.next_time() == 15.0
    pod.restarts, pod.restart_code = [(12.0, {"name": "c"})], 3
    assert pod.next_time() == 12.0
    pod.give_up()
    assert (pod.next_time(), pod.code) == (NEVER, 3)


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param({"backoffLimit": 6}, (110.0, 5), id="of the job"),
        pytest.param({"perIndex": 2}, (110.0, 1), id="of the index"),
        pytest.param({"perIndex": 4, "backoffLimit": 2}, (110.0, 1), id="the smaller one"),
        pytest.param({"perIndex": 0}, (None, -1), id="the index has failed"),
        pytest.param({"restart": True}, (110.0, None), id="any number"),
    ],
)
def test_the_next_try_is_known_after_a_failure(
    policy: dict[str, Any], want: tuple[float | None, int | None]
) -> None:
    pods = progress(1, 2, **policy)
    assert pods.take(0.0) == 0
    assert pods.fail(0, "c", 1, 100.0) is None
    assert pods.next_try(0) == want
    assert pods.failed == 1
