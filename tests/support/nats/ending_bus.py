"""The bus of a process that ends in the middle of its work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusRefused


class ProcessEnded(Exception):
    """The process has ended."""


class EndingBus:
    """The bus of a process that ends before it sends the first message or request for which
    ``is_end`` is True: earlier messages of the same publication are stored. ``ended``: it has
    ended."""

    def __init__(self, bus: Bus, is_end: Callable[[str], bool]) -> None:
        self._bus = bus
        self._is_end = is_end
        self.ended = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish_all(
        self, messages: Sequence[Outgoing], **more: Any
    ) -> list[int | BusRefused]:
        sent: list[Outgoing] = []
        for message in messages:
            if self._is_end(message.subject):
                await self._bus.publish_all(sent, **more)
                self._end()
            sent.append(message)
        return await self._bus.publish_all(sent, **more)

    async def api(self, what: str, *args: Any, **more: Any) -> dict[str, Any]:
        if self._is_end(what):
            self._end()
        return await self._bus.api(what, *args, **more)

    def _end(self) -> None:
        self.ended.set()
        raise ProcessEnded
