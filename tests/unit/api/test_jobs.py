"""The fields of a Job that its workload keeps, and the Jobs that are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.fields.problems import ManifestError
from admittance.api.pods import Container, PodSpec, Volume, VolumeMount
from admittance.api.reading.conform import Plain
from admittance.api.reading.from_job import workload_of
from admittance.api.reading.manifest import read
from admittance.api.reading.objects import decode_object, encode
from admittance.api.validation.containers import check_containers
from admittance.api.validation.validate import validate
from admittance.api.workload import (
    COMPLETIONS,
    JOB_POLICY,
    TTL_AFTER_FINISHED,
    Job,
    JobPolicy,
    Workload,
    noted_policy,
)

QUEUE = {"kueue.x-k8s.io/queue-name": "main"}
INDEXED: dict[str, Any] = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}


def a_job(annotations: dict[str, str] | None = None, restart: str = "Never", **spec: Any) -> Job:
    template = {
        "spec": {"restartPolicy": restart, "containers": [{"name": "c", "command": ["true"]}]}
    }
    value = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": QUEUE, "annotations": annotations or {}},
        "spec": {"template": template, **spec},
    }
    manifest = decode_object(value).manifest
    assert isinstance(manifest, Job)
    return manifest


def plain_job() -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": QUEUE}}


def policy_in(workload: Workload) -> JobPolicy | None:
    return noted_policy(workload.spec.pod_sets[0].template.metadata.annotations)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, JobPolicy(backoff_limit=6), id="Kubernetes' default"),
        pytest.param({"backoffLimit": 0}, JobPolicy(backoff_limit=0), id="no retries"),
        pytest.param(
            {"parallelism": 3}, JobPolicy(backoff_limit=6, work_queue=True), id="a work queue"
        ),
        pytest.param(
            {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2},
            JobPolicy(backoff_limit_per_index=1, max_failed_indexes=2, completion_mode="Indexed"),
            id="a limit per index has no other limit",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 90},
            JobPolicy(backoff_limit=6, active_deadline_seconds=90),
            id="a deadline",
        ),
    ],
)
def test_the_workload_of_a_job_carries_its_policy(spec: dict[str, Any], want: JobPolicy) -> None:
    workload = workload_of(a_job(**spec))
    assert policy_in(workload) == want
    assert workload.spec.maximum_execution_time_seconds is None, "counts over all runs"
    assert validate(workload) == []


def test_policies_for_failures_and_success_survive_as_they_were_written() -> None:
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
    success = [{"succeededIndexes": "0,2-3", "succeededCount": 2}]
    job = a_job(**INDEXED, podFailurePolicy={"rules": rules}, successPolicy={"rules": success})
    policy = policy_in(workload_of(job))
    assert policy is not None
    assert policy.pod_failure_policy == job.spec.pod_failure_policy
    assert policy.success_policy == job.spec.success_policy


@pytest.mark.parametrize("suspend", [True, False])
def test_a_job_waits_for_its_admission_whether_it_says_suspend_or_not(suspend: bool) -> None:
    assert workload_of(a_job(suspend=suspend)) == workload_of(a_job())


def test_the_time_after_its_end_at_which_a_job_is_deleted_is_carried() -> None:
    workload = workload_of(a_job(ttlSecondsAfterFinished=0))
    assert workload.metadata.annotations[TTL_AFTER_FINISHED] == "0"
    assert TTL_AFTER_FINISHED not in workload_of(a_job()).metadata.annotations


@pytest.mark.parametrize(("equal", "want"), [("true", None), ("false", "4")])
def test_completions_follow_the_number_of_pods_if_the_annotation_says_so(
    equal: str, want: str | None
) -> None:
    notes = {
        "kueue.x-k8s.io/job-min-parallelism": "2",
        "kueue.x-k8s.io/job-completions-equal-parallelism": equal,
    }
    (pod_set,) = workload_of(a_job(notes, parallelism=4, completions=4)).spec.pod_sets
    assert pod_set.min_count == 2
    assert pod_set.template.metadata.annotations.get(COMPLETIONS) == want


ON_CODES: dict[str, Any] = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}


def failure_rule(**change: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": [{**ON_CODES, **change}]}}


def codes(**change: Any) -> dict[str, Any]:
    return failure_rule(onExitCodes={**ON_CODES["onExitCodes"], **change})


def success(completions: int = 4, **rule: Any) -> dict[str, Any]:
    return {**INDEXED, "completions": completions, "successPolicy": {"rules": [rule]}}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"restart": "Always"}, "restartPolicy: must be Never or OnFailure, not 'Always'"),
        ({"restart": ""}, "restartPolicy: must be set: Never or OnFailure"),
        ({"managedBy": "example.com/x"}, "must be kubernetes.io/job-controller or left out"),
        ({"completionMode": "Indexed"}, "must be set while completionMode is Indexed"),
        ({"completionMode": "Both"}, "is not one of NonIndexed, Indexed"),
        ({"backoffLimit": -1}, "must be at least 0"),
        ({"backoffLimitPerIndex": 1}, "may only be set while completionMode is Indexed"),
        (
            {**INDEXED, "backoffLimitPerIndex": 1, "restart": "OnFailure"},
            "may only be set while restartPolicy is Never",
        ),
        ({**INDEXED, "maxFailedIndexes": 1}, "may only be set together with backoffLimitPerIndex"),
        ({"ttlSecondsAfterFinished": -1}, "must be at least 0"),
        ({"podReplacementPolicy": "Never"}, "is not one of TerminatingOrFailed, Failed"),
        (
            {**failure_rule(), "podReplacementPolicy": "TerminatingOrFailed"},
            "must be Failed while podFailurePolicy is set",
        ),
        ({**failure_rule(), "restart": "OnFailure"}, "while restartPolicy is Never"),
        ({"podFailurePolicy": {"rules": []}}, "rules: must not be empty"),
        (failure_rule(action="Stop"), "is not one of FailJob"),
        (failure_rule(action="FailIndex"), "only together with backoffLimitPerIndex"),
        (failure_rule(onExitCodes=None), "must have one of onExitCodes and onPodConditions"),
        (codes(values=[]), "values: must not be empty"),
        (codes(values=[0]), "must not have 0"),
        (codes(values=[1, 1]), "listed twice"),
        (codes(operator="Eq"), "is not one of In, NotIn"),
        (codes(containerName="d"), "no container has the name 'd'"),
        ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, "while completionMode is Indexed"),
        (success(), "must have succeededIndexes or succeededCount"),
        (success(succeededIndexes="0-"), "'0-' is not an index or a range"),
        (success(succeededIndexes="3-1"), "the range 3-1 is empty"),
        (success(succeededIndexes="2,1"), "1 does not come after 2"),
        (success(succeededIndexes="0-4"), "must be below completions 4, not 4"),
        (success(succeededIndexes="0-1", succeededCount=3), "must not exceed 2, not 3"),
        (success(succeededCount=5), "must not exceed 4, not 5"),
    ],
)
def test_a_job_that_kubernetes_would_refuse_is_refused(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(ManifestError) as caught:
        workload_of(a_job(**spec))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("notes", "says"),
    [
        ({"kueue.x-k8s.io/job-completions-equal-parallelism": "yes"}, "must be true or false"),
        ({"kueue.x-k8s.io/job-completions-equal-parallelism": "true"}, "must equal parallelism"),
    ],
)
def test_a_job_with_a_wrong_annotation_is_refused(notes: dict[str, str], says: str) -> None:
    with pytest.raises(ManifestError) as caught:
        workload_of(a_job(notes, parallelism=2, completions=3))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{", "is not a policy of a job"),
        ('{"backoffLimits": 1}', "is not a policy of a job"),
        ('{"backoffLimit": -1}', "backoffLimit: must be at least 0"),
        ('{"maxFailedIndexes": 1}', "may only be set together with backoffLimitPerIndex"),
    ],
)
def test_a_workload_with_a_wrong_policy_has_a_problem(written: str, says: str) -> None:
    workload = workload_of(a_job())
    (pod_set,) = workload.spec.pod_sets
    metadata = msgspec.structs.replace(pod_set.template.metadata, annotations={JOB_POLICY: written})
    template = msgspec.structs.replace(pod_set.template, metadata=metadata)
    changed = msgspec.structs.replace(pod_set, template=template)
    spec = msgspec.structs.replace(workload.spec, pod_sets=(changed,))
    [problem] = validate(msgspec.structs.replace(workload, spec=spec))
    assert says in str(problem)


JOB_TEXT = """
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  template:
    spec:
      restartPolicy: Never
