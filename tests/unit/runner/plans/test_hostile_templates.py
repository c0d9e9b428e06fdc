"""Whatever a pod template says: its workload is refused, or each executor makes a plan of it, or
says in one sentence why it cannot run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from admittance.api.fields.problems import ManifestError
from admittance.api.reading.objects import accept
from admittance.events.facts import Admitted
from admittance.events.shapes import PodSetToRun
from admittance.job_rules.rules import NO_RULES, CannotRun, JobRules
from admittance.runner.host.docker_executor import DockerExecutor
from admittance.runner.host.live_rules import LiveRules
from admittance.runner.host.local_executor import LocalExecutor
from admittance.runner.plans.run_plan import RunPlan
from unit.runner.plans.hostile_templates import hostile_template

TEMPLATES = 400
RULES = JobRules(folders=("/tmp",), images=("busybox*",))


def plans(template: Any) -> Iterator[RunPlan | str]:
    """For each executor its plan of a job with the template, or why it has none."""
    pods = PodSetToRun(name="main", count=2, template=msgspec.Raw(msgspec.json.encode(template)))
    fact = Admitted(namespace="team", name="train", uid="u", revision=10, pod_sets=(pods,))
    for rules in (LiveRules(NO_RULES), LiveRules(RULES)):
        for executor in (LocalExecutor({}, rules), DockerExecutor({}, rules)):
            try:
                plan = executor.run_plan(fact, "mark")
            except CannotRun as error:
                yield str(error)
            else:
                assert msgspec.json.decode(msgspec.json.encode(plan), type=RunPlan) == plan
                yield plan


def is_accepted(template: Any) -> bool:
    pod_set = {"name": "main", "count": 2, "template": template}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"queueName": "q", "podSets": [pod_set]},
    }
    try:
        accept(msgspec.json.decode(msgspec.json.encode(workload)))
    except ManifestError as error:
        assert "\n" not in str(error)
        return False
    return True


def no_start(plan: RunPlan) -> str:
    """Why no process could be started from the plan; "" if one could."""
    for pods in plan.sets:
        for process in (*pods.init, *pods.main):
            words = [*process.argv, process.cwd, *(word for pair in process.env for word in pair)]
            if not process.argv or any("\0" in word for word in words):
                return f"{process} has no program, or a zero byte"
            if any(not name or "=" in name for name, _ in process.env):
                return f"{process} has a variable without a proper name"
    return ""


def test_a_random_template_is_refused_or_planned_or_said_not_to_run() -> None:
    accepted = planned = 0
    for seed in range(TEMPLATES):
        template = hostile_template(Random(seed))
        accepted += is_accepted(template)
        for plan in plans(template):
            if isinstance(plan, RunPlan):
                planned += 1
                assert no_start(plan) == "", seed
    # The templates are neither all refused nor all good.
    assert TEMPLATES / 20 < accepted < TEMPLATES
    assert TEMPLATES / 20 < planned < TEMPLATES * 4


@pytest.mark.parametrize(
    ("container", "says"),
    [
        pytest.param({"workingDir": "\0"}, "workingDir: must have no zero byte", id="folder"),
        pytest.param({"workingDir": "a/b"}, "workingDir: must be an absolute path", id="relative"),
        pytest.param({"command": ["a\0"]}, "command: must have no zero byte", id="program"),
        pytest.param({"args": ["a", "\0"]}, "args: must have no zero byte", id="argument"),
        pytest.param({"image": "\0"}, "image: must have no zero byte", id="image"),
        pytest.param({"env": [{"name": ""}]}, r"env\[0\].name: must be set", id="no name"),
        pytest.param({"env": [{"name": "A=B"}]}, "no equals sign", id="an equals sign"),
        pytest.param({"env": [{"name": "A\0"}]}, "zero byte", id="a zero byte in a name"),
        pytest.param({"env": [{"name": "A", "value": "\0"}]}, "zero byte", id="a value"),
        *(
            pytest.param({"env": [{"name": "A", "valueFrom": source}]}, says, id=name)
            for name, source, says in (
                ("a text as source", "x", r"got `str` - at `\$.*valueFrom`"),
                ("no source", {}, "must name one source"),
                ("a text as fieldRef", {"fieldRef": "x"}, r"got `str` - at `\$.*fieldRef`"),
                ("no path", {"fieldRef": {}}, "fieldRef.fieldPath: must be set"),
                ("a list as path", {"fieldRef": {"fieldPath": [1]}}, "Expected `str`, got `array`"),
                ("a mapping as key", {"secretKeyRef": {"key": {}}}, "Expected `str`, got `object`"),
                ("an unknown source", {"x": {}}, "unknown field `x`"),
                (
                    "two sources",
                    {"fieldRef": {"fieldPath": "a"}, "secretKeyRef": {"key": "k"}},
                    "must name one source",
                ),
            )
        ),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": ""}}]},
            "secretRef.name: must be set",
            id="no secret",
        ),
        pytest.param({"envFrom": [{"prefix": "="}]}, "must name one source", id="a prefix alone"),
        pytest.param(
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            "no volume has the name 'v'",
            id="v",
        ),
        pytest.param(
            {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]},
            "must be left out while value is set",
            id="a value and a source",
        ),
    ],
)
def test_what_no_program_can_start_with_is_refused_and_never_planned(
    container: dict[str, Any], says: str
) -> None:
    template = {"spec": {"containers": [{"name": "c", "command": ["true"], **container}]}}
    assert not is_accepted(template)
    for plan in plans(template):
        assert isinstance(plan, str)
        assert re.search(says, plan), plan
