"""The page of health: what `admit doctor` finds."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response

from admittance.client.health_report import HealthReport
from admittance.runtime import clock
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.system.health import build

AGAIN_SECONDS: Final = 10
"""An examination asks all services and takes a second, so that changes of the log begin none."""


class _Examined(NamedTuple):
    report: HealthReport
    until: float


class HealthPage:
    """The page, with the last examination of each session, since people see what their roles may
    see."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Session, _Examined] = WeakKeyDictionary()
        self._asking: WeakKeyDictionary[Session, asyncio.Lock] = WeakKeyDictionary()

    async def show(self, request: Request, session: Session) -> Response:
        """The page."""
        report = await self._report(session)
        now = clock.now()
        view = build(report, now)
        frame = Frame(
            title=view.title, as_of=now, at="/health", trouble=view.trouble, every=AGAIN_SECONDS
        )
        return page(request, "health.html", frame, view, session=session)

    async def _report(self, session: Session) -> HealthReport:
        """The last report, or a new one. Two open pages of a session ask once."""
        async with self._asking.setdefault(session, asyncio.Lock()):
            known = self._known.get(session)
            if known is None or clock.monotonic() >= known.until:
                report = await session.client.health()
                known = _Examined(report, clock.monotonic() + AGAIN_SECONDS)
                self._known[session] = known
        return known.report
