"""Follows the announcements of runners in the bucket of claims."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from admittance.control.runner_rules import AnnouncedRunners
from admittance.events.subjects import ANNOUNCED_RUNNERS, CLAIMS
from admittance.events.system import RunnerAnnouncement
from admittance.runtime.bus.bucket import Entry, follow_bucket
from admittance.runtime.bus.bus import Bus

_announcement = msgspec.json.Decoder(RunnerAnnouncement)


async def follow_runners(bus: Bus, runners: AnnouncedRunners, loaded: asyncio.Event) -> None:
    """Keeps ``runners`` equal to the bucket, until cancelled. ``loaded``: is set once the runners
    that were announced before are known."""

    def learn(entries: Sequence[Entry]) -> None:
        for entry in entries:
            runner = entry.key.partition(".")[2]
            if entry.value is None:
                runners.forget(runner)
                continue
            try:
                announced = _announcement.decode(entry.value)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                runners.forget(runner)  # `admit doctor` lists the entry
            else:
                runners.note(runner, announced.starts)

    await follow_bucket(
        bus, (f"{ANNOUNCED_RUNNERS}.>",), learn, lambda _: loaded.set(), bucket=CLAIMS
    )
