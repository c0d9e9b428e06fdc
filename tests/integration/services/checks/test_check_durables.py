"""Every check controller that an AdmissionCheck names has its durable, whenever it starts."""

from __future__ import annotations

import json

import pytest

from admittance.events.requests.manifests import Delete, DeleteReply
from admittance.events.subjects import STREAM, check_durable
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import check_durables
from support.cluster import Cluster
from support.requests import admission_check, apply, ask, eventually
from support.servers import LIMIT

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
BUDGET = "example.com/budget"


def a_request(controller: str, name: str) -> Outgoing:
    said = {"namespace": "ns", "name": name, "controller": controller, "check": "c", "cycle": 0}
    subject = f"admit.check.requested.{controller}.ns.{name}"
    return Outgoing(subject, json.dumps(said).encode())


async def delete(bus: Bus, name: str) -> DeleteReply:
    question = Delete(kind="AdmissionCheck", name=name)
    reply: DeleteReply = await ask(bus, "admit.api.delete", question, DeleteReply)
    return reply


async def test_the_durable_of_an_applied_check_receives_only_its_requests(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller")
    await bus.publish(a_request("ctl", "before"))
    await apply(bus, admission_check("c", "ctl"), admission_check("other", BUDGET))
    for name in ("one", "two"):
        await bus.publish(a_request("ctl", name))
    consumers = await check_durables.existing(bus)
    assert set(consumers) == {"ctl", BUDGET}
    assert consumers["ctl"]["name"] == "check-ctl"
    assert consumers[BUDGET]["name"] == "check-example_com=2Fbudget"
    assert consumers["ctl"]["num_pending"] == 2  # neither what was asked before it was there
    assert consumers[BUDGET]["num_pending"] == 0
    config = consumers["ctl"]["config"]
    assert (config["ack_policy"], config["ack_wait"]) == ("explicit", 30_000_000_000)
    subscription = await bus.nc.jetstream().pull_subscribe_bind("check-ctl", STREAM)
    received = await subscription.fetch(2, timeout=LIMIT)
    assert [json.loads(message.data)["name"] for message in received] == ["one", "two"]


async def test_the_durable_is_deleted_with_the_last_check_of_its_controller(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller")
    await apply(bus, admission_check("a", BUDGET), admission_check("b", BUDGET))
    assert (await delete(bus, "a")).outcome == "deleted"
    assert set(await check_durables.existing(bus)) == {BUDGET}
    assert (await delete(bus, "b")).outcome == "deleted"
    assert await check_durables.existing(bus) == {}


async def test_a_new_leader_creates_missing_and_deletes_unused_durables(
    cluster: Cluster, bus: Bus
) -> None:
    first = await cluster.start("workload-controller")
    await apply(bus, admission_check("a", "kept"), admission_check("b", "lost"))
    await bus.publish(a_request("kept", "w"))
    await first.kill()
    await bus.api(f"CONSUMER.DELETE.{STREAM}.{check_durable('lost')}")
    await check_durables.make(bus, "surplus")
    # Of such a name, but not ours: it reads something else.
    theirs = {**check_durables.settings("x"), "durable_name": "check-x", "name": "check-x"}
    theirs["filter_subjects"] = ["admit.check.>"]
    await bus.api(f"CONSUMER.CREATE.{STREAM}.check-x", {"stream_name": STREAM, "config": theirs})
    await cluster.start("workload-controller")

    async def mended() -> bool:
        return set(await check_durables.existing(bus)) == {"kept", "lost"}

    await eventually(mended)
    # The durable kept its place: requests sent without a leader are still to be read.
    assert (await check_durables.existing(bus))["kept"]["num_pending"] == 1
    assert (await bus.api(f"CONSUMER.INFO.{STREAM}.check-x"))["name"] == "check-x"


async def test_changed_settings_of_a_durable_are_restored(bus: Bus) -> None:
    await check_durables.make(bus, "ctl")
    await bus.publish(a_request("ctl", "w"))
    altered = {**check_durables.settings("ctl"), "max_ack_pending": 1}
    await bus.api(f"CONSUMER.CREATE.{STREAM}.check-ctl", {"stream_name": STREAM, "config": altered})
    await check_durables.make(bus, "ctl")
    consumer = (await check_durables.existing(bus))["ctl"]
    assert consumer["config"]["max_ack_pending"] == check_durables.MAX_ACK_PENDING
    assert consumer["num_pending"] == 1
