"""What stands in the way of every request: as long as there is any of it, the classes are inactive,
and it is nobody's fault who asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.subjects import ALIVE_PROVISIONING
from admittance.events.system import ProviderAlive
from admittance.providers.provider import Provider
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.sdk import heartbeats

if TYPE_CHECKING:
    from admittance.providers.provider import Provider


log = structlog.get_logger()


class Troubles:
    """Of some classes, each by what does not work. Who looks at the classes is told all of them."""

    def __init__(self, providers: Iterable[Provider]) -> None:
        self._providers = tuple(providers)
        self._known: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, what: str) -> bool:
        return what in self._known

    def begin(self, what: str, reason: str) -> None:
        """That does not work, for that reason, until `end` is called. May be said again."""
        if self._known.get(what) == reason:
            return
        if what not in self._known:
            log.error("inactive", what=what, reason=reason)
        self._known[what] = reason
        self._tell()

    def end(self, what: str) -> None:
        """That works, perhaps again."""
        if self._known.pop(what, None) is None:
            return
        if not self._known:
            log.info("active")
        self._tell()

    @property
    def message(self) -> str:
        """All of them; "": there is none."""
        return "; ".join(self._known.values())

    def _tell(self) -> None:
        for provider in self._providers:
            if self._known:
                provider.inactive(self.message)
            else:
                provider.ready()


async def beat(bus: Bus, provider: Provider, *, instance: str, seconds: float) -> None:
    """Says so often, and whenever it changes, how the provider is; for ever."""
    since = clock.now()

    def now() -> bytes:
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
    await heartbeats.beat(bus, subject, provider.changes, now, seconds=seconds)
