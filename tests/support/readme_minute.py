"""The minute of the README, as commands that a test plays."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LIMIT: Final = 240.0


def person(home: Path, path: str) -> dict[str, str]:
    """The environment of a person with a home folder of its own and the search path ``path``."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ADMIT_", "XDG_"))
    }
    return {**kept, "HOME": str(home), "PATH": path}


def play(environment: dict[str, str], folder: Path) -> None:
    """Plays all commands of the minute in ``folder``, and checks what they print."""
    page = (ROOT / "README.md").read_text()
    (minute,) = re.findall(r"^## One minute\n(.*?)^## ", page, re.M | re.S)
    up, *others = re.findall(r"^\$ (.*)$", minute, re.M)
    assert up == "admit up --data-dir .data"
    assert any(one.startswith("admit explain") for one in others)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    with (folder / "log").open("w") as log:
        # A shell finds the command on the path of the environment.
        first = subprocess.Popen(
            ["bash", "-c", f"exec {up}"],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert first.stdout is not None
        said = first.stdout.readline()
        assert said.startswith("ready nats://127.0.0.1:"), (folder / "log").read_text()
        for command in others:
            done = subprocess.run(
                ["bash", "-c", command.replace("sleep 20", "sleep 2")],
                env=environment,
                cwd=folder,
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
