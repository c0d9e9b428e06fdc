"""A person approves and denies with the command, which prints the effect."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from admittance.events import facts
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import read_messages
from admittance.workload.conditions import Type, is_true
from support.builders import a_manifest
from support.cluster import Cluster
from support.processes.fork_server import run_admit
from support.requests import (
    admission_check,
    apply,
    eventually,
    is_reserved,
    queues,
    submit,
    workload,
)
from support.servers import TestServer

pytestmark = pytest.mark.bus


class Person:
    """Types commands."""

    def __init__(self, url: str) -> None:
        self._env = {"ADMIT_NATS_URL": url, "ADMIT_USER": "ada"}

    async def types(self, *words: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        return await asyncio.to_thread(run_admit, *words, "-n", "ns", env=self._env)


@pytest.fixture
async def person(cluster: Cluster, bus: Bus, nats_server: TestServer) -> Person:
    """A queue where a person and a budget have to agree, and a workload that waits for both."""
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(
        bus,
        admission_check("sign-off", "admittance.dev/approval"),
        admission_check("budget", "example.com/budget"),
        *queues("cq", cpu=2, admissionChecks=["sign-off", "budget"]),
    )
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await eventually(lambda: is_reserved(bus, "w"))
    return Person(nats_server.url)


async def test_both_checks_are_approved_one_after_the_other(person: Person, bus: Bus) -> None:
    status, out, err = await person.types("approve", "workload", "w", "--message", "looks fine")
    assert (status, "approved (check sign-off)" in out) == (0, True), err
    assert "w still waits for budget" in err
    (last,) = await read_messages(bus, ["admit.check.reported.*.ns.w"])
    said = msgspec.json.decode(last.data, type=facts.CheckReported)
    assert (said.controller, said.state) == ("admittance.dev/approval", "Ready")
    assert said.message.startswith("approved by ada at 2")
    assert said.message.endswith(": looks fine")

    status, _, err = await person.types("approve", "wl", "w", "--check", "sign-off")
    assert status == 1
    assert "is Ready already: approved by ada" in err

    status, out, err = await person.types("approve", "workload", "w")
    assert (status, "approved (check budget)" in out) == (0, True), err
    assert "w is Admitted" in err
    stored = await workload(bus, "w")
    assert stored is not None
    assert is_true(stored, Type.ADMITTED)
