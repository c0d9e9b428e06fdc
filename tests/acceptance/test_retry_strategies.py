"""Delays without an explicit number: strategies, jitter, retry counts for controllers; and the
messages about a wait. docs/spec/lifecycle.md#3.5 to #3.7, #7.3.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
from admittance.api.reading.manifest import ManifestError, read
from admittance.workload.limits import Limits
from support.cores.timed_cores import TimedCores, cores_with_queue

scenario = pytest.mark.scenario


def with_retry(nominal: str = "10", limits: Limits | None = None, **retry: Any) -> TimedCores:
    """A queue with a check that has a strategy for a Retry without a delay."""
    cores = cores_with_queue("c1", nominal=nominal, limits=limits)
    cores.check("c1", retry=retry)
    return cores


@scenario("L13")
def test_jitter_spreads_simultaneous_retries() -> None:
    cores = with_retry("100", strategy="static", baseDelay="60s", jitter=0.5)
    names = [f"w-{number}" for number in range(100)]
    for name in names:
        cores.submit(name, "cq", "1")
    cores.go()
    for name in names:
        cores.answer(name, "c1", "Retry")
    waits = [cores.wait(name) for name in names]
    assert all(wait is not None and 60 <= wait <= 90 and wait == int(wait) for wait in waits)
    seconds = sorted(int(wait) for wait in waits if wait is not None)
    # Of a hundred over thirty seconds: few share one, and no stretch of ten stays empty.
    assert len(set(seconds)) >= 20
    assert seconds[0] <= 65
    assert seconds[-1] >= 85
    assert max(b - a for a, b in pairwise(seconds)) <= 5
    back: dict[str, float] = {}
    for second in range(60, 91):
        cores.at(second)
        for name in names:
            if name not in back and cores.phase(name) == "QuotaReserved":
                back[name] = second
    assert sorted(back.values()) == seconds
    assert {len(cores.requests("c1", name)) for name in names} == {2}


@scenario("L13")
def test_jitter_is_the_same_in_every_computation() -> None:
    waits = []
    for _ in range(2):
        cores = with_retry(strategy="static", baseDelay="60s", jitter=0.5)
        cores.submit("w", "cq", "8")
        cores.go()
        cores.answer("w", "c1", "Retry")
        first = cores.wait("w")
        cores.answer("w", "c1", "Retry")
        assert cores.wait("w") == first, "a repeat moves nothing"
        waits.append(first)
    assert waits[0] == waits[1]


@scenario("L14")
@pytest.mark.parametrize(
    ("retry", "waits"),
    [
        pytest.param({"strategy": "static", "baseDelay": "60s"}, [60, 60, 60, 60], id="static"),
        pytest.param(
            {"strategy": "backoff", "baseDelay": "30s", "factor": 2, "maxDelay": "100s"},
            [30, 60, 100, 100],
            id="backoff",
        ),
        pytest.param(
            {"strategy": "backoff", "baseDelay": "10s", "factor": 1.5}, [10, 15, 23, 34],
            id="rounded up",
        ),
        pytest.param(
            {"strategy": "backoff", "baseDelay": "1m"}, [60, 120, 240, 480], id="by default"
        ),
    ],
)  # fmt: skip
def test_a_strategy_gives_the_delay_that_the_check_did_not(
    retry: dict[str, Any], waits: list[int]
) -> None:
    cores = with_retry(**retry)
    cores.submit("w", "cq", "8")
    cores.go()
    delays = []
    for wait in waits:
        cores.report("w", "c1", "Retry")
        delays.append(cores.wait("w"))
        assert cores.rows("w")["c1"].requeue_after_seconds == wait
        cores.advance(wait - 0.1)
        assert cores.phase("w") == "Backoff"
        cores.advance(0.1)
        assert cores.phase("w") == "QuotaReserved"
    assert delays == waits
    assert cores.counts("w") == {"c1": 4}


@scenario("L14")
def test_an_explicit_delay_wins_over_the_strategy() -> None:
    cores = with_retry(strategy="static", baseDelay="60s")
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "c1", "Retry", after=5)
    assert cores.wait("w") == 5


@scenario("L14")
def test_after_the_last_try_a_retry_is_a_rejection() -> None:
    cores = with_retry(strategy="static", baseDelay="60s", maxRetries=2)
    cores.submit("w", "cq", "8")
    cores.go()
    for _ in range(2):
        cores.report("w", "c1", "Retry")
        assert cores.phase("w") == "Backoff"
        cores.advance(60)
        assert cores.phase("w") == "QuotaReserved"
    cores.report("w", "c1", "Retry", message="still full")
    assert cores.phase("w") == "Rejected"


BAD = [
    pytest.param({"strategy": "static", "baseDelay": "0s"}, "baseDelay", id="no delay"),
    pytest.param({"strategy": "static"}, "baseDelay", id="no base"),
    pytest.param({"strategy": "backoff", "baseDelay": "1s", "factor": 0.5}, "factor", id="factor"),
    pytest.param({"strategy": "static", "baseDelay": "1s", "jitter": 1.1}, "jitter", id="jitter"),
    pytest.param({"strategy": "static", "baseDelay": "1s", "jitter": -0.1}, "jitter", id="below 0"),
    pytest.param({"strategy": "often", "baseDelay": "1s"}, "strategy", id="an unknown strategy"),
]


@scenario("L14")
@pytest.mark.parametrize(("retry", "field"), BAD)
def test_an_invalid_strategy_is_refused(retry: dict[str, Any], field: str) -> None:
    written = (
        "{apiVersion: kueue.x-k8s.io/v1beta2, kind: AdmissionCheck, metadata: {name: c}, "
        f"spec: {{controllerName: k, retry: {retry!r}}}}}"
    )
    with pytest.raises(ManifestError, match=rf"retry\.{field}"):
        read(written, "check.yaml")
    assert AdmissionCheckSpec().retry is AdmissionCheck().spec.retry is None


@scenario("L15")
def test_the_message_names_the_next_try_and_the_delaying_check() -> None:
    cores = cores_with_queue("budget", "gpu")
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "budget", "Retry", after=43_200, message="daily budget exhausted")
    for condition in ("Evicted", "QuotaReserved"):
        message = cores.message("w", condition)
        assert "2026-01-02T00:00:00Z" in message, condition
        assert '"budget"' in message, condition
    assert "daily budget exhausted" in cores.message("w", "Evicted")
    assert cores.reason("w", "QuotaReserved") == "False: PendingEvaluation"
    cores.advance(60)
    cores.report("w", "gpu", "Retry", after=86_400, message="no A100")
    message = cores.message("w", "QuotaReserved")
    assert "2026-01-02T12:01:00Z" in message
    assert '"gpu"' in message
    cores.advance(60)
    cores.report("w", "gpu", "Retry", after=60, message="soon")
    message = cores.message("w", "QuotaReserved")
    assert "2026-01-02T00:00:00Z" in message
    assert '"budget"' in message


@scenario("L15")
def test_several_checks_in_retry_are_listed_sorted_and_in_the_plural() -> None:
    cores = cores_with_queue("b", "a")
    cores.submit("w", "cq", "8")
    cores.go()
    for check in ("a", "b"):
        cores.report("w", check, "Ready")
    cores.slow_jobs.add("w")
    cores.report("w", "b", "Retry", after=60, message="second")
    assert 'AdmissionCheck in Retry state: "b" (second)' in cores.message("w", "Evicted")
    cores.report("w", "a", "Retry", after=90, message="first")
    message = cores.message("w", "Evicted")
    assert message.index('"a" (first)') < message.index('"b" (second)')
    assert "AdmissionChecks in Retry state" in message


@scenario("L20")
@pytest.mark.parametrize("by", ["a delay", "a strategy"])
def test_with_the_gate_closed_every_retry_is_one_without_delay(by: str) -> None:
    limits = Limits(requeue_after=False)
    if by == "a delay":
        cores = cores_with_queue("c1", limits=limits)
    else:
        cores = with_retry(limits=limits, strategy="static", baseDelay="60s")
    cores.submit("w", "cq", "8")
    cores.go()
    more = {"after": 60} if by == "a delay" else {}
    cores.report("w", "c1", "Retry", **more)
    assert cores.evictions("w") == {"AdmissionCheck": 1}
    assert (cores.phase("w"), cores.seconds(), cores.wait("w")) == ("QuotaReserved", 0, None)
    assert cores.counts("w") == {"c1": 1}
    if by == "a delay":
        assert cores.noted("w"), "people are told that the delay was dropped"


@scenario("L25")
def test_a_check_can_compute_its_delay_from_the_retry_count() -> None:
    cores = cores_with_queue("c1")
    cores.submit("w", "cq", "8")
    cores.go()
    waits = []
    for _ in range(4):
        count = cores.requests("c1", "w")[-1].retry_count
        delay = 30 * 2**count
        # Whatever else it sends: the count is not the controller's to write.
        cores.report("w", "c1", "Retry", after=delay)
        before = cores.seconds()
        cores.advance(delay - 0.1)
        assert cores.phase("w") == "Backoff"
        cores.advance(0.1)
        assert cores.phase("w") == "QuotaReserved"
        waits.append(cores.seconds() - before)
    assert waits == [30, 60, 120, 240]
    assert [request.retry_count for request in cores.requests("c1", "w")] == [0, 1, 2, 3, 4]
    cores.report("w", "c1", "Ready")
    assert cores.counts("w") == {"c1": 0}