"""
"""A Job as YAML, up to the rest of its pod spec."""


@pytest.mark.parametrize(("written", "mode"), [("0400", 256), ("0o644", 420), ("420", 420)])
def test_the_rights_of_a_file_are_read_as_kubernetes_reads_them(written: str, mode: int) -> None:
    text = f"""{JOB_TEXT}
      volumes: [{{name: s, secret: {{secretName: s, defaultMode: {written}}}}}]
      containers: [{{name: c, command: ["true"]}}]
"""
    [document] = read(text.encode(), "x.yaml")
    job = document.manifest
    assert isinstance(job, Job)
    secret = job.spec.template.spec.volumes[0].secret
    assert secret is not None
    assert secret.default_mode == mode


@pytest.mark.parametrize(
    ("written", "says"),
    [
        *((value, f"true or false ({value!r})") for value in ("true", "False", "yes", "off")),
        *(
            (value, f"a number ({value!r})")
            for value in ("1", "-2", "012", "0x1F", "1.10", "1.5e+3")
        ),
        *(
            (value, "")
            for value in ('"1"', "'true'", "!!str 1", "", "1.10.0", "1e3", "09", "v1", "1Gi")
        ),
    ],
)
def test_the_value_of_a_variable_needs_quotes_as_in_kubernetes(written: str, says: str) -> None:
    text = f"""{JOB_TEXT}
      containers:
      - name: c
        command: ["true"]
        env:
        - name: A
          value: {written}
