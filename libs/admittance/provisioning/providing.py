"""Which classes of capacity somebody provides at the moment, as far as providers tell. Pure.

A class that ever sent a heartbeat counts as down when three in a row are missing; one that never
did counts as served. Times are monotonic seconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from admittance.api.checks import (
    AdmissionCheck,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
)
from admittance.api.queues import ResourceFlavor
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


CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
GROUP: Final = "kueue.x-k8s.io"
KIND: Final = "ProvisioningRequestConfig"


class Trouble(NamedTuple):
    """Why a check cannot be evaluated: a reason of its Active condition, and a sentence."""

    reason: str
    message: str


class Configured:
    """``checks``: those of our controller. ``down``: why the providers of classes are away."""

    def __init__(self) -> None:
        self.checks: dict[str, AdmissionCheck] = {}
        self.configs: dict[str, ProvisioningRequestConfig] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.down: dict[str, str] = {}

    def config_of(self, check: str) -> ProvisioningRequestConfigSpec | None:
        """What the check asks for; None: nobody can tell, see `trouble`."""
        found = self.checks.get(check)
        reference = found.spec.parameters if found is not None else None
        if reference is None or (reference.api_group, reference.kind) != (GROUP, KIND):
            return None
        config = self.configs.get(reference.name)
        return config.spec if config is not None else None

    def trouble(self, check: str) -> Trouble | None:
        """Why the check cannot be evaluated; None: it can."""
        found = self.checks.get(check)
        if found is None:
            return Trouble("NotFound", f"AdmissionCheck {check} doesn't exist")
        reference = found.spec.parameters
        if reference is None:
            return Trouble("BadParametersRef", f"{check} names no parameters: a {KIND} is wanted")
        if (reference.api_group, reference.kind) != (GROUP, KIND):
            told = f"{reference.kind}.{reference.api_group}"
            return Trouble("BadParametersRef", f"parameters are a {told}: a {KIND} is wanted")
        config = self.configs.get(reference.name)
        if config is None:
            return Trouble("BadParametersRef", f"{KIND} {reference.name} doesn't exist")
        why = self.down.get(config.spec.provisioning_class_name)
        return Trouble("ProviderDown", why) if why is not None else None
