"""A start on a large folder says that it goes on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from admittance.cli.up import readiness
from admittance.events.requests.services import HealthReply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.service import Service


async def test_a_service_that_reads_many_facts_says_how_many_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = [30_000, 20_000, 0]

    async def health(_bus: Bus, **_: Any) -> list[HealthReply]:
        return [HealthReply(service="scheduler", instance="i", lag=left[0])]

    async def until_ready(*_: object) -> None:
        while left[0]:
            said = len(logged)
            while len(logged) == said:  # noqa: ASYNC110 - the log tells of no change
                await asyncio.sleep(0)
            left.pop(0)

    monkeypatch.setattr(readiness, "SAY_EVERY", 0.0)
    monkeypatch.setattr(readiness, "health", health)
    monkeypatch.setattr(readiness, "until_ready", until_ready)
    with capture_logs() as logged:
        service = Service("scheduler", load=lambda: NotImplemented, role="scheduler")
        await readiness.until_serving(cast(Bus, None), service, "i")
    assert {line["event"] for line in logged} == {"service_starts"}
    said = [line["facts_to_read"] for line in logged]
    assert said[0] == 30_000
    assert 20_000 in said
