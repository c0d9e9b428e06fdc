"""Several services in one process, and retries of failed work."""

from __future__ import annotations

import asyncio

import nats.errors
import pytest
from structlog.testing import capture_logs

from admittance.runtime.bus import messages
from admittance.runtime.errors import (
    AdmittanceError,
    BusUnavailable,
    SetupError,
    StaleRevision,
    refusal,
)
from admittance.runtime.process import supervise
from support.servers import within


def lasting(name: str, story: list[str]) -> supervise.ServiceTask:
    async def run(serves: asyncio.Event) -> None:
        story.append(f"{name} starts")
        serves.set()
        try:
            await asyncio.Event().wait()
        finally:
            story.append(f"{name} ends")

    return supervise.ServiceTask(name, run)


async def test_services_start_in_order_and_end_in_reverse() -> None:
    story: list[str] = []
    stop = asyncio.Event()

    def ready() -> None:
        story.append("ready")
        stop.set()

    await within(
        supervise.supervise([lasting("one", story), lasting("two", story)], stop, ready=ready)
    )
    assert story == ["one starts", "two starts", "ready", "two ends", "one ends"]


async def test_a_connection_lost_inside_the_client_does_not_count_as_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "PAUSE_MIN", 0.001)
    stop = asyncio.Event()
    errors: list[Exception] = [nats.errors.ConnectionReconnectingError(), RuntimeError("a bug")]

    async def run(serves: asyncio.Event) -> None:
        serves.set()
        if errors:
            raise errors.pop(0)
        stop.set()
        await asyncio.Event().wait()

    with capture_logs() as logged:
        await within(supervise.supervise([supervise.ServiceTask("one", run)], stop))
    events = [line["event"] for line in logged if line["event"].startswith("service_")]
    assert events == ["service_interrupted", "service_crashed"]


async def test_a_crashed_service_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "PAUSE_MIN", 0.001)
    stop = asyncio.Event()
    runs = 0

    async def run(serves: asyncio.Event) -> None:
        nonlocal runs
        runs += 1
        serves.set()
        if runs == 3:
            stop.set()
            await asyncio.Event().wait()
        raise BusUnavailable("gone") if runs == 1 else RuntimeError("a bug")

    await within(supervise.supervise([supervise.ServiceTask("one", run)], stop))
    assert runs == 3


async def test_a_service_that_always_crashes_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "PAUSE_MIN", 0.0)

    async def run(_: asyncio.Event) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(AdmittanceError, match="one crashed"):
        await within(supervise.supervise([supervise.ServiceTask("one", run)], asyncio.Event()))


async def test_an_unavailable_bus_never_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "PAUSE_MAX", 0.0)
    stop = asyncio.Event()
    runs = 0

    async def run(_: asyncio.Event) -> None:
        nonlocal runs
        runs += 1
        if runs == 5 * supervise.CRASHES_MAX:
            stop.set()
        raise BusUnavailable("gone") if runs % 2 else refusal(10008, "unavailable")

    await within(supervise.supervise([supervise.ServiceTask("one", run)], stop))
    assert runs >= 5 * supervise.CRASHES_MAX


async def test_repeated_trouble_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervise, "PAUSE_MAX", 0.0)
    stop = asyncio.Event()
    runs = 0

    async def run(_: asyncio.Event) -> None:
        nonlocal runs
        runs += 1
        if runs == 50:
            stop.set()
        raise BusUnavailable("gone")

    await within(supervise.supervise([supervise.ServiceTask("one", run)], stop))
    assert capsys.readouterr().out.count("service_interrupted") == 1


async def test_a_service_that_fails_at_its_end_is_not_restarted() -> None:
    stop = asyncio.Event()
    runs = 0

    async def run(serves: asyncio.Event) -> None:
        nonlocal runs
        runs += 1
        serves.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise BusUnavailable("the last message was not stored") from None

    await within(supervise.supervise([supervise.ServiceTask("one", run)], stop, ready=stop.set))
    assert runs == 1


async def test_a_setup_error_is_not_retried() -> None:
    async def run(_: asyncio.Event) -> None:
        raise SetupError("wrong")

    with pytest.raises(SetupError, match="wrong"):
        await within(supervise.supervise([supervise.ServiceTask("one", run)], asyncio.Event()))


async def test_a_stale_revision_is_retried_a_limited_number_of_times() -> None:
    tries = 0

    async def handle() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StaleRevision(10071, "moved")
        return "done"

    assert await messages.with_retries(handle) == "done"
    tries = -100
    with pytest.raises(StaleRevision):
        await messages.with_retries(handle)
    assert tries == -100 + messages.ATTEMPTS


async def test_a_bug_is_not_retried() -> None:
    tries = 0

    async def handle() -> None:
        nonlocal tries
        tries += 1
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        await messages.with_retries(handle)
    assert tries == 1
