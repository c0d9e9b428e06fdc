"""Stores the statuses that providers outside keep of their requests.

A provider outside publishes on ``$KV.admittance_providers.<class>.<request>`` as if it wrote to the
bucket. With one header of nats-server, such a message could empty the bucket, which has the
bookings of all classes. So the border between the accounts renames the subject, and only headers
about the key itself reach the bucket. The provider gets the answer of the bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from admittance.events.subjects import PROVIDER_STATUSES, PROVIDERS
from admittance.runtime.bus.bucket import OPERATION, TTL
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.nats.jetstream import EXPECTED, MESSAGE_ID, Outgoing
from admittance.runtime.nats.protocol import parse_headers, text_of
from admittance.runtime.tasks import BackgroundTasks, cancel_and_wait

STATUSES: Final = f"{PROVIDER_STATUSES}*.*"
PASSED: Final = (EXPECTED, MESSAGE_ID, OPERATION, TTL)
"""The headers that reach the bucket."""
ANSWER_SECONDS: Final = 5.0
"""Longest wait for the answer of the bucket: a provider without an answer writes again."""
OPEN_MAX: Final = 1000
"""How many writes wait for their answers at once; further writes get no answer."""


class StatusRelay:
    """Writes to the bucket what providers outside publish. All instances of the service share this
    work, as the queue group ``group``: it has no state."""

    def __init__(self, bus: Bus, group: str) -> None:
        self._bus = bus
        self._group = group
        self._open = BackgroundTasks()

    async def run(self) -> None:
        """Passes statuses on, until cancelled."""
        subscription = await self._bus.nc.listen(STATUSES, self._on_status, queue=self._group)
        try:
            await asyncio.Event().wait()
        finally:
            await self._bus.nc.unlisten(subscription)
            for task in self._open:
                await cancel_and_wait(task)

    def _on_status(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if len(self._open) >= OPEN_MAX:
            return
        key = text_of(subject).removeprefix(PROVIDER_STATUSES)
        given = parse_headers(headers)
        kept = {name: value for name, value in given.items() if name in PASSED}
        self._open.start(self._store(key, text_of(reply), data, kept), name=key)

    async def _store(self, key: str, reply: str, data: bytes, headers: Mapping[str, str]) -> None:
        message = Outgoing(f"$KV.{PROVIDERS}.{key}", data, headers)
        answer: dict[str, object]
        try:
            sequence = await self._bus.publish(message, timeout=ANSWER_SECONDS)
            answer = {"stream": f"KV_{PROVIDERS}", "seq": sequence}
        except BusRefused as error:
            about = {"code": 400, "err_code": error.code, "description": error.description}
            answer = {"error": about}
        except (BusUnavailable, ValueError):
            return  # The provider gets no answer and writes again.
        if reply:
            await self._bus.publish_unacknowledged((reply, msgspec.json.encode(answer)))
