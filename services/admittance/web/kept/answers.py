"""Equal pages of one session that ask again after the same change share one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.responses import Response

from admittance.runtime.tasks import BackgroundTasks


class SharedAnswers:
    """The answers of a session that are being made. Only those are shared, and only for one
    ``moment`` of the session's stream: an answer that began before a change may lack it."""

    def __init__(self) -> None:
        self._making = BackgroundTasks(lambda *_: None)  # Those that wait get the error.

    async def of(
        self, url: str, moment: tuple[int, int], make: Callable[[], Coroutine[Any, Any, Response]]
    ) -> Response:
        """The answer to a request; raises what ``make`` raises. Each request gets a copy, because
        middleware changes the headers of an answer."""
        key = (url, moment)
        making = self._making.get(key) or self._making.start(make(), name="answer", key=key)
        return _copy(await asyncio.shield(making))


def _copy(answer: Response) -> Response:
    copy = Response(answer.body, answer.status_code)
    copy.raw_headers = list(answer.raw_headers)
    return copy
