"""The minute of the README works word for word, for a person without a configuration."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bus

ROOT = Path(__file__).parents[2]
LIMIT = 240.0


@pytest.fixture
def commands() -> list[str]:
    """The commands of the minute, in order."""
    page = (ROOT / "README.md").read_text()
    (minute,) = re.findall(r"^## One minute\n(.*?)^## ", page, re.M | re.S)
    return re.findall(r"^\$ (.*)$", minute, re.M)


@pytest.fixture
def person(tmp_path: Path) -> dict[str, str]:
    """The environment of a person with a home folder of its own."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ADMIT_", "XDG_"))
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**kept, "HOME": str(tmp_path), "PATH": path}


def test_commands_of_the_minute_work(
    commands: list[str], person: dict[str, str], tmp_path: Path
) -> None:
    up, *others = commands
    assert up == "admit up --data-dir .data"
    assert any(one.startswith("admit explain") for one in others)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    with (tmp_path / "log").open("w") as log:
        first = subprocess.Popen(
            up.split(), env=person, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert first.stdout is not None
        assert first.stdout.readline().startswith("ready nats://127.0.0.1:")
        for command in others:
            done = subprocess.run(
                ["bash", "-c", command.replace("sleep 20", "sleep 2")],
                env=person,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
            if command.startswith("admit logs"):
                assert done.stdout == "hello\n"
            if command.startswith("admit events"):
                assert "submitted         default/hello  by admin, to research" in done.stdout
    finally:
        first.terminate()
        assert first.wait(LIMIT) == 0
        assert first.stdout is not None
        first.stdout.close()
