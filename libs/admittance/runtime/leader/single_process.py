"""Keeps a second process from running as an instance that runs already.

A process that was killed leaves its liveness key, its epochs and perhaps messages on their way
behind, all under the name of the instance; so these do not show that it lives. A live process
answers when it is asked, a dead one cannot: its subscription went with its connection.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Final

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from admittance.events.names import token
from admittance.events.subjects import ALIVE_INSTANCE
from admittance.events.system import Alive
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError, Unavailable

ANSWER_SECONDS: Final = 1.0
"""How long another process may take to answer; asked is only where a name is used again."""
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)

_encode = msgspec.json.Encoder().encode
_alive = msgspec.json.Decoder(Alive)


class SingleProcess:
    """This process as an instance of a service. ``id`` tells it from all others that ever run
    under the name; of two, that of the younger one is the greater."""

    def __init__(self, bus: Bus, service: str, instance: str) -> None:
        self._bus = bus
        self._service = service
        self._instance = instance
        self._subject = f"{ALIVE_INSTANCE}{token(service)}.{token(instance)}"
        self._answering: Subscription | None = None
        self.id = f"{clock.now():%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"

    async def begin(self) -> None:
        """Answers for the instance from now on. Raises SetupError when another process does."""
        if await self._other():
            raise self._refusal()
        self._answering = await self._bus.nc.subscribe(self._subject, cb=self._answer)

    async def check(self) -> None:
        """Asks again, after a sign of another process. Raises SetupError when there is one that is
        older; a younger one finds out for itself."""
        if self.id > await self._other() > "":
            raise self._refusal()

    async def end(self) -> None:
        """Answers no more."""
        subscription, self._answering = self._answering, None
        if subscription is not None:
            with suppress(Exception):
                await subscription.unsubscribe()

    async def _other(self) -> str:
        """The id of another process that runs as this instance now; "" when none answers."""
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
