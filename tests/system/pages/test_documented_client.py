"""The programs in the docs run on a locked system with the credentials that the docs make."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from getpass import getuser
from pathlib import Path

import pytest
import pytest_asyncio

from admittance.bench.system import Child
from support.processes.fork_server import run_admit
from support.processes.forked_system import embedded
from support.servers import within

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "submit-from-any-language.md"
CHECKS = ROOT / "docs" / "checks.md"
PROVIDERS = ROOT / "docs" / "providers.md"
SAMPLES = ROOT / "deploy" / "samples"


class System:
    """A locked `admit up` with the queues of the samples. ``folder``: the working folder of
    commands and programs, with the data folder ``.data`` of the docs."""

    def __init__(self, child: Child) -> None:
        self.url = child.url
        self.folder = child.log.parent
        (self.folder / ".data").symlink_to("data")

    async def admit(self, *words: str) -> str:
        """The output of a command of the admin."""
        login = {"ADMIT_NATS_URL": self.url, "ADMIT_NATS_CREDS": ".data/auth/admin.creds"}
        done = await asyncio.to_thread(run_admit, *words, env=login, cwd=self.folder)
        assert done.status == 0, done.err
        return done.out

    async def add_user(self, page: Path, name: str) -> str:
        """Runs the command of the page that adds the user; returns the credentials file."""
        words = words_that_add(page, name)
        await self.admit(*words)
        return words[-1]

    @asynccontextmanager
    async def program(self, text: str, log: Path, env: Mapping[str, str]) -> AsyncIterator[None]:
        """Runs the Python program until the end of the block."""
        with log.open("wb") as out:
            running = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", text),
                env={**os.environ, "ADMIT_NATS_URL": self.url, **env},
                cwd=self.folder,
                stdout=out,
                stderr=out,
            )
        try:
            yield
        finally:
            running.terminate()
            await within(running.wait())


def words_that_add(page: Path, name: str) -> list[str]:
    """The command of the page that adds the user."""
    (line,) = set(re.findall(rf"^admit (auth add \w+ {name} .*)$", page.read_text(), re.M))
    return str(line).split()


def block(page: Path, language: str, number: int = 0) -> str:
    """A block of the page in the language."""
    blocks = re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
    return str(blocks[number])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system() -> AsyncIterator[System]:
    rules = [f"--run-as=user:{name}={getuser()}" for name in ("ada", "admin")]
    async with embedded(*rules) as child:
        made = System(child)
        await made.admit("apply", "-f", str(SAMPLES / "queues.yaml"))
        yield made


async def test_the_python_of_the_docs_submits_a_job_that_runs(system: System) -> None:
    await system.add_user(PAGE, "ada")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", block(PAGE, "python")),
        env={**os.environ, "ADMIT_NATS_URL": system.url},
        cwd=system.folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await within(process.communicate())
    assert process.returncode == 0, out.decode()
    assert "'reason': 'Succeeded'" in out.decode()
    assert await system.admit("logs", "workload", "hello") == "hello\n"
    assert "by ada" in await system.admit("events", "--workload", "hello")


@pytest.mark.parametrize(
    ("page", "number", "user", "queue"),
    [
        pytest.param(CHECKS, 0, "freeze", "freezable", id="check"),
        pytest.param(CHECKS, -1, "freeze", "freezable", id="check-without-helper"),
        pytest.param(PROVIDERS, 0, "rack", "rack", id="provider"),
    ],
)
async def test_program_of_a_page_works_with_the_credentials_of_the_page(
    system: System, tmp_path: Path, page: Path, number: int, user: str, queue: str
) -> None:
    (tmp_path / "rack").mkdir()
    (tmp_path / "rack" / "node-1").touch()
    manifests = SAMPLES / "providers" / "manifests.yaml"
    if page is CHECKS:
        manifests = tmp_path / "manifests.yaml"
        manifests.write_text(block(page, "yaml"))
    await system.admit("apply", "-f", str(manifests))
    text = block(page, "python", number).replace("/tmp/", f"{tmp_path}/")
    if not (system.folder / f"{user}.creds").exists():
        await system.add_user(page, user)
    login = {"ADMIT_NATS_CREDS": f"{user}.creds"}
    log = tmp_path / "log"
    name = f"of-{user}-{number % 10}"
    job = ("submit", "-q", queue, "--name", name, "--wait", "--timeout", "50s")
    async with system.program(text, log, login):
        await system.admit(*job, "--", "true")
    assert "permission" not in log.read_text()


async def test_the_samples_are_accepted_and_run_to_their_end(system: System) -> None:
    for name in ("job.yaml", "workload.yaml"):
        await system.admit("submit", "-f", str(SAMPLES / name))
    for name in ("count-words", "nightly-report", "train"):
        await system.admit("wait", "workload", name, "--for", "Finished", "--timeout", "60")
    printed = await system.admit("logs", "workload", "count-words")
    assert printed.count("counting for research") == 4  # completions, of parallelism 2
