"""How services follow the bucket: what is there, and from then on what changes."""

from __future__ import annotations

from collections.abc import Callable

from simulation.actors.service import Service
from simulation.kernel import Signal
from simulation.link import Feed
from simulation.stream import Stored


class BucketReader:
    """Reads the keys that are wanted. ``come``: set when something came that was not taken yet."""

    def __init__(self, service: Service, wants: Callable[[str], bool]) -> None:
        self._service = service
        self._wants = wants
        self._buffer: list[Stored] = []
        self._feed: Feed | None = None
        self.come = Signal()

    def begin(self) -> list[Stored]:
        """What is there, oldest first; changes are heard from here on. To be asked of the
        server."""
        bucket = self._service.server.bucket
        self._feed = Feed(self._service.link, bucket, self._wants, self._heard)
        return [one for one in sorted(bucket.last.values()) if self._wants(one.subject)]

    def _heard(self, stored: Stored) -> None:
        self._buffer.append(stored)
        self.come.set()

    def changes(self) -> list[Stored]:
        """What came since they were taken last. What comes from here on sets ``come``."""
        self.come.clear()
        entries, self._buffer = self._buffer, []
        return entries

    def close(self) -> None:
        """Hears no more."""
        if self._feed is not None:
            self._feed.close()
