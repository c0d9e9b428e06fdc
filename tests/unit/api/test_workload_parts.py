"""The requests of a pod, the needs of scheduling, the workload of a job, and the stored spec."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admittance.api.fields.units import INT64_MAX, BadDuration, amount, seconds
from admittance.api.pod_requests import effective, needs
from admittance.api.pods import PodTemplate
from admittance.api.queues import (
    ClusterQueue,
    ClusterQueueSpec,
    conflicts,
    named_checks,
    of_flavor,
    queue_wide,
)
from admittance.api.reading.canonical import spec_of, to_stored
from admittance.api.reading.from_job import (
    from_command,
    literal,
    workload_of,
)
from admittance.api.reading.manifest import ManifestError, accept, decode_object, encode, read
from admittance.api.validation.workload import requests_over_limits
from admittance.api.workload import COMPLETIONS, CheckState, Job, Workload
from admittance.runner.jobs.pod_process import expand

V2 = "kueue.x-k8s.io/v1beta2"
CASES = Path(__file__).resolve().parents[4] / "shared" / "conformance" / "workload"


def container(cpu: Any = None, *, restart: str | None = None, limit: Any = None) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if cpu is not None:
        resources["requests"] = {"cpu": cpu}
    if limit is not None:
        resources["limits"] = {"cpu": limit}
    return {"name": "c", "resources": resources, "restartPolicy": restart}


def template_requests(template: dict[str, Any]) -> dict[str, int]:
    pod = msgspec.convert(template, PodTemplate).spec
    return effective(pod.containers, pod.init_containers, pod.resources, pod.overhead)


def requests_of(**pod: Any) -> dict[str, int]:
    return template_requests({"spec": pod})


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        pytest.param({"containers": [container(1), container("500m")]}, 1500,
                     id="containers add up"),
        pytest.param({"containers": [container(1)],
                      "initContainers": [container(3), container(2)]}, 3000,
                     id="the largest init container counts"),
        pytest.param({"containers": [container(2)], "initContainers": [container(1)]}, 2000,
                     id="a smaller init container does not"),
        pytest.param({"containers": [container(1)],
                      "initContainers": [container(1, restart="Always")]}, 2000,
                     id="a sidecar adds to the containers"),
        pytest.param({"containers": [container(1)],
                      "initContainers": [container(1, restart="Always"), container(5)]}, 6000,
                     id="a sidecar adds to the init containers behind it"),
        pytest.param({"containers": [container(1)],
                      "initContainers": [container(5), container(1, restart="Always")]}, 5000,
                     id="a sidecar does not add to the init containers before it"),
        pytest.param({"containers": [container(limit=2)]}, 2000,
                     id="a limit without a request is the request"),
        pytest.param({"containers": [container(1, limit=2)]}, 1000,
                     id="a limit beside a request is not"),
        pytest.param({"containers": [container(1)], "overhead": {"cpu": "100m"}}, 1100,
                     id="overhead is added"),
        pytest.param({"containers": [container(1)], "resources": {"requests": {"cpu": 4}},
                      "overhead": {"cpu": 1}}, 5000, id="pod-level resources take over"),
        pytest.param({"containers": [container(1)], "resources": {"limits": {"cpu": 4}}}, 4000,
                     id="a pod-level limit is a request, too"),
        pytest.param({"containers": [container("0.0001"), container("0.0001")]}, 1,
                     id="a sum is rounded once"),
        pytest.param({"containers": [container("9E"), container("9E")]}, INT64_MAX,
                     id="a sum saturates"),
        pytest.param({"containers": [container(0)]}, 0, id="0 is requested"),
    ],
)  # fmt: skip
def test_effective_requests(pod: Any, cpu: int) -> None:
    assert requests_of(**pod) == {"cpu": cpu}


_QUANTITIES = st.sampled_from(["0", "1", "250m", "1500m", "3", "100n", 2])
_PODS = st.fixed_dictionaries(
    {
        "containers": st.lists(st.builds(container, _QUANTITIES), min_size=1, max_size=3),
        "initContainers": st.lists(
            st.builds(container, _QUANTITIES, restart=st.sampled_from([None, "Always"])), max_size=4
        ),
    }
)


@given(_PODS)
def test_requests_are_the_highest_sum_at_any_moment(pod: Any) -> None:
    """Twin: walk through the life of the pod and look at what runs together."""

    def cpu(container: Any) -> float:
        return float(amount("cpu", container["resources"]["requests"]["cpu"]))

    sidecars, peaks = 0.0, []
    for container in pod["initContainers"]:
        if container["restartPolicy"] == "Always":
            sidecars += cpu(container)
            peaks.append(sidecars)
        else:
            peaks.append(sidecars + cpu(container))
    peaks.append(sidecars + sum(cpu(container) for container in pod["containers"]))
    highest = requests_of(**pod)["cpu"]
    # The twin rounds every container, so it may be more by less than one each.
    parts = len(pod["containers"]) + len(pod["initContainers"])
    assert highest <= max(peaks) <= highest + parts


def _cases(name: str) -> list[Any]:
    path = CASES / f"{name}.json"
    if not path.is_file():
        reason = "the conformance data is not beside this tree"
        return [pytest.param({}, id="no data", marks=pytest.mark.skip(reason))]
    return [pytest.param(case, id=case["name"]) for case in json.loads(path.read_text())["cases"]]


@pytest.mark.parametrize("case", _cases("TestAdjustResources"))
def test_limits_count_as_kueue_fills_them_in(case: Any) -> None:
    if {"limitranges", "runtimeClasses"} & case["given"].keys():
        pytest.skip("LimitRange and RuntimeClass are objects of a cluster: there are none here")
    given_sets = case["given"]["wl"]["spec"]["podSets"]
    wanted_sets = case["want"]["wl"]["spec"]["podSets"]
    for given_set, wanted in zip(given_sets, wanted_sets, strict=True):
        assert template_requests(given_set["template"]) == template_requests(wanted["template"])


@pytest.mark.parametrize("case", _cases("TestValidateResources"))
def test_requests_over_limits_are_found(case: Any) -> None:
    workload = decode_object(case["given"]["workloadInfo"]["obj"]).manifest
    assert isinstance(workload, Workload)
    want = {error["field"] for error in case["want"].get("error", [])}
    assert {problem.field for problem in requests_over_limits(workload.spec)} == want


# Needs and the stored form. -------------------------------------------------------------


def a_workload(**spec: Any) -> Workload:
    value = {"apiVersion": V2, "kind": "Workload", "metadata": {"name": "w"}, "spec": spec}
    manifest = decode_object(value).manifest
    assert isinstance(manifest, Workload)
    return manifest


def test_needs_of_a_stored_spec() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = {
        "containers": [{**container("500m"), "image": "i", "args": ["a"], "tty": True}],
        "nodeSelector": {"type": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": required},
        "volumes": [{"name": "v"}],
    }
    needed = needs(to_stored(a_workload(
        podSets=[{"count": 3, "minCount": 2, "template": {"spec": pod}}],
        queueName="q", priority=5, role="variant", preemptionGates=[{"name": "g"}],
        admissionConstraints={"allowedResourceFlavors": ["a"]},
    )))  # fmt: skip
    assert (needed.queue_name, needed.priority, needed.active) == ("q", 5, True)
    assert (needed.allowed_flavors, needed.role, needed.preemption_gates) == (
        ("a",),
        "variant",
        ("g",),
    )
    (pod_set,) = needed.pod_sets
    assert (pod_set.name, pod_set.count, pod_set.min_count) == ("main", 3, 2)
    assert pod_set.requests == {"cpu": 500}
    assert pod_set.node_selector == {"type": "spot"}
    assert pod_set.tolerations[0].key == "spot"
    assert pod_set.affinity is not None
    assert pod_set.affinity[0].match_expressions[0].values == ("a",)


def test_needs_of_a_minimal_workload() -> None:
    needed = needs(to_stored(a_workload(podSets=[{}])))
    assert (needed.priority, needed.active, needed.allowed_flavors) == (0, True, None)
    assert needed.pod_sets[0].affinity is None


def test_flavors_allowed_by_annotation_are_in_the_spec() -> None:
    value = {
        "apiVersion": V2, "kind": "Workload", "spec": {"podSets": [{}]},
        "metadata": {"name": "w", "annotations": {
            "kueue.x-k8s.io/workload-allowed-resource-flavors": "a, b"}},
    }  # fmt: skip
    workload = accept(value).manifest
    assert isinstance(workload, Workload)
    assert needs(to_stored(workload)).allowed_flavors == ("a", "b")
    value["spec"] = {"podSets": [{}], "admissionConstraints": {"allowedResourceFlavors": ["c"]}}
    with pytest.raises(ManifestError, match="contradicts the annotation"):
        accept(value)


def test_equal_specs_are_stored_as_equal_bytes() -> None:
    labels = {"a": "1", "b": "2", "c": "3"}
    stored = {
        to_stored(a_workload(podSets=[{
            "count": 1, "name": "main", "template": {"metadata": {"labels": dict(order)}}
        }], active=True))
        for order in itertools.permutations(labels.items())
    }  # fmt: skip
    assert len(stored) == 1
    assert stored == {
        to_stored(a_workload(podSets=[{"template": {"metadata": {"labels": labels}}}]))
    }


def test_a_spelled_out_default_is_stored_like_a_missing_field() -> None:
    def stored(text: str) -> bytes:
        manifest = decode_object(text.encode()).manifest
        assert isinstance(manifest, Workload)
        assert spec_of(to_stored(manifest)) == manifest.spec
        return to_stored(manifest)

    head = f'{{"apiVersion":"{V2}","kind":"Workload","metadata":{{"name":"w"}},"spec":'
    short = stored(head + '{"podSets":[{"template":{"spec":{"containers":[{"name":"c"}]}}}]}}')
    assert short == stored(
        head + '{"role":"regular","active":true,"queueName":"","podSets":[{"name":"main","count":1,'
        '"template":{"metadata":{},"spec":{"containers":[{"name":"c","env":[],"resources":'
        '{"requests":{}}}]}}}]}}'
    )
    assert short == b'{"podSets":[{"template":{"spec":{"containers":[{"name":"c"}]}}}]}'


def test_an_object_is_encoded_the_same_however_it_was_spelled() -> None:
    head = f'{{"apiVersion":"{V2}","kind":"ClusterQueue","metadata":{{"name":"q"}},"spec":'
    plain = decode_object((head + "{}}").encode()).manifest
    spelled = decode_object(
        (head + '{"queueingStrategy":"BestEffortFIFO","stopPolicy":"None","preemption":{},'
         '"flavorFungibility":{"whenCanBorrow":"MayStopSearch"}}}').encode()
    ).manifest  # fmt: skip
    assert encode(spelled) == encode(plain) == (head.removesuffix(',"spec":') + "}").encode()


def test_a_stored_spec_decodes_to_the_same_spec() -> None:
    workload = a_workload(podSets=[{"count": 2}], queueName="q", priority=0)
    assert spec_of(to_stored(workload)) == workload.spec


# Jobs and commands. ---------------------------------------------------------------------


def a_job(
    *, labels: Any = None, annotations: Any = None, name: str = "train-7", **spec: Any
) -> Job:
    metadata = {
        "name": name, "namespace": "team-a",
        "labels": {"kueue.x-k8s.io/queue-name": "q", **(labels or {})},
        "annotations": annotations or {},
    }  # fmt: skip
    template = {"spec": {"containers": [container(1)], "restartPolicy": "Never"}}
    value = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
             "spec": {"template": template, **spec}}  # fmt: skip
    manifest = decode_object(value).manifest
    assert isinstance(manifest, Job)
    return manifest


def test_a_job_becomes_a_workload_of_the_same_name() -> None:
    workload = workload_of(a_job(parallelism=3, completions=3, suspend=True))
    assert (workload.metadata.namespace, workload.metadata.name) == ("team-a", "train-7")
    assert workload.spec.queue_name == "q"
    (pod_set,) = workload.spec.pod_sets
    assert (pod_set.name, pod_set.count, pod_set.min_count) == ("main", 3, None)
    assert COMPLETIONS not in pod_set.template.metadata.annotations


@pytest.mark.parametrize(
    ("spec", "count", "completions"),
    [
        ({}, 1, None),
        ({"parallelism": 3}, 3, None),
        ({"parallelism": 3, "completions": 10}, 3, "10"),
        ({"parallelism": 5, "completions": 2}, 2, None),
        ({"completions": 4}, 1, "4"),
        ({"parallelism": 0}, 0, None),
    ],
)
def test_the_pod_set_has_the_pods_that_run_at_once(
    spec: Any, count: int, completions: str | None
) -> None:
    (pod_set,) = workload_of(a_job(**spec)).spec.pod_sets
    assert pod_set.count == count
    assert pod_set.template.metadata.annotations.get(COMPLETIONS) == completions


def test_min_parallelism_of_a_job_becomes_min_count() -> None:
    least = {"kueue.x-k8s.io/job-min-parallelism": "5"}
    job = a_job(parallelism=20, completions=20, annotations=least)
    (pod_set,) = workload_of(job).spec.pod_sets
    assert pod_set.min_count == 5
    # Fewer pods have as much to complete.
    assert pod_set.template.metadata.annotations.get(COMPLETIONS) == "20"
    for wrong in ("0", "20", "many", "-1"):
        least = {"kueue.x-k8s.io/job-min-parallelism": wrong}
        with pytest.raises(ManifestError, match="must be a number from 1 to 19"):
            workload_of(a_job(parallelism=20, annotations=least))


@pytest.mark.parametrize(
    ("pods", "sentence"),
    [
        (0, "must be left out: the Job runs no pod at once, so it cannot start with fewer"),
        (1, "must be left out: the Job runs 1 pod at once, so it cannot start with fewer"),
        (2, "must be 1, not"),
        (3, "must be a number from 1 to 2, not"),
    ],
)
def test_a_number_of_fewer_pods_names_no_empty_range(pods: int, sentence: str) -> None:
    least = {"kueue.x-k8s.io/job-min-parallelism": "3"}
    with pytest.raises(ManifestError, match=sentence):
        workload_of(a_job(parallelism=pods, annotations=least))


def test_a_job_without_a_queue_is_refused() -> None:
    job = a_job(labels={"kueue.x-k8s.io/queue-name": ""})
    with pytest.raises(ManifestError, match="name of a LocalQueue"):
        workload_of(job)


def test_a_generated_name_ends_with_the_given_suffix() -> None:
    job = msgspec.structs.replace(
        a_job(), metadata=msgspec.structs.replace(a_job().metadata, name="", generate_name="j-")
    )
    assert workload_of(job, suffix="ab1c2").metadata.name == "j-ab1c2"


def test_limits_and_priority_of_a_job() -> None:
    labels = {
        "kueue.x-k8s.io/max-exec-time-seconds": "60", "kueue.x-k8s.io/priority-class": "high"
    }  # fmt: skip
    workload = workload_of(a_job(labels=labels))
    assert workload.spec.maximum_execution_time_seconds == 60
    assert workload.spec.priority is None
    assert workload.spec.priority_class_ref is not None
    assert workload.spec.priority_class_ref.name == "high"


def test_a_command_becomes_a_workload() -> None:
    workload = from_command(
        ["sh", "-c", "true"], name="w", namespace="n", queue="q", cpu="500m", gpu="0", count=2,
        env={"A": "1"},
    )  # fmt: skip
    needed = needs(to_stored(workload))
    assert needed.pod_sets[0].requests == {"cpu": 500, "memory": 2**30}
    assert needed.pod_sets[0].count == 2
    container = workload.spec.pod_sets[0].template.spec.containers[0]
    assert (container.command, container.env[0].name) == (("sh", "-c", "true"), "A")
    gpu = from_command(["x"], name="w", namespace="n", queue="q", gpu=2)
    assert needs(to_stored(gpu)).pod_sets[0].requests["nvidia.com/gpu"] == 2
    with pytest.raises(ManifestError, match="is not a quantity"):
        from_command(["x"], name="w", namespace="n", queue="q", memory="1 Gi")
    with pytest.raises(ManifestError, match="a command"):
        from_command([], name="w", namespace="n", queue="q")


# Lists of checks, durations. ------------------------------------------------------------


def a_queue(**spec: Any) -> ClusterQueueSpec:
    value = {"apiVersion": V2, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}
    manifest = decode_object(value).manifest
    assert isinstance(manifest, ClusterQueue)
    return manifest.spec


def groups(**checks: list[str]) -> list[Any]:
    return [{"coveredResources": ["cpu"], "flavors": [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}], "admissionchecks": listed}
        for name, listed in checks.items()]}]  # fmt: skip


def test_both_forms_of_check_lists_are_equivalent() -> None:
    lists = a_queue(admissionChecks=["wide"], resourceGroups=groups(a=["x"], b=[]))
    rules = [{"name": "wide"}, {"name": "x", "onFlavors": ["a"]}]
    strategy = a_queue(
        admissionChecksStrategy={"admissionChecks": rules}, resourceGroups=groups(a=[], b=[])
    )
    for spec in (lists, strategy):
        assert queue_wide(spec) == ("wide",)
        assert of_flavor(spec, "a") == ("x",)
        assert of_flavor(spec, "b") == of_flavor(spec, "none") == ()
        assert named_checks(spec) == ("wide", "x")


def test_two_checks_of_one_controller_in_one_list_conflict() -> None:
    controllers = {"one": "c", "two": "c", "three": "d"}
    assert conflicts(a_queue(admissionChecks=["one", "two"]), controllers.get)
    assert conflicts(a_queue(resourceGroups=groups(a=["one", "two"])), controllers.get)
    fine = a_queue(admissionChecks=["one", "unknown"], resourceGroups=groups(a=["two"], b=["one"]))
    assert conflicts(fine, controllers.get) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [("60s", 60), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("0", 0), ("-1m", -60)],
)
def test_a_duration_becomes_seconds(text: str, want: float) -> None:
    assert seconds(text) == want


@pytest.mark.parametrize("text", ["", "60", "1 h", "h", "1d", "s1", "-", "1h-1m", "1e3s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(BadDuration):
        seconds(text)


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(hours: int, minutes: int, rest: int) -> None:
    want = timedelta(hours=hours, minutes=minutes, seconds=rest)
    assert seconds(f"{hours}h{minutes}m{rest}s") == want.total_seconds()


@pytest.mark.parametrize("state", ["Pending", "Ready"])
def test_the_json_of_a_check_row_has_its_state(state: str) -> None:
    """Other programs that read the row do not know our defaults."""
    rows = (CheckState(name="a"), CheckState(name="a", state=state))
    written = [msgspec.json.decode(msgspec.json.encode(row)) for row in rows]
    assert [row["state"] for row in written] == ["Pending", state]


@given(text=st.text("$()AB x", max_size=12))
@example(text="echo $$ $(A) $$(B)")
def test_arguments_of_a_command_reach_the_process_unchanged(text: str) -> None:
    assert expand(literal(text), {"A": "no", "B": "no"}) == text


@pytest.mark.parametrize(
    ("text", "queue"),
    [
        pytest.param("kind: Job, apiVersion: batch/v1, metadata: {name: j}", "q", id="no label"),
        pytest.param(
            "kind: Job, apiVersion: batch/v1, "
            "metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: other, a: b}}",
            "q",
            id="another label",
        ),
    ],
)
def test_the_queue_of_jobs_in_a_file_can_be_chosen(text: str, queue: str) -> None:
    spec = "spec: {template: {spec: {restartPolicy: Never, containers: [{name: c}]}}}"
    [document] = read(f"{{{text}, {spec}}}", "file", queue=queue)
    assert isinstance(document.manifest, Job)
    assert workload_of(document.manifest).spec.queue_name == queue


def test_the_queue_of_workloads_in_a_file_can_be_chosen() -> None:
    text = f"{{apiVersion: {V2}, kind: Workload, metadata: {{name: w}}, spec: {{podSets: [{{}}]}}}}"
    [document] = read(text, "file", queue="q")
    assert isinstance(document.manifest, Workload)
    assert document.manifest.spec.queue_name == "q"
    with pytest.raises(ManifestError, match="labels"):
        read("{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: 3}}", "file", queue="q")
