"""The pages about checks say what is so: tables are played, manifests applied, code compiled."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from admittance.api.configuration import GATES, RequeuingStrategy, WaitForPodsReady
from admittance.api.reading.configuration_file import read_configuration
from admittance.api.reading.manifest import read
from admittance.events import facts
from admittance.runtime.process.settings import Settings
from admittance.workload.limits import Limits
from support.builders import NOON
from support.cores.stepped_scheduler import groups
from support.cores.timed_cores import TimedCores, cores_with_queue
from support.documents import marked_table
from support.processes.fork_server import run_admit
from support.processes.forked_system import embedded

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CHECKS = ROOT / "deploy" / "samples" / "checks"
ADMIT = Path(sys.executable).parent / "admit"
FLOW = DOCS / "check-flow.md"
MIGRATING = DOCS / "migrating-retries.md"
PAGES = (
    FLOW,
    MIGRATING,
    DOCS / "checks.md",
    DOCS / "configuration.md",
    ROOT / "README.md",
    *sorted(CHECKS.glob("**/*.md")),
)


def blocks(page: Path, language: str) -> list[str]:
    """Code of that language on the page, without the indentation of a list."""
    rows = re.findall(
        rf"^( *)```{language}\n(.*?)^\1```", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in rows]


# What a verdict does. -----------------------------------------------------------------------


def in_phase(where: str) -> TimedCores:
    """A workload with one check, there."""
    cores = cores_with_queue("c")
    if where == "Pending":
        cores.queue("full", admissionChecks=["c"])
        cores.submit("w", "full", "8")  # it has no quota
        cores.go()
        return cores
    cores.submit("w", "cq", "8")
    cores.go()
    match where:
        case "Admitted" | "Running":
            cores.report("w", "c", "Ready")
            cores.slow_jobs.add("w")
            if where == "Running":
                cores.ready("w")
        case "Evicting, by a check":
            cores.report("w", "c", "Ready")
            cores.slow_jobs.add("w")
            cores.report("w", "c", "Retry", after=600)
        case "Backoff, by a check":
            cores.report("w", "c", "Retry", after=600)
        case "Evicting, by another cause":
            cores.report("w", "c", "Ready")
            cores.slow_jobs.add("w")
            cores.put(
                "ClusterQueue",
                "cq",
                {**cores.spec("ClusterQueue", "cq"), "stopPolicy": "HoldAndDrain"},
            )
            cores.go()
        case "Finished":
            cores.report("w", "c", "Ready")
            cores.finish("w")
        case "Deactivated":
            cores.publish(facts.Deactivated, "w")
        case "Rejected":
            cores.report("w", "c", "Rejected")
    cores.go()
    return cores


VERDICTS: dict[str, dict[str, Any]] = {
    "Pending": {"state": "Pending"},
    "Ready": {"state": "Ready"},
    "Retry": {"state": "Retry"},
    "Retry with a delay": {"state": "Retry", "after": 60},
    "Rejected": {"state": "Rejected"},
}


def cells() -> Iterator[Any]:
    head, *rows = marked_table(FLOW, "verdicts")
    for where, *outcomes in rows:
        for verdict, outcome in zip(head[1:], outcomes, strict=True):
            yield pytest.param(where, verdict, outcome, id=f"{where}: {verdict} {outcome}")


@pytest.mark.parametrize(("where", "verdict", "outcome"), list(cells()))
def test_a_verdict_does_what_its_cell_says(where: str, verdict: str, outcome: str) -> None:
    cores = in_phase(where)
    came_from = str(cores.phase("w"))
    assert came_from == where.partition(",")[0]
    cycle = cores.stored("w").status.admission_cycle
    # Evicting by another cause has ended the cycle that was judged.
    judged = cycle - (where == "Evicting, by another cause")
    before = cores.rows("w")
    revision = cores.revision
    answer = dict(VERDICTS[verdict])
    dropped = cores.answer(
        "w", "c", answer.pop("state"), cycle=judged, message="in the words of the check", **answer
    )
    if outcome == "→ Admitted":
        cores.go()  # the scheduler looks whether it still fits
    now = str(cores.phase("w"))
    told = cores.rows("w").get("c")
    match outcome.split():
        case ["→", goal]:
            assert now == goal
        case ["kept"]:
            assert now == came_from
            assert told is not None
            assert told.message == "in the words of the check"
        case ["dropped"]:
            assert dropped is not None
            assert (now, cores.rows("w")) == (came_from, before)
        case ["nothing"]:
            assert now == came_from
            assert {name: row.state for name, row in cores.rows("w").items()} == {"c": "Ready"}
            assert cores.revision - revision <= 1
        case _:
            pytest.fail(f"unknown outcome {outcome!r}")


# How long a workload waits. -----------------------------------------------------------------


def clock_time(text: str) -> timedelta:
    hours, minutes, seconds = (int(part) for part in text.split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


@pytest.mark.parametrize(
    ("verdicts", "end"),
    [pytest.param(*row, id=row[0]) for row in marked_table(FLOW, "waits")[1:]],
)
def test_a_workload_waits_as_long_as_its_line_says(verdicts: str, end: str) -> None:
    said = [words.split() for words in verdicts.split(", ")]
    names = sorted({check for check, *_ in said})
    cores = cores_with_queue(*names)
    cores.submit("w", "cq", "8")
    cores.go()
    began = clock_time(said[0][1])
    for check, when, state, *delay in said:
        cores.at((clock_time(when) - began).total_seconds())
        fields = {"after": int(delay[0])} if delay else {}
        cores.report("w", check, state, **fields)
    state_ = cores.stored("w").status.requeue_state
    assert state_ is not None
    assert state_.requeue_at is not None
    wait = (clock_time(end) - began) % timedelta(days=1)
    assert state_.requeue_at - NOON == wait
    cores.at(wait.total_seconds() - 1)
    assert cores.phase("w") == "Backoff"
    cores.at(wait.total_seconds())
    assert cores.phase("w") == "QuotaReserved"


# Gates and settings. ------------------------------------------------------------------------


def test_every_gate_has_its_line() -> None:
    assert {row[0].strip("`") for row in marked_table(MIGRATING, "gates")[1:]} == set(GATES)


def test_with_acrequeueafter_off_a_retry_is_one_without_a_delay() -> None:
    cores = cores_with_queue(limits=Limits(requeue_after=False))
    strategy = {"strategy": "static", "baseDelay": "60s", "maxRetries": 0}
    cores.check("c", retry=strategy)
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c"])
    cores.submit("w", "cq", "8")
    for fields in ({"after": 60}, {}):
        cores.go()
        count = cores.counts("w")["c"]
        cores.report("w", "c", "Retry", **fields)
        assert cores.phase("w") == "QuotaReserved"  # evicted, and asked again already
        assert cores.counts("w") == {"c": count + 1}
    assert cores.evicted_for("w") == ["AdmissionCheck"] * 2
    assert cores.noted("w") == ["RequeueAfterDisabled"] * 2


def test_a_wait_continues_when_acrequeueafter_is_turned_off() -> None:
    cores = cores_with_queue("c")
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "c", "Retry", after=600)
    cores.limits = Limits(requeue_after=False)
    cores.restart()
    cores.at(599)
    assert cores.phase("w") == "Backoff"
    cores.at(600)
    assert cores.phase("w") == "QuotaReserved"


@pytest.mark.parametrize(
    ("delay", "phase"),
    [pytest.param(0, "QuotaReserved", id="0: at once"), pytest.param(None, "Backoff", id="none")],
)
def test_the_delay_of_a_verdict_comes_before_the_strategy(delay: int | None, phase: str) -> None:
    cores = cores_with_queue()
    cores.check("c", retry={"strategy": "static", "baseDelay": "60s", "maxRetries": 2})
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c"])
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "c", "Retry", **({} if delay is None else {"after": delay}))
    assert cores.phase("w") == phase


def test_every_field_of_wait_for_pods_ready_has_its_line_and_default() -> None:
    lines = re.findall(
        r"^\| `([^`]+)` \| ([^|]+) \|", (DOCS / "configuration.md").read_text(), re.M
    )
    told = {name: default.strip(" `") for name, default in lines}
    shown: dict[object, str] = {None: "none", False: "false"}
    defaults = {
        ".timeout": WaitForPodsReady().timeout,
        ".recoveryTimeout": "as `timeout",
        ".maxTimeoutOnWorkload": "2h",
        ".blockAdmission": WaitForPodsReady().block_admission,
        ".requeuingStrategy.timestamp": RequeuingStrategy().timestamp,
        ".requeuingStrategy.backoffBaseSeconds": RequeuingStrategy().backoff_base_seconds,
        ".requeuingStrategy.backoffMaxSeconds": RequeuingStrategy().backoff_max_seconds,
        ".requeuingStrategy.backoffLimitCount": RequeuingStrategy().backoff_limit_count,
    }
    fields = set(WaitForPodsReady.__struct_encode_fields__) - {"enable", "requeuingStrategy"}
    again = {f"requeuingStrategy.{field}" for field in RequeuingStrategy.__struct_encode_fields__}
    assert {name.removeprefix(".") for name in defaults} == fields | again
    for name, default in defaults.items():
        assert told[name] == str(shown.get(default, default)), name


SECONDS = {"a week": 7 * 86_400.0, "four hours": 4 * 3600.0}


def test_every_setting_has_its_line_and_default() -> None:
    source = (ROOT / "libs/admittance/runtime/process/settings.py").read_text()
    lines = re.findall(r"^\| `(ADMIT_\w+)` \| ([^|]*)\|", (DOCS / "settings.md").read_text(), re.M)
    defaults = {name: default.strip(" `") for name, default in lines}
    assert set(re.findall(r'"(ADMIT_[A-Z_]+)"', source)) <= set(defaults)
    settings = Settings.from_env("x", env={}, instance="x")
    for name, default in defaults.items():
        field = name.removeprefix("ADMIT_").lower()
        if field.endswith("_seconds"):
            assert SECONDS.get(default) or float(default) == getattr(settings, field), name


# Manifests, programs, links. ----------------------------------------------------------------


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_manifests_of_a_page_are_accepted(page: Path) -> None:
    for text in blocks(page, "yaml"):
        kinds = {manifest["kind"] for manifest in yaml.safe_load_all(text)}
        if kinds == {"Configuration"}:
            assert read_configuration(text, page.name).warnings == ()
        else:
            assert read(text, page.name)


@pytest.mark.bus
async def test_manifests_of_the_pages_are_applied_unchanged() -> None:
    async with embedded("--insecure") as system:
        for page in (FLOW, MIGRATING):
            for text in blocks(page, "yaml"):
                if "kind: Configuration" not in text:
                    words = ("--nats", system.url, "apply", "-f", "-")
                    done = await asyncio.to_thread(run_admit, *words, stdin=text)
                    assert done.status == 0, done.err


@pytest.mark.parametrize("folder", sorted(CHECKS.glob("*/manifests.yaml")), ids=named)
def test_manifests_of_a_sample_are_accepted(folder: Path) -> None:
    kinds = {manifest["kind"] for manifest in yaml.safe_load_all(folder.read_text())}
    assert read(folder.read_text(), str(folder))
    assert {"AdmissionCheck", "ClusterQueue", "LocalQueue"} <= kinds


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_programs_of_a_page_are_python_and_use_what_there_is(page: Path) -> None:
    for code in blocks(page, "python"):
        tree = ast.parse(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "admittance.checks":
                module = __import__("admittance.checks", fromlist=["checks"])
                assert {name.name for name in node.names} <= set(dir(module))


async def test_the_recommended_pattern_of_the_page_decides_as_documented() -> None:
    from admittance.checks import Ready, Request, Retry

    [code] = [block for block in blocks(FLOW, "python") if "@licenses.check" in block]
    known: dict[str, Any] = {}
    exec(compile(code, str(FLOW), "exec"), known)  # the documentation's own program
    judge = known["licenses"].judge
    assert await judge(Request(parameters={"product": "solver"})) == Ready("a license is free")
    assert await judge(Request(parameters={"product": "none"})) == Retry(
        "no license is free", after=60
    )


@pytest.mark.parametrize("count", range(12))
def test_the_doubling_of_the_page_doubles_up_to_an_hour(count: int) -> None:
    [code] = [block for block in blocks(FLOW, "python") if "def delay_seconds" in block]
    known: dict[str, Any] = {}
    exec(compile(code, str(FLOW), "exec"), known)  # the documentation's own program
    base = min(30 * 2**count, 3600)
    assert base <= known["delay_seconds"](count) <= 1.2 * base
