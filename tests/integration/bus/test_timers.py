"""Timers: due on the log, also after a kill of the server; replaced; cancelled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from admittance.runtime import clock
from admittance.runtime.bus import timers
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.puller import Puller
from support.servers import TestServer, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]


def soon(milliseconds: int, payload: bytes, message_id: str, name: str = "train"):  # type: ignore[no-untyped-def]
    at = clock.now() + timedelta(milliseconds=milliseconds)
    return timers.schedule_message("requeue", "a", name, at, payload, message_id)


async def test_a_timer_is_in_the_log_when_its_time_has_come(bus: Bus) -> None:
    at = clock.now() + timedelta(milliseconds=200)
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-00"
    message = timers.schedule_message("requeue", "a", "x.y", at, b"{}", "1", traceparent=trace)
    await bus.publish(message)
    puller = Puller(bus, "reader", ["admit.timer.due.>"])
    due = (await within(puller.batch()))[0]
    assert due.subject == "admit.timer.due.requeue.a.x_y"
    assert due.data == b"{}"
    assert due.time >= at
    assert due.headers["traceparent"] == trace
    await puller.close()


async def test_an_overdue_timer_fires_after_the_server_was_killed(
    bus: Bus, nats_server: TestServer
) -> None:
    await bus.publish(soon(100, b"{}", "1"))
    await nats_server.restart_after_kill()
    puller = Puller(bus, "reader", ["admit.timer.due.>"])
    assert (await within(puller.batch()))[0].data == b"{}"
    await puller.close()


async def test_a_timer_replaces_the_earlier_one_and_a_cancelled_one_never_fires(bus: Bus) -> None:
    await bus.publish(soon(100, b"old", "1"))
    await bus.publish(soon(300, b"new", "2"))
    await bus.publish(soon(100, b"cancelled", "3", name="other"))
    assert await timers.cancel(bus, "requeue", "a", "other")
    assert not await timers.cancel(bus, "requeue", "a", "other")
    await bus.publish(soon(500, b"last", "4", name="third"))
    puller = Puller(bus, "reader", ["admit.timer.due.>"])
    values: list[bytes] = []
    while b"last" not in values:
        values.extend(delivery.data for delivery in await within(puller.batch()))
    assert values == [b"new", b"last"]
    await puller.close()
