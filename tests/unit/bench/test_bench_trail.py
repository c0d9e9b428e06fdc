"""The report of a chaos run names every broken promise, and nothing else."""

from __future__ import annotations

import pytest
from benchmarks.harness.jobs import broken_promises
from benchmarks.harness.trail import Replay, Trail, read_trail, replay

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.shapes import Admission, PodSetAssignment


def reserved(name: str, cpu: str = "1") -> Fact:
    pods = PodSetAssignment(name="main", resource_usage={"cpu": cpu}, count=1)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(pods,))
    return facts.QuotaReserved(namespace="ns", name=name, revision=1, admission=admission)


def finished(name: str) -> Fact:
    return facts.Finished(namespace="ns", name=name, revision=1)


def stopped(name: str) -> Fact:
    return facts.Stopped(namespace="ns", name=name, revision=1)


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(
            ["start a 1", "start b 2", "end a 1", "end b 2"],
            Trail(2, frozenset("ab"), (), 2),
            id="two jobs side by side",
        ),
        pytest.param(
            ["start a 1", "start a 2", "end a 2"],
            Trail(2, frozenset("a"), (), 1),
            id="a killed run and the one that replaced it",
        ),
        pytest.param(
            ["start a 1", "start a 2", "end a 1", "end a 2"],
            Trail(2, frozenset("a"), ("a",), 1),
            id="a run that ends after the next one began lived beside it",
        ),
    ],
)
def test_read_trail(lines: list[str], want: Trail) -> None:
    assert read_trail(lines) == want


@pytest.mark.parametrize(
    ("log", "over"),
    [
        pytest.param([reserved("a"), reserved("b")], 0, id="up to the quota"),
        pytest.param([reserved("a"), reserved("b"), reserved("c")], 1, id="one beyond it"),
        pytest.param([reserved("a"), reserved("a"), reserved("b")], 0, id="published twice"),
        pytest.param([reserved("a", "2"), finished("a"), reserved("b")], 0, id="an end frees it"),
        pytest.param([reserved("a", "2"), stopped("a"), reserved("b")], 0, id="a stop frees it"),
        pytest.param(
            [reserved("a", "2"), finished("x"), reserved("b")],
            1,
            id="the end of another job does not",
        ),
    ],
)
def test_replay_finds_usage_over_quota(log: list[Fact], over: int) -> None:
    assert len(replay(log, {"cq": 2000}).over) == over


@pytest.mark.parametrize(
    ("unfinished", "trail", "over", "want"),
    [
        pytest.param([], Trail(2, frozenset("ab"), (), 2), (), "", id="all is well"),
        pytest.param(["workload.a"], Trail(2, frozenset("ab"), (), 2), (), "not fin", id="lost"),
        pytest.param([], Trail(1, frozenset("a"), (), 1), (), "never came", id="never run"),
        pytest.param([], Trail(3, frozenset("ab"), ("a",), 2), (), "twice", id="twice at once"),
        pytest.param([], Trail(2, frozenset("ab"), (), 99), (), "at once", id="too many at once"),
        pytest.param([], Trail(2, frozenset("ab"), (), 2), ("c",), "over quota", id="over quota"),
    ],
)
def test_every_broken_guarantee_is_reported(
    unfinished: list[str], trail: Trail, over: tuple[str, ...], want: str
) -> None:
    broken = broken_promises(2, unfinished, trail, Replay(over, {}, 2), at_once=16)
    assert (want in broken[0]) if want else not broken
