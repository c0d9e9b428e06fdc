"""Reasons why a provider can provide no capacity, for instance missing rights.

While there is a reason, all classes of the provider are inactive, and requests wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable

import structlog

from admittance.providers.provider import Provider

log = structlog.get_logger()


class InactiveReasons:
    """The reasons why the provider's classes are inactive, each for one thing that does not work.
    The message of inactive classes lists all reasons.
    """

    def __init__(self, providers: Iterable[Provider]) -> None:
        self._providers = tuple(providers)
        self._known: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, what: str) -> bool:
        return what in self._known

    def begin(self, what: str, reason: str) -> None:
        """Adds a reason that holds until `end` is called; it replaces an earlier reason for the
        same thing.
        """
        if self._known.get(what) == reason:
            return
        if what not in self._known:
            log.error("inactive", what=what, reason=reason)
        self._known[what] = reason
        self._update_providers()

    def end(self, what: str) -> None:
        """Removes the reason recorded for a thing, because the thing works again."""
        if self._known.pop(what, None) is None:
            return
        if not self._known:
            log.info("active")
        self._update_providers()

    @property
    def message(self) -> str:
        """All recorded reasons in one line; "" if nothing is recorded."""
        return "; ".join(self._known.values())

    def _update_providers(self) -> None:
        for provider in self._providers:
            if self._known:
                provider.inactive(self.message)
            else:
                provider.ready()


class MissingRights:
    """Keeps the provider's classes inactive while the system behind the provider denies a right.
    Requests do not fail because of a missing right: they wait until the right is back.
    """

    def __init__(self, reasons: InactiveReasons) -> None:
        self._reasons = reasons
        self._missing: dict[Hashable, str] = {}
        self._probes: dict[Hashable, Callable[[], Awaitable[bool]]] = {}
        self._any = asyncio.Event()

    def blocks(self, right: Hashable) -> bool:  # noqa: ARG002  (subclasses use it)
        """Whether the provider's classes are inactive while this right is missing."""
        return True

    def lacks(
        self, right: Hashable, reason: str, probe: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Records that a right is missing. ``probe`` returns whether the right is back; without a
        probe, `has` must be called after the next call that succeeds.
        """
        self._missing[right] = reason
        if probe is not None:
            self._probes[right] = probe
            self._any.set()
        self.update()

    def has(self, right: Hashable) -> None:
        """Records that the right is no longer missing."""
        self._missing.pop(right, None)
        self._probes.pop(right, None)
        self._reasons.end(str(right))
        self.update()

    def update(self) -> None:
        """Makes the provider's classes inactive or active, as `blocks` says now."""
        for right, reason in self._missing.items():
            if self.blocks(right):
                self._reasons.begin(str(right), reason)
            else:
                self._reasons.end(str(right))

    async def look(self) -> None:
        """Probes all rights that are recorded as missing."""
        for right, probe in list(self._probes.items()):
            if await probe():
                self.has(right)

    async def run(self, seconds: float) -> None:
        """Probes the missing rights every ``seconds`` until cancelled, because perhaps no request
        waits that would show a right is back.
        """
        while True:
            await self._any.wait()
            await asyncio.sleep(seconds)
            await self.look()
            if not self._probes:
                self._any.clear()
