"""What was said of each request, kept where every replica and every restart finds it.

One key per class and request in a bucket of its own, written by expected revision: of two replicas
that work on one request only one gets to say anything, and whoever comes after a cancellation is
told.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from admittance.api.workload import Kept
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.reading import Reader, SetAside, Unreadable
from admittance.events.shapes import PodSetUpdate
from admittance.events.subjects import PROVIDERS
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import StaleRevision
from admittance.runtime.telemetry.set_aside import tell

CANCELLED: Final = "cancelled"
CANCELLED_SECONDS: Final = 7 * 86_400.0
"""How long it is remembered that a request was taken back: longer than anything is on its way."""


log = structlog.get_logger()


class Said(Kept, frozen=True, kw_only=True):
    """The last status of one request. ``status``: a word of the subjects; "": none yet;
    `CANCELLED`: it was taken back. ``seq``: of the last status; 0: none yet. ``by_helper``: the
    provider's author has said nothing yet; the helper has, that obtaining failed."""

    id: str
    namespace: str
    name: str
    uid: str = ""
    status: str = ""
    seq: int = 0
    message: str = ""
    details: dict[str, str] = msgspec.field(default_factory=dict)
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    retryable: bool = True
    retry_after: int | None = None
    by_helper: bool = False


read_said = Reader(Said)


class Found(NamedTuple):
    """What is kept, and its revision; ``said`` None: nothing."""

    said: Said | None
    revision: int


class Store:
    """What is kept of one class."""

    def __init__(self, bus: Bus, provisioning_class: str) -> None:
        self._bus = bus
        self._prefix = token(provisioning_class)

    def _key(self, request_id: str) -> str:
        return f"{self._prefix}.{hashlib.blake2b(request_id.encode(), digest_size=16).hexdigest()}"

    async def get(self, request_id: str) -> Found:
        """Raises Unavailable or Refused."""
        entry = await bucket.get(self._bus, self._key(request_id), bucket=PROVIDERS)
        if entry is None:
            return Found(None, 0)
        if entry.value is None:
            return Found(None, entry.revision)
        try:
            said = read_said(entry.value)
        except Unreadable as error:
            # Put there by another hand: it is written over.
            tell(SetAside(f"KV_{PROVIDERS}", entry.key, entry.revision, str(error)))
            return Found(None, entry.revision)
        # Another id of the same hash: as good as none, and kept apart by what its id says.
        return Found(said if said.id == request_id else None, entry.revision)

    async def put(self, said: Said, expected: int) -> int:
        """Its new revision. Raises StaleRevision when somebody else wrote since; Unavailable."""
        ttl = CANCELLED_SECONDS if said.status == CANCELLED else None
        message = bucket.put_message(
            self._key(said.id), encode(said), expected=expected, ttl_seconds=ttl, bucket=PROVIDERS
        )
        return await self._bus.publish(message)

    async def cancel(self, about: dict[str, Any]) -> Said | None:
        """Notes for good that the request was taken back; what was kept of it before."""
        while True:
            found = await self.get(about["id"])
            if found.said is not None and found.said.status == CANCELLED:
                return found.said
            before = found.said
            seq = before.seq if before is not None else 0
            try:
                await self.put(Said(**about, status=CANCELLED, seq=seq), found.revision)
            except StaleRevision:
                continue
            return before
