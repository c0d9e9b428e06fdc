"""What is tried with a controller, case by case.

Times follow the controller: how long it takes for its first answer tells how long it may take for
others. ``timeout`` bounds each wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final

from admittance.conformance import cases
from admittance.conformance.cases import Attempt
from admittance.conformance.checks.form import Asked
from admittance.conformance.checks.report import KIT
from admittance.conformance.checks.stand import FIRST_CYCLE, Said, Stand
from admittance.conformance.report import FAILED, NOT_APPLICABLE, PASSED
from admittance.events.facts import CheckReported
from admittance.runtime import clock

FLOOD: Final = 200


class Trial(cases.Trial[Asked, CheckReported]):
    """Cases with one controller."""

    def __init__(
        self,
        stand: Stand,
        *,
        timeout: float,
        patience: float,
        only: Collection[str] = (),
        runs: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(KIT, stand, timeout=timeout, patience=patience, only=only, runs=runs)
        self._stand = stand

    async def _ask_first(self, times: int) -> Asked:
        [asked] = await self._stand.ask("answers.1", cycle=FIRST_CYCLE + times)
        return asked

    def _cases(self) -> Mapping[str, Attempt]:
        return {
            "new-cycle": self._new_cycle,
            "twice": self._twice,
            "withdrawn": self._withdrawn,
            "late-retry": self._late_retry,
            "unknown-parameters": self._unknown_parameters,
            "unknown-fields": self._unknown_fields,
            "flood": self._flood,
        }

    def _content(self, said: Said) -> Hashable:
        return said.data

    def _repeated(self, said: Said) -> Hashable:
        assert said.told is not None, "only those are counted"
        return said.asked, said.told.state, said.told.message

    def _shown(self, said: Said) -> str:
        assert said.asked is not None and said.told is not None, "only those are counted"
        return f"said {said.told.state} %s about one cycle of {said.asked.name}"

    # The cases. ---------------------------------------------------------------------------

    async def _answers(self) -> bool:
        if not await self._first_answer():
            return False
        # Once more, since the first time it may have been started meanwhile.
        began = clock.monotonic()
        [again] = await self._stand.ask("answers.2")
        if not await self._answered(again):
            self._put("answers", FAILED, "it answered one request, and not the next one")
            return False
        self._answers_after = clock.monotonic() - began
        await self._quiet()
        self.usual = self._stand.states(again)[-1]
        self._put("answers", PASSED)
        return True

    async def _new_cycle(self) -> None:
        [first] = await self._stand.ask("new-cycle.1")
        await self._answered(first)
        await self._stand.withdraw([first], "Preempted")
        [second] = await self._stand.ask("new-cycle.1", cycle=FIRST_CYCLE + 1)
        if not await self._answered(second):
            why = f"nothing about cycle {second.cycle} within {self._timeout:g} s"
            self._put("new-cycle", FAILED, why)
            return
        wrong = {
            one.told.cycle
            for one in self._stand.about(second)
            if one.told is not None and one.told.cycle != second.cycle
        }
        if wrong:
            said = ", ".join(map(str, sorted(wrong)))
            why = f"asked in cycle {second.cycle}, it answered for cycle {said}"
            self._put("new-cycle", FAILED, why)
        else:
            self._put("new-cycle", PASSED)

    async def _twice(self) -> None:
        [asked] = await self._stand.ask("twice.1")
        await self._stand.ask("twice.1")
        if not await self._answered(asked):
            self._put("twice", FAILED, f"nothing within {self._timeout:g} s")
            return
        await self._quiet()
        final = [state for state in self._stand.states(asked) if state != "Pending"]
        if len(set(final)) > 1:
            self._put("twice", FAILED, f"said {', then '.join(final)} about one cycle")
        else:
            self._put("twice", PASSED)

    async def _withdrawn(self) -> None:
        """Once when it has answered, and once before it can have, if it takes its time."""
        answered, asked = await self._stand.ask("withdrawn.1", "withdrawn.2")
        await self._stand.withdraw([asked], "Preempted")
        at = clock.monotonic()
        await self._answered(answered)
        await self._pass(cases.GRACE)
        await self._stand.withdraw([answered], "Preempted")
        again = clock.monotonic()
        # As long as it took to answer, and again as long for what it may do beside.
        await self._pass(max(cases.WATCH, 2 * self._answers_after + cases.GRACE))
        for one in self._stand.about(answered, asked):
            known = at + cases.GRACE if one.asked == asked else again
            if _is_ready(one) and one.at > known:
                since = one.at - (at if one.asked == asked else again)
                why = f"said Ready {since:.1f} s after the request was withdrawn"
                self._put("withdrawn", FAILED, why)
                return
        if any(_is_ready(one) for one in self._stand.about(asked)):
            why = "it answers faster than a request can be withdrawn"
            self._put("withdrawn", NOT_APPLICABLE, why)
        else:
            self._put("withdrawn", PASSED)

    async def _late_retry(self) -> None:
        [asked] = await self._stand.ask("late-retry.1")
        await self._stand.withdraw([asked], "AdmissionCheck")
        if self.usual != "Retry":
            why = f"with these parameters it says {self.usual}, not Retry"
            self._put("late-retry", NOT_APPLICABLE, why)
            return
        if await self._stand.until(
            lambda: "Retry" in self._stand.states(asked), self._timeout + 2 * self._answers_after
        ):
            self._put("late-retry", PASSED)
        else:
            self._put(
                "late-retry",
                FAILED,
                "withdrawn with the reason AdmissionCheck it said no Retry any more: its delay "
                "is lost, and the workload competes again before it makes sense",
            )

    async def _unknown_parameters(self) -> None:
        known = self._stand.parameters
        if known is not None and not isinstance(known, dict):
            self._put("unknown-parameters", NOT_APPLICABLE, "its parameters are no object")
            return
        more = {**(known or {}), "checkTestUnknown": {"a": [1, None, "x"]}}
        await self._tolerates("unknown-parameters", {"parameters": more})

    async def _unknown_fields(self) -> None:
        await self._tolerates("unknown-fields", {"checkTestUnknown": {"a": [1, None, "x"]}})

    async def _tolerates(self, case: str, more: dict[str, object]) -> None:
        [asked] = await self._stand.ask(f"{case}.1", more=more)
        answered = await self._answered(asked)
        [after] = await self._stand.ask(f"{case}.2")
        if not await self._answered(after):
            self._put(case, FAILED, "after such a request it answered nothing more")
        elif not answered:
            self._put(case, FAILED, f"no answer to such a request within {self._timeout:g} s")
        else:
            await self._quiet()
            states = self._stand.states(asked)
            if states[-1] != self.usual and "Pending" not in (states[-1], self.usual):
                why = f"answered {states[-1]} to such a request, and {self.usual} to others"
                self._put(case, FAILED, why)
            else:
                self._put(case, PASSED)

    async def _flood(self) -> None:
        began = clock.monotonic()
        asked = await self._stand.ask(*(f"flood.{number}" for number in range(FLOOD)))
        await self._answered(*asked, seconds=self._timeout + 10 * self._answers_after)
        count = len({one.asked for one in self._stand.about(*asked)})
        took = clock.monotonic() - began
        await self._stand.withdraw(asked, "Deleted")
        [after] = await self._stand.ask("flood.after")
        alive = await self._answered(after)
        if count < FLOOD:
            why = f"{count} of {FLOOD} requests at once were answered within {took:.1f} s"
            self._put("flood", FAILED, why if alive else f"{why}, and none after them")
        elif not alive:
            self._put("flood", FAILED, f"after {FLOOD} requests at once it answered nothing more")
        else:
            self._put("flood", PASSED)


def _is_ready(said: Said) -> bool:
    return said.told is not None and said.told.state == "Ready"
