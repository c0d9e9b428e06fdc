"""Threads of an author: they can signal a change, and wait for a call in the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from admittance.checks import AdmissionCheckController, Ready, Request
from admittance.providers import Provider, Provisioned
from admittance.sdk.program import HEARTBEAT_MESSAGE_MAX, ChangeSignal, heartbeat_message
from admittance.sdk.threads import from_thread
from support.servers import LIMIT, within


async def test_a_change_in_a_thread_wakes_the_event_loop() -> None:
    changes = ChangeSignal()
    with changes.listener() as changed:
        thread = threading.Timer(0.05, changes.send)
        thread.start()
        began = time.monotonic()
        await within(changed.wait())
        # One that was set without waking the loop is found when that wakes by itself.
        assert time.monotonic() - began < LIMIT / 2
        thread.join()


def test_changes_reach_successive_loops_and_need_no_loop() -> None:
    provider = Provider("a")

    async def receive_change() -> None:
        with provider.changes.listener() as changed:
            provider.inactive("maintenance")
            await within(changed.wait())

    for _ in range(2):
        asyncio.run(receive_change())
    provider.ready()
    assert provider.activity == (True, "")


def test_a_listener_of_an_ended_loop_does_no_harm() -> None:
    changes = ChangeSignal()
    loop = asyncio.new_event_loop()

    hearing = changes.listener()

    async def leave() -> None:
        hearing.__enter__()

    loop.run_until_complete(leave())
    loop.close()
    changes.send()


async def test_many_threads_can_change_the_activity_at_once() -> None:
    controller = AdmissionCheckController("a")
    activity = controller.activity
    before = sys.getswitchinterval()

    def toggle(check: str) -> None:
        for _ in range(200):
            controller.inactive("away", check=check)
            activity.bad_parameters(check, "wrong")
            activity.beat("i", "p")
            activity.good_parameters(check)
            controller.active(check)

    sys.setswitchinterval(1e-6)
    try:
        await asyncio.gather(*(asyncio.to_thread(toggle, f"c{number}") for number in range(8)))
    finally:
        sys.setswitchinterval(before)
    assert activity.beat("i", "p").checks == {}


async def test_a_thread_waits_for_a_call_in_the_event_loop() -> None:
    async def call() -> str:
        await asyncio.sleep(0)
        return "answer"

    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(lambda: from_thread(call(), loop)) == "answer"
    with pytest.raises(RuntimeError, match="await the call"):
        from_thread(call(), loop)
    with pytest.raises(RuntimeError, match="not running"):
        from_thread(call(), None)


async def test_a_thread_cannot_report_for_a_program_that_does_not_run() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        Provider("a").report_from_thread("u/c/1/1", Provisioned())
    with pytest.raises(RuntimeError, match="not running"):
        AdmissionCheckController("a").report_from_thread(Request().reference, Ready())


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("x" * 2_000_000, id="longer than the bus takes"),
        pytest.param("\ud800", id="no text at all"),
    ],
)
def test_a_heartbeat_accepts_any_message(message: str) -> None:
    assert len(heartbeat_message(message)) <= HEARTBEAT_MESSAGE_MAX
    controller = AdmissionCheckController("a")
    controller.inactive(message, check="c")
    controller.activity.bad_parameters("d", message)
    activities = controller.activity.beat("i", "p").checks
    assert {
        len(heartbeat.message.encode()) <= 4 * HEARTBEAT_MESSAGE_MAX
        for heartbeat in activities.values()
    } == {True}
