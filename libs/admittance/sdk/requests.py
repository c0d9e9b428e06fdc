"""What is asked of a program: heard through its durable, held as long as it is worked on.

The durable is made by the workload-controller, when a manifest names the program; a role outside
the services never makes one. Until it is there we ask again and again. A delivery is acknowledged
when its answer is on the log; until then the server is told every few seconds that it is worked on,
and what this process leaves unfinished comes again, to whichever replica asks next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from admittance.events.subjects import STREAM
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.connection import Headers, text_of
from admittance.runtime.bus.pull_consumer import PullConsumer, RawMessage

if TYPE_CHECKING:
    from admittance.runtime.bus.connection import Subscription

PROGRESS_SECONDS: Final = 7.0
"""How often the server is told. What it is not told about for 30 s comes again."""
ABSENT_PAUSE_MAX: Final = 2.0
ABSENT_TOLD: Final = 30.0
"""Seconds between two lines of the log about a durable that is not there."""
DONE: Final = b"+ACK"
WORKING: Final = b"+WPI"
NEVER: Final = b"+TERM"

log = structlog.get_logger()


class Heard(NamedTuple):
    """A message for the program. ``reply`` names its delivery; empty: it came by the way, and
    is nobody's to acknowledge."""

    subject: str
    data: bytes
    headers: Headers
    reply: str


class Asked(NamedTuple):
    """Where a program hears what it is asked. ``durable``: of the log. ``beside``: the subject that
    every replica listens to all the same, since the one that gets the delivery need not be the one
    that works on it. ``absent``: why the durable may not be there, for the log."""

    durable: str
    beside: str
    absent: str


class Hearing:
    """Deliveries of one program. ``receive`` gets each message, and must not block; whoever took
    it says `done`, `again` or `never` in the end.

    ``room``: how many deliveries this process holds at most, but for those that it was told to
    `let_wait`.
    """

    def __init__(
        self,
        bus: Bus,
        asked: Asked,
        receive: Callable[[Heard], None],
        *,
        room: int,
        progress_seconds: float | None = None,
    ) -> None:
        """``progress_seconds``: how often the server is told; None: `PROGRESS_SECONDS`."""
        self._bus = bus
        self._asked = asked
        self._receive = receive
        self._pull = PullConsumer(bus, STREAM, self._find, self._on_delivery, batch=room)
        self._beside: Subscription | None = None
        self._held: dict[str, float] = {}
        self._resting: set[str] = set()
        self._out: list[tuple[str, bytes]] = []
        self._sending: asyncio.Task[None] | None = None
        self._told_absent = 0.0
        self._progress = progress_seconds
        self._room = room

    @property
    def held(self) -> int:
        """Deliveries that nothing has become of yet."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """No delivery is asked for before one of those that are held is settled, or rests."""
        return len(self._held) - len(self._resting) >= self._room

    async def start(self) -> None:
        """Asks for what is there, and listens."""
        self._beside = await self._bus.nc.listen(self._asked.beside, self._on_beside)
        await self._pull.start()

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done with the error when nothing can be heard any more."""
        return self._pull.failed

    async def keep(self) -> None:
        """Tells the server what is still worked on, for ever."""
        while True:
            pause = (self._progress or PROGRESS_SECONDS) / 2
            await asyncio.sleep(pause)
            now = clock.monotonic()
            late = [reply for reply, at in self._held.items() if now - at >= pause]
            for reply in late:
                self._held[reply] = now
                self._send(reply, WORKING)

    async def drain(self) -> None:
        """Asks for no more. What is on its way is still received."""
        await self._pull.drain()

    async def stop(self) -> None:
        """Hears nothing any more; what was said of deliveries is sent."""
        await self._pull.stop()
        if self._beside is not None:
            await self._bus.nc.deafen(self._beside)
        while self._sending is not None:
            await asyncio.wait([self._sending])

    # What becomes of a delivery. ----------------------------------------------------------

    def done(self, reply: str) -> None:
        """It is dealt with."""
        self._settle(reply, DONE)

    def never(self, reply: str) -> None:
        """Nobody can deal with it; it is not to come again."""
        self._settle(reply, NEVER)

    def again(self, reply: str, delay_seconds: float = 0.0) -> None:
        """Somebody else is to deal with it, soon."""
        delay = b' {"delay": %d}' % int(delay_seconds * 1e9) if delay_seconds else b""
        self._settle(reply, b"-NAK" + delay)

    def let_wait(self, reply: str) -> None:
        """It is not worked on for a while, so another one may come beside it."""
        if reply in self._held and reply not in self._resting:
            self._resting.add(reply)
            self._pull.taken(1)

    def _settle(self, reply: str, word: bytes) -> None:
        if self._held.pop(reply, None) is None:
            return
        if reply in self._resting:
            self._resting.discard(reply)
        else:
            self._pull.taken(1)
        self._send(reply, word)

    def _send(self, reply: str, word: bytes) -> None:
        self._out.append((reply, word))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._flush())

    async def _flush(self) -> None:
        # One that gets lost is no harm: the delivery comes again, and is recognised.
        try:
            while self._out:
                out, self._out = self._out, []
                await self._bus.tell(*out)
        finally:
            self._sending = None

    # What comes in. -----------------------------------------------------------------------

    def _on_delivery(self, raw: RawMessage) -> None:
        reply = raw.reply.decode()
        self._held[reply] = clock.monotonic()
        self._receive(Heard(text_of(raw.subject), raw.data, Headers(raw.headers), reply))

    def _on_beside(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes) -> None:
        self._receive(Heard(text_of(subject), data, Headers(headers), ""))

    async def _find(self) -> str:
        name = self._asked.durable
        absent = self._pull.nobody
        if absent:
            if clock.monotonic() - self._told_absent >= ABSENT_TOLD or not self._told_absent:
                self._told_absent = clock.monotonic()
                log.warning(
                    "waits_for_its_durable",
                    durable=name,
                    reason=self._asked.absent,
                )
            await asyncio.sleep(min(0.05 * 2 ** min(absent, 8), ABSENT_PAUSE_MAX))
        elif self._told_absent:
            self._told_absent = 0.0
        return name
