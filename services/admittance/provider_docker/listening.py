"""The engine's events, heard in a thread of their own: one that waits for the next event cannot be
asked to end, so nobody waits for the thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from admittance.provider_docker.engine import Engine


class Listening(threading.Thread):
    """Calls ``heard`` in the loop for each event; ``ended`` gets why there are no more."""

    def __init__(
        self,
        engine: Engine,
        installation: str,
        loop: asyncio.AbstractEventLoop,
        heard: Callable[[], None],
        ended: asyncio.Future[str],
    ) -> None:
        super().__init__(name="engine events", daemon=True)
        self._engine = engine
        self._installation = installation
        self._loop = loop
        self._heard = heard
        self._ended = ended

    def run(self) -> None:
        """Until the engine is away."""
        reason = "the engine ended them"
        try:
            self._engine.listen(self._installation, lambda: self._tell(self._heard))
        except Exception as error:  # whatever a client may raise: it is begun again
            reason = str(error)
        self._tell(lambda: None if self._ended.done() else self._ended.set_result(reason))

    def _tell(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(what)
