"""compose.yaml is valid for the compose command; needs no container engine."""

from __future__ import annotations

import subprocess
from itertools import chain

import containers
import pytest
import yaml

ALONE = ("compose.yaml",)
CLUSTERED = ("compose.yaml", "deploy/compose.ha.yaml")


def profiles(files: tuple[str, ...]) -> list[str]:
    read = (yaml.safe_load((containers.ROOT / name).read_text())["services"] for name in files)
    services = chain.from_iterable(one.values() for one in read)
    return sorted({profile for one in services for profile in one.get("profiles", ())})


def config(files: tuple[str, ...], *profiles: str) -> subprocess.CompletedProcess[str]:
    command = containers.compose_command()
    if command is None:
        pytest.skip("neither `docker compose` nor docker-compose is there")
    named = [part for name in files for part in ("-f", name)]
    chosen = [part for name in profiles for part in ("--profile", name)]
    return subprocess.run(
        [*command.split(), *named, *chosen, "config", "-q"],
        cwd=containers.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("files", [ALONE, CLUSTERED], ids=["alone", "cluster"])
def test_compose_accepts_its_files_with_every_profile(files: tuple[str, ...]) -> None:
    found = profiles(files)
    assert "observability" in found
    wrong = {}
    for chosen in ([], *([one] for one in found), found):
        told = config(files, *chosen)
        if told.returncode:
            wrong[" ".join(chosen)] = told.stderr
    assert wrong == {}
