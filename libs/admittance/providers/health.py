"""Whether a provider can provide capacity at all: reasons why it is inactive, and heartbeats.

While any reason is known, every class of the provider is inactive, and no request fails for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from admittance.providers.provider import Provider

log = structlog.get_logger()


class InactiveReasons:
    """The reasons why some classes are inactive, by what does not work. The classes' message lists
    all of them."""

    def __init__(self, providers: Iterable[Provider]) -> None:
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
