"""The minute of the README, as commands that a test plays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from support.documents import console_blocks, differences

ROOT: Final = Path(__file__).parents[2]
LIMIT: Final = 240.0


def person(home: Path, path: str) -> dict[str, str]:
    """The environment of a person with a home folder of its own and the search path ``path``."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ADMIT_", "XDG_"))
    }
    return {**kept, "HOME": str(home), "PATH": path}


def printed_by(command: str, environment: dict[str, str], folder: Path) -> str:
    """What a command prints in a wide terminal; the command must succeed."""
    done = subprocess.run(
        ["bash", "-c", command],
        env={**environment, "COLUMNS": "200"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


def play(environment: dict[str, str], folder: Path, *, has_page: bool = True) -> None:
    """Plays all commands of the minute in ``folder``, and checks what they print. ``has_page``:
    whether the packages of the web page are installed."""
    calls = [call for block in console_blocks(ROOT / "README.md") for call in block.calls]
    (up, started), *others = calls
    web, ready = started.splitlines()
    assert up == "admit up --data-dir .data"
    assert any(call.command.startswith("admit explain") for call in others)
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
        for line in (web, ready) if has_page else (ready,):
            said = first.stdout.readline()
            assert differences(line, said) == "", (folder / "log").read_text()
        for command, shown in others:
            # Long enough for the explanation of a job that waits for the end of the others.
            printed = printed_by(command.replace("sleep 20", "sleep 15"), environment, folder)
            different = differences(shown, printed)
            assert not different, f"{command}\n{different}"
    finally:
        first.terminate()
        assert first.wait(LIMIT) == 0
        assert first.stdout is not None
        first.stdout.close()
