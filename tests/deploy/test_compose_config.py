"""compose.yaml is valid for the compose command; needs no container engine."""

from __future__ import annotations

import subprocess
from typing import Any

import containers
import pytest
import yaml

ALONE = ("compose.yaml",)
CLUSTERED = ("compose.yaml", "deploy/compose.ha.yaml")


def services(files: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The services of the files together, each with its profiles and the services it depends on."""
    merged: dict[str, dict[str, Any]] = {}
    for file in files:
        read = yaml.safe_load((containers.ROOT / file).read_text())["services"]
        for name, service in read.items():
            known = merged.setdefault(name, {"profiles": set(), "depends_on": set()})
            for key, values in known.items():
                values.update(service.get(key, ()))
    return merged


def profiles(files: tuple[str, ...]) -> list[str]:
    return sorted(
        {profile for service in services(files).values() for profile in service["profiles"]}
    )


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


EACH = pytest.mark.parametrize("files", [ALONE, CLUSTERED], ids=["alone", "cluster"])


@EACH
def test_compose_accepts_its_files_without_and_with_all_profiles(files: tuple[str, ...]) -> None:
    composed = profiles(files)
    assert "observability" in composed
    for chosen in ([], composed):
        written = config(files, *chosen)
        assert written.returncode == 0, written.stderr


@EACH
def test_services_of_each_profile_depend_on_services_that_start(files: tuple[str, ...]) -> None:
    """Docker compose refuses such a profile; the program of Debian does not check it."""
    every = services(files)
    assert any(service["depends_on"] for service in every.values())
    for chosen in ("", *profiles(files)):
        started = {
            name
            for name, service in every.items()
            if not service["profiles"] or chosen in service["profiles"]
        }
        missing = {name: every[name]["depends_on"] - started for name in started}
        assert not any(missing.values()), (chosen, missing)
