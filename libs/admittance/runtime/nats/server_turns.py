"""The order in which a client tries servers after it has lost its connection."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import inf


class ServerTurns:
    """Lets servers take turns; a server that was just tried is not tried again for
    ``wait_seconds``.
    """

    def __init__(self, wait_seconds: float) -> None:
        self._wait = wait_seconds
        self._turns: dict[str, int] = {}
        """By server, the number of its last turn since the loss."""
        self._turn = count(2)
        self._tried: dict[str, float] = {}
        """By server, when the last attempt began or failed."""
        self._last = ""
        """The server of the last attempt since the loss."""

    def lost(self, server: str) -> None:
        """Begins anew after the loss of a server, which gets the last turn: a paused server accepts
        connections without serving them.
        """
        self._turns, self._last = {server: 1}, ""

    def next(self, servers: Sequence[str], now: float) -> tuple[str, float]:
        """The server of the next attempt, of ``servers`` in their order, and the seconds before it.
        The attempt before has failed, if there was one since the loss. ``now``: monotonic seconds.
        """
        if self._last:
            self._tried[self._last] = now
        server = min(servers, key=lambda server: self._turns.get(server, 0))
        pause = self._wait if now < self._tried.get(server, -inf) + self._wait else 0.0
        self._turns[server] = next(self._turn)
        self._tried[server] = now + pause
        self._last = server
        return server, pause
