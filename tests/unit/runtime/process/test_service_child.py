"""A service in a child process gets its settings and an errand, and ends with the call."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import psutil
import pytest

from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.process.service import Run, Service
from admittance.runtime.process.service_child import ChildEnded, run_child
from admittance.runtime.process.settings import Settings

PROGRAM = """
import os, signal, sys
if sys.argv[0].endswith("ends.py"):
    sys.exit(3)
print(sys.stdin.read())
for name in ("URL", "CREDS"):
    print(os.environ["ADMIT_NATS_" + name])
print(os.environ["ADMIT_INSTANCE"], os.environ.get("ADMIT_ADMIN"), os.getpid(), flush=True)
signal.pause()
"""


def service(name: str) -> Service:
    def load() -> Run:
        raise AssertionError("the child imports the service, not its parent")

    load.__module__ = name
    return Service("sample", load, role="viewer")


SETTINGS = Settings(
    service="sample",
    instance="one",
    url="nats://server:1",
    connection=ConnectionOptions(creds="key"),
)


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("waits", "ends"):
        (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.setenv("ADMIT_ADMIN", "127.0.0.1:9464")
    return {"PYTHONPATH": str(tmp_path)}


async def test_the_child_gets_the_settings_and_ends_when_the_call_is_cancelled(
    variables: dict[str, str],
) -> None:
    lines: list[str] = []
    complete = asyncio.Event()

    def on_line(line: str) -> None:
        lines.append(line)
        if len(lines) == 4:
            complete.set()

    child = asyncio.create_task(
        run_child(
            service("waits"), SETTINGS, variables=variables, errand=b"the errand", on_line=on_line
        )
    )
    waiting = asyncio.create_task(complete.wait())
    await asyncio.wait([child, waiting], return_when=asyncio.FIRST_COMPLETED)
    assert lines[:3] == ["the errand", "nats://server:1", "key"]
    instance, admin, pid = lines[3].split()
    assert (instance, admin) == ("one", "None")
    process = psutil.Process(int(pid))
    child.cancel()
    with pytest.raises(asyncio.CancelledError):
        await child
    assert not process.is_running()


async def test_a_child_that_ends_by_itself_ends_the_call_with_its_status(
    variables: dict[str, str],
) -> None:
    with pytest.raises(ChildEnded, match="the process of sample ended with status 3"):
        await run_child(service("ends"), SETTINGS, variables=variables, on_line=print)


async def test_a_child_that_is_killed_ends_the_call(variables: dict[str, str]) -> None:
    def kill(line: str) -> None:
        if line.startswith("one "):
            psutil.Process(int(line.split()[-1])).kill()

    with pytest.raises(ChildEnded, match=f"status -{signal.SIGKILL:d}"):
        await run_child(service("waits"), SETTINGS, variables=variables, on_line=kill)
