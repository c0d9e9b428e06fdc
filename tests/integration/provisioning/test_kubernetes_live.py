"""The provider for Kubernetes beside all services, against an API server that speaks its REST."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from admittance.events.codec import encode
from admittance.events.facts import Finished
from admittance.events.subjects import subject_of
from admittance.provider_kubernetes.objects import digest
from admittance.provisioning.answers import CLASS, CONSUME
from admittance.runtime.bus import Bus, Outgoing
from admittance.workload.phase import Phase
from integration.provisioning.fake_kubernetes import Kubernetes, Manifest
from integration.provisioning.test_provisioning_live import CHECK, a_config, row, until_phase

from builders import a_manifest
from processes import Fleet, ServiceProcess, apply, eventually, queues, submit, workload
from servers import TestServer, until

pytestmark = pytest.mark.bus

SERVICES = ("workload-controller", "scheduler", "retry-timer", "provisioning-check")


@pytest.fixture
def kubernetes() -> Iterator[Kubernetes]:
    found = Kubernetes()
    yield found
    found.close()


class World:
    """All services, a cluster, and the provider between them."""

    def __init__(self, fleet: Fleet, bus: Bus, kubernetes: Kubernetes, folder: Path) -> None:
        self.fleet = fleet
        self.bus = bus
        self.kubernetes = kubernetes
        self.env = {
            "ADMIT_KUBE_CONFIG": str(kubernetes.kubeconfig(folder)),
            "ADMIT_KUBE_CLASSES": "class",
            "ADMIT_KUBE_NAMESPACES": "ns=prod",
            "ADMIT_KUBE_SWEEP_SECONDS": "0.5",
            "ADMIT_KUBE_AWAY_SECONDS": "0.5",
            "ADMIT_BEAT_SECONDS": "0.5",
        }

    async def provider(self, **env: str) -> ServiceProcess:
        return await self.fleet.start("provider-kubernetes", **{**self.env, **env})

    async def begin(self, *names: str, config: dict[str, Any] | None = None) -> None:
        cq = queues("cq", cpu=40, admissionChecks=["capacity"])
        await apply(self.bus, CHECK, config or a_config(), *cq)
        await submit(self.bus, [a_job(name) for name in names or ("w",)])

    async def request(self, number: int = 1) -> Manifest:
        """The newest, once there were so many."""
        await until(lambda: len(self.kubernetes.all()) >= number)
        return self.kubernetes.all()[-1]

    async def finish(self, name: str = "w") -> None:
        fact = Finished(namespace="ns", name=name)
        await self.bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def until_nothing_is_left(self) -> None:
        await until(lambda: not self.kubernetes.all() and not self.kubernetes.templates())


@pytest.fixture
async def world(
    bus: Bus, nats_server: TestServer, tmp_path: Path, kubernetes: Kubernetes
) -> AsyncIterator[World]:
    folder = tmp_path / "services"
    folder.mkdir()
    fleet = Fleet(nats_server.url, folder)
    for service in SERVICES:
        await fleet.start(service)
    yield World(fleet, bus, kubernetes, folder)
    await fleet.stop()


def a_job(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    pod_sets = [{"name": "main", "count": 2, "template": template}]
    return a_manifest(name, queue="lq-cq", podSets=pod_sets)


async def test_a_job_starts_once_the_cluster_has_provisioned_it_and_nothing_stays_when_it_has_gone(
    world: World,
) -> None:
    await world.provider()
    await world.begin(config=a_config(parameters={"maxRunDurationSeconds": "60"}))

    made = await world.request()
    (template,) = world.kubernetes.templates()
    name = made["metadata"]["name"]
    assert made["metadata"]["namespace"] == "prod"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    assert made["spec"] == {
        "provisioningClassName": "class",
        "parameters": {"maxRunDurationSeconds": "60"},
        "podSets": [{"podTemplateRef": {"name": f"ppt-{name}-main"}, "count": 2}],
    }
    assert template["template"]["spec"]["restartPolicy"] == "Never"
    await until(lambda: "ownerReferences" in world.kubernetes.templates()[0]["metadata"])
    (owner,) = world.kubernetes.templates()[0]["metadata"]["ownerReferences"]
    assert owner["uid"] == made["metadata"]["uid"]

    world.kubernetes.condition(name, "Accepted")
    world.kubernetes.condition(name, "Provisioned", "in 4 minutes", status="False")

    async def told() -> bool:
        return (await row(world.bus)).message == "in 4 minutes"

    await eventually(told)
    world.kubernetes.condition(name, "Provisioned", "here", details={"group": "g7"})

    await until_phase(world.bus, Phase.ADMITTED)
    found = await row(world.bus)
    assert found.message == "here"
    assert found.pod_set_updates[0]["annotations"] == {CONSUME: name, CLASS: "class"}
    await world.finish()
    await world.until_nothing_is_left()


async def test_a_failed_request_is_retried_as_a_second_one(world: World) -> None:
    await world.provider()
    await world.begin()
    first = await world.request()

    world.kubernetes.condition(first["metadata"]["name"], "Failed", "no room in any zone")

    await until(lambda: first["metadata"]["name"] not in names(world))
    second = await world.request()
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert second["metadata"]["annotations"]["admittance.dev/request"].endswith("/2")
    world.kubernetes.condition(second["metadata"]["name"], "Provisioned")
    await until_phase(world.bus, Phase.ADMITTED)
    assert names(world) == [second["metadata"]["name"]]


async def test_a_job_stops_when_its_capacity_is_revoked(world: World) -> None:
    await world.provider()
    await world.begin()
    name = (await world.request())["metadata"]["name"]
    world.kubernetes.condition(name, "Provisioned")
    await until_phase(world.bus, Phase.ADMITTED)

    world.kubernetes.condition(name, "CapacityRevoked", "spot was taken back")

    await until_phase(world.bus, Phase.REJECTED)
    await world.until_nothing_is_left()


async def test_a_revocation_during_a_restart_is_told_afterwards(world: World) -> None:
    provider = await world.provider()
    await world.begin()
    name = (await world.request())["metadata"]["name"]
    world.kubernetes.condition(name, "Provisioned")
    await until_phase(world.bus, Phase.ADMITTED)
    await provider.kill()

    world.kubernetes.condition(name, "CapacityRevoked", "spot was taken back")
    await world.provider()

    await until_phase(world.bus, Phase.REJECTED)


async def test_a_kill_between_making_and_answering_makes_nothing_twice(world: World) -> None:
    provider = await world.provider()
    # Made, and never told: it is killed while it asks again.
    world.kubernetes.fail(503, 1000, after=True)
    await world.begin()
    name = (await world.request())["metadata"]["name"]
    await provider.kill()
    world.kubernetes.injected.clear()

    await world.provider()
    world.kubernetes.condition(name, "Provisioned")

    await until_phase(world.bus, Phase.ADMITTED)
    assert names(world) == [name]
    await until(lambda: "ownerReferences" in world.kubernetes.templates()[0]["metadata"])
    await world.finish()
    await world.until_nothing_is_left()


async def test_nothing_leaks_when_the_workload_goes_while_the_provider_is_dead(
    world: World,
) -> None:
    provider = await world.provider()
    await world.begin("a", "b")
    await world.request(2)
    await provider.kill()
    # Of one, only the template was made yet.
    half = next(one for one in names(world) if one.startswith("a-"))
    with world.kubernetes.lock:
        for template in world.kubernetes.templates():
            template["metadata"].pop("ownerReferences", None)
    world.kubernetes.delete_by_hand(half)
    await world.finish("a")
    await world.finish("b")

    await world.provider()

    await world.until_nothing_is_left()


async def test_what_is_left_of_a_forgotten_request_is_swept_and_other_peoples_is_not(
    world: World,
) -> None:
    provider = await world.provider()
    await world.begin()
    made = await world.request()
    ours = {**made["metadata"]["labels"], "admittance.dev/request": digest("u/c/9/9")}
    others = {**ours, "admittance.dev/installation": "another"}
    about = {"namespace": "prod", "annotations": {"admittance.dev/request": "u/c/9/9"}}
    for name, labels in (("forgotten", ours), ("others", others)):
        metadata = {**about, "name": name, "labels": labels}
        world.kubernetes.put("provisioningrequests", {**made, "metadata": metadata})

    await until(lambda: "forgotten" not in names(world))

    assert "others" in names(world)
    # A person has to know whether that installation is still at work.
    await provider.kill()
    again = await world.provider(ADMIT_INSTANCE="again")
    await until(lambda: '"others":{"another":1}' in again.log)


async def test_a_request_deleted_by_hand_is_made_again_until_it_is_provisioned(
    world: World,
) -> None:
    """E9: afterwards it is not, and the job keeps running."""
    await world.provider()
    await world.begin()
    first = await world.request()
    name = first["metadata"]["name"]
    world.kubernetes.delete_by_hand(name)
    await until(lambda: uids(world) not in ([], [first["metadata"]["uid"]]))
    world.kubernetes.condition(name, "Provisioned")
    await until_phase(world.bus, Phase.ADMITTED)

    world.kubernetes.delete_by_hand(name)
    await world.begin("other")

    assert (await world.request())["metadata"]["name"].startswith("other")
    assert len(names(world)) == 1
    await until_phase(world.bus, Phase.ADMITTED)


async def test_what_the_server_refuses_for_good_rejects_the_job_with_its_words(
    world: World,
) -> None:
    await world.provider()
    world.kubernetes.fail(403, reason="Forbidden", message="a webhook does not want that")
    await world.begin(config=a_config(9))

    await until_phase(world.bus, Phase.REJECTED)

    found = await row_message(world)
    assert "a webhook does not want that" in found
    await world.until_nothing_is_left()


async def test_a_server_with_too_much_to_do_is_asked_again_when_it_says(world: World) -> None:
    await world.provider()
    world.kubernetes.fail(429, headers={"Retry-After": "1"}, reason="TooManyRequests")
    world.kubernetes.fail(500)
    await world.begin()

    name = (await world.request())["metadata"]["name"]
    world.kubernetes.condition(name, "Provisioned")

    await until_phase(world.bus, Phase.ADMITTED)
    assert [code for method, kind, code in world.kubernetes.calls if is_request(method, kind)] == [
        429,
        500,
        201,
    ]


async def test_an_object_of_the_same_name_that_is_somebody_elses_fails_the_attempt(
    world: World,
) -> None:
    provider = await world.provider()
    await world.begin()
    name = (await world.request())["metadata"]["name"]
    await provider.kill()
    world.kubernetes.delete_by_hand(name)
    theirs = {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest"}
    pod_sets = [{"podTemplateRef": {"name": "t"}, "count": 1}]
    spec = {"provisioningClassName": "class", "podSets": pod_sets}
    metadata = {"name": name, "namespace": "prod"}
    world.kubernetes.put("provisioningrequests", {**theirs, "metadata": metadata, "spec": spec})

    await world.provider()

    second = await world.request(2)
    assert second["metadata"]["name"] != name
    assert name in names(world)


async def test_watches_that_end_and_places_that_are_forgotten_lose_nothing(world: World) -> None:
    await world.provider()
    await world.begin("a", "b", "c")
    await world.request(3)
    a, b, c = sorted(names(world))

    world.kubernetes.end_watches()
    world.kubernetes.condition(a, "Provisioned")
    await until_phase(world.bus, Phase.ADMITTED, "a")
    world.kubernetes.condition(b, "Provisioned")
    world.kubernetes.forget()
    await until_phase(world.bus, Phase.ADMITTED, "b")
    world.kubernetes.condition(c, "Provisioned")
    await until_phase(world.bus, Phase.ADMITTED, "c")


async def test_while_the_cluster_is_away_the_check_is_inactive_and_then_goes_on(
    world: World,
) -> None:
    provider = await world.provider()
    await world.begin()
    name = (await world.request())["metadata"]["name"]

    world.kubernetes.go_away()
    await until(lambda: '"cluster_away"' in provider.log)
    controller = world.fleet.processes[0]
    await until(lambda: "ProviderDown" in controller.log)
    world.kubernetes.come_back()
    world.kubernetes.condition(name, "Provisioned")

    await until_phase(world.bus, Phase.ADMITTED)


async def test_names_at_the_limit_of_their_length_are_cut_and_stay_apart(world: World) -> None:
    long = ["x" * 250 + end for end in ("a", "b")]
    await world.provider()
    await world.begin(*long)

    await world.request(2)
    assert len(set(names(world))) == 2
    assert all(len(name) <= 253 for name in names(world))
    for name in names(world):
        world.kubernetes.condition(name, "Provisioned")
    for name in long:
        await until_phase(world.bus, Phase.ADMITTED, name)
        await world.finish(name)
    await world.until_nothing_is_left()


async def test_two_instances_make_one_request_and_say_everything_once(world: World) -> None:
    for _ in range(2):
        await world.provider()
    await world.begin("a", "b", "c")
    await world.request(3)
    for name in names(world):
        world.kubernetes.condition(name, "Provisioned")

    for name in ("a", "b", "c"):
        await until_phase(world.bus, Phase.ADMITTED, name)

    assert len(names(world)) == 3


def names(world: World) -> list[str]:
    return [one["metadata"]["name"] for one in world.kubernetes.all()]


def uids(world: World) -> list[str]:
    return [one["metadata"]["uid"] for one in world.kubernetes.all()]


def is_request(method: str, kind: str) -> bool:
    return (method, kind) == ("POST", "provisioningrequests")


async def row_message(world: World) -> str:
    found = await workload(world.bus, "w")
    assert found is not None
    return str(found.status.conditions) + (await row(world.bus)).message
