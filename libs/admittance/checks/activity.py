"""Which checks a controller cannot evaluate, and why, for its heartbeat."""

from __future__ import annotations

import threading
from typing import Final

import msgspec

from admittance.events.system import CheckActive, CheckAlive
from admittance.runtime import clock
from admittance.sdk.heartbeats import ChangeSignal, shortened

BAD_SECONDS: Final = 60.0
"""How long wrong parameters make a check inactive. An inactive check gets no requests, so only a
request after this time can show that the parameters were corrected."""


class Activity:
    """Whether the controller, and each of its checks, can evaluate. Safe to call from any
    thread."""

    def __init__(self, changes: ChangeSignal) -> None:
        self._changes = changes
        self._lock = threading.Lock()
        self._whole = CheckActive()
        self._checks: dict[str, CheckActive] = {}
        self._bad: dict[str, tuple[float, CheckActive]] = {}

    def put(self, check: str, state: CheckActive) -> None:
        """Sets what the author says about one check, or about all (``check`` empty)."""
        short = msgspec.structs.replace(state, message=shortened(state.message))
        with self._lock:
            if not check:
                self._whole = short
            elif state.active:
                self._checks.pop(check, None)
            else:
                self._checks[check] = short
        self._changes.send()

    def bad_parameters(self, check: str, message: str) -> None:
        """Records a request with wrong parameters."""
        why = shortened(message)
        state = CheckActive(active=False, reason="BadParametersRef", message=why)
        with self._lock:
            known = self._bad.get(check)
            self._bad[check] = (clock.monotonic(), state)
        if known is None or known[1] != state:
            self._changes.send()

    def good_parameters(self, check: str) -> None:
        """Records a request with valid parameters."""
        with self._lock:
            known = self._bad.pop(check, None)
        if known is not None:
            self._changes.send()

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
