"""Which classes of capacity somebody provides at the moment, as far as providers tell. Pure.

A class that ever sent a heartbeat counts as down when three in a row are missing; one that never
did counts as served. Times are monotonic seconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.events.system import ProviderAlive

MISSING: Final = 3
INSTANCES_MAX: Final = 1000
"""Replicas of one class whose beginnings are told apart."""


class Providing:
    """``every_seconds``: how often heartbeats are expected."""

    def __init__(self, every_seconds: float) -> None:
        self._patience = MISSING * every_seconds
        self._last: dict[str, float] = {}
        self._said: dict[str, ProviderAlive] = {}
        self._began: dict[str, dict[str, datetime]] = {}

    def expect(self, provisioning_class: str, now: float) -> None:
        """It was known to send heartbeats before we listened: it gets the time of one."""
        self._last.setdefault(provisioning_class, now)

    def hear(self, provisioning_class: str, beat: ProviderAlive, now: float) -> bool:
        """Notes a heartbeat. True: it was not there before, so that it may have lost something, or
        may not have said what it had to say when it ended."""
        back = self.trouble(provisioning_class, now) is not None
        back |= provisioning_class not in self._said
        began = self._began.setdefault(provisioning_class, {})
        if beat.since is not None and began.get(beat.instance) != beat.since:
            back = True
            if len(began) >= INSTANCES_MAX:
                began.clear()
            began[beat.instance] = beat.since
        self._last[provisioning_class] = now
        self._said[provisioning_class] = beat
        return back

    def slept(self, now: float) -> None:
        """We heard nobody for a while: everybody gets the time of three heartbeats."""
        self._last = dict.fromkeys(self._last, now)

    def trouble(self, provisioning_class: str, now: float) -> str | None:
        """Why nobody provides that class; None: somebody does, or never said so."""
        last = self._last.get(provisioning_class)
        if last is None:
            return None
        if now - last >= self._patience:
            return f"the provider of {provisioning_class} is not heard of any more"
        said = self._said.get(provisioning_class)
        if said is not None and not said.active:
            return said.message or f"the provider of {provisioning_class} says it is not ready"
        return None

    def knows(self, provisioning_class: str) -> bool:
        """It has sent one before."""
        return provisioning_class in self._last

    def classes(self) -> list[str]:
        """All that ever sent one."""
        return list(self._last)

    def next_loss(self, now: float) -> float | None:
        """When the next one will count as down if it stays silent."""
        times = (last + self._patience for last in self._last.values())
        return min((time for time in times if time > now), default=None)
