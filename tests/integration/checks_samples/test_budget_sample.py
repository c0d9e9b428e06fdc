"""The budget check, as it stands in the samples, with a real Prometheus beside a real system."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
import yaml
from sample_programs import SAMPLES, Admit, Program, eventually, program

from admittance.bench.system import embedded
from admittance.runtime import clock

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(
        shutil.which("prometheus") is None,
        reason="there is no prometheus (Debian: apt-get install prometheus)",
    ),
]

FOLDER = SAMPLES / "budget"
NAMESPACES = ("default", "research", "turning", "crashing")
CONFIG = """
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
  - job_name: spending
    static_configs: [{targets: ["%s"]}]
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def fetched(url: str, *, post: bool = False) -> str:
    with urlopen(Request(url, method="POST" if post else "GET"), timeout=5) as answer:
        text: str = answer.read().decode()
        return text


class Meters:
    """What the namespaces spend, and the Prometheus that knows it."""

    def __init__(self, spending: str, prometheus: str) -> None:
        self.spending = spending
        self.url = prometheus

    async def spend(self, namespace: str, amount: float) -> None:
        """Spends, and waits until Prometheus has seen it."""
        url = f"{self.spending}/spend?namespace={namespace}&amount={amount}"
        total = (await asyncio.to_thread(fetched, url, post=True)).split()[-1]
        await self.shows(namespace, float(total))

    async def shows(self, namespace: str, total: float) -> None:
        """Waits until Prometheus has seen the counter there for a few scrapes."""
        query = f'min_over_time(namespace_spend_total{{namespace="{namespace}"}}[500ms])'
        url = f"{self.url}/api/v1/query?{urlencode({'query': query})}"

        async def seen() -> bool:
            try:
                found = json.loads(await asyncio.to_thread(fetched, url))["data"]["result"]
            except OSError:
                return False
            return bool(found) and float(found[0]["value"][1]) == total

        await eventually(seen, lambda: f"Prometheus does not show {total} of {namespace}")


@pytest.fixture(scope="module")
def meter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meters]:
    """The sample's exporter and a Prometheus that scrapes it; its first look takes it five seconds,
    so there is one for all, and a namespace for each."""
    folder = tmp_path_factory.mktemp("meters")
    port, address = free_port(), f"127.0.0.1:{free_port()}"
    config = folder / "prometheus.yml"
    config.write_text(CONFIG % f"127.0.0.1:{port}")
    namespaces = {"PORT": str(port), "SPENDING_NAMESPACES": ",".join(NAMESPACES)}
    prometheus = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("ab") as log:
        exporter = subprocess.Popen(
            [sys.executable, FOLDER / "spending.py"], env=os.environ | namespaces, stderr=log
        )
        server = subprocess.Popen(prometheus, stdout=log, stderr=log)
    yield Meters(f"http://127.0.0.1:{port}", f"http://{address}")
    for process in (server, exporter):
        process.terminate()
    assert [process.wait(15) for process in (server, exporter)] == [0, 0]


