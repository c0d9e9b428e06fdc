"""The chaos benchmark kills services until the event is set."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.chaos import ChaosPlan, kill_services


class OneInstance:
    """A fleet in which a start takes until the test allows it."""

    instances = ("scheduler-0",)

    def __init__(self) -> None:
        self.killed, self.starts = asyncio.Event(), asyncio.Event()
        self.runs = True

    async def restart(self, _: str) -> None:
        self.runs = False
        self.killed.set()
        await self.starts.wait()
        self.runs = True


async def test_a_killed_instance_is_started_before_the_killing_ends() -> None:
    fleet: Any = OneInstance()
    calm = asyncio.Event()
    killing = asyncio.create_task(kill_services(fleet, ChaosPlan(kill_every=0.001), calm))
    await fleet.killed.wait()
    calm.set()
    fleet.starts.set()
    await killing
    assert fleet.runs
