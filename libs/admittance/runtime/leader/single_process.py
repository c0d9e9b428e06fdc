"""Finds other processes that run with the instance name of this process."""

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
from admittance.runtime.errors import BusUnavailable, SetupError

ANSWER_SECONDS: Final = 1.0
"""Longest wait for an answer of another process with the same instance name. A process asks other
processes only at its start and after a sign of another process.
"""
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)

_encode = msgspec.json.Encoder().encode
_alive = msgspec.json.Decoder(Alive)


class SingleProcess:
    """Makes sure that this process is the only one of its service instance. ``id`` is unique among
    all processes of the instance; a process that starts later has a greater id.
    """

    def __init__(self, bus: Bus, service: str, instance: str) -> None:
        self._bus = bus
        self._service = service
        self._instance = instance
        self._subject = f"{ALIVE_INSTANCE}{token(service)}.{token(instance)}"
        self._answering: Subscription | None = None
        self.id = f"{clock.now():%Y%m%dT%H%M%S%f}-{chance.token_hex(4)}"

    async def begin(self) -> None:
        """Starts to answer other processes that ask whether the instance name is in use. Raises
        SetupError if another process answers for the same instance.
        """
        if await self._other():
            raise self._refusal()
        self._answering = await self._bus.nc.subscribe(self._subject, cb=self._answer)

    async def check(self) -> None:
        """Asks again whether another process answers for the instance, after a sign of one. Raises
        SetupError if an older process answers; a younger process ends itself.
        """
        if self.id > await self._other() > "":
            raise self._refusal()

    async def end(self) -> None:
        """Stops answering other processes that ask whether the instance runs."""
        subscription, self._answering = self._answering, None
        if subscription is not None:
            with suppress(Exception):
                await subscription.unsubscribe()

    async def _other(self) -> str:
        """The id of another process that runs with the name of this instance; empty if no process
        answers."""
        question = _encode(self._alive())
        with suppress(BusUnavailable, *UNREADABLE):
            answer = await self._bus.request(self._subject, question, timeout=ANSWER_SECONDS)
            return _alive.decode(answer).process
        return ""

    async def _answer(self, question: Msg) -> None:
        if not question.reply:
            return
        with suppress(*UNREADABLE):
            if _alive.decode(question.data).process == self.id:
                return
        await self._bus.publish_unacknowledged((question.reply, _encode(self._alive())))

    def _alive(self) -> Alive:
        return Alive(service=self._service, instance=self._instance, process=self.id)

    def _refusal(self) -> SetupError:
        return SetupError(
            f"another process runs as {self._service} instance {self._instance}: "
            "give each its own ADMIT_INSTANCE"
        )
