"""Single workloads out of the reports about their runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from admittance.events.facts import QuotaReleased
from admittance.events.reader import Unreadable
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.usage.history import (
    SORT_KEYS,
    Chosen,
    PastWorkload,
    Reported,
    past_workloads,
    reported,
    sorted_workloads,
)
from support.builders import NOON

ALL = Chosen(NOON - timedelta(days=1))


def a_report(name: str = "w", at: int = 0, **fields: Any) -> Reported:
    """A run of ten seconds that began ``at`` seconds after noon, as it stands on the log."""
    since = NOON + timedelta(seconds=at)
    whole = {
        "uid": f"uid-{name}",
        "revision": 1,
        "reason": "Succeeded",
        "since": since,
        "until": since + timedelta(seconds=10),
        "admission": an_admission(),
        "admission_revision": 1,
        "ended": True,
        "queue": "lq",
        "submitted_by": "ada",
        "waited_seconds": 5,
        "submitted_at": NOON - timedelta(minutes=1),
    }
    fact = QuotaReleased(namespace="ns", name=name, **{**whole, **fields})
    return reported(msgspec.json.encode(fact), at)


def an_admission(cluster_queue: str = "cq", /, **used: Any) -> Admission:
    """``used``: flavor and amount by resource."""
    used = used or {"cpu": ("default", "1")}
    return Admission(
        cluster_queue=cluster_queue,
        pod_set_assignments=(
            PodSetAssignment(
                name="main",
                flavors={resource: flavor for resource, (flavor, _) in used.items()},
                resource_usage={resource: amount for resource, (_, amount) in used.items()},
            ),
        ),
    )


EVICTED: dict[str, Any] = {"ended": False, "reason": "Preempted", "preempted_by": "ns/big"}


def names(rows: Sequence[PastWorkload]) -> list[str]:
    return [row.name for row in rows]


def test_the_runs_of_a_workload_are_one_row_with_their_sums() -> None:
    big = an_admission("other", **{"cpu": ("spot", "1500m"), "nvidia.com/gpu": ("h100", "2")})
    [row] = past_workloads(
        [
            a_report(at=0, **EVICTED, preemptor_submitted_by="bob", machines=("m1",)),
            a_report(
                at=60, reason="Failed", exit_code=3, admission=big, machines=("m2",), queue="lq2"
            ),
        ],
        ALL,
    )
    assert (row.wait_seconds, row.run_seconds) == (10, 20)
    assert (row.state, row.reason, row.exit_code) == ("failed", "Failed", 3)
    assert (row.queue, row.cluster_queue, row.machines) == ("lq2", "other", ("m2",))
    assert row.flavors == ("spot", "h100")
    assert (row.cpu_seconds, row.gpu_seconds) == (25, 20)
    assert row.submitted == NOON - timedelta(minutes=1)
    assert row.ended == NOON + timedelta(seconds=70)
    [eviction] = row.evictions
    assert (eviction.reason, eviction.preempted_by) == ("Preempted", "ns/big")
    assert (eviction.preemptor_submitted_by, eviction.machines) == ("bob", ("m1",))
    assert [run.state for run in row.runs] == ["evicted", "failed"]


@pytest.mark.parametrize(
    ("used", "cpu", "gpu", "every"),
    [
        ({"cpu": ("a", "1")}, 10, 0, {"cpu": 10}),
        ({"cpu": ("a", "1m")}, 0.01, 0, {"cpu": 0.01}),
        ({"memory": ("a", "1Ki")}, 0, 0, {"memory": 10240}),
        (
            {"nvidia.com/gpu": ("a", "1"), "amd.com/gpu": ("b", "2")},
            0,
            30,
            {"nvidia.com/gpu": 10, "amd.com/gpu": 20},
        ),
        ({"example.com/gpus": ("a", "1")}, 0, 0, {"example.com/gpus": 10}),
    ],
)
def test_a_run_uses_its_amounts_times_its_seconds(
    used: dict[str, tuple[str, str]], cpu: float, gpu: float, every: dict[str, float]
) -> None:
    [row] = past_workloads([a_report(admission=an_admission(**used))], ALL)
    assert (row.cpu_seconds, row.gpu_seconds, row.resource_seconds) == (cpu, gpu, every)


def test_of_two_reports_about_one_admission_the_later_counts() -> None:
    [row] = past_workloads([a_report(**EVICTED), a_report(reason="Deleted", ended=False)], ALL)
    assert (row.reason, len(row.runs), row.cpu_seconds) == ("Deleted", 1, 10)


def test_a_reservation_that_was_not_admitted_is_an_eviction() -> None:
    [row] = past_workloads([a_report(ended=False, admission_revision=0, reason="Retry")], ALL)
    assert (row.state, row.evictions[0].admitted) == ("evicted", False)


def test_a_report_of_an_older_version_was_submitted_when_its_wait_began() -> None:
    [row] = past_workloads([a_report(submitted_at=None)], ALL)
    assert row.submitted == NOON - timedelta(seconds=5)


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        pytest.param({}, ["a", "b", "c"], id="all"),
        pytest.param({"since": NOON + timedelta(seconds=10)}, ["a", "b", "c"], id="from its end"),
        pytest.param({"since": NOON + timedelta(seconds=11)}, ["b", "c"], id="after its end"),
        pytest.param({"until": NOON + timedelta(seconds=30)}, ["a"], id="before an end"),
        pytest.param({"until": NOON + timedelta(seconds=31)}, ["a", "b"], id="after an end"),
        pytest.param({"user": "bob"}, ["b"], id="of a user"),
        pytest.param({"user": "eve"}, [], id="of an unknown user"),
        pytest.param({"queue": "lq"}, ["a", "c"], id="of a LocalQueue"),
        pytest.param({"queue": "cq"}, ["b"], id="a LocalQueue wins over a ClusterQueue"),
        pytest.param({"queue": "cq2"}, ["a"], id="of a ClusterQueue"),
        pytest.param({"states": ("failed",)}, ["b"], id="of a state"),
        pytest.param({"states": ("evicted",)}, ["c"], id="with an eviction"),
        pytest.param({"states": ("failed", "evicted")}, ["b", "c"], id="of one of two states"),
        pytest.param({"states": ("succeeded",)}, ["a", "c"], id="by the last run"),
    ],
)
def test_a_history_has_the_chosen_workloads(chosen: dict[str, Any], kept: list[str]) -> None:
    facts = [
        a_report("a", 0, admission=an_admission("cq2")),
        a_report("b", 20, submitted_by="bob", queue="cq", reason="Failed"),
        a_report("c", 40, **EVICTED),
        a_report("c", 60),
    ]
    assert names(past_workloads(facts, ALL._replace(**chosen))) == kept


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("ended", "abc"),
        ("submitted", "cba"),
        ("waited", "bac"),
        ("ran", "cab"),
        ("cpu", "acb"),
        ("gpu", "bac"),
        ("evictions", "cab"),
        ("name", "abc"),
        ("user", "bca"),
        ("queue", "cab"),
    ],
)
def test_a_history_is_sorted_by_a_key(key: Any, order: str) -> None:
    def ran(name: str, at: int, seconds: int, submitted: int, **more: Any) -> Reported:
        until = NOON + timedelta(seconds=at + seconds)
        stamp = NOON + timedelta(seconds=submitted)
        return a_report(name, at, until=until, submitted_at=stamp, **more)

    cpus = an_admission(cpu=("x", "9"))
    gpus = an_admission("cq", **{"nvidia.com/gpu": ("x", "1")})
    rows = past_workloads(
        [
            ran("a", 0, 10, -1, submitted_by="z", queue="q2", admission=cpus),
            ran("b", 20, 9, -2, submitted_by="x", queue="q3", waited_seconds=9, admission=gpus),
            ran("c", 40, 11, -3, submitted_by="y", queue="q1", waited_seconds=1, **EVICTED),
        ],
        ALL,
    )
    assert "".join(names(sorted_workloads(rows, key))) == order
    assert key in SORT_KEYS


@pytest.mark.parametrize(
    "data",
    [b"junk", b"{}", msgspec.json.encode({"namespace": "ns", "since": datetime(2026, 1, 1)})],  # noqa: DTZ001
)
def test_a_fact_that_cannot_be_read_is_named_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        reported(data, 1)


@pytest.mark.parametrize(
    ("cpu", "seconds"), [("1500m", b"15"), ("1", b"10"), ("3m", b"0.03"), ("0", b"0")]
)
def test_cpu_seconds_are_whole_numbers_where_they_can_be(cpu: str, seconds: bytes) -> None:
    [row] = past_workloads([a_report(admission=an_admission(cpu=("f", cpu)))], ALL)
    assert msgspec.json.encode(row.cpu_seconds) == seconds


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"reason": "Failed", "exit_code": 7}, 7),
        ({"reason": "Failed"}, None),
        (EVICTED, None),
    ],
)
def test_a_run_that_succeeded_has_the_exit_code_zero(
    fields: dict[str, Any], code: int | None
) -> None:
    [row] = past_workloads([a_report(**fields)], ALL)
    assert (row.exit_code, row.runs[0].exit_code) == (code, code)
