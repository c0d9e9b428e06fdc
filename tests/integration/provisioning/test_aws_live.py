"""EC2 capacity reservations beside all services, against moto's server: obtained, refused, waited
for, lost sight of, taken away, and kills at the worst moment."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from admittance.events.codec import decode, encode
from admittance.events.facts import Finished
from admittance.events.provisioning import Accepted, ProvisioningFailed, ProvisioningStatus
from admittance.events.subjects import subject_of
from admittance.events.system import ProviderAlive
from admittance.provider_aws.parameters import token_of
from admittance.provider_aws.settings import DEFAULT_CLASS
from admittance.runtime.bus import Bus, Outgoing
from admittance.runtime.clock import now
from admittance.workload.phase import Phase, phase
from ec2_server import ZONE, Ec2Server
from integration.provisioning.test_provisioning_live import CHECK, a_config, row, until_phase

from builders import a_manifest
from processes import Fleet, ServiceProcess, apply, eventually, health, queues, submit, workload
from servers import LIMIT, TestServer, within

pytestmark = pytest.mark.bus

SERVICES = ("workload-controller", "scheduler", "retry-timer", "provisioning-check")
CREATE = "CreateCapacityReservation"
DESCRIBE = "DescribeCapacityReservations"
SAMPLE = Path(__file__).parents[3] / "deploy" / "samples" / "providers" / "aws" / "manifests.yaml"
LARGE = {"InstanceType": "m5.large", "AvailabilityZone": ZONE}
"""Two vCPUs and 8 GiB."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Server]:
    server = Ec2Server(tmp_path_factory.mktemp("ec2"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def ec2(server: Ec2Server) -> Ec2Server:
    server.reset()
    return server


class Aws:
    """The provider's process, and what it says."""

    def __init__(self, fleet: Fleet, bus: Bus, ec2: Ec2Server) -> None:
        self._fleet = fleet
        self._bus = bus
        self._env = {
            **ec2.env,
            "ADMIT_AWS_POLL_SECONDS": "0.2",
            "ADMIT_AWS_SWEEP_SECONDS": "0.5",
            "ADMIT_AWS_UNSEEN_SECONDS": "5",
            "ADMIT_BEAT_SECONDS": "0.5",
        }
        self.said: list[ProvisioningStatus] = []
        self.beats: list[ProviderAlive] = []
        self.process: ServiceProcess | None = None

    async def start(self) -> None:
        if self.process is None:
            await self._bus.nc.listen("admit.provisioning.*.*.*.*", self._on_fact)
            await self._bus.nc.listen("admit.alive.provisioning.*", self._on_beat)
        self.process = await self._fleet.start("provider-aws", **self._env)

    async def kill(self) -> None:
        assert self.process is not None
        await self.process.kill()

    def words(self) -> list[str]:
        return [type(one).__name__ for one in self.said]

    def _on_fact(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        fact = decode(subject.decode(), data)
        if isinstance(fact, ProvisioningStatus):
            self.said.append(fact)

    def _on_beat(self, _subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        self.beats.append(msgspec.json.decode(data, type=ProviderAlive))


@pytest.fixture
async def aws(
    bus: Bus, nats_server: TestServer, tmp_path: Path, ec2: Ec2Server
) -> AsyncIterator[Aws]:
    folder = tmp_path / "services"
    folder.mkdir()
    fleet = Fleet(nats_server.url, folder)
    for service in SERVICES:
        await fleet.start(service)
    aws = Aws(fleet, bus, ec2)
    await aws.start()
    yield aws
    ec2.allow()
    await fleet.stop()


async def asked(bus: Bus, *, limit: int = 3, count: int = 1, **spec: Any) -> None:
    """Workload ``w``, whose pods need a cpu each, waits for capacity."""
    config = a_config(limit, provisioningClassName=DEFAULT_CLASS, parameters=LARGE, **spec)
    await apply(bus, CHECK, config, *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq", count=count)])


async def finish(bus: Bus) -> None:
    fact = Finished(namespace="ns", name="w")
    await bus.publish(Outgoing(subject_of(fact), encode(fact)))


async def so(claim: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return await asyncio.to_thread(claim)

    await eventually(holds)


async def test_instances_are_reserved_for_a_job_and_given_back_when_it_has_gone(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    zone = "topology.kubernetes.io/zone"
    selector = {"key": zone, "valueFromProvisioningClassDetail": "availabilityZone"}
    await asked(bus, count=3, podSetUpdates={"nodeSelector": [selector]})
    await until_phase(bus, Phase.ADMITTED)

    (made,) = ec2.alive()
    found = await workload(bus, "w")
    assert found is not None
    assert (made["type"], made["zone"], made["total"]) == ("m5.large", ZONE, 2)
    assert made["tags"]["admittance.dev/workload"] == "w"
    assert made["token"] == token_of(made["tags"]["admittance.dev/request-id"])
    told = await row(bus)
    assert made["id"] in told.message
    assert told.pod_set_updates[0]["nodeSelector"] == {zone: ZONE}

    await finish(bus)
    await so(lambda: not ec2.alive())


async def test_the_sample_s_jobs_fall_to_instances_that_are_reserved_for_them(
    aws: Aws, bus: Bus, ec2: Ec2Server
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


async def test_what_is_not_active_yet_nor_listed_nor_answered_is_waited_for(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    ec2.set(pending=1.5, hidden=0.8)
    ec2.refuse(CREATE, "RequestLimitExceeded", status=503, times=3)
    ec2.refuse(DESCRIBE, "RequestLimitExceeded", status=503, times=2)
    await asked(bus)
    await until_phase(bus, Phase.ADMITTED)

    assert len(ec2.reservations()) == 1
    assert aws.words() == ["Accepted", "Accepted", "Provisioned"]
    throttled, pending, _ = aws.said
    assert isinstance(throttled, Accepted)
    assert "RequestLimitExceeded" in throttled.message
    assert "not yet active" in pending.message


async def test_without_capacity_the_job_tries_again_until_there_is_some(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    ec2.set(capacity=0)
    await asked(bus)
    await so(lambda: aws.words() == ["ProvisioningFailed"])
    failed = aws.said[0]
    assert isinstance(failed, ProvisioningFailed)
    assert failed.retryable
    assert "InsufficientInstanceCapacity" in failed.message

    ec2.set(capacity=1)
    await until_phase(bus, Phase.ADMITTED)
    (made,) = ec2.reservations()
    assert made["tags"]["admittance.dev/request-id"].endswith("/2")


async def test_what_can_never_be_had_rejects_the_job_at_once(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    wrong = {
        "no-type": ("InvalidInstanceType", {"InstanceType": "m5.nope"}),
        "no-zone": ("InvalidParameterValue", {"AvailabilityZone": "mars-1a", "InstanceCount": "1"}),
        "no-word": ("wrong parameters", {"Tenancy": "mine"}),
        "no-room": ("a pod of main needs", {}),
    }
    manifests = []
    for name, (_, parameters) in wrong.items():
        made = a_manifest(name, requests={"cpu": "3"}, queue="lq-cq")
        made["metadata"]["annotations"] = {
            f"provreq.kueue.x-k8s.io/{key}": value for key, value in parameters.items()
        }
        manifests.append(made)
    await asked(bus)
    await until_phase(bus, Phase.ADMITTED)
    await submit(bus, manifests)
    for name in wrong:
        await until_phase(bus, Phase.REJECTED, name)

    told = {one.name: one.message for one in aws.said}
    for name, (reason, _) in wrong.items():
        assert reason in told[name]
    assert len(ec2.reservations()) == 1


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param("", id="by the token, which EC2 knows"),
        pytest.param("IdempotentParameterMismatch", id="by its tag, when we count otherwise now"),
    ],
)
async def test_one_killed_before_it_hears_the_answer_finds_its_reservation_again(
    aws: Aws, bus: Bus, ec2: Ec2Server, refused: str
) -> None:
    ec2.hold(CREATE)
    await asked(bus)
    await so(lambda: len(ec2.alive()) == 1)
    # A call that hangs holds up nothing else.
    assert "provider-aws" in {one.service for one in await health(bus)}
    await aws.kill()
    ec2.allow()
    if refused:
        ec2.refuse(CREATE, refused)
    await aws.start()

    await until_phase(bus, Phase.ADMITTED)
    assert len(ec2.reservations()) == 1


async def test_what_nobody_knows_to_have_made_is_cancelled_once_ec2_shows_it(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    ec2.set(hidden=6)
    ec2.hold(CREATE)
    await asked(bus)
    await so(lambda: len(ec2.alive()) == 1)
    await aws.kill()
    ec2.allow()
    await finish(bus)
    await until_phase(bus, Phase.FINISHED)
    await aws.start()

    await so(lambda: not ec2.alive())
    assert len(ec2.reservations()) == 1


async def test_what_is_made_for_a_job_that_has_gone_meanwhile_is_cancelled(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    ec2.set(hidden=1)
    ec2.hold(CREATE)
    await asked(bus)
    await so(lambda: len(ec2.alive()) == 1)
    await finish(bus)
    await until_phase(bus, Phase.FINISHED)
    ec2.allow()

    await so(lambda: not ec2.alive())
    assert aws.words() == []


async def test_a_job_stops_when_its_reservation_is_taken_away(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    ways = {
        "cancelled": {"state": "cancelled"},
        "expired": {"state": "expired"},
        "shrunk": {"total": 0},
    }
    ec2.set(pending=1)
    await asked(bus)
    await submit(bus, [a_manifest(name, queue="lq-cq") for name in ways])
    for name in ("w", *ways):
        await until_phase(bus, Phase.ADMITTED, name)
    # Told also by one that has only heard of them.
    await aws.kill()
    await aws.start()
    for one in ec2.alive():
        name = one["tags"]["admittance.dev/workload"]
        ec2.becomes(one["id"], **ways.get(name, {}))

    for name in ways:
        await until_phase(bus, Phase.REJECTED, name)
    assert aws.words().count("CapacityRevoked") == len(ways)
    await so(lambda: len(ec2.alive()) == 1)
    found = await workload(bus, "w")
    assert found is not None
    assert phase(found, now()) is Phase.ADMITTED


async def test_wrong_credentials_are_nobodys_fault_and_make_the_class_inactive(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    for action in (CREATE, DESCRIBE, "DescribeInstanceTypes"):
        ec2.refuse(action, "AuthFailure", status=401)
    await asked(bus, limit=0)
    await so(lambda: bool(aws.beats) and not aws.beats[-1].active)
    assert "AuthFailure" in aws.beats[-1].message
    await so(lambda: aws.words() == ["Accepted"])

    ec2.allow()
    await until_phase(bus, Phase.ADMITTED)
    await so(lambda: aws.beats[-1].active)


async def test_who_may_not_cancel_makes_no_more(aws: Aws, bus: Bus, ec2: Ec2Server) -> None:
    await asked(bus)
    await until_phase(bus, Phase.ADMITTED)
    ec2.refuse("CancelCapacityReservation", "UnauthorizedOperation", status=403)
    await finish(bus)
    await so(lambda: not aws.beats[-1].active)
    assert "UnauthorizedOperation" in aws.beats[-1].message
    assert len(ec2.alive()) == 1

    ec2.allow()
    await so(lambda: not ec2.alive())
    await so(lambda: aws.beats[-1].active)


async def test_what_a_policy_forbids_to_one_is_forbidden_to_nobody_else(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    """It is known by what was allowed before, and still is."""
    await asked(bus)
    await until_phase(bus, Phase.ADMITTED)
    ec2.refuse(CREATE, "UnauthorizedOperation", status=403, having="m5.xlarge")
    large = a_manifest("huge", queue="lq-cq")
    large["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/InstanceType": "m5.xlarge"}
    await submit(bus, [large])

    await until_phase(bus, Phase.REJECTED, "huge")
    assert all(one.active for one in aws.beats)
    assert len(ec2.reservations()) == 1


@pytest.mark.parametrize(
    ("action", "before"),
    [
        pytest.param(CREATE, True, id="to reserve, which it let us before"),
        pytest.param(CREATE, False, id="to reserve, which we never did"),
        pytest.param("DescribeInstanceTypes", False, id="to ask what machines there are"),
    ],
)
async def test_a_right_that_is_lost_rejects_nobody_and_makes_the_class_inactive(
    aws: Aws, bus: Bus, ec2: Ec2Server, action: str, before: bool
) -> None:
    if before:
        await asked(bus, limit=0)
        await until_phase(bus, Phase.ADMITTED)
    ec2.refuse(action, "UnauthorizedOperation", status=403)
    await asked(bus, limit=0)
    await submit(bus, [a_manifest("late", queue="lq-cq")])
    await so(lambda: bool(aws.beats) and not aws.beats[-1].active)
    assert "UnauthorizedOperation" in aws.beats[-1].message

    ec2.allow()
    await until_phase(bus, Phase.ADMITTED, "late")
    await so(lambda: aws.beats[-1].active)
    assert "ProvisioningFailed" not in aws.words()


async def test_a_right_that_was_lost_is_not_waited_for_when_nobody_needs_it_any_more(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    """Where nothing is known to be allowed, only who asked can tell whether it is."""
    ec2.refuse(CREATE, "UnauthorizedOperation", status=403)
    await asked(bus)
    await so(lambda: bool(aws.beats) and not aws.beats[-1].active)

    await finish(bus)
    await so(lambda: aws.beats[-1].active)


async def test_a_look_that_hangs_does_not_hold_up_the_end(
    aws: Aws, bus: Bus, ec2: Ec2Server
) -> None:
    ec2.hold(DESCRIBE)
    before = ec2.calls()[DESCRIBE]
    await so(lambda: ec2.calls()[DESCRIBE] > before)
    assert aws.process is not None
    await within(aws.process.stop(), 5.0)
    assert aws.process.status == 0


async def test_it_keeps_the_protocol_as_the_kit_has_it(
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
    for case in ("attempt", "cancelled", "frees", "killed", "overtaken", "query", "twice"):
        options += ["--case", case]
    provider = ["--", sys.executable, "-m", "admittance.provider_aws"]
    kit = await asyncio.create_subprocess_exec(
        *command, *options, *provider, env=env, stdout=PIPE, stderr=STDOUT
    )
    told, _ = await within(kit.communicate(), 3 * LIMIT)
    assert kit.returncode == 0, told.decode()
    assert ec2.alive() == []
