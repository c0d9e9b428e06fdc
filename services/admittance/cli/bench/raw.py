"""What the server itself can do: the yardstick beside which the system's figures stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import Refused

STREAM: Final = "ADMITTANCE_BENCH_RAW"
SUBJECT: Final = "admittance_bench.raw"
MESSAGES: Final = 20_000
BYTES: Final = 600
"""About a fact's size."""


async def publish_per_second(bus: Bus) -> float:
    """Pipelined publications a second into a file stream of our own, removed afterwards."""
    await bus.api(
        f"STREAM.CREATE.{STREAM}",
        {"name": STREAM, "subjects": [SUBJECT], "retention": "limits", "storage": "file"},
    )
    try:
        messages = [Outgoing(SUBJECT, b"x" * BYTES)] * 1000
        started = clock.monotonic()
        for _ in range(0, MESSAGES, len(messages)):
            await bus.publish_all(messages)
        return MESSAGES / (clock.monotonic() - started)
    finally:
        await bus.api(f"STREAM.DELETE.{STREAM}")


ALL: Final = (
    subjects.STREAM,
    subjects.TIMERS,
    f"KV_{subjects.BUCKET}",
    f"KV_{subjects.CLAIMS}",
)


async def persisted(bus: Bus, streams: Sequence[str] = ALL) -> int:
    """How many messages these streams have taken, ever; one that is missing has taken none."""
    count = 0
    for stream in streams:
        try:
            info = await bus.api(f"STREAM.INFO.{stream}")
        except Refused:
            continue
        count += int(info["state"]["last_seq"])
    return count
