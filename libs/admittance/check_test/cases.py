"""What is tried with a controller, case by case.

Times follow the controller: how long it takes for its first answer tells how long it may take for
others. ``timeout`` bounds each wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from admittance.check_test.form import Asked, quoted
from admittance.check_test.report import FAILED, NOT_APPLICABLE, PASSED, TITLES, Outcome, outcome
from admittance.check_test.stand import FIRST_CYCLE, Said, Stand
from admittance.runtime import clock

FLOOD: Final = 200
GRACE: Final = 1.0
"""Seconds in which a verdict may still be on its way when its request is withdrawn."""
WATCH: Final = 2.0
"""Seconds that a withdrawn request is watched at least."""
QUIET: Final = 1.0
"""Seconds without a word after which nothing more is expected."""
BEAT: Final = 10.5
ASKED_AGAIN: Final = 5.0
"""Seconds after which the very first question is asked again."""
REPEATS_MAX: Final = 20
FORMS: Final = ("json", "state", "names", "subject", "delay", "updates")
"""Cases that are about every message, whatever it was said in."""
DETAILS_MAX: Final = 3


class Trial:
    """Cases with one controller: all, or those in ``only``. ``patience``: seconds to wait for its
    very first answer. ``runs``: whether its process still does, as far as that is known."""

    def __init__(
        self,
        stand: Stand,
        *,
        timeout: float,
        patience: float,
        only: Collection[str] = (),
        runs: Callable[[], bool] = lambda: True,
    ) -> None:
        self._stand = stand
        self._timeout = timeout
        self._patience = patience
        self._only = frozenset(only) or frozenset(TITLES)
        self._runs = runs
        self._began = clock.monotonic()
        self._answers_after = 0.0
        self._outcomes: dict[str, Outcome] = {}
        self.usual = ""
        """The state that the first request was answered with in the end."""

    async def run(self, tell: Callable[[str], None]) -> list[Outcome]:
        """Tries everything; ``tell`` hears the title of what is tried now."""
        tell(TITLES["answers"])
        if not await self._answers():
            for case in TITLES:
                if case not in (*self._outcomes, "acknowledges", "heartbeat", "ends", *FORMS):
                    self._put(case, NOT_APPLICABLE, "it answered nothing")
        else:
            cases: dict[str, Callable[[], Awaitable[None]]] = {
                "new-cycle": self._new_cycle,
                "twice": self._twice,
                "withdrawn": self._withdrawn,
                "late-retry": self._late_retry,
                "unknown-parameters": self._unknown_parameters,
                "unknown-fields": self._unknown_fields,
                "flood": self._flood,
            }
            for case, attempt in cases.items():
                if case in self._only:
                    tell(TITLES[case])
                    await attempt()
        for case, attempt in {
            "acknowledges": self._acknowledges,
            "heartbeat": self._heartbeat,
        }.items():
            if case in self._only:
                tell(TITLES[case])
                await attempt()
        self._forms()
        wanted = self._only | {"answers"}
        return [self._outcomes[case] for case in TITLES if case in self._outcomes.keys() & wanted]

    def _put(self, case: str, word: str, *details: str) -> None:
        self._outcomes[case] = outcome(case, word, *details)

    async def _answered(self, *asked: Asked, seconds: float = 0.0) -> bool:
        """Waits until something was said about each of asked."""

        def all_are() -> bool:
            return {one.asked for one in self._stand.about(*asked)} >= set(asked)

        def settled() -> bool:
            return all_are() or not self._runs()

        return await self._stand.until(settled, seconds or self._timeout) and all_are()

    async def _quiet(self) -> None:
        """Waits until it says nothing more for a while, or says Pending and nothing else."""
        deadline = clock.monotonic() + self._timeout
        while clock.monotonic() < deadline:
            heard = len(self._stand.said)
            if not await self._more_than(heard):
                return

    async def _more_than(self, heard: int) -> bool:
        return await self._stand.until(lambda: len(self._stand.said) > heard, QUIET)

    # The cases. ---------------------------------------------------------------------------

    async def _first_answer(self) -> bool:
        """Whether it answers anything in time. It is asked again and again, since one that
        subscribes plainly does not hear what was asked before it listened."""
        asked: list[Asked] = []
        deadline = clock.monotonic() + self._patience
        while (left := deadline - clock.monotonic()) > 0 and self._runs():
            asked.extend(await self._stand.ask("answers.1", cycle=FIRST_CYCLE + len(asked)))
            if await self._stand.until(
                lambda: bool(self._stand.about(*asked)), min(left, ASKED_AGAIN)
            ):
                return True
        return False

    async def _answers(self) -> bool:
        if not await self._first_answer():
            if not self._runs():
                self._put("answers", FAILED, "it ended before it answered")
            elif self._stand.said:
                shown = quoted(self._stand.said[0].data)
                self._put("answers", FAILED, f"no verdict in what it said, as {shown}")
            else:
                self._put("answers", FAILED, f"silent: nothing within {self._patience:g} s")
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
            one.verdict.cycle
            for one in self._stand.about(second)
            if one.verdict is not None and one.verdict.cycle != second.cycle
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
        await self._stand.until(lambda: False, GRACE)
        await self._stand.withdraw([answered], "Preempted")
        again = clock.monotonic()
        # As long as it took to answer, and again as long for what it may do beside.
        await self._stand.until(lambda: False, max(WATCH, 2 * self._answers_after + GRACE))
        for one in self._stand.about(answered, asked):
            known = at + GRACE if one.asked == asked else again
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

    async def _acknowledges(self) -> None:
        await self._stand.withdraw_all("Deleted")
        now: tuple[int, int, int] | None = None
        deadline = clock.monotonic() + self._timeout + self._answers_after
        while clock.monotonic() < deadline:
            now = await self._stand.deliveries()
            if now is None or not (now[0] or now[1]):
                break
            await self._stand.until(lambda: False, 0.25)
        if now is None:
            self._put("acknowledges", FAILED, "its durable is gone")
        elif not self._stand.delivered(now):
            if self.usual:
                why = "it listens by a plain subscription: what is said while it is away is lost"
                self._put("acknowledges", NOT_APPLICABLE, why)
            else:
                self._put("acknowledges", FAILED, "it never asked its durable for anything")
        elif now[0]:
            why = f"{now[0]} requests are not acknowledged: they come again and again"
            self._put("acknowledges", FAILED, why)
        elif now[1]:
            self._put("acknowledges", FAILED, f"{now[1]} requests were never fetched")
        else:
            self._put("acknowledges", PASSED)

    async def _heartbeat(self) -> None:
        left = BEAT - (clock.monotonic() - self._began)
        await self._stand.until(lambda: self._stand.heartbeats > 0, max(0.0, left))
        found = _sentences(self._stand, "heartbeat")
        if found:
            self._put("heartbeat", FAILED, *found)
        elif not self._stand.heartbeats:
            why = "none was heard: it counts as active as long as it never says one"
            self._put("heartbeat", NOT_APPLICABLE, why)
        else:
            self._put("heartbeat", PASSED)

    # What all messages together show. -----------------------------------------------------

    def _forms(self) -> None:
        for case in FORMS:
            found = _sentences(self._stand, case)
            if found:
                self._put(case, FAILED, *found)
            elif not self._stand.said:
                self._put(case, NOT_APPLICABLE, "it said nothing")
            else:
                self._put(case, PASSED)
        if self._stand.said:
            self._message_ids()
            self._repeats()

    def _message_ids(self) -> None:
        contents: dict[str, set[bytes]] = defaultdict(set)
        for one in self._stand.said:
            if one.message_id:
                contents[one.message_id].add(one.data)
        shared = [one for one, said in contents.items() if len(said) > 1]
        if shared:
            why = f"said different things under the id {quoted(shared[0].encode())}: all but the "
            self._put("message-id", FAILED, f"{why}first are dropped")
        elif not contents:
            why = "no Nats-Msg-Id: a verdict that is published twice counts as two"
            self._put("message-id", NOT_APPLICABLE, why)
        else:
            self._put("message-id", PASSED)

    def _repeats(self) -> None:
        counts = Counter(
            (one.asked, one.verdict.state, one.verdict.message)
            for one in self._stand.said
            if one.asked is not None and one.verdict is not None
        )
        for (asked, state, _), count in counts.most_common(1):
            if asked is not None and count > REPEATS_MAX:
                why = f"said {state} {count} times about one cycle of {asked.name}"
                self._put("repeats", FAILED, why)
                return
        self._put("repeats", PASSED)


def _is_ready(said: Said) -> bool:
    return said.verdict is not None and said.verdict.state == "Ready"


def _sentences(stand: Stand, case: str) -> list[str]:
    """What is wrong about a case, each thing once, and not too many of them."""
    found = list(dict.fromkeys(one.sentence for one in stand.faults if one.case == case))
    if len(found) > DETAILS_MAX:
        return [*found[:DETAILS_MAX], f"and {len(found) - DETAILS_MAX} more like these"]
    return found
