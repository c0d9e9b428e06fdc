"""The admin port of `admit up`, as a probe and Prometheus use it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

from admittance.cli.bench.system import embedded

pytestmark = pytest.mark.bus


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def ask(port: int, path: str) -> tuple[int, str]:
    def asked() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(asked)


def checked(text: str) -> str:
    """What promtool finds wrong with the metrics."""
    found = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    return found.stdout + found.stderr


async def test_admit_up_is_alive_ready_and_scraped_at_one_port() -> None:
    port = a_free_port()
    async with embedded("--no-runner", "--admin", f"127.0.0.1:{port}"):
        assert await ask(port, "/livez") == (200, "ok\n")
        assert await ask(port, "/readyz") == (200, "ok\n")
        status, text = await ask(port, "/metrics")
    assert status == 200
    for name in ("build_info", "admitted_workloads_total", "preemption_gate_open"):
        assert f"# TYPE admittance_{name} " in text
    if shutil.which("promtool"):
        assert await asyncio.to_thread(checked, text) == ""
