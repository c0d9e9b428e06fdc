"""Waits until a received message, or an answer, makes a claim true."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from admittance.client.errors import TimedOut, Unavailable
from admittance.events.subjects import BUCKET
from admittance.runtime import clock
from admittance.runtime import errors as bus_errors
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from admittance.runtime.tasks import set_within

T = TypeVar("T")

PATIENCE_SECONDS: Final = 120.0
QUIET_SECONDS: Final = 3.0
"""The services have stored what they store when the bucket has not changed for so long."""


class News:
    """A message was received: `note` reports it, and `until` checks its claim again."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def note(self) -> None:
        """Reports that a message was received."""
        self._changed.set()

    async def holds(self, claim: Callable[[], bool], seconds: float) -> bool:
        """Whether the claim holds within ``seconds``."""
        deadline = clock.monotonic() + seconds
        while not claim():
            self._changed.clear()
            if not await set_within(self._changed, deadline - clock.monotonic()):
                return claim()
        return True

    async def until(
        self,
        claim: Callable[[], bool],
        trouble: Callable[[], str],
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Waits until the claim holds. Raises SetupError with the sentence that ``trouble``
        returns."""
        if not await self.holds(claim, seconds):
            raise SetupError(f"after {seconds:g} s {trouble()}")


async def until_right(
    ask: Callable[[], Awaitable[T]],
    right: Callable[[T], bool],
    *,
    seconds: float,
    every: float = 0.5,
) -> T | None:
    """The first answer that is right, asked for again and again; after ``seconds`` the last answer
    that came, and None if none came. A service that does not answer is asked again."""
    deadline = clock.monotonic() + seconds
    answer: T | None = None
    while clock.monotonic() < deadline:
        try:
            answer = await ask()
        except (Unavailable, TimedOut, bus_errors.BusUnavailable):
            pass
        else:
            if right(answer):
                break
        await asyncio.sleep(every)
    return answer


async def until_unchanged(bus: Bus, *, seconds: float) -> None:
    """Waits until the bucket has not changed for `QUIET_SECONDS`. Raises SetupError after so many
    ``seconds``."""
    last, since = -1, clock.monotonic()
    deadline = since + seconds
    while clock.monotonic() < deadline:
        state = (await bus.api(f"STREAM.INFO.KV_{BUCKET}"))["state"]
        if state["last_seq"] != last:
            last, since = state["last_seq"], clock.monotonic()
        elif clock.monotonic() - since > QUIET_SECONDS:
            return
        await asyncio.sleep(0.25)
    raise SetupError(f"the bucket still changes after {seconds:g} s")
