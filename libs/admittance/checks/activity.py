"""Which checks a controller cannot evaluate and why, and the heartbeat that says so."""

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
"""How long wrong parameters make a check inactive. An inactive check gets no requests, so only a
request after this time can show that the parameters were corrected."""


class Activity:
    """Whether the controller, and each of its checks, can evaluate. Safe to call from any
    thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._whole = CheckActive()
        self._checks: dict[str, CheckActive] = {}
        self._bad: dict[str, tuple[float, CheckActive]] = {}
        self.changes = ChangeSignal()

    def put(self, check: str, state: CheckActive) -> None:
        """Sets what the author says about one check, or about all (``check`` empty)."""
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
        """Records a request with wrong parameters."""
        why = heartbeats.shortened(message)
        state = CheckActive(active=False, reason="BadParametersRef", message=why)
        with self._lock:
            known = self._bad.get(check)
            self._bad[check] = (clock.monotonic(), state)
        if known is None or known[1] != state:
            self.changes.tell()

    def good_parameters(self, check: str) -> None:
        """Records a request with valid parameters."""
        with self._lock:
            known = self._bad.pop(check, None)
        if known is not None:
            self.changes.tell()

    def beat(self, instance: str, program: str) -> CheckAlive:
        """The current heartbeat."""
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
    """Publishes the controller's heartbeat every ``seconds`` and at each change, until
    cancelled."""
    subject = f"{ALIVE_CHECK}{token(controller)}"

    def now() -> bytes:
        return encode(activity.beat(instance, program))

    await heartbeats.beat(bus, subject, activity.changes, now, seconds=seconds)
