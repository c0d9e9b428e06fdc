"""The files of a job: which paths, sizes and digests a workload may name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.files import JOB_FILES, clash, noted_files, path_error
from admittance.api.reading.from_job import from_command
from admittance.api.validation.validate import validate
from admittance.events.files import (
    PART_BYTES,
    OutputFile,
    part_subject,
    parts_of,
    problem_of,
    upload_of,
    upload_of_subject,
    workload_of,
)
from admittance.workload.outputs import kept_outputs

DIGEST = "a" * 64
FILE = {"name": "in.csv", "size": 3, "parts": 1, "sha256": DIGEST}


@pytest.mark.parametrize("path", ["a", "a.b/c d", "ä", "...", "..a/b", "-x", "a" * 255])
def test_a_relative_path_names_a_file_of_the_job(path: str) -> None:
    assert path_error(path) == ""


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "is empty"),
        ("/etc/passwd", "must be relative"),
        ("../x", '".."'),
        ("a/../../x", '".."'),
        ("a/..", '".."'),
        ("./a", '"."'),
        ("a//b", '""'),
        ("a/", '""'),
        ("a\nb", "cannot be printed"),
        ("a\0b", "cannot be printed"),
        ("\udc80", "cannot be printed"),
        ("ä" * 128, "has 256 bytes"),
    ],
)
def test_a_path_out_of_the_folder_of_the_job_is_refused(path: str, says: str) -> None:
    assert says in path_error(path)


@pytest.mark.parametrize(
    ("paths", "twice"),
    [
        (["a", "b", "c/a", "c/b"], ""),
        (["a", "a"], "a"),
        (["a", "a/b"], "a/b"),
        (["a/b/c", "a/b"], "a/b"),
        (["ab", "a/b"], ""),
    ],
)
def test_two_files_have_two_places(paths: list[str], twice: str) -> None:
    assert clash(paths) == twice


def problems(count: int = 1, **files: Any) -> list[str]:
    """What is wrong with a workload with these files."""
    workload = from_command(["true"], name="w", namespace="n", queue="q")
    [pod_set] = workload.spec.pod_sets
    written = msgspec.json.encode({"upload": "w.0123456789ab", **files}).decode()
    metadata = replace(pod_set.template.metadata, annotations={JOB_FILES: written})
    template = replace(pod_set.template, metadata=metadata)
    pod_set = replace(pod_set, count=count, template=template)
    found = validate(replace(workload, spec=replace(workload.spec, pod_sets=(pod_set,))))
    return [str(problem) for problem in found]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"inputs": [FILE]}, ""),
        ({"outputs": ["out/x"]}, ""),
        ({"inputs": [{"name": "empty", "sha256": DIGEST}]}, ""),
        ({}, "neither inputs nor outputs"),
        ({"inputs": [FILE], "upload": "../x"}, "is not the name of an upload"),
        ({"inputs": [FILE], "upload": ""}, "upload"),
        ({"inputs": [FILE], "more": 1}, "does not describe files of a job"),
        ({"inputs": [FILE, FILE]}, "is there twice"),
        ({"inputs": [{**FILE, "name": "/x"}]}, "inputs[0].name: '/x' must be relative"),
        ({"inputs": [{**FILE, "sha256": "A" * 64}]}, "must be a SHA-256"),
        ({"inputs": [{**FILE, "parts": 0}]}, "inputs[0].parts: must be from 1 to 3, not 0"),
        ({"inputs": [{**FILE, "parts": 4}]}, "inputs[0].parts: must be from 1 to 3, not 4"),
        ({"inputs": [{**FILE, "size": -1}]}, "must be at least 0"),
        ({"inputs": [{**FILE, "name": f"f{n}"} for n in range(101)]}, "at most 100"),
        ({"outputs": ["a/../b"]}, '".."'),
        ({"outputs": [f"f{n}" for n in range(51)], "count": 2}, "102 outputs, at most 100"),
    ],
)
def test_the_files_of_a_workload_are_checked(files: dict[str, Any], says: str) -> None:
    found = problems(**files)
    if says:
        assert len(found) == 1
        assert says in found[0]
    else:
        assert found == []


def test_a_template_without_the_annotation_has_no_files() -> None:
    assert noted_files({}) is None


@pytest.mark.parametrize(
    ("size", "parts"), [(0, 0), (1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 2), (100 << 20, 200)]
)
def test_a_file_is_cut_into_parts(size: int, parts: int) -> None:
    assert parts_of(size) == parts


def test_the_subject_of_a_part_names_namespace_and_upload() -> None:
    upload = upload_of("train.7", "0123456789ab")
    subject = part_subject("team-a", upload, "i0", 3)
    assert subject == "admit.file.team-a.train_7_0123456789ab.i0-3"
    assert upload_of_subject(subject) == ("team-a", upload)
    assert workload_of(upload) == "train.7"
    assert workload_of("junk") == ""
    for wrong in ("admit.file.a.b", "admit.file.a.b.c.d", "admit.workload.a.b.c"):
        with pytest.raises(ValueError, match=r"."):
            upload_of_subject(wrong)


def test_what_a_runner_says_of_outputs_is_checked_before_it_is_kept() -> None:
    good = OutputFile(name="a", size=3, parts=1, sha256=DIGEST, upload="w.1", place="o1-0")
    assert problem_of(good) == ""
    said = [good, replace(good, name="../a"), replace(good, parts=0), replace(good, parts=9)]
    first, *others = kept_outputs(said * 40)
    assert first == good
    assert [bool(file.problem) for file in others[:3]] == [True] * 3
    assert len(others) == 99
    assert all(not file.parts for file in others if file.problem)
