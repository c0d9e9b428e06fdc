"""Reasons why a provider can provide no capacity, for instance missing rights.

While at least one reason is recorded, all provisioning classes of the provider are inactive, and
capacity requests wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable

import structlog

from admittance.providers.provider import Provider

log = structlog.get_logger()


class InactiveReasons:
    """The reasons why a provider's provisioning classes are inactive, by the thing that does not
    work. The message of an inactive class lists all reasons.
    """

    def __init__(self, providers: Iterable[Provider]) -> None:
        self._providers = tuple(providers)
        self._known: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, what: str) -> bool:
        return what in self._known

    def begin(self, what: str, reason: str) -> None:
        """Adds a reason why the classes are inactive, until `end` is called for ``what``. The
        reason replaces an earlier reason for ``what``, the thing that does not work.
        """
        if self._known.get(what) == reason:
            return
        if what not in self._known:
            log.error("inactive", what=what, reason=reason)
        self._known[what] = reason
        self._update_providers()

    def end(self, what: str) -> None:
        """Removes the reason that was recorded for ``what``, because that thing works again."""
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
    """Keeps a provider's provisioning classes inactive while the system behind the provider, such
    as AWS or Kubernetes, denies a right. Requests do not fail because of a missing right: they wait
    until the right is back.
    """

    def __init__(self, reasons: InactiveReasons) -> None:
        self._reasons = reasons
        self._missing: dict[Hashable, str] = {}
        self._probes: dict[Hashable, Callable[[], Awaitable[bool]]] = {}
        self._any = asyncio.Event()

    def blocks(self, right: Hashable) -> bool:  # noqa: ARG002  (subclasses use it)
        """Whether the provider's classes must be inactive while this right is missing."""
        return True

    def lacks(
        self, right: Hashable, reason: str, probe: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Records that a right of the provider is missing. ``probe``: asks the system behind the
        provider whether the right is back; None: the caller must call `has` after its next call
        that succeeds.
        """
        self._missing[right] = reason
        if probe is not None:
            self._probes[right] = probe
            self._any.set()
        self.update()

    def has(self, right: Hashable) -> None:
        """Records that a right of the provider is no longer missing."""
        self._missing.pop(right, None)
        self._probes.pop(right, None)
        self._reasons.end(str(right))
        self.update()

    def update(self) -> None:
        """Gives the provider's classes a reason for each missing right for which `blocks` is true,
        and removes the reasons of other rights.
        """
        for right, reason in self._missing.items():
            if self.blocks(right):
                self._reasons.begin(str(right), reason)
            else:
                self._reasons.end(str(right))

    async def look(self) -> None:
        """Calls the probe of each missing right, and records the rights that are back."""
        for right, probe in list(self._probes.items()):
            if await probe():
                self.has(right)

    async def run(self, seconds: float) -> None:
        """Probes the missing rights every ``seconds``, until cancelled: perhaps no request waits
        that would show that a right is back.
        """
        while True:
            await self._any.wait()
            await asyncio.sleep(seconds)
            await self.look()
            if not self._probes:
                self._any.clear()
