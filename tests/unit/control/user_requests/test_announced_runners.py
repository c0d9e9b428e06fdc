"""A submission is refused only if every runner of its namespace would refuse the job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admittance.api.workload import COMPLETIONS
from admittance.control.user_requests.runner_rules import PATTERNS_MAX, AnnouncedRunners
from admittance.events.system import RunnerStarts

ADA = RunnerStarts(submitters=("ada",))


@pytest.mark.parametrize(
    ("runners", "user", "is_refused"),
    [
        pytest.param([], "ben", False, id="no runner is known"),
        pytest.param([None], "ben", False, id="the runner starts all jobs"),
        pytest.param([ADA], "ada", False, id="the user is named"),
        pytest.param([ADA], "ben", True, id="only others are named"),
        pytest.param([ADA], "", True, id="the submitter is unknown"),
        pytest.param([RunnerStarts(unknown=True)], "", False, id="unknown submitters are allowed"),
        pytest.param([RunnerStarts(unknown=True)], "ben", True, id="only unknown ones are allowed"),
        pytest.param([RunnerStarts(all_of=("team",))], "ben", False, id="the namespace is named"),
        pytest.param([RunnerStarts(all_of=("x",))], "ben", True, id="another namespace is named"),
        pytest.param([RunnerStarts(every=True)], "ben", False, id="a rule for all"),
        pytest.param(
            [RunnerStarts(every=True, refused=("ben",))], "ben", True, id="its rule is broken"
        ),
        pytest.param([ADA, RunnerStarts(every=True)], "ben", False, id="another runner starts it"),
        pytest.param([ADA, None], "ben", False, id="another runner has no rules"),
        pytest.param(
            [RunnerStarts(namespaces=("x",))], "ben", False, id="no runner takes the namespace"
        ),
        pytest.param(
            [ADA, RunnerStarts(namespaces=("x",), every=True)],
            "ben",
            True,
            id="the other runner leaves the namespace alone",
        ),
    ],
)
def test_submission_that_no_runner_starts_is_refused(
    runners: list[RunnerStarts | None], user: str, is_refused: bool
) -> None:
    known = AnnouncedRunners()
    for number, starts in enumerate(runners):
        known.note(str(number), starts)
    said = str(known.refusal(user, "team") or "")
    assert bool(said) == is_refused
    if said and user:
        assert f"no runner has a Unix user for jobs of the user {user} in namespace team" in said
    for number in range(len(runners)):
        known.forget(str(number))
    assert known.refusal(user, "team") is None


def manifest(*images: str) -> bytes:
    first, *others = ({"name": "c", "image": image} for image in images)
    pod = {"initContainers": [first], "containers": others}
    return json.dumps({"spec": {"podSets": [{"template": {"spec": pod}}]}}).encode()


@pytest.mark.parametrize(
    ("runners", "submitted", "refusal"),
    [
        pytest.param([("ours/*",)], manifest("ours/a", "ours/b"), "", id="allowed"),
        pytest.param([("ours/*",)], manifest("ours/a", "x"), "x: allowed are ours/*", id="one"),
        pytest.param([("ours/*",)], manifest("x", "ours/a"), "x: allowed are ours/*", id="init"),
        pytest.param([("ours/*",), ()], manifest("x"), "", id="a runner without such rules"),
        pytest.param([("ours/*",), ("x",)], manifest("x"), "", id="another runner runs it"),
        # An invalid manifest is refused when the fact is applied, with its reason.
        pytest.param([("ours/*",)], b"[", "", id="invalid"),
        pytest.param([("ours/*",)], b'{"spec": {"podSets": 7}}', "", id="no pod sets"),
    ],
)
def test_image_that_no_runner_may_run_is_refused(
    runners: list[tuple[str, ...]], submitted: bytes, refusal: str
) -> None:
    known = AnnouncedRunners()
    for number, images in enumerate(runners):
        known.note(str(number), RunnerStarts(every=True, images=images))
    # A runner that starts no job of the user does not count.
    known.note("other", RunnerStarts(submitters=("eve",)))
    said = str(known.refusal("ada", "team", submitted) or "")
    start = "no runner of namespace team may run the image "
    assert said == (f"{start}{refusal}" if refusal else "")


MOUNTED = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


@pytest.mark.parametrize(
    ("container", "volume", "lacks", "refusal"),
    [
        (MOUNTED, {"hostPath": {"path": "/srv"}}, ["hostPath"], "mounts a hostPath"),
        (MOUNTED, {"hostPath": {"path": "/srv"}}, ["values"], ""),
        ({}, {"hostPath": {"path": "/srv"}}, ["hostPath"], ""),
        (MOUNTED, {"emptyDir": {}}, ["hostPath", "values"], ""),
        (MOUNTED, {"secret": {"secretName": "s"}}, ["values"], "has values of ConfigMaps"),
        (MOUNTED, {"configMap": {"name": "s", "optional": True}}, ["values"], ""),
        ({"env": [{"name": "A", "valueFrom": SECRET}]}, {}, ["values"], "has values of ConfigMaps"),
        ({"env": [{"name": "A", "value": "1"}]}, {}, ["values"], ""),
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, {}, ["values"], "has values of ConfigM"),
    ],
)
def test_a_workload_that_gets_an_input_from_no_runner_is_refused(
    container: dict[str, Any], volume: dict[str, Any], lacks: list[str], refusal: str
) -> None:
    pod = {"containers": [{"name": "c", **container}], "volumes": [{"name": "v", **volume}]}
    submitted = json.dumps({"spec": {"podSets": [{"template": {"spec": pod}}]}}).encode()
    known = AnnouncedRunners()
    known.note("one", RunnerStarts(every=True, lacks=tuple(lacks)))
    said = str(known.refusal("ada", "team", submitted) or "")
    start = "no runner of namespace team "
    assert said.startswith(f"{start}{refusal}" if refusal else "")
    assert bool(said) == bool(refusal)
    known.note("two", RunnerStarts(every=True))
    assert known.refusal("ada", "team", submitted) is None


def of_pods(count: int | None, least: int | None = None, completions: int = 0) -> dict[str, Any]:
    noted = {"annotations": {COMPLETIONS: str(completions)}} if completions else None
    sized = {} if count is None else {"count": count}
    return {**sized, "minCount": least, "template": {"metadata": noted}}


def of_containers(count: int, containers: int) -> dict[str, Any]:
    """Pods with so many containers with a command, one container without, and one init
    container."""
    main = [{"name": "none"}, *({"name": f"c{n}", "args": ["x"]} for n in range(containers))]
    first = [{"name": "first", "command": ["x"]}]
    return {"count": count, "template": {"spec": {"containers": main, "initContainers": first}}}


@pytest.mark.parametrize(
    ("limits", "pod_sets", "refusal"),
    [
        pytest.param([4], [of_pods(4)], "", id="as many as the limit"),
        pytest.param([4], [of_pods(1_005)], "1,005 pods at once, and no runner", id="more"),
        pytest.param([4], [of_pods(2), of_pods(3)], "5 pods", id="all pod sets run at once"),
        pytest.param([4], [of_pods(4), of_pods(None)], "5 pods", id="a pod set has one pod"),
        pytest.param([4], [of_pods(9, 4)], "", id="it may start with fewer"),
        pytest.param([4], [of_pods(9, 5)], "5 pods", id="it may not start with few enough"),
        pytest.param([4], [of_pods(9, 0)], "", id="it may start with none"),
        pytest.param([4], [of_pods(9, completions=3)], "", id="fewer completions"),
        pytest.param([4], [of_pods(9, completions=30)], "9 pods", id="more completions"),
        pytest.param([4, 8], [of_pods(9)], "team starts more than 8:", id="the largest limit"),
        pytest.param([4, 9], [of_pods(9)], "", id="another runner starts it"),
        pytest.param([4, 0], [of_pods(9)], "", id="another runner has no limit"),
        pytest.param([4], [{"count": "9"}], "", id="invalid"),
        pytest.param([4], [of_containers(2, 3)], "2 pods with 6 containers at once", id="each"),
        pytest.param([6], [of_containers(2, 3)], "", id="as many containers as the limit"),
        pytest.param([4], [of_containers(4, 0)], "", id="without a command in any container"),
    ],
)
def test_a_job_of_more_pods_than_any_runner_starts_is_refused(
    limits: list[int], pod_sets: list[dict[str, Any]], refusal: str
) -> None:
    known = AnnouncedRunners()
    for number, pods in enumerate(limits):
        known.note(str(number), RunnerStarts(every=True, pods=pods))
    # A runner that starts no job of the user does not count.
    known.note("other", RunnerStarts(submitters=("eve",), pods=10_000))
    submitted = json.dumps({"spec": {"podSets": pod_sets}}).encode()
    said = str(known.refusal("ada", "team", submitted) or "")
    assert refusal in said
    assert said.endswith("or an admin raises the runner's --pod-limit" if refusal else "")
    assert bool(said) == bool(refusal)


@pytest.mark.parametrize(
    ("user", "starts", "submitted", "needed"),
    [
        ("ada", RunnerStarts(), b"", "`admit auth run-as user:ada=UNIX_USER`"),
        ("Ada L", RunnerStarts(), b"", "`admit auth run-as 'user:Ada L=UNIX_USER'`"),
        ("", RunnerStarts(), b"", "`admit auth run-as namespace:team=UNIX_USER`"),
        ("ada", RunnerStarts(every=True, images=("y",)), manifest("x"), "--job-image"),
        (
            "ada",
            RunnerStarts(every=True, pods=1),
            json.dumps({"spec": {"podSets": [of_pods(1_200)]}}).encode(),
            "--pod-limit 1200",
        ),
    ],
)
def test_refusal_names_the_rule_that_would_let_the_job_start(
    user: str, starts: RunnerStarts, submitted: bytes, needed: str
) -> None:
    known = AnnouncedRunners()
    known.note("one", starts)
    refusal = known.refusal(user, "team", submitted)
    assert refusal is not None
    assert needed in refusal.needed


WANTS = json.dumps(
    {
        "spec": {
            "podSets": [
                {
                    **of_pods(9),
                    "template": {
                        "spec": {
                            "containers": [{"name": "c", "image": "x", **MOUNTED}],
                            "volumes": [{"name": "v", "hostPath": {"path": "/srv"}}],
                        }
                    },
                }
            ]
        }
    }
).encode()


@pytest.mark.parametrize(
    ("more", "listed"),
    [
        pytest.param(
            {}, ["a: the image x is not allowed", "b: no hostPath is", "c: at most 4 pods at once"],
            id="three runners, three reasons"
        ),
        pytest.param({"d": RunnerStarts(every=True)}, [], id="another runner starts it"),
        pytest.param({"d": None}, [], id="another runner has no rules"),
        pytest.param(
            {f"e{n}": RunnerStarts(every=True, lacks=("hostPath",)) for n in range(8)},
            ["b, e0, e1, e2, e3 and 4 more: no hostPath"], id="the list of runners is bounded"
        ),
        pytest.param(
            {f"e{n}": RunnerStarts(every=True, pods=n) for n in range(1, 9)},
            ["and 5 more reasons"], id="the list of reasons is bounded"
        ),
    ],
)  # fmt: skip
def test_a_job_that_each_runner_refuses_for_another_reason_is_refused(
    more: dict[str, RunnerStarts | None], listed: list[str]
) -> None:
    known = AnnouncedRunners()
    known.note("a", RunnerStarts(every=True, images=("ours/*",)))
    known.note("b", RunnerStarts(every=True, lacks=("hostPath", "values")))
    known.note("c", RunnerStarts(every=True, pods=4))
    for runner, starts in more.items():
        known.note(runner, starts)
    refusal = known.refusal("ada", "team", WANTS)
    assert (refusal is not None) == bool(listed)
    for part in listed:
        assert part in str(refusal)


def test_a_runner_with_thousands_of_patterns_costs_submissions_nothing() -> None:
    known = AnnouncedRunners()
    known.note("a", RunnerStarts(every=True, images=tuple(map(str, range(PATTERNS_MAX)))))
    assert known.refusal("ada", "team", manifest("other")) is not None
    known.note("a", RunnerStarts(every=True, images=tuple(map(str, range(PATTERNS_MAX + 1)))))
    assert known.refusal("ada", "team", manifest("other")) is None
