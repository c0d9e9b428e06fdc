"""The wheel, installed as a person installs it, has everything: no file of the repository but the
samples is used. Needs a package index: `make test-packages`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from support import readme_minute

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
# tests/integration/provisioning/providers/test_providers_serve.py shows the error without an extra.
EXTRAS = {
    "aws": "boto3",
    "kubernetes": "lightkube",
    "docker": "docker",
    "otel": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
}

Install = Callable[[Path], Path]
"""A function that installs the wheel, and returns the folder of the command `admit`."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    return Path(built)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs pipx and uv."""
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, with_pip=True)
    run(folder / "bin/pip", "install", "--quiet", "pipx", "uv")
    return folder / "bin"


@pytest.fixture(params=["pip", "pipx", "uv"])
def install(request: pytest.FixtureRequest, tmp_path: Path, tools: Path) -> Install:
    def with_pip(wheel: Path) -> Path:
        venv.create(tmp_path / "pip", with_pip=True)
        run(tmp_path / "pip/bin/pip", "install", "--quiet", wheel)
        return tmp_path / "pip/bin"

    def with_pipx(wheel: Path) -> Path:
        home = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
        run(tools / "pipx", "install", "--python", sys.executable, wheel, env=home)
        return tmp_path / "bin"

    def with_uv(wheel: Path) -> Path:
        home = {"UV_TOOL_DIR": str(tmp_path / "uv"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
        run(tools / "uv", "tool", "install", "--python", sys.executable, wheel, env=home)
        return tmp_path / "bin"

    return {"pip": with_pip, "pipx": with_pipx, "uv": with_uv}[request.param]


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_an_installed_wheel_plays_the_minute_of_the_readme(
    install: Install, wheel: Path, tmp_path: Path
) -> None:
    programs = install(wheel)
    assert "submit" in run(programs / "admit", "--help")
    home = tmp_path / "home"
    home.mkdir()
    # The search path has no nats-server: it comes with the wheel's dependencies.
    environment = readme_minute.person(home, f"{programs}:{SYSTEM_PATH}")
    readme_minute.play(environment, home, has_page=False)


def test_the_extras_bring_the_packages_of_their_services(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    run(tmp_path / "bin/pip", "install", "--quiet", f"{wheel}[{','.join(EXTRAS)}]")
    run(tmp_path / "bin/python", "-c", f"import {', '.join(EXTRAS.values())}")
