"""Facts published without waiting for each: the acknowledgements are counted as they come."""

from __future__ import annotations

import asyncio

import msgspec

from admittance.runtime import clock
from admittance.runtime.bus.bus import Ack, Bus
from admittance.runtime.bus.connection import frame

_ack = msgspec.json.Decoder(Ack)


class Speaker:
    """What the load says. `say` never waits; what is said within one turn of the loop leaves in
    one write.

    ``refused`` keeps the server's words for what it did not take; ``sequence`` is the newest one
    that it gave. What a broken connection loses is not said again: a benchmark that survives one
    would measure something else.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = f"{bus.nc.new_inbox()}.a"
        self._buffer: list[bytes] = []
        self._some = asyncio.Event()
        self.sent = 0
        self.acknowledged = 0
        self.sequence = 0
        self.refused: list[str] = []

    async def run(self) -> None:
        """Writes what was said, until cancelled."""
        subscription = await self._bus.nc.listen(self._inbox, self._on_ack)
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                blob = b"".join(self._buffer)
                self._buffer.clear()
                await self._bus.nc.send(blob)
        finally:
            await self._bus.nc.deafen(subscription)

    def say(self, subject: str, data: bytes) -> None:
        """Publishes data to the stream that takes subject, soon."""
        self._buffer.append(frame(subject, self._inbox, data, None))
        self.sent += 1
        self._some.set()

    @property
    def in_flight(self) -> int:
        """How many were said and not yet answered."""
        return self.sent - self.acknowledged

    async def quiet(self, timeout: float = 10.0) -> None:
        """Waits until everything said is answered. Raises TimeoutError."""
        deadline = clock.monotonic() + timeout
        while self.in_flight:
            if clock.monotonic() > deadline:
                raise TimeoutError(f"{self.in_flight} messages were never acknowledged")
            await asyncio.sleep(0.005)

    def _on_ack(self, _subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        self.acknowledged += 1
        if not data:
            self.refused.append("no stream takes the facts")
            return
        ack = _ack.decode(data)
        if ack.error is not None:
            self.refused.append(ack.error.description)
        elif ack.seq > self.sequence:
            self.sequence = ack.seq
