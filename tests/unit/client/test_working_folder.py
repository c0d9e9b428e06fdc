"""The folder in which a submitted command starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from admittance.client.arguments.spelling import IN_PYTHON
from admittance.client.errors import BadInput, Refused
from admittance.client.requests.submissions.working_folder import (
    Asked,
    Place,
    asked_folder,
    place_of,
)
from admittance.events.requests.reading import FolderView
from admittance.folders import MachineFacts, SubmittedFrom

FOLDER = SubmittedFrom(path="/w", machine=MachineFacts(host="a"), inode=7, uid=1, umask=0o27)
ANYONES = SubmittedFrom(path="/w", machine=MachineFacts(host="a"), inode=7)
HERE = Asked("/w", FOLDER, False)
NAMED = Asked("/w", FOLDER, True)
UNKNOWN = Asked("/w", None, True)
SEEN, OTHER_USER = FolderView(runner="r"), FolderView(runner="u", other_user=True)
UNSEEN = FolderView(runner="s", why="it is away")
NOT_ANNOUNCED = "no runner has announced that it sees it"


@pytest.mark.parametrize(
    ("asked", "views", "place"),
    [
        pytest.param(HERE, [SEEN], Place("/w", FOLDER, "/w", is_here=True), id="seen by all"),
        pytest.param(
            HERE,
            [SEEN, UNSEEN],
            Place(said="an empty one of the run, not /w: runner s: it is away"),
            id="not seen by one",
        ),
        pytest.param(
            HERE,
            [OTHER_USER],
            Place(
                said="an empty one of the run, not /w: runner u: it runs the job as another Unix "
                "user than the submitter"
            ),
            id="another Unix user",
        ),
        pytest.param(
            HERE, [], Place(said=f"an empty one of the run, not /w: {NOT_ANNOUNCED}"), id="none"
        ),
        pytest.param(
            HERE._replace(of_run=True),
            [SEEN],
            Place(said="an empty one of the run, not /w: it is removed with the run that has it"),
            id="the folder of a run",
        ),
        pytest.param(NAMED, [SEEN], Place("/w", FOLDER, "/w", is_here=True), id="named"),
        pytest.param(
            NAMED, [SEEN, OTHER_USER], Place("/w", ANYONES, "/w"), id="named, another user"
        ),
        pytest.param(
            NAMED,
            [SEEN, UNSEEN],
            Place(
                "/w",
                ANYONES,
                "/w",
                "the job fails if another runner starts it: runner s: it is away",
            ),
            id="named, not seen by one",
        ),
        pytest.param(
            UNKNOWN,
            [],
            Place(
                "/w",
                None,
                "/w of the machine that runs the job; this machine has no such folder",
            ),
            id="named, not of this machine",
        ),
    ],
)
def test_a_command_starts_in_this_folder(
    asked: Asked, views: Sequence[FolderView], place: Place
) -> None:
    assert place_of(asked, views, IN_PYTHON, image=False, anyway=False) == place


@pytest.mark.parametrize("views", [[UNSEEN], []], ids=("none sees it", "none is announced"))
def test_a_named_folder_that_no_runner_sees_is_refused_unless_anyway(
    views: Sequence[FolderView],
) -> None:
    with pytest.raises(Refused, match=r"no runner sees the folder /w .*--shared-folder") as error:
        place_of(NAMED, views, IN_PYTHON, image=False, anyway=False)
    assert error.value.reason == "FolderNotSeen"
    place = place_of(NAMED, views, IN_PYTHON, image=False, anyway=True)
    assert place == Place("/w", None, "/w of the machine that runs the job")


def test_a_file_that_a_runner_sees_is_no_working_folder(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    asked = asked_folder(str(tmp_path / "f"), {}, MachineFacts(host="a"), "--chdir")
    with pytest.raises(BadInput, match=f"the working folder {tmp_path}/f is a file"):
        place_of(asked, [UNSEEN, SEEN], IN_PYTHON, image=False, anyway=True)
    elsewhere = place_of(asked, [UNSEEN], IN_PYTHON, image=False, anyway=False)
    assert (elsewhere.path, elsewhere.folder) == (f"{tmp_path}/f", None)


@pytest.mark.parametrize(
    ("asked", "place"),
    [(HERE, Place(said="that of the image")), (NAMED, Place("/w", None, "/w of the image"))],
    ids=("not named", "named"),
)
def test_an_image_has_folders_of_its_own(asked: Asked, place: Place) -> None:
    assert place_of(asked, [], IN_PYTHON, image=True, anyway=False) == place


def test_the_folder_of_a_submission_has_the_path_that_its_user_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    machine = MachineFacts(host="a")

    def path(named: str | None, shown: Path) -> str:
        return asked_folder(named, {"PWD": str(shown)}, machine, "--chdir").path

    assert path(None, link) == str(link)
    assert path(None, tmp_path) == str(tmp_path / "real"), "a wrong PWD does not count"
    assert path("sub", link) == f"{link}/sub"
    assert path(f"{link}/sub/../..", link) == str(tmp_path), "as the system reads it"
    here = asked_folder(None, {}, machine, "--chdir").folder
    assert here is not None
    status = Path.cwd().stat()
    assert (here.inode, here.owner, here.uid) == (status.st_ino, status.st_uid, os.geteuid())
    assert here.umask == os.umask(here.umask or 0)


def test_the_scratch_folder_of_a_job_is_none_for_the_jobs_that_it_submits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "runner/runs/n.w.7/scratch/main-0"
    scratch.mkdir(parents=True)
    run = {"ADMITTANCE_RUN": "r"}
    of_run = []
    for folder, environ in ((scratch, run), (scratch, {}), (tmp_path, run)):
        monkeypatch.chdir(folder)
        of_run.append(asked_folder(None, environ, MachineFacts(), "--chdir").of_run)
    assert of_run == [True, False, False]
    assert not asked_folder(str(scratch), run, MachineFacts(), "--chdir").of_run


def test_a_folder_that_cannot_be_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = MachineFacts()
    for named, said in (("no", "there is no folder"), ("", "is no path"), ("a\0b", "is no path")):
        with pytest.raises(BadInput, match=said):
            asked_folder(named, {}, machine, "--chdir")
    assert asked_folder("/no/folder", {}, machine, "--chdir") == Asked("/no/folder", None, True)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(BadInput, match=r"the folder of this process is gone .* --chdir"):
        asked_folder(None, {}, machine, "--chdir")
