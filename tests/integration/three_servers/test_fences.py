"""Fenced messages on a replicated stream, which takes one message at a time for each fence."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from nats.errors import NoRespondersError

from admittance.runtime.bus.bus import EXPECTED, FENCE, MESSAGE_ID, Bus, Outgoing
from admittance.runtime.bus.pull_consumer import OTHER_HEARTBEAT_SECONDS, heartbeat_of
from admittance.runtime.errors import Fenced
from admittance.runtime.nats.jetstream import TOO_MANY_BATCHES
from admittance.runtime.tasks import cancel_and_wait
from support.servers import within
from support.three_servers import three_servers

pytestmark = pytest.mark.bus
DOMAINS = ("one", "two")


def decisions(epochs: dict[str, int], start: int, count: int) -> list[Outgoing]:
    """``count`` decisions of each domain, and as many messages without a fence."""
    outcomes = []
    for number in range(start, start + count):
        for domain, epoch in epochs.items():
            fence = {EXPECTED: str(epoch), FENCE: f"admit.lease.epoch.{domain}"}
            subject = f"admit.workload.assigned.{domain}.n{number}"
            outcomes.append(Outgoing(subject, b"{}", {**fence, MESSAGE_ID: f"{domain}-{number}"}))
        free = f"admit.workload.submitted.a.n{number}"
        outcomes.append(Outgoing(free, b"{}", {MESSAGE_ID: f"free-{number}"}))
    return outcomes


async def epoch(bus: Bus, domain: str) -> int:
    return await within(bus.publish(Outgoing(f"admit.lease.epoch.{domain}", b"{}")))


async def test_hundreds_of_fenced_messages_are_stored_in_order(tmp_path: Path) -> None:
    async with three_servers(tmp_path) as servers:
        bus = await servers.connect()
        assert heartbeat_of(bus.nc.server_info) == OTHER_HEARTBEAT_SECONDS
        epochs = {domain: await epoch(bus, domain) for domain in DOMAINS}
        # Sent one by one, 100 messages of one fence took 19 s.
        first = await within(bus.publish_all(decisions(epochs, 0, 5)))
        many = decisions(epochs, 5, 200)
        stored = await within(bus.publish_all(many))
        assert all(isinstance(outcome, int) for outcome in [*first, *stored])
        places = [outcome for outcome in stored if isinstance(outcome, int)]
        assert len(set(places)) == len(many)
        for kind in range(3):
            assert places[kind::3] == sorted(places[kind::3])
        # Decisions of many cycles at once, each published by itself.
        single = decisions(epochs, 205, 100)
        each = await within(asyncio.gather(*(bus.publish_all([message]) for message in single)))
        assert len({outcome for (outcome,) in each if isinstance(outcome, int)}) == len(single)
        # A message that was stored before does not keep the others of its batch out.
        again = await within(bus.publish_all(decisions(epochs, 303, 4)))
        assert again[:6] == [outcome for (outcome,) in each[-6:]]
        assert all(isinstance(outcome, int) for outcome in again)
        # A takeover refuses the decisions of its domain only.
        await epoch(bus, "one")
        late = await within(bus.publish_all(decisions(epochs, 400, 10)))
        assert all(isinstance(outcome, Fenced) for outcome in late[0::3])
        assert all(isinstance(outcome, int) for outcome in [*late[1::3], *late[2::3]])
        await bus.close()


async def test_open_batches_of_others_do_not_stop_fenced_messages(tmp_path: Path) -> None:
    async with three_servers(tmp_path) as servers:
        bus, other = await servers.connect(), await servers.connect()
        epochs = {domain: await epoch(bus, domain) for domain in DOMAINS}
        await within(bus.publish_all(decisions(epochs, 0, 5)))
        refused = asyncio.Event()

        async def hold_batches_open() -> None:
            for number in count():
                headers = {"Nats-Batch-Id": f"held-{number}", "Nats-Batch-Sequence": "1"}
                with suppress(NoRespondersError):
                    answer = await other.nc.request(
                        "admit.check.reported.c.a.b", b"{}", headers=headers, timeout=20
                    )
                    if str(TOO_MANY_BATCHES).encode() in answer.data:
                        refused.set()
                        await asyncio.sleep(0.01)

        holding = asyncio.create_task(hold_batches_open())
        await within(refused.wait())
        stored = await within(bus.publish_all(decisions(epochs, 5, 60)))
        assert [outcome for outcome in stored if not isinstance(outcome, int)] == []
        await cancel_and_wait(holding)
        await other.close()
        await bus.close()
