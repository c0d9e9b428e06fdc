"""`admit auth init --compose`: the users and files of compose.yaml."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from admittance.cli.auth import compose
from admittance.cli.commands.program import invoke
from admittance.runtime.nats.connection_options import URL_VARIABLE
from admittance.runtime.nats_server.auth_store import AuthStore
from support.processes.in_process import Admit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of users, which a test without root may make too. No server runs at its address."""
    monkeypatch.setenv(URL_VARIABLE, "nats://127.0.0.1:1")
    if os.geteuid() != 0:
        monkeypatch.setattr(compose, "CONTAINER_UID", os.geteuid())
    return tmp_path / "auth"


def init(folder: Path) -> int:
    return invoke(["auth", "init", "--compose", str(folder)])


def test_each_container_gets_a_file_that_its_unix_user_alone_reads(
    folder: Path, admit: Admit
) -> None:
    said = admit.out("auth", "init", "--compose", str(folder))
    assert f"credentials of the admin: {folder}/admin.creds" in said
    users = AuthStore(folder / "server").users
    files = list((folder / "containers").iterdir())
    assert {path.stem for path in files} == {user.name for user in users}
    for path in (*files, folder / "server" / "auth.conf"):
        status = path.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, compose.CONTAINER_UID)
    admin = folder / "admin.creds"
    assert admin.stat().st_uid == folder.stat().st_uid
    assert admin.read_text() == (folder / "containers" / "admin.creds").read_text()


def test_servers_of_a_cluster_share_a_password_that_stays(folder: Path) -> None:
    assert init(folder) == 0
    file = folder / "server" / "cluster.conf"
    text = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert text.count("nats-route://route:") == 3
    assert init(folder) == 0
    assert file.read_text() == text


def test_second_call_keeps_users_and_keys_and_makes_what_is_missing(folder: Path) -> None:
    assert init(folder) == 0
    before = {path: path.read_text() for path in sorted(folder.rglob("*.creds"))}
    users = AuthStore(folder / "server").users
    assert init(folder) == 0
    assert AuthStore(folder / "server").users == users
    lost = folder / "containers" / "runner.creds"
    lost.unlink()
    assert init(folder) == 0
    now = {path: path.read_text() for path in sorted(folder.rglob("*.creds"))}
    assert {path for path in now if now[path] != before.get(path)} == {lost}


def test_class_and_unix_user_of_providers_are_those_of_the_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, admit: Admit
) -> None:
    monkeypatch.setenv("ADMIT_AWS_CLASS", "my-class")
    monkeypatch.setenv("ADMIT_KUBE_USER", str(os.geteuid()))
    assert init(folder) == 0
    assert AuthStore(folder / "server").user("provider-aws").class_name == "my-class"
    kubernetes = folder / "containers" / "provider-kubernetes.creds"
    assert kubernetes.stat().st_uid == os.geteuid()
    monkeypatch.setenv("ADMIT_KUBE_USER", "ada")
    refused = admit.err(1, "auth", "init", "--compose", str(folder))
    assert "ADMIT_KUBE_USER='ada' is not the number of a Unix user" in refused


def test_unix_user_without_the_right_sees_the_command_to_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, admit: Admit
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert admit.err(1, "auth", "init", "--compose", str(folder)) == (
        f"error: only root can give files to the containers' Unix user {compose.CONTAINER_UID}: "
        "run `docker compose run --rm auth`\n"
    )
    assert not folder.exists()
