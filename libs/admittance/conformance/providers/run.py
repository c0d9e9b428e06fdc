"""A whole trial of a provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from admittance.conformance import run
from admittance.conformance.cases import Attempt
from admittance.conformance.program import OwnServer, Program
from admittance.conformance.providers.asking import Asking
from admittance.conformance.providers.cancelling import TakingBack
from admittance.conformance.providers.form import Asked
from admittance.conformance.providers.mishaps import Mishaps
from admittance.conformance.providers.report import KIT, TITLES, Report
from admittance.conformance.providers.stand import Shape, Stand
from admittance.conformance.providers.watched import Way
from admittance.conformance.report import FAILED, PASSED
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus


class Wanted(run.Wanted, frozen=True, kw_only=True):
    """The provider to test. ``room``: the requests of that shape it has capacity for; 0 if unknown.
    ``wrong``: parameters that it must refuse; None if unknown."""

    provisioning_class: str
    shape: Shape
    room: int = 0
    wrong: Mapping[str, str] | None = None


async def try_out(
    bus: Bus,
    url: str,
    wanted: Wanted,
    *,
    tell: Callable[[str], None],
    ready: Callable[[], None],
    server: OwnServer | None = None,
) -> Report:
    """Everything about one provider on that bus; `run.tried` has the rest. ``server``: where it is
    ours, so that it may be ended and started again. Raises SetupError."""
    stand = Stand(bus, wanted.provisioning_class, wanted.shape)

    async def restart() -> None:
        if server is not None:
            await server.restart(bus)

    def trial(program: Program | None, patience: float) -> Trial:
        return Trial(
            stand,
            Way(program, restart if server is not None else None, wanted.room, wanted.wrong),
            timeout=wanted.timeout,
            patience=patience,
            only=wanted.only,
        )

    found = await run.tried(KIT, stand, trial, wanted, url, tell=tell, ready=ready)
    return Report(provisioning_class=wanted.provisioning_class, **found._asdict())


class Trial(Asking, TakingBack, Mishaps):
    """Cases with one provider. Each takes back what it asked for, so that the next one finds all
    capacity free."""

    async def _ask_first(self, times: int) -> Asked:
        [asked] = await self._stand.ask("answers.1", attempt=1 + times)
        return asked

    def _cases(self) -> Mapping[str, Attempt]:
        found = {**self._of_asking(), **self._of_taking_back(), **self._of_mishaps()}
        return {case: self._cleared(found[case]) for case in TITLES if case in found}

    async def _answers(self) -> bool:
        if not await self._first_answer():
            return False
        # Once more, since the first time it may have been started meanwhile.
        await self._clear()
        began = clock.monotonic()
        [again] = await self._stand.ask("answers.2")
        if not await self._ended(again):
            if self._stand.words(again):
                said = self._stand.words(again)[-1]
                why = f"said {said}, and how it ended not within {self._timeout:g} s: --timeout"
                self._put("answers", FAILED, why)
            else:
                self._put("answers", FAILED, "it answered one request, and not the next one")
            return False
        self._answers_after = clock.monotonic() - began
        self.usual = self._end(again)
        await self._clear()
        self._put("answers", PASSED)
        return True
