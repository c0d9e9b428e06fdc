"""Equal pages of one session share the answer after a change."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import HTMLResponse, Response

from admittance.web.kept.answers import SharedAnswers


class Pages:
    """Makes answers. ``made``: how many; ``ready``: set when they may end."""

    def __init__(self, error: Exception | None = None) -> None:
        self.made = 0
        self.ready = asyncio.Event()
        self._error = error

    async def make(self) -> Response:
        self.made += 1
        number = self.made
        await self.ready.wait()
        if self._error is not None:
            raise self._error
        return HTMLResponse(f"{number}", 404)


async def test_requests_for_one_address_share_the_answer_of_one_change() -> None:
    shared, pages = SharedAnswers(), Pages()
    asked = [("/", (7, 0)), ("/", (7, 0)), ("/queues", (7, 0)), ("/", (7, 1)), ("/", (8, 0))]
    waiting = [asyncio.create_task(shared.of(url, moment, pages.make)) for url, moment in asked]
    await asyncio.sleep(0)
    pages.ready.set()
    first, second, *others = await asyncio.gather(*waiting)
    assert (first.body, first.status_code) == (second.body, second.status_code) == (b"1", 404)
    assert [other.body for other in others] == [b"2", b"3", b"4"]
    first.headers["content-encoding"] = "gzip"
    assert "content-encoding" not in second.headers
    assert second.headers["content-type"] == "text/html; charset=utf-8"
    assert (await shared.of("/", (7, 0), pages.make)).body == b"5"


async def test_an_error_reaches_every_request_and_a_request_that_ends_stops_no_other() -> None:
    shared, pages = SharedAnswers(), Pages(ValueError("broken"))
    gone, first, second = (
        asyncio.create_task(shared.of("/", (0, 0), pages.make)) for _ in range(3)
    )
    await asyncio.sleep(0)
    gone.cancel()
    pages.ready.set()
    for waiting in (first, second):
        with pytest.raises(ValueError, match="broken"):
            await waiting
    assert pages.made == 1
