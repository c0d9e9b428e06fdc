"""Lists and watches the ProvisioningRequests of this installation.

When a watch ends, the next watch continues from the last resource version. If this version has
expired, the objects are listed again. While the API server does not answer, calls are repeated. The
watch always reports the latest state of each object; it may miss earlier states.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import structlog

from admittance.backoff import Backoff
from admittance.provider_kubernetes.cluster import (
    REQUESTS,
    STEPS,
    Cluster,
    ClusterDenied,
    ClusterUnavailable,
    Outdated,
    Unauthorized,
)
from admittance.provider_kubernetes.objects import Seen, seen_of
from admittance.runtime.telemetry.object_faults import faults

PAUSE_MIN: Final = 0.2
PAUSE_MAX: Final = 10.0
DELETED_MAX: Final = 10_000

log = structlog.get_logger()


class ObjectWatch:
    """Lists and watches the ProvisioningRequests. ``seen``: the last known state of each
    ProvisioningRequest, by the id of the request for capacity. ``on_change`` is called with the
    request id of each changed object; ``on_listed`` is called after each listing of the objects.
    ``on_health`` is called with "" when the API server answers, and with the error when the API
    server has not answered for ``away_seconds``.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str | None,
        selector: str,
        *,
        on_change: Callable[[str], None],
        on_listed: Callable[[], None],
        on_health: Callable[[str], None],
        away_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._selector = selector
        self._on_change = on_change
        self._on_listed = on_listed
        self._on_health = on_health
        self._away_seconds = away_seconds
        self._last_answer = 0.0
        most = min(PAUSE_MAX, max(away_seconds / 2, PAUSE_MIN))
        self._backoff = Backoff(PAUSE_MIN, most)
        self._version: str | None = None
        """The resource version from which the next watch starts; None if the objects must be listed
        first.
        """
        self.seen: dict[str, Seen] = {}
        self._deleted_uids: dict[str, None] = {}
        """The uids of the objects that were deleted most recently, so that `note` does not add
        these objects again.
        """
        self.listing = False
        """Whether a listing of the objects is being applied, so that a reported change comes from
        the listing."""

    def note(self, seen: Seen) -> None:
        """Adds an object that was just made or read, unless the watch knows a newer state of the
        object, or that it was deleted.
        """
        known = self.seen.get(seen.id)
        if (known is None or known.uid != seen.uid) and seen.uid not in self._deleted_uids:
            self._put(seen)

    def gone(self, request_id: str) -> None:
        """Removes the object of a request, because a read has just shown that the cluster no longer
        has the object."""
        known = self.seen.get(request_id)
        if known is not None:
            self._drop(known)

    async def run(self) -> None:
        """Lists and watches the objects until cancelled."""
        self._last_answer = asyncio.get_running_loop().time()
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                await self._watch(self._version)
            except Outdated as error:
                log.info("watch_outdated", reason=str(error))
                self._version = None
                await self._wait(PAUSE_MIN)
            except ClusterUnavailable as error:
                patience = 0.0 if isinstance(error, Unauthorized) else self._away_seconds
                await self._wait_for_server(str(error), patience, error.after)
            except ClusterDenied as error:
                # The provider lacks a right, or the cluster lacks the kind ProvisioningRequest: an
                # administrator has to add what is missing.
                await self._wait_for_server(f"{self._cluster.server}: {error}", 0.0, None)
            except Exception as error:
                # An unexpected object must not end the process: the next process would list it,
                # too.
                reason = faults.record(STEPS.service, "read objects", "the cluster", error)
                self._version = None
                # The server answers, so the pauses would not grow.
                await self._wait_for_server(f"{self._cluster.server}: {reason}", 0.0, PAUSE_MAX)

    async def _list(self) -> str:
        manifests, version = await self._cluster.list(REQUESTS, self._namespace, self._selector)
        self._answered()
        listed = {
            seen.id: seen for manifest in manifests if (seen := seen_of(manifest)) is not None
        }
        self.listing = True
        try:
            for id in self.seen.keys() - listed.keys():
                del self.seen[id]
                self._on_change(id)
            for seen in listed.values():
                self._put(seen)
        finally:
            self.listing = False
        log.info("listed", requests=len(listed), version=version)
        self._on_listed()
        return version

    async def _watch(self, version: str) -> None:
        watch = self._cluster.watch(REQUESTS, self._namespace, self._selector, version)
        async with aclosing(watch) as events:
            async for kind, manifest in events:
                self._answered()
                metadata = manifest.get("metadata") or {}
                self._version = str(metadata.get("resourceVersion", "")) or self._version
                seen = seen_of(manifest)
                if kind == "BOOKMARK" or seen is None:
                    continue
                if kind == "DELETED":
                    self._drop(seen)
                else:
                    self._put(seen)
        self._answered()
        # The pause between two watches matters only if the API server ends every watch immediately.
        await self._wait(PAUSE_MIN)

    def _put(self, seen: Seen) -> None:
        if self.seen.get(seen.id) != seen:
            self.seen[seen.id] = seen
            self._on_change(seen.id)

    def _drop(self, seen: Seen) -> None:
        self._deleted_uids[seen.uid] = None
        if len(self._deleted_uids) > DELETED_MAX:
            del self._deleted_uids[next(iter(self._deleted_uids))]
        known = self.seen.get(seen.id)
        if known is not None and known.uid == seen.uid:
            del self.seen[seen.id]
            self._on_change(seen.id)

    def _answered(self) -> None:
        self._last_answer = asyncio.get_running_loop().time()
        self._backoff.reset()
        self._on_health("")

    async def _wait_for_server(self, message: str, patience: float, after: float | None) -> None:
        silent = asyncio.get_running_loop().time() - self._last_answer
        if silent >= patience:
            self._on_health(message)
        else:
            log.warning("cluster_unavailable", reason=message, seconds=round(silent, 1))
        pause = self._backoff.next()
        await self._wait(after if after is not None else pause)

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 60.0))
