"""Prevents that a second process runs under the name of a running instance.

A killed process leaves its heartbeat, its epochs and perhaps messages on their way, all under the
name of the instance, so these do not prove that it is alive. A live process answers a request; a
dead one cannot, because its subscription ended with its connection.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from admittance.events.names import token
from admittance.events.subjects import ALIVE_INSTANCE
from admittance.events.system import Alive
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError, Unavailable

ANSWER_SECONDS: Final = 1.0
"""Longest wait for an answer. Only a start, or a sign of another process, sends the request."""
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)

_encode = msgspec.json.Encoder().encode
_alive = msgspec.json.Decoder(Alive)


class SingleProcess:
    """This process as an instance of a service. ``id`` is unique among all processes of the
    instance; a later process has a greater id."""

    def __init__(self, bus: Bus, service: str, instance: str) -> None:
        self._bus = bus
        self._service = service
        self._instance = instance
        self._subject = f"{ALIVE_INSTANCE}{token(service)}.{token(instance)}"
        self._answering: Subscription | None = None
        self.id = f"{clock.now():%Y%m%dT%H%M%S%f}-{chance.token_hex(4)}"

    async def begin(self) -> None:
        """Starts to answer for the instance. Raises SetupError if another process answers."""
        if await self._other():
            raise self._refusal()
        self._answering = await self._bus.nc.subscribe(self._subject, cb=self._answer)

    async def check(self) -> None:
        """Asks again, after a sign of another process. Raises SetupError if an older process
        answers; a younger one ends itself."""
        if self.id > await self._other() > "":
            raise self._refusal()

    async def end(self) -> None:
        """Stops answering."""
        subscription, self._answering = self._answering, None
        if subscription is not None:
            with suppress(Exception):
                await subscription.unsubscribe()

    async def _other(self) -> str:
        """The id of another process that runs as this instance; empty without an answer."""
        question = _encode(self._alive())
        with suppress(Unavailable, *UNREADABLE):
            answer = await self._bus.request(self._subject, question, timeout=ANSWER_SECONDS)
            return _alive.decode(answer).process
        return ""

    async def _answer(self, question: Msg) -> None:
        if not question.reply:
            return
        with suppress(*UNREADABLE):
            if _alive.decode(question.data).process == self.id:
                return
        await self._bus.tell((question.reply, _encode(self._alive())))

    def _alive(self) -> Alive:
        return Alive(service=self._service, instance=self._instance, process=self.id)

    def _refusal(self) -> SetupError:
        return SetupError(
            f"another process runs as {self._service} instance {self._instance}: "
            "give each its own ADMIT_INSTANCE"
        )