def manifests(meter: Meters, namespace: str = "default", **spec: Any) -> str:
    """The sample's manifests, with this Prometheus and a quicker look. What they say of the
    namespace default holds of this one."""
    text = (FOLDER / "manifests.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    [budget] = [one["spec"] for one in documents if one["kind"] == "Budget"]
    budget |= {"prometheus": meter.url, "lookEverySeconds": 0.3, **spec}
    budget["limits"][namespace] = budget["limits"].pop("default")
    for one in documents:
        if one["metadata"].get("namespace") == "default":
            one["metadata"]["namespace"] = namespace
    return yaml.safe_dump_all(documents)


@asynccontextmanager
async def check(folder: Path, admit: Admit) -> AsyncIterator[Program]:
    """The check itself; ended in order."""
    command = (sys.executable, FOLDER / "budget.py")
    settings = {"ADMIT_NATS_URL": admit.url, "ADMIT_DATA_DIR": str(folder / "state")}
    async with program(folder / "check.log", *command, **settings) as running:
        yield running


def ends() -> str:
    """When the week turns, as messages tell it: the next Monday, UTC."""
    today = clock.now().date()
    monday = today + timedelta(days=7 - today.weekday())
    return f"{monday.isoformat()}T00:00:00Z"


async def start(admit: Admit, name: str, namespace: str = "default") -> None:
    await admit("-n", namespace, "submit", "-q", "budgeted", "--name", name, "--", "sleep", "100")


@pytest.mark.scenario("A29")
async def test_over_its_budget_a_namespace_is_put_off_until_the_week_turns(
    meter: Meters, tmp_path: Path
) -> None:
    for namespace in ("default", "research"):
        await meter.shows(namespace, 0)
    async with embedded() as system:
        admit = Admit(system)
        await admit("apply", "-f", "-", text=manifests(meter))
        async with check(tmp_path, admit):
            # Within the budget of 100: both run, and so does the other namespace's.
            await meter.spend("default", 60)
            for name, namespace in (("a", "default"), ("b", "default"), ("c", "research")):
                await start(admit, name, namespace)
                await admit.wait(name, "Running", namespace)
            # Over it while they run: stopped, and put off until the week turns.
            await meter.spend("default", 60)
            turns = ends()
            for name in ("a", "b"):
                await admit.wait(name, "Backoff")
                found = (await admit.workload(name))["status"]
                row = found["admissionChecks"][0]
                assert row["state"] == "Retry"
                assert f"next week begins {turns}" in row["message"]
                assert found["requeueState"]["requeueAt"][:13] == turns[:13]
                assert found.get("admission") is None
            # One that comes now does not start, either.
            await start(admit, "d")
            await admit.wait("d", "Backoff")
            assert "weekly budget of 100 is spent" in (await admit.row("d"))["message"]
            # Nobody else's concern.
            assert "Running" in await admit("-n", "research", "get", "workload", "c")
            await start(admit, "e", "research")
            await admit.wait("e", "Running", "research")


async def test_when_the_week_turns_who_was_held_starts(meter: Meters, tmp_path: Path) -> None:
    await meter.shows("turning", 0)
    await meter.spend("turning", 150)
    async with embedded() as system:
        admit = Admit(system)
        turn = clock.now().replace(microsecond=0) + timedelta(seconds=7)
        week = {"resetWeekday": turn.strftime("%A"), "resetTime": turn.strftime("%H:%M:%S")}
        await admit("apply", "-f", "-", text=manifests(meter, "turning", **week))
        async with check(tmp_path, admit):
            await start(admit, "a", "turning")
            await admit.wait("a", "Backoff", "turning")
            message = (await admit.row("a", "turning"))["message"]
            assert f"next week begins {turn:%Y-%m-%dT%H:%M:%SZ}" in message
            await admit.wait("a", "Running", "turning")
            status = (await admit.workload("a", "turning"))["status"]
            [admitted] = [one for one in status["conditions"] if one["type"] == "Admitted"]
            assert datetime.fromisoformat(admitted["lastTransitionTime"]) >= turn
            assert status["admissionChecks"][0]["state"] == "Ready"


async def test_after_a_crash_of_the_check_it_still_stops_what_it_let_through(
    meter: Meters, tmp_path: Path
) -> None:
    await meter.shows("crashing", 0)
    async with embedded() as system:
        admit = Admit(system)
        await admit("apply", "-f", "-", text=manifests(meter, "crashing"))
        async with check(tmp_path, admit) as killed:
            await start(admit, "a", "crashing")
            await admit.wait("a", "Running", "crashing")
            await killed.kill()
        await meter.spend("crashing", 150)
        assert "Running" in await admit("-n", "crashing", "get", "workload", "a")
        async with check(tmp_path, admit):
            await admit.wait("a", "Backoff", "crashing")
