"""Every query of the dashboards and alerts, on a real Prometheus that scrapes a deployment in the
middle of a story: two cohorts, borrowed quota, a preemption, a check with retries, capacity from a
pool, a family that migrates, machines with devices, a dead letter, and a receiver of traces that is
away."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from admittance.checks import AdmissionCheckController, Pending, Ready, Request, Retry, Verdict
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload.phase import Phase
from support.builders import a_manifest, resource_groups
from support.capacity import CHECK, a_config, until_phase
from support.processes.forked_system import embedded
from support.programs import promql
from support.programs.prometheus import a_free_port, answer, ask, prometheus
from support.requests import apply, eventually, queues, submit, workload
from support.servers import within

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no Prometheus"),
]

BUDGET = "example.com/budget"
CARD = "example.com/card"
VERSION = "kueue.x-k8s.io/v1beta2"
CONFIG = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "fairSharing": {}}
POOL = {
    "apiVersion": "admittance.dev/v1",
    "kind": "MachinePool",
    "metadata": {"name": "rack"},
    "spec": {
        "provisioningClassName": "class",
        "machines": [{"name": "one", "count": 1, "bootSeconds": 0, "resources": {"cpu": 1}}],
    },
}


def an_object(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name}
    return {"apiVersion": VERSION, "kind": kind, "metadata": meta, "spec": spec}


def objects() -> list[dict[str, Any]]:
    """Queues of two cohorts, and one queue that makes variants."""
    upgrade = queues("upgrade")[1:]
    upgrade[0]["spec"] |= {
        "concurrentAdmission": {"migrationConstraints": {"mode": "UpgradeOnly"}},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]}
                    for name in ("good", "poor")
                ],
            }
        ],
    }
    cards = queues("cards")[1:]
    cards[0]["spec"]["resourceGroups"] = resource_groups({"cards": 4}, CARD)
    return [
        *(an_object("ResourceFlavor", name) for name in ("good", "poor")),
        an_object("AdmissionCheck", "budget", controllerName=BUDGET),
        POOL,
        a_config(),
        CHECK,
        *queues("team-a", cpu=2, cohort="research"),
        *queues("team-b", cpu=2, cohort="research", preemption={"reclaimWithinCohort": "Any"})[1:],
        *queues("checked", cohort="batch", admissionChecks=["budget"])[1:],
        *queues("racked", cohort="batch", admissionChecks=["capacity"])[1:],
        *upgrade,
        an_object("ResourceFlavor", "cards"),
        *cards,
    ]


def a_job(name: str, queue: str, **spec: Any) -> dict[str, Any]:
    """A job that runs until it is stopped."""
    manifest = a_manifest(name, queue=f"lq-{queue}", **spec)
    container = manifest["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["sleep", "600"]
    return manifest


@asynccontextmanager
async def judged(url: str) -> AsyncIterator[None]:
    """The check `budget`: it delays one workload twice, the second time for too long, and leaves
    another one waiting."""
    controller = AdmissionCheckController(BUDGET)
    seen: list[str] = []

    @controller.check
    async def judge(request: Request) -> Verdict:
        seen.append(request.name)
        if request.name == "delayed":
            return Retry("busy", after=0.1 if seen.count("delayed") == 1 else 30 * 86_400)
        return Pending("a person decides") if request.name == "held" else Ready("in budget")

    stop = asyncio.Event()
    serving = asyncio.create_task(controller.serve(url, stop=stop))
    try:
        yield
    finally:
        stop.set()
        await within(serving)


async def play(bus: Bus, port: int) -> None:
    """The story up to its middle, where all jobs run or wait. ``port``: of Prometheus, which has to
    see some counters with 0 first."""
    await apply(bus, *objects())
    await submit(bus, [a_job("fine", "checked")])
    await eventually(lambda: is_covered(bus))
    cards = [a_job(f"cards-{n}", "cards", requests={CARD: n}) for n in ("1", "2")]
    await submit(bus, cards)
    seen = 'admittance_clamped_retry_delays_total{check="budget"} == 0'
    assert await without_series(port, [seen]) == []
    await submit(bus, [a_job(f"a-{number}", "team-a") for number in range(4)])
    await submit(bus, [a_job(name, "checked") for name in ("held", "delayed")])
    await submit(bus, [a_job("on-rack", "racked"), a_job("too-many", "racked")])
    await submit(bus, [a_job("first", "upgrade")])
    for name in [*(f"a-{number}" for number in range(4)), "fine", "on-rack", "first", "cards-1"]:
        await until_phase(bus, Phase.RUNNING, name)
    await until_phase(bus, Phase.QUOTA_RESERVED, "held")
    await until_phase(bus, Phase.BACKOFF, "delayed")
    # team-b takes its quota back, so one job of team-a is stopped and waits.
    await submit(bus, [a_job("b-0", "team-b")])
    await until_phase(bus, Phase.RUNNING, "b-0")
    # The better flavor gets free, so the family that started on the worse one migrates.
    await submit(bus, [a_job("mover", "upgrade")])
    await until_phase(bus, Phase.RUNNING, "mover")
    stop = facts.Deactivated(namespace="ns", name="first")
    await bus.publish_all([Outgoing(subject_of(stop), encode(stop))])
    await eventually(lambda: has_flavor(bus, "mover", "good"))
    # Messages that do not count.
    await bus.nc.publish("admit.workload.submitted.ns.broken", b"{")
    await bus.nc.publish("admit.check.reported.ns.held.budget", b"{")
    await bus.nc.publish("admit.api.user.ada.submitted.ns.broken", b"{")


async def is_covered(bus: Bus) -> bool:
    entry = await get(bus, "admissioncheck.machines")
    return entry is not None and b'"onFlavors":["cards"]' in (entry.value or b"")


async def has_flavor(bus: Bus, name: str, flavor: str) -> bool:
    stored = await workload(bus, name)
    admission = stored.status.admission if stored is not None else None
    return admission is not None and flavor in str(admission.pod_set_assignments)


POSITIVE = (
    "increase(admittance_dead_letters_total{reason='Undecodable'}[1h])",
    "increase(admittance_traces_spans_dropped_total{reason='not_taken'}[1h])",
    "increase(admittance_traces_export_failures_total[1h])",
    "increase(admittance_check_retries_total[1h])",
    "increase(admittance_clamped_retry_delays_total[1h])",
    "admittance_preempted_workloads_total{preempting_cluster_queue='team-b'}",
    "admittance_migrations_total{cluster_queue='upgrade', from='poor', to='good'}",
    "admittance_capacity_requests{state='Provisioned'}",
    "admittance_families{state='admitted'}",
    "admittance_cluster_queue_resource_reservation{cluster_queue='team-a'}"
    " - admittance_cluster_queue_nominal_quota",
    f"admittance_runner_allocated{{resource='{CARD}'}}",
    f"admittance_runner_device_allocated{{resource='{CARD}'}}",
    "admittance_runners{state='ready'}",
    "admittance_placement_waiting_workloads{reason='Size'}",
    "admittance_placement_wait_time_seconds_count",
)
"""The metrics of the story, including the first event of each kind."""


FIRING = (
    "AdmittanceDeadLetters",
    "AdmittanceSpansDropped",
    "AdmittanceBadVerdicts",
    "AdmittanceClampedDelays",
)
"""The alerts that the story raises at once."""


NOT_OF_UP = "admittance_forecast_"
"""The metrics of `admit serve forecast`: the process that `admit up` starts for forecasts ends when
it is not used, and has no port for metrics."""


async def without_series(port: int, queries: list[str]) -> list[str]:
    """The queries that Prometheus never answers with a series."""
    left = list(queries)

    async def ask_again() -> bool:
        left[:] = [query for query in left if not await answer(port, query)]
        return not left

    with suppress(TimeoutError):
        await eventually(ask_again)
    return left


async def health_of_rules(port: int) -> set[str]:
    status, text = await ask(port, "/api/v1/rules")
    assert status == 200
    groups = json.loads(text)["data"]["groups"]
    return {rule["health"] for group in groups for rule in group["rules"]}


async def test_every_query_of_dashboards_and_alerts_returns_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `admit up` runs the telemetry service too; nothing listens at its receiver's address.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{a_free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    admin = a_free_port()
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    rules = promql.FOLDER / "alerts.yaml"
    options = ("--admin", f"127.0.0.1:{admin}", "--device", f"{CARD}=0")
    async with (
        prometheus(tmp_path, admin, rules) as port,  # it begins to scrape after five seconds
        embedded(*options, "--insecure", "--config", str(config)) as system,
        judged(system.url),
    ):
        bus = await Bus.connect(system.url, name="test")
        await play(bus, port)
        asked = [*promql.queries_of_dashboards(), *promql.queries_of_alerts()]
        shown = [panel.expr for panel in asked if NOT_OF_UP not in panel.expr]
        assert len(shown) > 90
        assert await without_series(port, shown) == []
        assert await without_series(port, [f"{metric} > 0" for metric in POSITIVE]) == []

        firing = [f'ALERTS{{alertstate="firing", alertname="{name}"}}' for name in FIRING]
        assert await without_series(port, firing) == []
        assert await health_of_rules(port) == {"ok"}
        await bus.close()
