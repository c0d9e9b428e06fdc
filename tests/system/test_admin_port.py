"""The admin port of `admit up`, as a probe and Prometheus use it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tools.metrics_page import by_service

from admittance.cli.bench.system import embedded
from admittance.runtime.bus.bus import Bus
from support.builders import a_manifest
from support.requests import apply, eventually, queues, submit

pytestmark = pytest.mark.bus


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


STATUS = ("active", "inadmissible")


def series(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


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
    async with embedded("--insecure", "--no-runner", "--admin", f"127.0.0.1:{port}") as system:
        assert await ask(port, "/livez") == (200, "ok\n")
        assert await ask(port, "/readyz") == (200, "ok\n")
        bus = await Bus.connect(system.url, name="test")
        await apply(bus, *queues("cq", cpu=2))
        await submit(bus, [a_manifest(f"w-{number}", queue="lq-cq") for number in range(4)])
        labels = (("cluster_queue", "cq"),)

        async def counted() -> bool:
            found = series((await ask(port, "/metrics"))[1])
            return found.get(("admittance_admitted_active_workloads", labels)) == 2

        await eventually(counted)
        await bus.close()
        status, text = await ask(port, "/metrics")
    assert status == 200
    found = series(text)
    pending = [found["admittance_pending_workloads", (*labels, ("status", one))] for one in STATUS]
    assert sum(pending) == 2
    assert found["admittance_admission_attempts_total", (("result", "success"),)] >= 1
    leader = (("service", "workload-controller"),)
    assert found["admittance_led_domains", leader] == 1
    assert found["admittance_leader_epochs_total", leader] >= 1
    assert found["admittance_bus_round_trip_seconds", leader] > 0
    assert found["admittance_unread_facts", leader] == 0
    assert found["admittance_led_domains", (("service", "scheduler"),)] == 1
    assert found["admittance_commit_facts_sum", ()] >= 4
    assert found["admittance_commit_facts_count", ()] >= 1
    admitted = (*labels, ("priority_class", ""))
    assert found["admittance_admission_wait_time_seconds_count", admitted] == 2
    assert found["admittance_cluster_queue_status", (*labels, ("status", "active"))] == 1
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    documented = {one.full_name for found in by_service().values() for one in found}
    assert shown == {f"admittance_{name}" for name in documented}
    if shutil.which("promtool"):
        assert await asyncio.to_thread(checked, text) == ""
