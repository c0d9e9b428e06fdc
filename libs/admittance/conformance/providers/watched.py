"""What every case about a provider needs: to wait for it, and to find all of its capacity free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Final, NamedTuple

from admittance.conformance import cases
from admittance.conformance.cases import Attempt
from admittance.conformance.program import Program
from admittance.conformance.providers.form import Asked, Told, content_of
from admittance.conformance.providers.report import KIT
from admittance.conformance.providers.stand import Said, Stand
from admittance.conformance.report import FAILED

CLEAR_SECONDS: Final = 5.0
"""How long what is taken back after a case may take."""
ENDS: Final = frozenset({"provisioned", "failed"})


class Way(NamedTuple):
    """How a provider is tested. ``program``: if the test started it. ``restart``: restarts the
    test's own server. ``room``: the requests it has capacity for; 0 if unknown. ``wrong``:
    parameters that it must refuse; None if unknown."""

    program: Program | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    room: int = 0
    wrong: Mapping[str, str] | None = None


class Watched(cases.Trial[Asked, Told]):
    """One provider, asked and watched. Cases about one subject are a class made of it."""

    def __init__(
        self,
        stand: Stand,
        way: Way,
        *,
        timeout: float,
        patience: float,
        only: Collection[str] = (),
    ) -> None:
        program = way.program
        super().__init__(
            KIT,
            stand,
            timeout=timeout,
            patience=patience,
            only=only,
            runs=lambda: program is None or program.runs(),
        )
        self._stand = stand
        self._way = way

    def _content(self, said: Said) -> Hashable:
        return content_of(said.told) if said.told is not None else said.data

    def _shown(self, said: Said) -> str:
        assert said.asked is not None and said.told is not None, "only those are counted"
        return f"said {said.told.word} %s about one request of {said.asked.name}"

    # Between cases. -----------------------------------------------------------------------

    def _cleared(self, attempt: Attempt) -> Attempt:
        async def run() -> None:
            try:
                await attempt()
            finally:
                await self._clear()

        return run

    async def _clear(self, seconds: float = 0.0) -> bool:
        """Takes everything back; whether that was acknowledged in time."""
        await self._stand.take_back()
        return await self._heard_all(seconds or CLEAR_SECONDS)

    async def _heard_all(self, seconds: float = 0.0) -> bool:
        """Waits until all was acknowledged; whether it was. One that listens plainly gets as long
        as it may take."""
        now = await self._stand.deliveries()
        if now is not None and not self._stand.delivered(now):
            await self._pass(cases.GRACE + self._answers_after)
            return True
        now = await self._settled(seconds or CLEAR_SECONDS)
        return now is not None and not (now[0] or now[1])

    async def leave(self) -> None:
        """Takes everything back before it is told to end: what it booked, it frees."""
        if self._runs():
            await self._clear()

    # How a request ended. -----------------------------------------------------------------

    async def _ended(self, *asked: Asked, seconds: float = 0.0) -> bool:
        """Waits until each of asked is provisioned or failed."""

        def all_are() -> bool:
            return all(ENDS & set(self._stand.words(one)) for one in asked)

        def settled() -> bool:
            return all_are() or not self._runs()

        return await self._stand.until(settled, seconds or self._timeout) and all_are()

    def _end(self, asked: Asked) -> str:
        """How it ended: provisioned or failed; "": not yet."""
        ends = [word for word in self._stand.words(asked) if word in ENDS]
        return ends[-1] if ends else ""

    def _contradiction(self, asked: Asked) -> str:
        """How its answers to one request contradict each other; "": they do not."""
        ends = [
            one.told
            for one in self._stand.about(asked)
            if one.told is not None and one.told.word in ENDS
        ]
        words = [one.word for one in ends]
        if len(set(words)) > 1:
            return f"said {', then '.join(words)} about one request"
        for one in ends[1:]:
            if one.fact.details != ends[0].fact.details:
                before, now = dict(ends[0].fact.details), dict(one.fact.details)
                return f"booked twice: the details were {before}, and {now} when asked again"
        return ""

    async def _goes_on(self, case: str, after: str, seconds: float = 0.0) -> bool:
        """Whether it answers one more request; told if not. ``seconds``: until what was asked
        before is taken back, if that is a lot."""
        await self._clear(seconds)
        [asked] = await self._stand.ask(f"{case}.after")
        if await self._answered(asked):
            return True
        self._put(case, FAILED, f"after {after} it answered nothing more")
        return False
