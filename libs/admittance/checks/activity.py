"""Heartbeats: that a controller lives, and which of its checks it cannot evaluate, and why."""

from __future__ import annotations

import threading
from typing import Final

import msgspec

from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.subjects import ALIVE_CHECK
from admittance.events.system import CheckActive, CheckAlive
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.sdk import heartbeats
from admittance.sdk.heartbeats import ChangeSignal

BAD_SECONDS: Final = 60.0
"""How long parameters that were wrong once count as wrong. An inactive check is asked nothing, so
that they are right again can only be seen by being asked again."""


class Activity:
    """Whether the controller, and each of its checks, can evaluate. Any thread may say so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._whole = CheckActive()
        self._checks: dict[str, CheckActive] = {}
        self._bad: dict[str, tuple[float, CheckActive]] = {}
        self.changes = ChangeSignal()

    def put(self, check: str, state: CheckActive) -> None:
        """What the check's author says, about one check or ("") all."""
        short = msgspec.structs.replace(state, message=heartbeats.shortened(state.message))
        with self._lock:
            if not check:
                self._whole = short
            elif state.active:
                self._checks.pop(check, None)
            else:
                self._checks[check] = short
        self.changes.tell()

    def bad_parameters(self, check: str, message: str) -> None:
        """Its parameters were wrong in a request of just now."""
        why = heartbeats.shortened(message)
        state = CheckActive(active=False, reason="BadParametersRef", message=why)
        with self._lock:
            known = self._bad.get(check)
            self._bad[check] = (clock.monotonic(), state)
        if known is None or known[1] != state:
            self.changes.tell()

    def good_parameters(self, check: str) -> None:
        """Its parameters were right in a request of just now."""
        with self._lock:
            known = self._bad.pop(check, None)
        if known is not None:
            self.changes.tell()

    def beat(self, instance: str, program: str) -> CheckAlive:
        """The heartbeat of now."""
        now = clock.monotonic()
        with self._lock:
            self._bad = {k: bad for k, bad in self._bad.items() if now - bad[0] < BAD_SECONDS}
            checks = {check: bad[1] for check, bad in self._bad.items()} | self._checks
            whole = self._whole
        return CheckAlive(
            time=clock.now(),
            instance=instance,
            program=program,
            active=whole.active,
            reason=whole.reason,
            message=whole.message,
            checks=checks,
        )


async def beat(
    bus: Bus, controller: str, activity: Activity, *, instance: str, program: str, seconds: float
) -> None:
    """Says so often, and whenever something changed, that the controller lives; for ever."""
    subject = f"{ALIVE_CHECK}{token(controller)}"

    def now() -> bytes:
        return encode(activity.beat(instance, program))

    await heartbeats.beat(bus, subject, activity.changes, now, seconds=seconds)
