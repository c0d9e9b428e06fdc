"""The withdrawn callback: called when a judgement has ended, until it succeeds once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog

from admittance.checks.memory import Desk, Identity, Memory, names_of
from admittance.checks.request import Withdrawal

PAUSE_MIN: Final = 1.0
PAUSE_MAX: Final = 60.0

log = structlog.get_logger()


class Freeing:
    """``callback`` None: there is nothing to call, and deliveries are just acknowledged. ``start``
    starts what takes its time."""

    def __init__(
        self,
        desk: Desk,
        memory: Memory,
        callback: Callable[[Withdrawal], Awaitable[None]] | None,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._desk = desk
        self._memory = memory
        self._callback = callback
        self._start = start
        self._under_way: dict[tuple[Identity, str], list[str]] = {}

    def free(
        self, identity: Identity, reason: str, reply: str, *, after: asyncio.Task[None] | None
    ) -> None:
        """Calls the callback once for that reason, after that task, and acknowledges reply then."""
        what = (identity, reason)
        known = self._memory.of(identity)
        if self._callback is None or (known is not None and reason in known.freed):
            self._desk.done(reply)
        elif what in self._under_way:
            self._under_way[what].append(reply)
        else:
            self._under_way[what] = [reply]
            self._start(self._free(self._callback, what, after))

    def hand_back(self) -> None:
        """Who has not succeeded yet is called by another replica."""
        for replies in self._under_way.values():
            for reply in replies:
                self._desk.again(reply)

    async def _free(
        self,
        callback: Callable[[Withdrawal], Awaitable[None]],
        what: tuple[Identity, str],
        after: asyncio.Task[None] | None,
    ) -> None:
        if after is not None:
            # First what books, then what frees.
            await asyncio.wait([after])
        identity, reason = what
        withdrawal = Withdrawal(**identity._asdict(), reason=reason)
        pause = PAUSE_MIN
        while True:
            try:
                await callback(withdrawal)
                break
            except Exception:
                log.exception(
                    "withdrawn_callback_failed", again_seconds=pause, **names_of(identity)
                )
                for reply in self._under_way[what]:
                    self._desk.let_wait(reply)
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX)
        self._memory.freed(identity, reason)
        for reply in self._under_way.pop(what):
            self._desk.done(reply)
