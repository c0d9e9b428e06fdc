"""Records that are deleted by hand while no leader is active leak no booking."""

from __future__ import annotations

import pytest

from admittance.events import provisioning as facts
from admittance.events.codec import encode
from admittance.events.facts import Finished
from admittance.events.subjects import subject_of
from admittance.provisioning_check.messages import HEADER_CANCELLED
from admittance.runtime.bus.bucket import delete_message, get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload.phase import Phase
from integration.provisioning.bare_provider import BareProvider
from support.builders import a_manifest
from support.capacity import CHECK, a_config, records, until_phase
from support.cluster import Cluster
from support.requests import apply, eventually, queues, submit
from support.servers import until

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
SERVICES = ("workload-controller", "scheduler", "provisioning-check")
NAMES = ("done", "runs", "waits")


@pytest.mark.scenario("E9", "E14")
async def test_deleted_records_are_cancelled_or_written_again_if_needed(
    cluster: Cluster, bus: Bus
) -> None:
    provider = await BareProvider(bus).start()
    await apply(bus, CHECK, a_config(), *queues("cq", cpu=10, admissionChecks=["capacity"]))
    await submit(bus, [a_manifest(name, queue="lq-cq") for name in NAMES])
    await provider.until_asked(3)
    of = {request.name: request for request in provider.asked}
    for name in ("done", "runs"):
        await provider.publish_status(of[name], facts.Provisioned)
        await until_phase(bus, Phase.ADMITTED, name)

    await cluster.processes[-1].kill()
    for name in NAMES:
        key = f"provisioningrequest.ns.{name}-capacity-1"
        await bus.publish(delete_message(key, expected=None, ttl_seconds=60.0))
    fact = Finished(namespace="ns", name="done")
    await bus.publish(Outgoing(subject_of(fact), encode(fact)))
    await until_phase(bus, Phase.FINISHED, "done")
    await provider.publish_status(of["waits"], facts.Provisioned, message="here")
    await cluster.start("provisioning-check")

    await until_phase(bus, Phase.ADMITTED, "waits")
    await until(lambda: provider.booked == {of["waits"].id})
    assert await records(bus) == ["provisioningrequest.ns.waits-capacity-1"]
    assert {request.id for request in provider.asked} == {request.id for request in of.values()}
    await until_phase(bus, Phase.ADMITTED, "runs")

    # What is settled is not looked for at every start.
    await cluster.processes[-1].kill()
    await cluster.start("provisioning-check")

    async def settled() -> bool:
        messages = [
            await get(bus, f"provisioningrequest.ns.{name}-capacity-1") for name in ("done", "runs")
        ]
        return all(
            message is not None and HEADER_CANCELLED in message.headers for message in messages
        )

    await eventually(settled)
    assert provider.booked == {of["waits"].id}


async def test_a_booking_is_freed_although_no_check_is_left(cluster: Cluster, bus: Bus) -> None:
    """Only the deleted record shows that there was a request."""
    provider = await BareProvider(bus).start()
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await provider.until_asked()

    await cluster.processes[-1].kill()
    for key in ("provisioningrequest.ns.w-capacity-1", "admissioncheck.capacity"):
        await bus.publish(delete_message(key, expected=None, ttl_seconds=60.0))
    await cluster.start("provisioning-check")

    await until(lambda: not provider.booked)
