"""The budget check, as it stands in the samples, with a real Prometheus beside a real system."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from meters import Meters, exporter, prometheus, stand_in
from sample_programs import SAMPLES, Admit, Program, program

from admittance.runtime import clock
from support.processes.forked_system import embedded

pytestmark = pytest.mark.bus

NONE = "there is no prometheus (Debian: apt-get install prometheus)"
SERVERS = (
    [pytest.param("prometheus", id="a real Prometheus")]
    if shutil.which("prometheus")
    else [
        pytest.param("prometheus", id="a real Prometheus", marks=pytest.mark.skip(reason=NONE)),
        pytest.param("stand-in", id="in place of a Prometheus"),
    ]
)
FOLDER = SAMPLES / "budget"
NAMESPACES = ("default", "research", "crashing")


@pytest.fixture(scope="module", params=SERVERS)
def meter(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Meters]:
    """The sample's exporter and a Prometheus that scrapes it. All tests share them, because the
    first scrape takes five seconds; each test has its own namespace."""
    folder = tmp_path_factory.mktemp("meters")
    with exporter(folder, *NAMESPACES) as spending:
        real = request.param == "prometheus"
        with prometheus(folder, spending) if real else stand_in(spending) as url:
            yield Meters(spending, url)


def manifests(meter: Meters, namespace: str = "default", **spec: Any) -> str:
    """The sample's manifests, with this Prometheus and shorter intervals; the namespace default is
    replaced by this namespace."""
    text = (FOLDER / "manifests.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    [budget] = [document["spec"] for document in documents if document["kind"] == "Budget"]
    budget |= {"prometheus": meter.url, "lookEverySeconds": 0.3, **spec}
    budget["limits"][namespace] = budget["limits"].pop("default")
    for document in documents:
        if document["metadata"].get("namespace") == "default":
            document["metadata"]["namespace"] = namespace
    return yaml.safe_dump_all(documents)


@asynccontextmanager
async def check(folder: Path, login: dict[str, str]) -> AsyncIterator[Program]:
    """The check itself; ended in order."""
    command = (sys.executable, FOLDER / "budget.py")
    settings = {**login, "ADMIT_DATA_DIR": str(folder / "state")}
    async with program(folder / "check.log", *command, **settings) as running:
        yield running


def ends() -> str:
    """The start of the next week as messages show it: the next Monday, UTC."""
    today = clock.now().date()
    monday = today + timedelta(days=7 - today.weekday())
    return f"{monday.isoformat()}T00:00:00Z"


async def start(admit: Admit, name: str, namespace: str = "default") -> None:
    await admit("-n", namespace, "submit", "-q", "budgeted", "--name", name, "--", "sleep", "100")


@pytest.mark.scenario("A29")
async def test_a_namespace_over_its_budget_is_delayed_until_the_next_week(
    meter: Meters, tmp_path: Path
) -> None:
    for namespace in ("default", "research"):
        await meter.shows(namespace, 0)
    async with embedded() as system:
        admit = Admit(system)
        login = await admit.add("check", "budget", "--controller", "example.com/budget")
        await admit("apply", "-f", "-", text=manifests(meter))
        async with check(tmp_path, login):
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
                status = (await admit.workload(name))["status"]
                row = status["admissionChecks"][0]
                assert row["state"] == "Retry"
                assert f"next week begins {turns}" in row["message"]
                assert status["requeueState"]["requeueAt"][:13] == turns[:13]
                assert status.get("admission") is None
            # One that comes now does not start, either.
            await start(admit, "d")
            await admit.wait("d", "Backoff")
            assert "weekly budget of 100 is spent" in (await admit.row("d"))["message"]
            # Only this check is concerned.
            assert "Running" in await admit("-n", "research", "get", "workload", "c")
            await start(admit, "e", "research")
            await admit.wait("e", "Running", "research")


async def test_a_restarted_check_stops_jobs_that_it_admitted_before(
    meter: Meters, tmp_path: Path
) -> None:
    await meter.shows("crashing", 0)
    async with embedded() as system:
        admit = Admit(system)
        login = await admit.add("check", "budget", "--controller", "example.com/budget")
        await admit("apply", "-f", "-", text=manifests(meter, "crashing"))
        async with check(tmp_path, login) as killed:
            await start(admit, "a", "crashing")
            await admit.wait("a", "Running", "crashing")
            await killed.kill()
        await meter.spend("crashing", 150)
        assert "Running" in await admit("-n", "crashing", "get", "workload", "a")
        async with check(tmp_path, login):
            await admit.wait("a", "Backoff", "crashing")