"""
    said = ""
    try:
        read(text.encode(), "x.yaml")
    except ManifestError as error:
        [problem] = error.problems
        said = str(problem)
    where = "spec.template.spec.containers[0].env[0].value: must be a string, not "
    assert said == (f"{where}{says}: write it in quotes" if says else "")


@pytest.mark.parametrize("written", ["512", "01000", "-1", "rw", "true"])
def test_rights_that_no_file_has_are_refused(written: str) -> None:
    line = ""
    volume = {"name": "s", "secret": {"secretName": "s", "defaultMode": Plain(written)}}
    job = {**plain_job(), "spec": {"template": {"spec": {"volumes": [volume]}}}}
    try:
        manifest = decode_object(job).manifest
        line = str(validate(manifest))
    except ManifestError as error:
        line = str(error)
    assert "defaultMode" in line


def test_what_a_job_becomes_causes_no_warning_as_a_workload() -> None:
    workload = workload_of(a_job(backoffLimit=2, ttlSecondsAfterFinished=100))
    [document] = read(encode(workload), "x.json")
    assert document.warnings == ()


@pytest.mark.parametrize(
    ("volume", "mounts", "count"),
    [
        pytest.param({"secret": {"secretName": "s", "items": [{"key": "k", "path": f"p{n}"}
                                                              for n in range(1_001)]}}, [], "1,001",
                     id="one key a thousand times"),
        pytest.param({"configMap": {"items": [{"key": "k", "path": "a/" * 1_000 + "b"}]}},
                     [], "1,001", id="folders inside each other"),
        pytest.param({"emptyDir": {}}, [f"{n}/a" for n in range(501)], "1,002", id="subPaths"),
        pytest.param({"emptyDir": {}}, ["a/b/c"] * 1_000, "", id="one subPath a thousand times"),
    ],
)  # fmt: skip
def test_a_template_names_at_most_a_thousand_files_and_folders(
    volume: dict[str, Any], mounts: list[str], count: str
) -> None:
    pod = PodSpec(
        containers=(
            Container(
                name="c",
                volume_mounts=tuple(
                    VolumeMount(name="v", mount_path=f"/m/{at}", sub_path=path)
                    for at, path in enumerate(mounts)
                ),
            ),
        ),
        volumes=(msgspec.convert({"name": "v", **volume}, Volume),),
    )
    problems = [str(problem) for problem in check_containers(pod, "spec")]
    what = "spec.volumes: must have at most 1,000 files and folders in items and subPath of all"
    assert problems == ([f"{what} volumes, not {count}"] if count else [])
