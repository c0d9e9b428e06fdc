"""The expected starts that a session has read: a page does not wait for a forecast that takes long,
and shows those of the answer before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from admittance.client import Client
from admittance.client.errors import ClientError
from admittance.events.requests.forecast import StartForecast
from admittance.runtime.tasks import BackgroundTasks

WAIT_SECONDS: Final = 0.08
"""How long a page waits for the newest answer."""
STARTS_MAX: Final = 2_000
"""The most starts that a session keeps."""


class KeptStarts:
    """The expected starts of the workloads that one session has shown last, by
    ``namespace/name``."""

    def __init__(self, client: Client, wait_seconds: float = WAIT_SECONDS) -> None:
        self._client = client
        self._wait_seconds = wait_seconds
        self._starts: dict[str, StartForecast] = {}
        self._asking = BackgroundTasks()

    async def of(self, names: Mapping[str, Sequence[str]]) -> Mapping[str, StartForecast]:
        """The expected starts of workloads. ``names``: their names by namespace. Those of the
        newest answer, or if it takes longer than the page waits, those of the answer before; none
        if the forecast service does not run, starts just now, or may not be asked."""
        asked = [
            self._asking.get((namespace, *of))
            or self._asking.start(self._ask(namespace, of), name="starts", key=(namespace, *of))
            for namespace, of in names.items()
        ]
        if asked:
            await asyncio.wait(asked, timeout=self._wait_seconds)
        return dict(self._starts)

    async def close(self) -> None:
        """Ends the questions."""
        await self._asking.end()

    async def _ask(self, namespace: str, names: Sequence[str]) -> None:
        try:
            found = (await self._client.forecast(names, namespace=namespace)).starts
        except ClientError:
            found = {}
        for name in names:
            self._starts.pop(f"{namespace}/{name}", None)
        self._starts |= {f"{namespace}/{name}": start for name, start in found.items()}
        for key in list(self._starts)[: max(0, len(self._starts) - STARTS_MAX)]:
            del self._starts[key]
