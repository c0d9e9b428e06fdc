"""The program in the docs, unchanged, submits a job and receives the fact of its end."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from admittance.cli.bench.system import embedded
from support.fork_server import run_admit

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "submit-from-any-language.md"
SAMPLES = ROOT / "deploy" / "samples"


async def printed_by(program: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, out.decode()
    return out.decode()


async def admit(url: str, *words: str) -> str:
    done = await asyncio.to_thread(run_admit, "--nats", url, *words)
    assert done.status == 0, done.err
    return done.out


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    """`admit up` with the queues of the samples."""
    async with embedded("--insecure") as system:
        await admit(system.url, "apply", "-f", str(SAMPLES / "queues.yaml"))
        yield system.url


async def test_the_python_of_the_docs_submits_a_job_that_runs(url: str) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert "nats://127.0.0.1:4222" in found.group(1)
    program = found.group(1).replace("nats://127.0.0.1:4222", url)
    assert "'reason': 'Succeeded'" in await printed_by(program)
    assert await admit(url, "logs", "workload", "hello") == "hello\n"


async def test_the_samples_are_accepted_and_run_to_their_end(url: str) -> None:
    for name in ("job.yaml", "workload.yaml"):
        await admit(url, "submit", "-f", str(SAMPLES / name))
    for name in ("count-words", "nightly-report", "train"):
        await admit(url, "wait", "workload", name, "--for", "Finished", "--timeout", "60")
    printed = await admit(url, "logs", "workload", "count-words")
    assert printed.count("counting for research") == 4  # completions, of parallelism 2
