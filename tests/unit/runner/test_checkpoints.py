"""The checkpoint folders of workloads."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from stat import S_IMODE

import pytest

from admittance.runner.disk.checkpoints import (
    CheckpointSweeper,
    Owner,
    base_folder,
    checkpoint_folder,
)
from admittance.runner.jobs.pod_volumes import (
    make_checkpoint_folder,
    remove_empty_checkpoint,
)
from admittance.runtime.errors import SetupError
from support.needs import needs_root

TRAIN, OTHER, FAR = Owner("team", "train.1", "u1"), Owner("team", "b", "u2"), Owner("far", "c", "u")


def test_a_workload_has_one_folder_whatever_its_name_is(tmp_path: Path) -> None:
    path = checkpoint_folder(str(tmp_path), TRAIN)
    assert path == f"{tmp_path}/team/train_1/u1"
    assert checkpoint_folder("", TRAIN) == ""
    long = checkpoint_folder(str(tmp_path), Owner("n" * 63, "w" * 253, "u" * 36))
    make_checkpoint_folder(long, None, in_container=False)
    assert S_IMODE(Path(long).stat().st_mode) == 0o700


def test_a_folder_is_made_once_and_an_empty_one_goes(tmp_path: Path) -> None:
    path = Path(checkpoint_folder(str(tmp_path), TRAIN))
    for _ in range(2):
        make_checkpoint_folder(str(path), None, in_container=False)
    (path / "state").touch()
    remove_empty_checkpoint(str(path))
    assert (path / "state").exists()
    (path / "state").unlink()
    remove_empty_checkpoint(str(path))
    remove_empty_checkpoint(str(path))
    assert not path.parent.exists()
    make_checkpoint_folder(str(path), None, in_container=True)
    assert [S_IMODE(folder.stat().st_mode) for folder in (path, path.parent)] == [0o777, 0o700]


@needs_root
def test_a_folder_belongs_to_the_unix_user_of_the_job(tmp_path: Path) -> None:
    path = Path(checkpoint_folder(str(tmp_path / "base"), TRAIN))
    own = checkpoint_folder(str(tmp_path / "base"), OTHER)
    make_checkpoint_folder(own, None, in_container=False)
    make_checkpoint_folder(str(path), {"uid": 1234, "gid": 5}, in_container=False)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5)
    modes = [S_IMODE(folder.stat().st_mode) for folder in (path, path.parent, path.parents[1])]
    assert modes == [0o700, 0o711, 0o711]


def test_folders_of_workloads_that_are_gone_twice_are_removed(tmp_path: Path) -> None:
    base = tmp_path / "base"
    for owner in (TRAIN, OTHER, FAR):
        make_checkpoint_folder(checkpoint_folder(str(base), owner), None, in_container=False)
        Path(checkpoint_folder(str(base), owner), "state").touch()
    gone = {TRAIN, FAR}

    async def is_gone(owner: Owner) -> bool:
        return owner in gone

    sweeper = CheckpointSweeper(str(base), tmp_path / "trash", is_gone)

    def look(*kept: str, namespaces: tuple[str, ...] = ()) -> int:
        return asyncio.run(sweeper.look(kept, namespaces))

    assert (look(), look("u1", "u")) == (0, 0), "a workload with an open run is kept"
    assert look() == 0, "a replica that lags may have said so"
    gone.discard(TRAIN)
    assert look(namespaces=("team",)) == 0
    gone.add(TRAIN)
    assert (look(), look(namespaces=("team",))) == (0, 1)
    assert not (base / "team" / "train_1").exists()
    assert Path(checkpoint_folder(str(base), OTHER), "state").exists()
    assert (look(), look()) == (0, 1)
    assert not (base / "far" / "c").exists()
    assert asyncio.run(CheckpointSweeper("/no/folder", tmp_path, is_gone).look(())) == 0


def test_a_chosen_folder_in_which_others_may_write_is_refused(tmp_path: Path) -> None:
    assert base_folder("", tmp_path) == f"{tmp_path}/checkpoints"
    shared = tmp_path / "shared"
    for what, said in (("absent", "cannot be used"), ("file", "is not a folder")):
        if what == "file":
            shared.touch()
        with pytest.raises(SetupError, match=said):
            base_folder(str(shared), tmp_path)
    shared.unlink()
    shared.mkdir()
    shared.chmod(0o755)
    assert base_folder(str(shared), tmp_path) == str(shared)
    shared.chmod(0o1777)
    with pytest.raises(SetupError, match="other Unix users may write there"):
        base_folder(str(shared), tmp_path)
    assert os.geteuid() in (0, shared.stat().st_uid)
