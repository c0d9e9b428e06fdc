"""The page about `admit simulate`, played: every call of it answers as it says there."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from pathlib import Path

import pytest

from admittance.cli.bench.system import embedded

pytestmark = pytest.mark.bus

PAGE = Path(__file__).parents[2] / "docs" / "what-if.md"
ADMIT = Path(sys.executable).parent / "admit"


async def answer(url: str, folder: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        ADMIT,
        "--nats",
        url,
        *arguments,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_every_call_answers_as_the_page_says(tmp_path: Path) -> None:
    text = PAGE.read_text()
    for name, manifests in re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(manifests)
    calls = 0
    async with embedded() as system:
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
            for call in re.findall(r"^\$ admit (.*\n(?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                command, _, said = call.partition("\n")
                found = await answer(system.url, tmp_path, *shlex.split(command))
                assert found == said, command
                calls += 1
                if command.startswith("submit"):
                    # Told apart by time: each has its place before the next one comes.
                    name = shlex.split(command)[2]
                    if name in ("train-1", "train-2"):
                        await answer(
                            system.url, tmp_path, "wait", "workload", name, "--for", "Running"
                        )
    assert calls == 8
