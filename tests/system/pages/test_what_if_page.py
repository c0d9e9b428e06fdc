"""Every call on the page about `admit simulate` prints what the page shows."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from support.processes.fork_server import run_admit
from support.processes.forked_system import embedded

pytestmark = pytest.mark.bus

PAGE = Path(__file__).parents[3] / "docs" / "what-if.md"


async def answer(url: str, folder: Path, *arguments: str) -> str:
    done = await asyncio.to_thread(run_admit, "--nats", url, *arguments, cwd=folder)
    assert done.status == 0, done.err
    return done.out


async def test_every_call_answers_as_the_page_says(tmp_path: Path) -> None:
    text = PAGE.read_text()
    for name, manifests in re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(manifests)
    calls = 0
    async with embedded("--insecure") as system:
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
            for call in re.findall(r"^\$ admit (.*\n(?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                command, _, said = call.partition("\n")
                printed = await answer(system.url, tmp_path, *shlex.split(command))
                assert printed == said, command
                calls += 1
                if command.startswith("submit"):
                    # Told apart by time: each has its place before the next one comes.
                    name = shlex.split(command)[2]
                    if name in ("train-1", "train-2"):
                        await answer(
                            system.url, tmp_path, "wait", "workload", name, "--for", "Running"
                        )
    assert calls == 9
