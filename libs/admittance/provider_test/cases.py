"""What is tried with a provider: every case, in order."""

from __future__ import annotations

from collections.abc import Mapping

from admittance.provider_test.asking import Asking
from admittance.provider_test.form import Asked
from admittance.provider_test.mishaps import Mishaps
from admittance.provider_test.report import TITLES
from admittance.provider_test.taking_back import TakingBack
from admittance.runtime import clock
from admittance.trials.cases import Attempt
from admittance.trials.report import FAILED, PASSED


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
