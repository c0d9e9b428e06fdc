"""The data folder of `admit up` belongs to its Unix user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.own_folder import own_folder


def test_a_folder_is_made_and_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        own_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_of_another_unix_user_is_refused_before_a_file_of_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid() or 4242
    if not os.geteuid():
        os.chown(tmp_path, owner, owner)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(SetupError, match=rf"belongs to another Unix user \(uid {owner}\)"):
        EmbeddedServer(tmp_path).take_folder()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_folder_that_every_unix_user_may_change_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(SetupError, match="may be changed by every Unix user"):
        own_folder(tmp_path)
