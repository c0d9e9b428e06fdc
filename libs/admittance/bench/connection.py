"""The connection of a load generator: requests through the client, and what only a load does.

A load publishes facts at the rate of a plan and receives the facts of services, as runners, checks
and people together do; this is below the client, on ``Link.bus``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from admittance.backoff import Backoff
from admittance.client.errors import ClientError, TimedOut, Unavailable
from admittance.client.opening import open_link
from admittance.client.requests.link import Link
from admittance.events import subjects
from admittance.events.requests.history import Settled, SettledReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.tasks import until_returned

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 0.5
SETTLE_PAUSE_SECONDS: Final = 0.01
"""First pause between two questions whether the last fact is applied: the run is timed until then.
"""


@asynccontextmanager
async def connected(url: str, access: ConnectionOptions = NO_OPTIONS) -> AsyncIterator[Link]:
    """A connection of a load generator, closed at the end. Raises the errors of `open_link`."""
    link = await open_link(url, None, access, "default", {})
    try:
        yield link
    finally:
        await link.bus.close()


async def until_answered(ask: Callable[[], Awaitable[T]], seconds: float) -> T:
    """The answer to a request, which is sent again until a service answers, since services may be
    starting. Raises the last error after ``seconds``."""
    deadline = clock.monotonic() + seconds
    backoff = Backoff(FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX)

    def failed(error: ClientError, _pause: float) -> None:
        if clock.monotonic() > deadline:
            raise error

    return await until_returned(ask, backoff, failed, on=(Unavailable, TimedOut))


async def until_settled(link: Link, sequence: int, *, patience: float = 30.0) -> None:
    """Waits until all facts up to sequence are applied. Raises Unavailable and TimedOut."""
    deadline = clock.monotonic() + patience
    pauses = Backoff(SETTLE_PAUSE_SECONDS, PAUSE_SECONDS_MAX)
    request = Settled(sequence=sequence)
    while True:
        reply = await until_answered(lambda: link.ask("settled", request, SettledReply), patience)
        if not reply.error:
            return
        if clock.monotonic() > deadline:
            raise TimedOut(f"the last facts were not applied in time: {reply.error}")
        await asyncio.sleep(pauses.next())


MEASURED_STREAMS: Final = (
    subjects.STREAM,
    subjects.TIMERS,
    f"KV_{subjects.BUCKET}",
    f"KV_{subjects.CLAIMS}",
)


async def messages_stored(bus: Bus, streams: Sequence[str] = MEASURED_STREAMS) -> int:
    """Number of messages ever stored in these streams; a missing stream counts as 0."""
    count = 0
    for stream in streams:
        try:
            info = await bus.api(f"STREAM.INFO.{stream}")
        except BusRefused:
            continue
        count += int(info["state"]["last_seq"])
    return count
