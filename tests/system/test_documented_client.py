"""The program in the docs, unchanged, submits a job and receives the fact of its end."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from admittance.cli.bench.system import embedded

pytestmark = pytest.mark.bus

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "submit-from-any-language.md"
ADMIT = Path(sys.executable).parent / "admit"


async def answer(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_the_python_of_the_docs_submits_a_job_that_runs() -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    async with embedded("--insecure") as system:
        assert "nats://127.0.0.1:4222" in found.group(1)
        program = found.group(1).replace("nats://127.0.0.1:4222", system.url)
        samples = str(ROOT / "deploy" / "samples" / "queues.yaml")
        await answer(str(ADMIT), "--nats", system.url, "apply", "-f", samples)
        assert "'reason': 'Succeeded'" in await answer(sys.executable, "-c", program)
        assert await answer(str(ADMIT), "--nats", system.url, "logs", "workload", "hello") == (
            "hello\n"
        )


async def test_the_samples_are_accepted_and_run_to_their_end() -> None:
    async with embedded("--insecure") as system:
        admit = (str(ADMIT), "--nats", system.url)
        samples = ROOT / "deploy" / "samples"
        await answer(*admit, "apply", "-f", str(samples / "queues.yaml"))
        for name in ("job.yaml", "workload.yaml"):
            await answer(*admit, "submit", "-f", str(samples / name))
        for name in ("count-words", "nightly-report", "train"):
            await answer(*admit, "wait", "workload", name, "--for", "Finished", "--timeout", "60")
        printed = await answer(*admit, "logs", "workload", "count-words")
        assert printed.count("counting for research") == 4  # completions, of parallelism 2
