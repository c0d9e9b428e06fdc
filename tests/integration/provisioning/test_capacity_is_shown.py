"""Commands show what is wrong with capacity, and no workload is stuck."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from admittance.api.checks import AdmissionCheck
from admittance.events import provisioning as facts
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.workload.phase import Phase
from integration.provisioning.bare_provider import BareProvider
from support.builders import a_manifest
from support.capacity import CHECK, a_config, row, until_phase
from support.cluster import Cluster
from support.processes.fork_server import run_admit
from support.requests import apply, eventually, queues, submit
from support.servers import TestServer

pytestmark = pytest.mark.bus
ROOT = Path(__file__).parents[3]
SETUP = ROOT.parent / "shared" / "manifests" / "provisioning-setup.yaml"


async def admit(server: TestServer, *arguments: str) -> str:
    words = ("-n", "ns", *arguments) if arguments[0] != "doctor" else arguments
    env = {"ADMIT_NATS_URL": server.url, "COLUMNS": "300"}
    done = await asyncio.to_thread(run_admit, *words, env=env)
    return done.out + done.err


async def active(bus: Bus) -> tuple[str, str, str]:
    """Status, reason and message of the Active condition of the AdmissionCheck."""
    entry = await get(bus, "admissioncheck.capacity")
    assert entry is not None
    assert entry.value is not None
    check = msgspec.json.decode(entry.value, type=AdmissionCheck)
    for condition in check.status.conditions if check.status is not None else ():
        if condition.type == "Active":
            return condition.status, condition.reason, condition.message
    return "", "", ""


def a_check(**parameters: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
    if parameters:
        spec["parameters"] = {**CHECK["spec"]["parameters"], **parameters}  # type: ignore[index]
    return {**CHECK, "spec": spec}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        pytest.param(a_check(), "has no parametersRef", id="none"),
        pytest.param(a_check(kind="Other"), "Other.kueue.x-k8s.io", id="another kind"),
        pytest.param(a_check(apiGroup="example.com"), "example.com", id="another group"),
        pytest.param(a_check(name="nowhere"), "nowhere doesn't exist", id="one that is missing"),
    ],
)
@pytest.mark.servers("simulated")
async def test_a_check_with_wrong_parameters_is_inactive_until_corrected(
    cluster: Cluster, bus: Bus, wrong: dict[str, Any], told: str
) -> None:
    provider = await BareProvider(bus).start()
    await apply(bus, wrong, a_config(), *queues("cq", admissionChecks=["capacity"]))

    async def inactive() -> bool:
        status, reason, message = await active(bus)
        return (status, reason) == ("False", "BadParametersRef") and told in message

    await eventually(inactive)
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await apply(bus, CHECK)

    await provider.publish_status(await provider.until_asked(), facts.Provisioned, message="here")
    await until_phase(bus, Phase.ADMITTED)


async def test_a_workload_in_an_inactive_queue_names_the_check(
    cluster: Cluster, bus: Bus, nats_server: TestServer
) -> None:
    await apply(bus, a_check(), a_config(), *queues("cq", admissionChecks=["capacity"]))

    async def inactive() -> bool:
        return (await active(bus))[0] == "False"

    await eventually(inactive)
    await submit(bus, [a_manifest("w", queue="lq-cq")])

    async def told() -> bool:
        because = await admit(nats_server, "describe", "workload", "w")
        return bool(re.search(r"Because: .*Inactive.*capacity", because))

    await eventually(told)
    assert "BadParametersRef" in await admit(nats_server, "get", "admissionchecks")


async def test_wrong_answers_are_shown_below_the_check(
    cluster: Cluster, bus: Bus, nats_server: TestServer
) -> None:
    provider = await BareProvider(bus).start()
    selector = [{"key": "rack", "valueFromProvisioningClassDetail": "rack"}]
    config = a_config(podSetUpdates={"nodeSelector": selector}, parameters={"zone": "a"})
    await apply(bus, CHECK, config, *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    asked = await provider.until_asked()

    waits = await admit(nats_server, "explain", "workload", "w")
    assert "class: asked" in waits
    assert "the provider has not answered, waits at most until" in waits
    assert "no provider answers" in await admit(nats_server, "doctor")
    for what in ("workload/w", "pr/w-capacity-1"):
        assert "no provider answers for this class" in await admit(nats_server, "describe", what)

    await provider.publish_status(asked, facts.Provisioned, id="foreign/capacity/1/1")
    await provider.publish_status(asked, facts.ProvisioningFailed, provisioning_class="stranger")
    odd = b'{"namespace": "ns", "name": "w", "id": "x", "details": {"row": 7}}'
    await bus.publish(Outgoing("admit.provisioning.provisioned.class.ns.w", odd))
    await provider.publish_status(asked, facts.Provisioned, message="here", details={"row": "7"})
    await provider.publish_status(asked, facts.Accepted, message="late")
    await until_phase(bus, Phase.ADMITTED)
    assert (await row(bus)).message == "here"

    output = await admit(nats_server, "describe", "workload", "w")
    for part in (
        *("w-capacity-1", "zone=a", "row=7", asked.id),
        "no request foreign/capacity/1/1 of ns/w is open",
        "of class stranger does not count: ",
        "the provider reported no detail 'rack': left out",
        "an answer of class class cannot be decoded: "
        "the payload is not a valid Provisioned: Expected `str`, got `int`",
    ):
        assert part in output, output
    listed = await admit(nats_server, "get", "pr")
    assert "w-capacity-1" in listed
    assert "no provider answers for this class" not in output
    letters = await read_messages(bus, ["admit.deadletter.provisioning-check"])
    assert len(letters) == 2
    assert "2 of provisioning-check: see `admit events -A`" in await admit(nats_server, "doctor")
    assert (await admit(nats_server, "events", "-A")).count("dead letter") == 2
    history = await admit(nats_server, "events", "--workload", "w")
    assert "capacity asked    ns/w  class: attempt 1 of check capacity" in history
    assert "capacity there    ns/w  class: here" in history


@pytest.mark.skipif(not SETUP.exists(), reason=f"{SETUP} is not there")
@pytest.mark.servers("simulated")
async def test_an_existing_setup_of_kueue_is_applied_unchanged(cluster: Cluster, bus: Bus) -> None:
    provider = await BareProvider(bus, "check-capacity_autoscaling_x-k8s_io").start()
    text = SETUP.read_text()
    await apply(bus, *yaml.safe_load_all(text))
    more = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}
    await submit(bus, [a_manifest("w", "default", queue="user-queue", requests=more)])
    asked = await provider.until_asked()
    assert asked.provisioning_class == "check-capacity.autoscaling.x-k8s.io"
    assert asked.name == "w"
