"""Whether a provider can provide capacity at all: reasons why it is inactive, and heartbeats.

While any reason is known, every class of the provider is inactive, and no request fails for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import structlog

from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.subjects import ALIVE_PROVISIONING
from admittance.events.system import ProviderAlive
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.sdk import heartbeats
from admittance.sdk.heartbeats import ChangeSignal

log = structlog.get_logger()


class ProviderState(Protocol):
    """The part of a `Provider` that heartbeats and health checks use."""

    @property
    def name(self) -> str: ...

    @property
    def activity(self) -> tuple[bool, str]: ...

    @property
    def changes(self) -> ChangeSignal: ...

    @property
    def understands(self) -> tuple[str, ...]: ...

    def inactive(self, message: str) -> None: ...

    def ready(self) -> None: ...


class InactiveReasons:
    """The reasons why some classes are inactive, by what does not work. The classes' message lists
    all of them."""

    def __init__(self, providers: Iterable[ProviderState]) -> None:
        self._providers = tuple(providers)
        self._known: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, what: str) -> bool:
        return what in self._known

    def begin(self, what: str, reason: str) -> None:
        """Adds a reason that holds until `end`, or replaces the earlier one of the same part."""
        if self._known.get(what) == reason:
            return
        if what not in self._known:
            log.error("inactive", what=what, reason=reason)
        self._known[what] = reason
        self._update_providers()

    def end(self, what: str) -> None:
        """Removes the reason of a part that works again."""
        if self._known.pop(what, None) is None:
            return
        if not self._known:
            log.info("active")
        self._update_providers()

    @property
    def message(self) -> str:
        """All reasons in one line; empty if there are no reasons."""
        return "; ".join(self._known.values())

    def _update_providers(self) -> None:
        for provider in self._providers:
            if self._known:
                provider.inactive(self.message)
            else:
                provider.ready()


async def beat(bus: Bus, provider: ProviderState, *, instance: str, seconds: float) -> None:
    """Publishes the provider's heartbeat every ``seconds`` and at each change, until cancelled."""
    since = clock.now()

    def heartbeat() -> bytes:
        active, message = provider.activity
        fact = ProviderAlive(
            time=clock.now(),
            instance=instance,
            since=since,
            active=active,
            message=heartbeats.shortened(message),
            parameters=provider.understands,
        )
        return encode(fact)

    subject = f"{ALIVE_PROVISIONING}{token(provider.name)}"
    await heartbeats.beat(bus, subject, provider.changes, heartbeat, seconds=seconds)
