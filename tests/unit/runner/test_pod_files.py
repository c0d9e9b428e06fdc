"""Inputs get into the folder of a pod, and outputs out of it, with the rights of the job only."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admittance.api.files import InputFile, JobFiles
from admittance.job_rules.rules import CannotRun
from admittance.runner.files.plan import LeftFile, outputs_left, transfers_of
from admittance.runner.files.pod_files import INPUTS, LIST, OUTPUTS, keep_outputs, place_inputs
from admittance.runner.jobs.pod_process import enter_folder
from support.needs import needs_root


def entered(folder: str) -> None:
    enter_folder(folder, {})


NOBODY: dict[str, Any] = {"uid": 65534, "gid": 65534, "groups": []}
MOST = 1000


class Folders:
    """The folder of a run, and the scratch folder of its pod."""

    def __init__(self, root: Path) -> None:
        self.run = root / "run"
        self.pod = root / "pod"
        self.both = (str(self.pod), str(self.pod))
        (self.run / INPUTS).mkdir(parents=True)
        self.pod.mkdir()

    def place(self, name: str, user: dict[str, Any] | None = None, program: bool = False) -> None:
        source = self.run / INPUTS / "digest"
        source.write_text("bytes")
        source.chmod(0o600)
        place_inputs(str(self.run), self.both, [(name, "digest", program)], user)

    def keep(self, *paths: str, user: dict[str, Any] | None = None, most: int = MOST) -> list[str]:
        """What was kept of each output, or why nothing was."""
        keep_outputs(str(self.run), "main-0", self.both, paths, user, most)
        said = json.loads((self.run / OUTPUTS / "main-0" / LIST).read_text())
        assert [file["name"] for file in said] == list(paths)
        return [file["problem"] or (self.run / OUTPUTS / file["copy"]).read_text() for file in said]


@pytest.fixture
def folders() -> Iterator[Folders]:
    """Folders that every Unix user may pass through: those of tests are not."""
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        yield Folders(Path(root))


def test_an_input_replaces_a_file_and_leaves_nothing_else(folders: Folders) -> None:
    (folders.pod / "run.sh").write_text("old")
    folders.place("run.sh", program=True)
    folders.place("data/deep/in.csv")
    assert (folders.pod / "run.sh").read_text() == "bytes"
    assert os.access(folders.pod / "run.sh", os.X_OK)
    assert not os.access(folders.pod / "data/deep/in.csv", os.X_OK)
    assert sorted(path.name for path in folders.pod.rglob("*")) == [
        *("data", "deep", "in.csv", "run.sh"),
    ]


def test_an_input_follows_no_link_out_of_the_folder(folders: Folders, tmp_path: Path) -> None:
    (folders.pod / "data").symlink_to(tmp_path)
    with pytest.raises(OSError, match="cannot place the input data/x: "):
        folders.place("data/x")
    (folders.pod / "file").symlink_to(tmp_path / "target")
    folders.place("file")
    assert list(tmp_path.iterdir()) == []
    assert not (folders.pod / "file").is_symlink()


def test_an_input_in_the_place_of_a_folder_is_an_error(folders: Folders) -> None:
    (folders.pod / "x").mkdir()
    with pytest.raises(OSError, match="cannot place the input x: Is a directory"):
        folders.place("x")
    assert [path.name for path in folders.pod.iterdir()] == ["x"]


def test_only_plain_files_of_the_folder_are_kept(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folders.pod / "good").write_text("good")
    (folders.pod / "deep").mkdir()
    (folders.pod / "deep" / "x").write_text("x")
    (folders.pod / "link").symlink_to(tmp_path / "secret")
    (folders.pod / "out").symlink_to(tmp_path)
    os.mkfifo(folders.pod / "pipe")
    link = "it is a link, or a part of its path is no folder"
    assert folders.keep("good", "deep/x", "link", "out/secret", "pipe", "deep", "gone") == [
        *("good", "x", link, link),
        "it is no plain file; only files are kept",
        "it is a folder; only files are kept",
        "the job left no such file",
    ]


def test_outputs_above_the_limit_are_named_and_not_kept(folders: Folders) -> None:
    for name, size in (("a", 6), ("b", 5), ("c", 4)):
        (folders.pod / name).write_text("x" * size)
    with (folders.pod / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    first, second, third, sparse = folders.keep("a", "b", "c", "sparse", most=10)
    assert (first, third) == ("x" * 6, "x" * 4)
    assert "it has 5 bytes, and the outputs of the workload may have only 4 more" in second
    assert "it has 1,099,511,627,776 bytes" in sparse


@needs_root
def test_files_are_placed_and_read_with_the_rights_of_the_job(
    folders: Folders, tmp_path: Path
) -> None:
    os.chown(folders.pod, 65534, 65534)
    folders.pod.chmod(0o700)
    folders.place("in", NOBODY)
    assert (folders.pod / "in").stat().st_uid == 65534
    secret = folders.pod / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    assert folders.keep("in", "secret", user=NOBODY) == [
        "bytes",
        "cannot be kept: Permission denied",
    ]
    elsewhere = (str(folders.pod), str(tmp_path))
    with pytest.raises(OSError, match="cannot enter the working folder"):
        place_inputs(str(folders.run), elsewhere, [("in", "digest", False)], NOBODY, entered)


def files_of(*outputs: str) -> JobFiles:
    same = InputFile(name="in", size=3, parts=1, sha256="a" * 64)
    again = InputFile(name="again", size=3, parts=1, sha256="a" * 64)
    return JobFiles(upload="w.0123456789ab", inputs=(same, again), outputs=outputs)


def test_an_input_that_is_there_twice_is_read_once() -> None:
    transfers = transfers_of([("main", 1, files_of("x"))], 1)
    assert transfers is not None
    assert [(file.name, file.place) for file in transfers.inputs] == [("in", "i0")]
    assert transfers_of([("main", 1, None)], 1) is None


@pytest.mark.parametrize(
    ("pods", "names"),
    [(1, ["x", "y"]), (2, ["main-0/x", "main-0/y", "main-1/x", "main-1/y"])],
)
def test_outputs_of_several_pods_have_the_names_of_their_pods(pods: int, names: list[str]) -> None:
    transfers = transfers_of([("main", pods, files_of("x", "y"))], pods)
    assert transfers is not None
    left = {"main-0": [LeftFile(name="x", copy="main-0/0"), LeftFile(name="y", problem="gone")]}
    found = outputs_left(transfers, left, [f"main-{index}" for index in range(pods)])
    assert [file.name for file, _ in found] == names
    assert [(copy, file.problem) for file, copy in found[:2]] == [("main-0/0", ""), ("", "gone")]
    assert all("not kept" in file.problem for file, _ in found[2:])


def test_a_job_that_could_leave_too_many_files_does_not_start() -> None:
    with pytest.raises(CannotRun, match="may leave 102 outputs, and at most 100 are kept"):
        transfers_of([("main", 51, files_of("x", "y"))], 51)
