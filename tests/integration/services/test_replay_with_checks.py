"""Reservations that plan, confirmations and withdrawals are made again from the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from admittance.cli.support.options import Call, Output, UrlFrom
from admittance.cli.system.replay_decision import replay_decision
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.names import plain
from admittance.events.subjects import FENCED, subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, queues, submit, workload
from support.servers import TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

API = "kueue.x-k8s.io/v1beta2"
LOWER = {"withinClusterQueue": "LowerPriority"}


def a_check(name: str, policy: str) -> dict[str, Any]:
    spec = {"controllerName": f"ctl-{name}", "preemptionPolicy": policy}
    return {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": spec,
    }


class Others:
    """Publishes the facts of runners and check controllers: jobs stop at once, and every check
    passes while ``judges``."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.judges = True
        self.admitted: dict[str, int] = {}
        self._held: list[Fact] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        after = 0
        while True:
            filters = [
                "admit.workload.admitted.>",
                "admit.workload.evicted.>",
                "admit.check.requested.>",
            ]
            for one in await read_messages(self._bus, filters, after=after):
                after = one.sequence
                said = msgspec.json.decode(one.data)
                name = plain(one.subject.rpartition(".")[2])
                if ".requested." in one.subject:
                    self._held.append(
                        facts.CheckReported(
                            namespace="ns",
                            name=name,
                            controller=said["controller"],
                            check=said["check"],
                            cycle=said.get("cycle", 0),
                            state="Ready",
                        )
                    )
                elif ".admitted." in one.subject:
                    self.admitted[name] = said["revision"]
                elif self.admitted.pop(name, None) is not None:
                    await self.say(
                        facts.Stopped(namespace="ns", name=name, revision=said["revision"])
                    )
            while self.judges and self._held:
                await self.say(self._held.pop(0))
            await asyncio.sleep(0.02)

    async def finish(self, name: str) -> None:
        """The job of the workload ends, after the workload was admitted."""
        await eventually(lambda: self._runs(name))
        revision = self.admitted[name]
        await self.say(facts.Finished(namespace="ns", name=name, revision=revision))

    async def _runs(self, name: str) -> bool:
        return name in self.admitted

    async def say(self, fact: Fact) -> None:
        await self._bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@pytest.fixture
async def others(bus: Bus) -> AsyncIterator[Others]:
    found = Others(bus)
    yield found
    await found.close()


async def _said(bus: Bus, what: str, many: int) -> bool:
    return len(await read_messages(bus, [f"admit.workload.{what}.>"])) >= many


async def test_plans_and_rechecks_are_repeated_equally(
    cluster: Cluster,
    bus: Bus,
    nats_server: TestServer,
    others: Others,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for service in ("workload-controller", "scheduler"):
        await cluster.start(service)
    checks = [a_check("now", "Anytime"), a_check("late", "AfterCheckPassedOrOnDemand")]
    asks: dict[str, Any] = {"admissionChecks": ["now", "late"]}
    await apply(bus, *checks, *queues("cq", cpu=4, preemption=LOWER, **asks))
    small = [a_manifest(f"s{n}", queue="lq-cq", requests={"cpu": "1"}) for n in range(4)]
    await submit(bus, small)
    await eventually(lambda: _said(bus, "admitted", 4))
    others.judges = False
    await submit(bus, [a_manifest("big", queue="lq-cq", requests={"cpu": "3"}, priority=5)])
    await eventually(lambda: _said(bus, "quota_reserved", 5))
    big = await workload(bus, "big")
    assert big is not None and big.status.pending_preemption is not None
    pending = big.status.pending_preemption
    await others.finish(pending.victims[0].name)
    await eventually(lambda: _said(bus, "planned", 1))
    others.judges = True
    await eventually(lambda: _said(bus, "admitted", 5))
    assert await _said(bus, "preempted", 2)
    # A reservation that a cut takes back, with its verdicts on the way.
    others.judges = False
    await others.finish("big")
    await eventually(lambda: _said(bus, "quota_reserved", 7))
    await apply(bus, *queues("cq", cpu=1, preemption=LOWER, **asks))
    await eventually(lambda: _said(bus, "revoked", 1))
    others.judges = True
    await asyncio.sleep(1.5)  # longer than a refusal waits to be said

    said = await read_messages(bus, [f"admit.workload.{what}.>" for what in sorted(FENCED)])
    call = Call(url=nats_server.url, url_from=UrlFrom.OPTION, output=Output.JSON)
    kinds = set()
    for one in said:
        await replay_decision(call, one.sequence)
        told = json.loads(capsys.readouterr().out)
        assert told["same"], (one.subject, told["differences"])
        kinds.add(told["kind"])
    assert kinds >= {"assigned", "planned", "preempted", "confirmed", "revoked"}
