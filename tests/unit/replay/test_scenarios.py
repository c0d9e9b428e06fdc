"""Scenarios: what is one, what comes out of it, and how answers are compared."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from admittance.replay.minimal_system import differences
from admittance.replay.scenario import BadScenario, play, read

API = "kueue.x-k8s.io/v1beta2"


def a_queue(cpu: str = "4", **spec: Any) -> dict[str, Any]:
    """A ClusterQueue with this cpu quota; its workloads preempt by priority."""
    quota = {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    return {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
            **spec,
        },
    }


def a_workload(name: str, cpu: str, *, second: int, priority: int = 0) -> dict[str, Any]:
    """A workload of one pod, created at that second."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-02T00:00:{second:02}Z",
        },
        "spec": {
            "queueName": "lq",
            "priority": priority,
            "podSets": [
                {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
            ],
        },
    }


def a_scenario(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One ClusterQueue, and these steps."""
    objects = [
        {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "spot"}},
        a_queue(),
        {
            "apiVersion": API,
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": "default"},
            "spec": {"clusterQueue": "cq"},
        },
    ]
    return {"name": "one", "objects": objects, "steps": list(steps), **more}


def packed(value: Any) -> bytes:
    return gzip.compress(json.dumps(value).encode())


SETTLE = {"settle": True}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"{", "not JSON", id="half a document"),
        pytest.param(b"\xff\xfe", "not JSON", id="no text at all"),
        pytest.param(b"[" * 100_000, "not ", id="brackets without end"),
        pytest.param(b"[]", "not a scenario: Expected `object`", id="another document"),
        pytest.param(b"{}", "missing required field `name`", id="nothing in it"),
        pytest.param(
            b"\x1f\x8bnonsense", "the gzip data of the scenario is broken", id="gzip in name only"
        ),
        pytest.param(
            packed(a_scenario())[:-12],
            "the gzip data of the scenario is cut off",
            id="a file cut short",
        ),
        pytest.param(
            packed(a_scenario({"explode": 1})),
            "step 0: unknown step 'explode'",
            id="an unknown step",
        ),
        pytest.param(
            packed(a_scenario(SETTLE, {"settle": True, "finish": []})),
            "step 1: a step has one key, this step has 2",
            id="two steps in one",
        ),
        pytest.param(
            packed(a_scenario(SETTLE, name="../etc")),
            "it must be usable as a file name",
            id="a path as a name",
        ),
    ],
)
def test_bytes_without_a_scenario_are_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(BadScenario, match=why.replace("'", ".")):
        read(data)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        pytest.param({"create": [{}]}, "step 0: cannot be played: KeyError", id="no workload"),
        pytest.param({"update": {"kind": "ClusterQueue"}}, "step 0: cannot", id="half a queue"),
        pytest.param({"finish": 3}, "step 0: cannot be played: TypeError", id="no list of names"),
        pytest.param(
            {"update": a_queue("much")},
            "step 0: .*is not a quantity",
            id="a queue that is not valid",
        ),
    ],
)
def test_an_invalid_step_is_named_in_the_error(step: dict[str, Any], why: str) -> None:
    scenario = read(json.dumps(a_scenario(step)).encode())
    with pytest.raises(BadScenario, match=why):
        play(scenario)


def test_unknown_fields_are_skipped() -> None:
    scenario = read(packed(a_scenario(SETTLE, comment="new in 2027")))
    assert [step["step"] for step in play(scenario)] == [0]


def test_results_have_the_format_of_the_scenarios() -> None:
    story = a_scenario(
        {"create": [a_workload("low", "3", second=1)]},
        SETTLE,
        {"create": [a_workload("high", "2", second=9, priority=5)]},
        SETTLE,
        {"finish": ["high"]},
        SETTLE,
    )
    first, second, third = play(read(packed(story)))
    held = {
        "state": "Admitted",
        "clusterQueue": "cq",
        "podSets": [{"name": "main", "count": 1, "flavors": {"cpu": "spot"}}],
    }
    assert first == {
        "step": 1,
        "cycles": 1,
        "workloads": {"low": held},
        "usage": {"cq": {"spot": {"cpu": 3000}}},
        "trace": [
            {"cycle": 1, "event": "reserve", "workload": "low"},
            {"cycle": 1, "event": "admit", "workload": "low"},
        ],
    }
    assert second["workloads"] == {
        "low": {"state": "Pending", "evictions": ["InClusterQueue"]},
        "high": held,
    }
    assert second["trace"][0] == {
        "cycle": 1,
        "event": "evict",
        "workload": "low",
        "reason": "InClusterQueue",
        "by": "high",
    }
    assert third["workloads"] == {"low": held, "high": {"state": "Finished"}}
    assert third["usage"] == {"cq": {"spot": {"cpu": 3000}}}


def an_answer(state: str = "Pending", cpu: int | None = None, **more: Any) -> dict[str, Any]:
    usage = {} if cpu is None else {"cq": {"spot": {"cpu": cpu}}}
    return {"step": 1, "workloads": {"w": {"state": state}}, "usage": usage, **more}


@pytest.mark.parametrize(
    ("expected", "got", "want"),
    [
        pytest.param([an_answer()], [an_answer(cpu=0)], 0, id="a zero is as good as nothing"),
        pytest.param(
            [an_answer(cycles=3, trace=[{}])],
            [an_answer(cycles=4, trace=[])],
            0,
            id="cycles and the trace inform only",
        ),
        pytest.param([an_answer()], [an_answer("Admitted")], 1, id="another state"),
        pytest.param([an_answer(cpu=1)], [an_answer(cpu=2)], 1, id="another usage"),
        pytest.param([an_answer()], [an_answer(), an_answer()], 1, id="more answers than expected"),
    ],
)
def test_results_are_compared_by_the_rules_of_the_format(
    expected: list[dict[str, Any]], got: list[dict[str, Any]], want: int
) -> None:
    assert len(list(differences(expected, got))) == want
