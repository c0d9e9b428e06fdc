"""A submission is refused only if every runner of its namespace would refuse the job."""

from __future__ import annotations

import json

import pytest

from admittance.control.runner_rules import AnnouncedRunners
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
    said = known.refusal(user, "team")
    assert bool(said) == is_refused
    if said and user:
        assert f"no runner has a Unix user for jobs of the user {user} in namespace team" in said
    for number in range(len(runners)):
        known.forget(str(number))
    assert known.refusal(user, "team") == ""


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
    said = known.refusal("ada", "team", submitted)
    start = "no runner of namespace team may run the image "
    assert said == (f"{start}{refusal}" if refusal else "")
