"""Containers with missing or wrong files say what is wrong, and a volume from before the lock goes
on."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import containers
import pytest
from containers import ROOT, Deployment, docker

from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from recorded.story import NAMESPACE
from support.needs import needs_root
from support.programs.old_version import unpack
from system.users.test_locked_up import Folder, stored

pytestmark = pytest.mark.deploy

SECRET = "/run/secrets/credentials"
USERS = "/etc/admittance/auth"
UID = 65532


def ended(image: str, *arguments: str, options: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Exit status and lines of a container that ends by itself."""
    done = subprocess.run(
        ["docker", "run", "--rm", *options, image, *arguments],
        capture_output=True,
        text=True,
        timeout=containers.HEALTHY_SECONDS,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def mounted(path: Path, at: str) -> tuple[str, ...]:
    return ("--volume", f"{path}:{at}:ro", "--env", f"ADMIT_NATS_CREDS={SECRET}")


def given(path: Path, uid: int, mode: int) -> Path:
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path


def test_missing_secret_is_named(base: str) -> None:
    options = ("--env", f"ADMIT_NATS_CREDS={SECRET}")
    status, said = ended("admittance", "get", "clusterqueues", options=options)
    assert (status, said) == (1, [f"error: credentials file {SECRET} not found"])


def test_folder_in_place_of_a_secret_is_named(base: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    status, said = ended("admittance", "get", "clusterqueues", options=mounted(tmp_path, SECRET))
    assert (status, said) == (
        1,
        [
            f"error: the credentials file {SECRET} is a folder, as docker makes in place of a "
            "missing secret: make the file, then make the container anew"
        ],
    )


@needs_root
def test_secret_of_another_unix_user_is_named(base: str, tmp_path: Path) -> None:
    file = tmp_path / "creds"
    file.write_text("")
    options = mounted(given(file, 65533, 0o600), SECRET)
    status, said = ended("admittance", "get", "clusterqueues", options=options)
    assert (status, said) == (
        1,
        [
            f"error: cannot read the credentials file {SECRET}: Unix user {UID} has no right to: "
            "make it the owner"
        ],
    )


def test_server_without_users_says_how_to_make_them(base: str) -> None:
    status, said = ended("admittance-nats")
    assert (status, said) == (
        1,
        ["error: there are no users yet: run `docker compose run --rm auth`"],
    )


@needs_root
def test_users_of_another_unix_user_are_named(base: str, tmp_path: Path) -> None:
    users = given(tmp_path, 65533, 0o700)
    status, said = ended("admittance-nats", options=mounted(users, USERS))
    assert (status, said) == (
        1,
        [f"error: Unix user {UID} may not read {USERS}: run `docker compose run --rm auth`"],
    )


@needs_root
def test_volume_of_another_unix_user_is_named(base: str, tmp_path: Path) -> None:
    users, volume = tmp_path / "users", tmp_path / "volume"
    users.mkdir()
    (users / "auth.conf").write_text("")
    given(users / "auth.conf", UID, 0o600)
    volume.mkdir(mode=0o700)
    options = (*mounted(given(users, UID, 0o700), USERS), "--volume", f"{volume}:/data")
    status, said = ended("admittance-nats", options=options)
    assert (status, said) == (
        1,
        [
            f"error: Unix user {UID} may not write to the volume nats at /data/nats/jetstream: "
            f"give the folder to user {UID}"
        ],
    )


# A volume from before the lock. -------------------------------------------------------------


class Recorded(NamedTuple):
    """A recorded data folder, and what the streams of an open server on it hold."""

    data: Path
    streams: dict[str, Any]


@pytest.fixture
async def recorded(tmp_path: Path) -> Recorded:
    with tarfile.open(ROOT / "tests" / "recorded" / "2026-11-22.tar.xz") as packed:
        unpack(packed, tmp_path)
    folder = Folder(tmp_path)
    async with folder.up("--insecure") as system:
        streams = await stored(system.url, NO_OPTIONS)
    assert streams["durables"]
    return Recorded(folder.data, streams)


COPY = (
    "import os, shutil\n"
    "shutil.copytree('/from', '/data/nats', dirs_exist_ok=True)\n"
    f"for top, folders, files in os.walk('/data'):\n"
    f"    [os.chown(os.path.join(top, one), {UID}, {UID}) for one in ('.', *folders, *files)]\n"
)


@pytest.fixture
def deployment(
    base: str, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    def fill(new: Deployment) -> None:
        status, said = ended(
            *(base, "python3", "-c", COPY),
            options=(
                *("--volume", f"{new.project}_nats:/data"),
                *("--volume", f"{recorded.data / 'nats'}:/from:ro"),
            ),
        )
        assert status == 0, said

    with containers.deployed(
        base,
        tmp_path_factory.mktemp("compose"),
        before=fill,
        only=("workload-controller", "scheduler"),
    ) as deployment:
        yield deployment


@needs_root
async def test_a_volume_from_before_the_lock_keeps_all_streams(
    recorded: Recorded, deployment: Deployment
) -> None:
    assert "moved to the account CORE" in docker("logs", deployment.container("nats"))
    creds = deployment.auth / "containers" / "workload-controller.creds"
    assert await stored(deployment.url, ConnectionOptions(creds=str(creds))) == recorded.streams
    listed = json.loads(deployment.admit("get", "wl", "-n", NAMESPACE, "-o", "json"))
    assert len(listed["items"]) > 5
