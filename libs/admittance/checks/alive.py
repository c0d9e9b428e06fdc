"""Heartbeats: that a controller lives, and which of its checks it cannot evaluate, and why."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.subjects import ALIVE_CHECK
from admittance.events.system import CheckActive, CheckAlive
from admittance.runtime import clock
from admittance.runtime.bus import Bus

PAUSE_SECONDS: Final = 1.0
BAD_SECONDS: Final = 60.0
"""How long parameters that were wrong once count as wrong. An inactive check is asked nothing, so
that they are right again can only be seen by being asked again."""


class Activity:
    """Whether the controller, and each of its checks, can evaluate."""

    def __init__(self) -> None:
        self._whole = CheckActive()
        self._checks: dict[str, CheckActive] = {}
        self._bad: dict[str, tuple[float, CheckActive]] = {}
        self.changed = asyncio.Event()

    def put(self, check: str, state: CheckActive) -> None:
        """What the check's author says, about one check or ("") all."""
        if not check:
            self._whole = state
        elif state.active:
            self._checks.pop(check, None)
        else:
            self._checks[check] = state
        self.changed.set()

    def bad_parameters(self, check: str, message: str) -> None:
        """Its parameters were wrong in a request of just now."""
        state = CheckActive(active=False, reason="BadParametersRef", message=message)
        known = self._bad.get(check)
        self._bad[check] = (clock.monotonic(), state)
        if known is None or known[1] != state:
            self.changed.set()

    def good_parameters(self, check: str) -> None:
        """Its parameters were right in a request of just now."""
        if self._bad and self._bad.pop(check, None) is not None:
            self.changed.set()

    def beat(self, instance: str, program: str) -> CheckAlive:
        """The heartbeat of now."""
        now = clock.monotonic()
        self._bad = {k: bad for k, bad in self._bad.items() if now - bad[0] < BAD_SECONDS}
        checks = {check: bad[1] for check, bad in self._bad.items()} | self._checks
        return CheckAlive(
            time=clock.now(),
            instance=instance,
            program=program,
            active=self._whole.active,
            reason=self._whole.reason,
            message=self._whole.message,
            checks=checks,
        )


async def beat(
    bus: Bus, controller: str, activity: Activity, *, instance: str, program: str, seconds: float
) -> None:
    """Says so often, and whenever something changed, that the controller lives; for ever."""
    subject = f"{ALIVE_CHECK}{token(controller)}"
    while True:
        activity.changed.clear()
        if bus.nc.is_connected:
            await bus.tell((subject, encode(activity.beat(instance, program))))
        # However often it changes, once a second is enough.
        pause = min(PAUSE_SECONDS, seconds / 2)
        await asyncio.sleep(pause)
        with suppress(TimeoutError):
            await asyncio.wait_for(activity.changed.wait(), seconds - pause)
