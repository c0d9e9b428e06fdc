"""What the workload-controller counts, scraped as Prometheus would."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Any

import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from support.builders import a_manifest
from support.cluster import Cluster
from support.processes.fork_server import run_admit
from support.programs.prometheus import a_free_port
from support.requests import (
    admission_check,
    apply,
    eventually,
    is_reserved,
    queues,
    settled,
    submit,
    workload,
)
from support.servers import LIMIT, TestServer

pytestmark = pytest.mark.bus
CHECK = admission_check("budget")
WEEK = 7 * 86_400
EVICTED = "admittance_evicted_workloads_total"
LABELS = 'check="budget",controller="ctl",cluster_queue="cq"'


async def scrape(port: int) -> dict[str, float]:
    url = f"http://127.0.0.1:{port}/metrics"
    answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=LIMIT)
    lines = answer.read().decode().splitlines()
    answer.close()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


async def report(bus: Bus, name: str, state: str, *, cycle: int | None = None, **more: Any) -> str:
    """Which reason the verdict was answered with; "" when it had its effect."""
    stored = await workload(bus, name)
    assert stored is not None
    verdict = facts.CheckReported(
        namespace="ns",
        name=name,
        controller="ctl",
        check="budget",
        cycle=stored.status.admission_cycle if cycle is None else cycle,
        state=state,
        **more,
    )
    reply = await settled(bus, await bus.publish(Outgoing(subject_of(verdict), encode(verdict))))
    return reply.reason


async def test_metrics_count_each_event_in_its_service(cluster: Cluster, bus: Bus) -> None:
    port = a_free_port()
    await cluster.start("workload-controller", ADMIT_ADMIN=f"127.0.0.1:{port}")
    await cluster.start("scheduler")
    await apply(bus, CHECK, *queues("cq", cpu=8, admissionChecks=["budget"]))
    for name in ("later", "much-later", "never", "now"):
        await submit(bus, [a_manifest(name, queue="lq-cq")])
        await eventually(lambda name=name: is_reserved(bus, name))  # type: ignore[misc]
    assert await report(bus, "later", "Retry", requeue_after_seconds=60) == ""
    assert await report(bus, "much-later", "Retry", requeue_after_seconds=10 * WEEK) == ""
    assert await report(bus, "never", "Rejected", message="no") == ""
    assert await report(bus, "now", "Ready", cycle=77) == "Stale"
    assert await report(bus, "now", "Ready") == ""

    async def counted() -> bool:
        figures = await scrape(port)
        return any(name.startswith("admittance_admitted_workloads_total") for name in figures)

    await eventually(counted)
    figures = await scrape(port)
    assert figures[f"admittance_check_retries_total{{{LABELS}}}"] == 2
    assert figures[f"admittance_check_retry_delay_seconds_sum{{{LABELS}}}"] == 60 + WEEK
    assert figures[f"admittance_clamped_retry_delays_total{{{LABELS}}}"] == 1
    assert figures[f"admittance_check_rejections_total{{{LABELS}}}"] == 1
    assert figures['admittance_stale_check_updates_total{check="budget",why="Stale"}'] == 1
    queue = 'cluster_queue="cq",priority_class=""'
    assert figures[f"admittance_admitted_workloads_total{{{queue}}}"] == 1
    assert figures[f"admittance_admission_checks_wait_time_seconds_count{{{queue}}}"] == 1
    evicted = {name: value for name, value in figures.items() if name.startswith(EVICTED)}
    assert sum(evicted.values()) == 3
    assert any('reason="AdmissionCheck"' in name for name in evicted)


@pytest.mark.servers("simulated")
async def test_a_flood_of_messages_does_not_add_metric_labels(cluster: Cluster, bus: Bus) -> None:
    port = a_free_port()
    await cluster.start("workload-controller", ADMIT_ADMIN=f"127.0.0.1:{port}")
    await apply(bus, CHECK, *queues("cq", admissionChecks=["budget"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    messages = [
        Outgoing(
            subject_of(
                said := facts.CheckReported(
                    namespace="ns",
                    name="w",
                    controller=f"ctl-{number}",
                    check=f"check-{number}",
                    cycle=0,
                    state="Ready",
                )
            ),
            encode(said),
        )
        for number in range(500)
    ]
    messages += [
        Outgoing("admit.check.reported.ctl.ns.w", b'{"check": "budget", nonsense'),
    ]
    outcomes = await bus.publish_all(messages)
    last = outcomes[-1]
    assert isinstance(last, int)
    assert (await settled(bus, last)).outcome == "dead-lettered"
    figures = await scrape(port)
    assert figures['admittance_dead_letters_total{reason="Undecodable"}'] == 1
    stale = {
        name: value for name, value in figures.items() if "stale_check_updates" in name and value
    }
    assert stale == {
        'admittance_stale_check_updates_total{check="",why="NoSuchCheck"}': 500,
        'admittance_stale_check_updates_total{check="",why="Undecodable"}': 1,
    }


async def test_an_unavailable_address_is_reported_in_one_line(nats_server: TestServer) -> None:
    for where, why, status in (
        ("nowhere", "HOST:PORT", 2),
        ("192.0.2.1:9464", "cannot serve the admin port", 1),
    ):
        words = ("serve", "workload-controller", "--admin", where, "--nats", nats_server.url)
        ended = await asyncio.to_thread(run_admit, *words)
        assert ended.status == status
        assert why in ended.err.splitlines()[-1]
