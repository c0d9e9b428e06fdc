"""Pod sets that were submitted before are not validated again, and the answer is the same."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from benchmarks.generated_manifests import random_manifest

from admittance.api.reading.workload_reader import WorkloadReader
from admittance.control.controller import Controller
from admittance.control.user_requests.submissions import InvalidSubmission, validate_submission
from admittance.events import facts
from admittance.workload.limits import Limits
from support.builders import a_manifest
from support.examples import examples
from unit.runner.plans.hostile_templates import hostile_template

CONTROLLER = Controller(b"secret", Limits())
PATHS = [("metadata", "labels"), ("metadata", "annotations"), ("metadata", "name")]


def answer(reader: WorkloadReader, manifest: dict[str, Any] | bytes) -> Any:
    """The outcome of a submission: the fact as builtins, or the sentence of the refusal."""
    written = manifest if isinstance(manifest, bytes) else msgspec.json.encode(manifest)
    fact = facts.Submitted(namespace="ns", name="w", workload=msgspec.Raw(written))
    try:
        arrived = validate_submission(fact, CONTROLLER.objects, CONTROLLER.queues, reader)
    except InvalidSubmission as error:
        return str(error)
    return bytes(arrived.spec), msgspec.to_builtins(msgspec.structs.replace(arrived, spec=""))


def with_pod_sets(manifest: dict[str, Any], pod_sets: Any) -> dict[str, Any]:
    """The manifest with these pod sets, and with the name and namespace of the submission."""
    metadata = {**manifest["metadata"], "name": "w", "namespace": "ns"}
    return {**manifest, "metadata": metadata, "spec": {**manifest["spec"], "podSets": pod_sets}}


def generated(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Random Workloads, valid and invalid ones."""
    pod_sets: list[dict[str, Any]] = []
    while len(pod_sets) < count:
        manifest = random_manifest(rng, "w")
        if manifest["kind"] == "Workload":
            pod_sets.append(manifest)
    return pod_sets


def test_a_submission_has_the_same_answer_when_its_pod_sets_are_known() -> None:
    rng = random.Random(26)
    rests = [a_manifest(), *generated(rng, 60)]
    pods = [[{"template": hostile_template(rng)}] for _ in range(80)]
    pods += [part["spec"].get("podSets") for part in rests]
    reader = WorkloadReader()
    known = valid = 0
    for number in range(examples(1200)):
        manifest = with_pod_sets(rng.choice(rests[: 1 + number % 61]), rng.choice(pods))
        before = len(reader)
        expected = answer(WorkloadReader(), manifest)
        assert answer(reader, manifest) == expected, manifest
        valid += not isinstance(expected, str)
        known += not isinstance(expected, str) and len(reader) == before
    assert known > 30
    assert valid > known


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("metadata", "name"), "W!", "metadata.name"),
        (("metadata", "labels"), {"a b": "c"}, "metadata.labels"),
        (("metadata", "annotations"), {"admittance.dev/ttl-seconds-after-finished": "x"}, "[admit"),
        (("metadata", "annotations"), {"kueue.x-k8s.io/admission-gated-by": "x"}, "[kueue"),
        (("metadata", "finalizer"), ["x"], "metadata.finalizer: unknown field"),
        (("spec", "queueName"), "-", "spec.queueName"),
        (("spec", "priority"), 2**40, "spec.priority"),
        (("spec", "role"), "variant", "spec.variant"),
        (("spec", "preemptionGates"), [{"name": "a"}, {"name": "a"}], "spec.preemptionGates[1]"),
        (("spec", "maximumExecutionTimeSeconds"), 0, "spec.maximumExecutionTimeSeconds"),
        (("spec", "priorityClassRef"), {"name": "gone", "kind": "PriorityClass"}, "gone"),
        (("kind",), "Job", "is not known for a Job"),
        (("apiVersion",), "v1", "Workload"),
    ],
)
def test_what_is_beside_known_pod_sets_is_validated(
    path: tuple[str, ...], value: Any, problem: str
) -> None:
    reader = WorkloadReader()
    manifest = a_manifest()
    for count in (0, 1):
        assert not isinstance(answer(reader, manifest), str)
        assert len(reader) == count, "pod sets are remembered when they come again"
    wrong = {**manifest, "metadata": {**manifest["metadata"]}, "spec": {**manifest["spec"]}}
    place = wrong
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    if path[0] == "spec" and path[-1] != "priority":
        wrong["spec"].pop("priority", None)
    reply = answer(reader, wrong)
    assert problem in reply
    assert reply == answer(WorkloadReader(), wrong)
    assert len(reader) == 1


def test_only_a_workload_may_be_submitted_also_of_an_older_version() -> None:
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"clusterQueue": "cq"},
    }
    assert answer(WorkloadReader(), queue) == "a LocalQueue was submitted: submit a Workload"
    older = {**a_manifest(), "apiVersion": "kueue.x-k8s.io/v1beta1"}
    assert answer(WorkloadReader(), older) == answer(WorkloadReader(), a_manifest())


@pytest.mark.parametrize("containers", ["{}", '{"command":["",""]}', '{"name":"a","image":"b"}'])
def test_hostile_pod_sets_fill_a_limited_part_of_memory(containers: str) -> None:
    reader = WorkloadReader(each_max=100_000, all_max=500_000)
    written = ",".join([containers] * 40)
    for number in range(200):
        pod_set = f'{{"count":{number},"template":{{"spec":{{"containers":[{written}]}}}}}}'
        manifest = (
            '{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"w"},'
            f'"spec":{{"queueName":"lq","podSets":[{pod_set}]}}}}'
        )
        for _ in range(2):
            assert not isinstance(answer(reader, manifest.encode()), str)
        assert reader.weight <= 500_000
    assert 0 < len(reader) < 200
    long = a_manifest()
    template = {"spec": {"containers": [{"name": "c", "args": ["x"] * 3000}]}}
    for _ in range(2):
        assert not isinstance(answer(reader, with_pod_sets(long, [{"template": template}])), str)
    assert len(reader) < 200
    assert reader.weight <= 500_000
