"""The admin port of `admit up`, as a probe and Prometheus use it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tools.pages.metrics import by_service

from admittance.bench.system import Child, embedded, family
from admittance.runtime.bus.bus import Bus
from support.builders import a_manifest
from support.programs.prometheus import a_free_port, answer, ask, prometheus
from support.requests import apply, eventually, queues, submit

pytestmark = pytest.mark.bus


PREFIX = "admittance_"
STATUS = ("active", "inadmissible")


def series(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def checked(text: str) -> str:
    """The complaints of promtool about the metrics."""
    process = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    return process.stdout + process.stderr


def sleeping(name: str) -> dict[str, Any]:
    manifest = a_manifest(name, queue="lq-cq")
    container = manifest["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["sleep", "600"]
    return manifest


async def shows(port: int, query: str, wanted: dict[str, float]) -> bool:
    """Whether Prometheus answers the query with these values by ClusterQueue."""
    result = await answer(port, query)
    return {
        sample["metric"]["cluster_queue"]: float(sample["value"][1]) for sample in result
    } == wanted


def controllers(system: Child) -> set[int]:
    """The processes of the workload-controller."""
    found = set()
    for process in family(system.pid):
        with suppress(psutil.Error):
            if "-m" in process.cmdline():
                found.add(process.pid)
    return found


async def is_ready_again(port: int, system: Child, killed: int) -> bool:
    return killed not in controllers(system) and await ask(port, "/readyz") == (200, "ok\n")


async def test_admit_up_is_alive_ready_and_scraped_at_one_port(tmp_path: Path) -> None:
    port = a_free_port()
    options = ["--insecure", "--processes", "2", "--admin", f"127.0.0.1:{port}"]
    async with embedded(*options) as system:
        assert await ask(port, "/livez") == (200, "ok\n")
        assert await ask(port, "/readyz") == (200, "ok\n")
        bus = await Bus.connect(system.url, name="test")
        await apply(bus, *queues("cq", cpu=2))
        await submit(bus, [sleeping(f"w-{number}") for number in range(4)])
        labels = (("cluster_queue", "cq"),)

        async def counted() -> bool:
            samples = series((await ask(port, "/metrics"))[1])
            jobs = samples.get(("admittance_runner_jobs", (("stage", "running"),)))
            return jobs == samples.get(("admittance_admitted_active_workloads", labels)) == 2

        await eventually(counted)
        if shutil.which("prometheus"):
            async with prometheus(tmp_path, port) as queried:
                query = f"sum by (cluster_queue) ({PREFIX}pending_workloads)"
                await eventually(lambda: shows(queried, query, {"cq": 2.0}))
                # a query of Kueue's dashboards
                usage = f"{PREFIX}cluster_queue_resource_usage"
                query = f"sum by (cluster_queue) ({usage} / {PREFIX}cluster_queue_nominal_quota)"
                assert await shows(queried, query, {"cq": 1.0})
        await bus.close()
        status, text = await ask(port, "/metrics")
        # The process of the workload-controller is started again, and nothing else is.
        [child] = controllers(system)
        os.kill(child, signal.SIGKILL)
        await eventually(lambda: is_ready_again(port, system, child))
    assert status == 200
    samples = series(text)
    pending = [
        samples["admittance_pending_workloads", (*labels, ("status", status))] for status in STATUS
    ]
    assert sum(pending) == 2
    assert samples["admittance_admission_attempts_total", (("result", "success"),)] >= 1
    leader = (("service", "workload-controller"),)
    assert samples["admittance_led_domains", leader] == 1
    assert samples["admittance_leader_epochs_total", leader] >= 1
    assert samples["admittance_bus_round_trip_seconds", leader] > 0
    assert samples["admittance_unread_facts", leader] == 0
    assert samples["admittance_led_domains", (("service", "scheduler"),)] == 1
    assert samples["admittance_commit_facts_sum", ()] >= 4
    assert samples["admittance_commit_facts_count", ()] >= 1
    admitted = (*labels, ("priority_class", ""))
    assert samples["admittance_admission_wait_time_seconds_count", admitted] == 2
    assert samples["admittance_ready_wait_time_seconds_count", admitted] == 2
    assert samples["admittance_cluster_queue_status", (*labels, ("status", "active"))] == 1
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    pages = {**by_service()}
    # Here no program is written with the SDK, no traces are exported, and no forecast is asked for:
    # test_program_admin_port.py, test_telemetry_live.py and test_forecast_metrics.py show these.
    for other in ("check controllers and providers", "telemetry", "forecast"):
        del pages[other]
    documented = {metric.full_name for page in pages.values() for metric in page}
    assert shown == {f"admittance_{name}" for name in documented}
    if shutil.which("promtool"):
        assert await asyncio.to_thread(checked, text) == ""
