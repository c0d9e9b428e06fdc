"""Which runs may start: pods of a namespace, free space of the disk, and the options for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from admittance.job_rules.limits import VARIABLES, JobLimits, LimitTexts, limits_of
from admittance.runner.host.data_folder import RunFolder
from admittance.runner.host.port import RunFiles
from admittance.runner.host.records import RunIdentity
from admittance.runner.runs.start_gate import EXECUTOR, WAITS, StartGate
from admittance.runtime.errors import SetupError


def run(name: str, pods: int = 1, namespace: str = "a", units: tuple[str, ...] = ()) -> RunFolder:
    return RunFolder(
        Path("/nowhere"),
        RunIdentity(
            key=name, namespace=namespace, name=name, uid="u", revision=1, pods=pods, units=units
        ),
    )


def names(runs: Sequence[RunFiles]) -> list[str]:
    return [each.identity.key for each in runs]


def test_pods_of_a_namespace_are_limited_and_start_in_their_order() -> None:
    gate = StartGate(JobLimits(pods=4), lambda: None)
    first, large, small, other = run("first", 3), run("large", 4), run("small"), run("b", 4, "b")
    assert gate.offer(first) == ""
    limit = "the runner runs at most 4 pods of namespace a at once (--pod-limit)"
    assert gate.offer(large) == limit
    # There is room for it, but it would keep the large one waiting.
    assert gate.offer(small) == limit
    assert gate.offer(other) == ""
    assert gate.offer(first) == ""
    assert list(gate.waiting) == ["large", "small"]
    assert gate.forget("b") == []
    assert names(gate.forget("first")) == ["large"]
    assert gate.offer(large) == ""
    assert gate.offer(small) == limit
    assert names(gate.forget("large")) == ["small"]
    assert gate.offer(small) == ""
    assert gate.waiting == {}


def test_a_run_waits_for_a_device_that_another_run_still_has() -> None:
    gate = StartGate(JobLimits(), lambda: None)
    assert gate.offer(run("first", units=("gpu=0", "gpu=1"))) == ""
    second = run("second", units=("gpu=1",), namespace="b")
    assert gate.offer(second) == "device 1 of gpu still belongs to run first"
    assert gate.offer(run("third", units=("gpu=2",))) == ""
    assert names(gate.forget("first")) == ["second"]
    assert gate.offer(second) == ""
    assert gate.waiting == {}


def test_a_run_that_waits_for_a_device_is_forgotten_when_it_ends() -> None:
    gate = StartGate(JobLimits(), lambda: None)
    gate.offer(run("first", units=("gpu=0",)))
    gate.offer(run("second", units=("gpu=0",)))
    gate.forget("second")
    third = run("third", units=("gpu=0",))
    gate.count(third, 0)  # it was stopped while it waited
    gate.forget("third")
    assert gate.offer(run("fourth", units=("gpu=0",)))
    assert names(gate.forget("first")) == ["fourth"]


def test_a_run_that_was_stopped_or_is_gone_holds_up_no_other() -> None:
    gate = StartGate(JobLimits(pods=1), lambda: None)
    gate.offer(run("first"))
    for name in ("stopped", "gone", "last"):
        assert gate.offer(run(name))
    gate.count(run("stopped"), 0)
    assert gate.offer(run("stopped")) == ""
    gate.forget("gone")
    assert list(gate.waiting) == ["last"]
    assert names(gate.forget("first")) == ["last"]


def test_no_job_starts_while_the_engine_does_not_answer() -> None:
    gate = StartGate(JobLimits(), lambda: None)
    gate.problem = "the engine does not answer"
    assert [(finding.state, finding.what) for finding in gate.findings()] == [("wrong", EXECUTOR)]
    assert gate.offer(run("first")) == gate.problem
    assert [(finding.state, finding.what) for finding in gate.findings()] == [("wrong", WAITS)]
    gate.problem = ""
    assert gate.offer(run("first")) == ""
    assert gate.findings() == []


def test_no_job_starts_on_a_disk_that_is_nearly_full() -> None:
    free = [100]
    gate = StartGate(JobLimits(free_space=200, pods=0), lambda: free[0])
    assert "has less than 200 B free, so no job starts (--free-space)" in gate.offer(run("x"))
    assert [(finding.state, finding.found[:2]) for finding in gate.findings()] == [("wrong", "1:")]
    free[0] = 200
    assert gate.offer(run("x")) == ""
    assert gate.findings() == []


def test_waiting_runs_are_findings_with_their_number() -> None:
    gate = StartGate(JobLimits(pods=1), lambda: None)
    for number in range(4):
        gate.offer(run(str(number)))
    [finding] = gate.findings()
    assert (finding.state, finding.what) == ("note", "jobs that wait on the runner")
    assert finding.found.startswith("3: the runner runs at most 1 pods of namespace a")


def test_a_job_with_more_pods_than_the_limit_can_never_start() -> None:
    assert JobLimits(pods=10).too_many_pods(10, 10) == ""
    assert JobLimits(pods=0).too_many_pods(10_000, 10_000) == ""
    assert "runs 3,000 pods at once, and this runner starts at most 500" in (
        JobLimits().too_many_pods(3_000, 3_000)
    )
    assert "runs 5 pods with 15 containers at once, and this runner starts at most 10 of" in (
        JobLimits(pods=10).too_many_pods(5, 15)
    )


@pytest.mark.parametrize("page", ["runner.md", "settings.md"])
def test_the_documented_defaults_are_those_of_a_runner(page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    rows = dict(re.findall(r"^\| (?:`[^`]+`, )?`(ADMIT_\w+)` \| `?([^`|]+?)`? \|", text, re.M))
    no_default = ("privilege_escalation", "cgroup")
    env = {name: rows[name] for key, name in VARIABLES.items() if key not in no_default}
    assert limits_of(LimitTexts(), env) == JobLimits()


def test_options_win_over_variables_and_both_over_defaults() -> None:
    env = {
        "ADMIT_POD_LIMIT": "7",
        "ADMIT_PROCESS_LIMIT": "0",
        "ADMIT_OUTPUT_LIMIT": "1Gi",
        "ADMIT_ALLOW_PRIVILEGE_ESCALATION": "1",
    }
    texts = LimitTexts(pods="9", free_space="1M", privilege_escalation="0")
    assert limits_of(texts, env) == JobLimits(
        pods=9, processes=0, output=1 << 30, free_space=1_000_000
    )
    assert limits_of(LimitTexts(), {}) == JobLimits()
    assert limits_of(LimitTexts(), env).privilege_escalation


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"ADMIT_POD_LIMIT": "-1"}, "must be a whole number"),
        ({"ADMIT_POD_LIMIT": "many"}, "must be a whole number"),
        ({"ADMIT_PROCESS_LIMIT": "4294967296"}, "must be a whole number"),
        ({"ADMIT_OUTPUT_LIMIT": "100MB"}, "'100MB' is not a quantity"),
        ({"ADMIT_OUTPUT_LIMIT": "1"}, "must be at least 64Ki"),
        ({"ADMIT_NAMESPACE_OUTPUT_LIMIT": "-1Gi"}, "must be a size such as 100Mi"),
        ({"ADMIT_FREE_SPACE": "9E"}, "must be a size such as 100Mi"),
        ({"ADMIT_ALLOW_PRIVILEGE_ESCALATION": "yes"}, "must be 0 or 1"),
    ],
)
def test_wrong_limit_is_one_line_with_its_variable(env: dict[str, str], line: str) -> None:
    with pytest.raises(SetupError) as wrong:
        limits_of(LimitTexts(), env)
    assert line in str(wrong.value)
    assert f"({next(iter(env))})" in str(wrong.value)
    assert "\n" not in str(wrong.value)
