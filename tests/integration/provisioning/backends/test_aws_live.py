"""EC2 capacity reservations beside all services, against moto's server; and by the protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from admittance.events.codec import encode
from admittance.events.facts import Finished
from admittance.events.subjects import subject_of
from admittance.provider_aws.parameters import token_of
from admittance.provider_aws.service import DEFAULT_CLASS
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload.phase import Phase
from support.builders import a_manifest
from support.capacity import CHECK, SERVICES, a_config, row, until_phase
from support.cluster import Cluster
from support.programs.ec2_server import ZONE, Ec2Server
from support.requests import apply, eventually, queues, submit, workload
from support.servers import LIMIT, TestServer, within

pytestmark = pytest.mark.bus

SAMPLE = Path(__file__).parents[4] / "deploy" / "samples" / "providers" / "aws" / "manifests.yaml"
LARGE = {"InstanceType": "m5.large", "AvailabilityZone": ZONE}
"""Two vCPUs and 8 GiB."""


@pytest.fixture
async def cluster(
    bus: Bus, nats_server: TestServer, tmp_path: Path, ec2: Ec2Server
) -> AsyncIterator[Cluster]:
    """All services, and the provider."""
    folder = tmp_path / "services"
    folder.mkdir()
    cluster = Cluster(nats_server, folder)
    for service in SERVICES:
        await cluster.start(service)
    quick = {"ADMIT_AWS_POLL_SECONDS": "0.2", "ADMIT_AWS_SWEEP_SECONDS": "0.5"}
    await cluster.start("provider-aws", **ec2.env, **quick)
    yield cluster
    await cluster.stop()


async def asked(bus: Bus, *, limit: int = 3, count: int = 1, **spec: Any) -> None:
    """Workload ``w`` waits for capacity; each of its pods needs a cpu."""
    config = a_config(limit, provisioningClassName=DEFAULT_CLASS, parameters=LARGE, **spec)
    await apply(bus, CHECK, config, *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq", count=count)])


async def finish(bus: Bus) -> None:
    fact = Finished(namespace="ns", name="w")
    await bus.publish(Outgoing(subject_of(fact), encode(fact)))


async def so(claim: Callable[[], bool]) -> None:
    await eventually(lambda: asyncio.to_thread(claim))


async def test_instances_are_reserved_and_their_loss_stops_the_job(
    cluster: Cluster, bus: Bus, ec2: Ec2Server
) -> None:
    zone = "topology.kubernetes.io/zone"
    selector = {"key": zone, "valueFromProvisioningClassDetail": "availabilityZone"}
    await asked(bus, count=3, podSetUpdates={"nodeSelector": [selector]})
    await until_phase(bus, Phase.ADMITTED)

    (made,) = ec2.alive()
    stored = await workload(bus, "w")
    assert stored is not None
    assert (made["type"], made["zone"], made["total"]) == ("m5.large", ZONE, 2)
    assert made["tags"]["admittance.dev/workload"] == "w"
    assert made["token"] == token_of(made["tags"]["admittance.dev/request-id"])
    shown = await row(bus)
    assert made["id"] in shown.message
    assert shown.pod_set_updates[0]["nodeSelector"] == {zone: ZONE}

    await submit(bus, [a_manifest("v", queue="lq-cq")])
    await until_phase(bus, Phase.ADMITTED, "v")
    (other,) = (reservation for reservation in ec2.alive() if reservation["id"] != made["id"])
    ec2.becomes(other["id"], total=0)
    await until_phase(bus, Phase.REJECTED, "v")
    await finish(bus)
    await so(lambda: not ec2.alive())


async def test_jobs_of_the_sample_run_on_reserved_instances(
    cluster: Cluster, bus: Bus, ec2: Ec2Server
) -> None:
    samples = SAMPLE.read_text().replace("namespace: default", "namespace: ns")
    await apply(bus, *yaml.safe_load_all(samples))
    gpu = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
    await submit(bus, [a_manifest("first", requests=gpu, queue="ec2")])
    await until_phase(bus, Phase.ADMITTED, "first")
    assert ec2.reservations() == []

    await submit(bus, [a_manifest("w", requests=gpu, queue="ec2", count=2)])
    await until_phase(bus, Phase.ADMITTED)
    (made,) = ec2.alive()
    assert (made["type"], made["total"]) == ("g5.xlarge", 2)


async def test_provider_aws_passes_the_conformance_kit(
    bus: Bus, nats_server: TestServer, ec2: Ec2Server, tmp_path: Path
) -> None:
    ec2.set(capacity=3)
    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    right.write_bytes(msgspec.json.encode(LARGE))
    wrong.write_bytes(msgspec.json.encode({**LARGE, "InstanceType": "m5.nope"}))
    env = {
        **os.environ,
        **ec2.env,
        "ADMIT_NATS_URL": nats_server.url,
        "ADMIT_AWS_POLL_SECONDS": "0.3",
        "ADMIT_LEASE_SECONDS": "1",
        "ADMIT_BEAT_SECONDS": "0.5",
    }
    command = [sys.executable, "-m", "admittance.cli.main", "provider-test", DEFAULT_CLASS]
    options = ["--parameters", str(right), "--wrong", str(wrong), "--room", "3"]
    # The helper keeps the rest of it for all providers.
    for case in ("frees", "killed", "overtaken", "twice"):
        options += ["--case", case]
    provider = ["--", sys.executable, "-m", "admittance.provider_aws"]
    kit = await asyncio.create_subprocess_exec(
        *command, *options, *provider, env=env, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await within(kit.communicate(), 2 * LIMIT)
    assert kit.returncode == 0, output.decode()
    assert ec2.alive() == []
