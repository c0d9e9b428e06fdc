"""Epochs that an instance finds on the log, or does not find there any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from admittance.lease.domains import CONTROLLER
from admittance.runtime.bus import Bus
from admittance.runtime.errors import Unavailable
from admittance.runtime.history import past
from admittance.runtime.leading import Leading
from admittance.runtime.lease_io import epoch_subject, read_epoch, take_epoch
from admittance.workload.phase import holds_quota

from builders import a_manifest
from processes import Fleet, apply, eventually, health, queues, submit, workload
from servers import TestServer, within

pytestmark = pytest.mark.bus


async def _admitted(bus: Bus, name: str) -> bool:
    found = await workload(bus, name)
    return found is not None and holds_quota(found)


async def _forget(bus: Bus, domain: str) -> None:
    """As the log does with what is older than its age limit."""
    await bus.api("STREAM.PURGE.ADMITTANCE", {"filter": epoch_subject(domain)})


async def _leads(bus: Bus, instance: str, domain: str) -> bool:
    return any(one.instance == instance and domain in one.leads for one in await health(bus))


async def test_a_scheduler_whose_epoch_fell_out_of_the_log_takes_it_anew(
    fleet: Fleet, bus: Bus
) -> None:
    await fleet.start("workload-controller")
    await fleet.start("scheduler")
    await apply(bus, *queues("cq", cpu=4))
    await submit(bus, [a_manifest("before", queue="lq-cq")])
    await eventually(lambda: _admitted(bus, "before"))
    await _forget(bus, "queue-cq")
    await submit(bus, [a_manifest("after", queue="lq-cq")])
    await eventually(lambda: _admitted(bus, "after"))


async def test_a_standby_takes_over_though_the_leaders_epoch_fell_out_of_the_log(
    fleet: Fleet, bus: Bus
) -> None:
    active = await fleet.start("workload-controller", "a")
    await eventually(lambda: _leads(bus, "a", CONTROLLER))
    await fleet.start("workload-controller", "b")
    await eventually(lambda: _serves(bus, "b"))
    await _forget(bus, CONTROLLER)
    await active.kill()
    await eventually(lambda: _leads(bus, "b", CONTROLLER))


async def _serves(bus: Bus, instance: str) -> bool:
    return any(one.instance == instance for one in await health(bus))


async def test_a_domain_that_comes_back_may_have_been_led_in_an_earlier_life(
    fleet: Fleet, bus: Bus
) -> None:
    """A queue that this instance led before it was restarted, and that was gone since."""
    epoch = await take_epoch(bus, "queue-old", "me", expected=0)
    await fleet.start("workload-controller")
    await fleet.start("scheduler", "me")
    await apply(bus, *queues("cq", cpu=4))
    await eventually(lambda: _leads(bus, "me", "queue-cq"))
    await apply(bus, *queues("old", cpu=4))
    await eventually(lambda: _leads(bus, "me", "queue-old"))
    assert (await read_epoch(bus, "queue-old"))[0] > epoch
    assert "another process" not in fleet.processes[1].log


async def test_another_process_under_the_same_name_is_told_apart_from_an_earlier_life(
    fleet: Fleet, bus: Bus
) -> None:
    await fleet.start("workload-controller")
    first = await fleet.start("scheduler", "me")
    await apply(bus, *queues("cq", cpu=4))
    await eventually(lambda: _leads(bus, "me", "queue-cq"))
    epoch, said = await read_epoch(bus, "queue-cq")
    assert said is not None
    await take_epoch(bus, "queue-cq", "me", expected=epoch)

    async def told() -> bool:
        return "another process runs as scheduler instance me" in first.log

    await eventually(told)
    assert "Traceback" not in first.log


class Hard(Bus):
    """Of hearing: no question is answered once it is deaf."""

    deaf = False

    async def api(self, what: str, *args: Any, **more: Any) -> dict[str, Any]:
        if self.deaf:
            raise Unavailable("deaf")
        return await super().api(what, *args, **more)


async def test_what_is_taken_gets_its_barrier_though_another_was_faster_and_nobody_answers(
    bus: Bus, nats_server: TestServer
) -> None:
    mine = await Hard.connect(nats_server.url, name="mine")
    assert isinstance(mine, Hard)
    leading = Leading(mine, "scheduler", "me", ttl_seconds=5)
    beating = asyncio.create_task(leading.run())
    await within(leading.watching.wait())
    await leading.take(["queue-c"], barrier=True)
    leading.tenure.lost("queue-c")
    await take_epoch(bus, "queue-b", "me-too", expected=0)
    leading._known.add("queue-b")  # as it was when we looked: led by nobody
    mine.deaf = True
    with suppress(Unavailable):
        await leading.take(["queue-b", "queue-c"], barrier=True)
    assert len(await past(bus, ["admit.lease.barrier.queue-c"])) == 2
    beating.cancel()
    await mine.close()
