"""The commands about GPUs of the README work word for word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.readme_minute import LIMIT, ROOT, person, printed_by

pytestmark = pytest.mark.bus


def commands() -> list[list[str]]:
    """The lines of each block of the section."""
    text = (ROOT / "README.md").read_text()
    section = text.partition("\n## GPUs\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [block.splitlines() for block in blocks]


def test_a_training_is_preempted_and_moves_to_another_machine(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        **person(tmp_path, path),
        "ADMIT_RUN_AS": f"*={os.geteuid()}",
        "ADMIT_CHECKPOINT_FOLDER": str(tmp_path / ".saved"),
        "ADMIT_NO_WEB": "1",
    }
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (folder, *terminals), story = commands()
    assert folder == "export ADMIT_CHECKPOINT_FOLDER=$PWD/.saved && mkdir -p .saved"
    (tmp_path / ".saved").mkdir()
    with ExitStack() as stack:
        for written in terminals:
            command = f"{written} --port 0" if "admit up" in written else written
            log = stack.enter_context((tmp_path / "log").open("a"))
            # A shell finds the command on the path of the environment.
            program = subprocess.Popen(
                ["bash", "-c", re.sub(r"^(\S+) ", r"export \1; exec ", command)],
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            assert program.stdout is not None
            stack.callback(program.stdout.close)
            stack.callback(program.wait, LIMIT)
            stack.callback(program.terminate)
            if "admit up" in command:
                said = program.stdout.readline()
                assert said.startswith("ready "), (tmp_path / "log").read_text()
                environment["ADMIT_NATS_URL"] = said.split()[1]
        printed = [
            # Longer than the commands take on a slow machine; the urgent job need not last.
            printed_by(
                written.replace("train.py", "train.py 80").replace("sleep 3", "sleep 0"),
                environment,
                tmp_path,
            )
            for written in story
        ]
        events = printed_by("admit events --workload train", environment, tmp_path)
    everything = "".join([*printed, events])
    (drained,) = re.findall(r"^runner\S*/(\S+) drained", everything, re.MULTILINE)
    assert f"(runner {drained} is drained)" in events, everything
    ((epoch, machine),) = re.findall(r"^epoch (\d+): on (\S+), GPU", printed[-1], re.MULTILINE)
    assert (int(epoch) > 0, {machine, drained}) == (True, {"gpu-1", "gpu-2"}), everything
    assert "trained 80 epochs" in printed[-1]
