"""Lists and watches the ProvisioningRequests of this installation.

A watch that ends continues from its last version; if that has expired, the objects are listed
again; while the server is away, calls are repeated. The latest state of each object is always seen;
states in between may be missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import structlog

from admittance.provider_kubernetes.cluster import (
    REQUESTS,
    Away,
    Cluster,
    Denied,
    Outdated,
    Unauthorized,
)
from admittance.provider_kubernetes.objects import Seen, seen_of

PAUSE_MIN: Final = 0.2
PAUSE_MAX: Final = 10.0
GONE_MAX: Final = 10_000

log = structlog.get_logger()


class Follower:
    """``seen``: objects by request id. ``changed``: called with the id of each changed object.
    ``listed``: called after each listing. ``healthy``: called with "" when the server answers, and
    with the error when it has not answered for ``away_seconds``."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str | None,
        selector: str,
        *,
        changed: Callable[[str], None],
        listed: Callable[[], None],
        healthy: Callable[[str], None],
        away_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._selector = selector
        self._changed = changed
        self._listed = listed
        self._healthy = healthy
        self._away_seconds = away_seconds
        self._last_answer = 0.0
        self._pause = PAUSE_MIN
        self._at: str | None = None
        """The version that the next watch starts from; None: list first."""
        self.seen: dict[str, Seen] = {}
        self._gone: dict[str, None] = {}
        """The uids deleted last."""
        self.listing = False
        """Changes now come from a listing; ``listed`` is called when it has ended."""

    def note(self, seen: Seen) -> None:
        """Adds an object that was just made or read, unless a newer state or its deletion is
        known."""
        known = self.seen.get(seen.id)
        if (known is None or known.uid != seen.uid) and seen.uid not in self._gone:
            self._put(seen)

    def gone(self, request_id: str) -> None:
        """The object was just read and does not exist."""
        known = self.seen.get(request_id)
        if known is not None:
            self._drop(known)

    async def run(self) -> None:
        """Follows until cancelled."""
        self._last_answer = asyncio.get_running_loop().time()
        while True:
            try:
                if self._at is None:
                    self._at = await self._list()
                await self._watch(self._at)
            except Outdated as error:
                log.info("watch_outdated", reason=str(error))
                self._at = None
                await self._wait(PAUSE_MIN)
            except Away as error:
                patience = 0.0 if isinstance(error, Unauthorized) else self._away_seconds
                await self._troubled(str(error), patience, error.after)
            except Denied as error:
                # A missing right or kind: an administrator has to fix it.
                await self._troubled(f"{self._cluster.server}: {error}", 0.0, None)

    async def _list(self) -> str:
        manifests, version = await self._cluster.list(REQUESTS, self._namespace, self._selector)
        self._answered()
        found = {seen.id: seen for one in manifests if (seen := seen_of(one)) is not None}
        self.listing = True
        try:
            for id in self.seen.keys() - found.keys():
                del self.seen[id]
                self._changed(id)
            for seen in found.values():
                self._put(seen)
        finally:
            self.listing = False
        log.info("listed", requests=len(found), version=version)
        self._listed()
        return version

    async def _watch(self, version: str) -> None:
        watch = self._cluster.watch(REQUESTS, self._namespace, self._selector, version)
        async with aclosing(watch) as events:
            async for kind, manifest in events:
                self._answered()
                metadata = manifest.get("metadata") or {}
                self._at = str(metadata.get("resourceVersion", "")) or self._at
                seen = seen_of(manifest)
                if kind == "BOOKMARK" or seen is None:
                    continue
                if kind == "DELETED":
                    self._drop(seen)
                else:
                    self._put(seen)
        self._answered()
        # A pause, in case the server ends every watch at once.
        await self._wait(PAUSE_MIN)

    def _put(self, seen: Seen) -> None:
        if self.seen.get(seen.id) != seen:
            self.seen[seen.id] = seen
            self._changed(seen.id)

    def _drop(self, seen: Seen) -> None:
        self._gone[seen.uid] = None
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        known = self.seen.get(seen.id)
        if known is not None and known.uid == seen.uid:
            del self.seen[seen.id]
            self._changed(seen.id)

    def _answered(self) -> None:
        self._last_answer = asyncio.get_running_loop().time()
        self._pause = PAUSE_MIN
        self._healthy("")

    async def _troubled(self, message: str, patience: float, after: float | None) -> None:
        silent = asyncio.get_running_loop().time() - self._last_answer
        if silent >= patience:
            # Reported once when it begins, not at every try.
            self._healthy(message)
        else:
            log.warning("cluster_away", reason=message, seconds=round(silent, 1))
        await self._wait(after if after is not None else self._pause)
        self._pause = min(2 * self._pause, PAUSE_MAX, max(self._away_seconds / 2, PAUSE_MIN))

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 60.0))
