"""The folder in which a process of a job starts, entered with the rights of the job."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from admittance.runner.jobs import pod_process
from admittance.runner.jobs.pod_process import FolderError, start_code, start_process
from support.needs import needs_root

NOBODY = {"uid": 65534, "gid": 65534, "groups": []}
Place = Mapping[str, Any]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """The scratch folder of a pod beside other folders, which other Unix users may reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield make_folders(folder)


def make_folders(tmp_path: Path) -> Path:
    for folder in ("scratch", "work", "work/inside", "closed"):
        (tmp_path / folder).mkdir(mode=0o755)
    (tmp_path / "closed").chmod(0o700)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("work")
    (tmp_path / "to-closed").symlink_to("closed")
    (tmp_path / "work/tool").write_text("#!/bin/sh\npwd -P; umask")
    (tmp_path / "work/tool").chmod(0o755)
    return tmp_path / "scratch"


def output_of(
    scratch: Path, cwd: Path, place: Place, user: dict[str, Any] | None = None
) -> list[str]:
    reading, writing = os.pipe()
    try:
        env = {"PATH": "/bin:/usr/bin"}
        folders = str(scratch), str(cwd)
        argv = ["./tool"]
        pid = start_process(argv, env, folders, writing, user, place=dict(place) or {"umask": None})
    finally:
        os.close(writing)
    with os.fdopen(reading) as file:
        lines = file.read().splitlines()
    assert os.waitpid(pid, 0)[1] == 0
    return lines


def test_a_process_starts_in_its_folder_with_its_umask(scratch: Path) -> None:
    work = scratch.parent / "work"
    inode = {"inode": work.stat().st_ino, "owner": os.geteuid()}
    lines = output_of(scratch, scratch.parent / "link", {"umask": 0o27, **inode})
    assert lines[:2] == [str(work), "0027"]
    assert Path.cwd() != work, "the shim stays where it is"


def inode_of_another(scratch: Path) -> Place:
    return {"inode": scratch.stat().st_ino, "owner": os.geteuid()}


def owner_of_another(scratch: Path) -> Place:
    return {"inode": (scratch.parent / "work").stat().st_ino, "owner": os.geteuid() + 1}


def other_allowed(scratch: Path) -> Place:
    return {"allowed": [str(scratch), str(scratch.parent / "work" / "inside")]}


def nothing_more(_: Path) -> Place:
    return {}


@pytest.mark.parametrize(
    ("cwd", "place", "code", "said"),
    [
        ("gone", nothing_more, 127, "cannot enter the working folder {}: No such file"),
        ("file", nothing_more, 127, "cannot enter the working folder {}: Not a directory"),
        ("work", inode_of_another, 127, "{} is not the one in which the job was submitted"),
        ("work", owner_of_another, 127, "{} is not the one in which the job was submitted"),
        ("link", other_allowed, 126, "the runner may not start jobs in the folder /"),
    ],
)
def test_a_folder_that_is_not_as_meant_is_refused(
    scratch: Path, cwd: str, place: Callable[[Path], Place], code: int, said: str
) -> None:
    folder = scratch.parent / cwd
    with pytest.raises(FolderError) as error:
        output_of(scratch, folder, place(scratch))
    assert start_code(error.value) == code
    assert said.format(folder) in pod_process.start_problem(error.value)


@needs_root
@pytest.mark.parametrize("name", ["closed", "to-closed"])
def test_a_folder_that_root_may_enter_and_the_job_may_not_is_refused(
    scratch: Path, name: str
) -> None:
    (scratch.parent / "closed/tool").write_text("#!/bin/sh\n")
    folder = scratch.parent / name
    with pytest.raises(FolderError, match="Permission denied"):
        output_of(scratch, folder, {}, NOBODY)
    assert output_of(scratch, scratch.parent / "work", {}, NOBODY)


def test_a_folder_that_does_not_answer_holds_up_the_shim_for_a_bounded_time(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_process, "FOLDER_SECONDS", 0.05)
    monkeypatch.setattr(pod_process, "enter_folder", lambda *_: time.sleep(60))
    killed: list[int] = []
    kill = os.kill

    def noted_kill(pid: int, number: int) -> None:
        killed.append(pid)
        kill(pid, number)

    monkeypatch.setattr(os, "kill", noted_kill)
    with pytest.raises(FolderError, match=r"did not answer in 0\.05 s"):
        output_of(scratch, scratch.parent / "work", {})
    _, status = os.waitpid(killed[0], 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
