"""What is tried with a provider, case by case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from admittance.provider_test.form import Asked, Told, content_of
from admittance.provider_test.querying import reply_faults
from admittance.provider_test.report import FAILED, KIT, NOT_APPLICABLE, PASSED
from admittance.provider_test.stand import Said, Stand
from admittance.runtime import clock
from admittance.trials import cases
from admittance.trials.cases import Attempt
from admittance.trials.program import START_SECONDS, Program

BURST: Final = 100
GRACE: Final = 1.0
"""Seconds in which a status may still be on its way when its request was taken back."""
WATCH: Final = 2.0
"""Seconds that a request is watched at least, of which nothing is expected."""
CLEAR_SECONDS: Final = 5.0
"""How long what is taken back after a case may take."""
ACK_WAIT: Final = 6.0
"""Seconds until the durable says again what nobody acknowledged."""
ENDS: Final = frozenset({"provisioned", "failed"})
BABBLE: Final = (b"", b"{", b"[]", b'"x"', b"{}", b'{"id": 7}', b"\xff\xfe", b'{"podSets": null}')


class Way(NamedTuple):
    """How a provider is tried. ``program``: if we started it. ``restart``: of the server, if it is
    ours. ``room``: for how many requests it has capacity; 0: nobody knows. ``wrong``: parameters
    that it must refuse; None: nobody knows any."""

    program: Program | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    room: int = 0
    wrong: Mapping[str, str] | None = None


class Trial(cases.Trial[Asked, Told]):
    """Cases with one provider. Each takes back what it asked for, so that the next one finds all
    capacity free."""

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

    async def _ask_first(self, times: int) -> Asked:
        [asked] = await self._stand.ask("answers.1", attempt=1 + times)
        return asked

    def _cases(self) -> Mapping[str, Attempt]:
        return {
            case: self._cleared(attempt)
            for case, attempt in {
                "twice": self._twice,
                "attempt": self._attempt,
                "unknown-id": self._unknown_id,
                "cancelled": self._cancelled,
                "overtaken": self._overtaken,
                "unknown-parameters": self._unknown_parameters,
                "wrong-parameters": self._wrong_parameters,
                "unknown-fields": self._unknown_fields,
                "deadline": self._deadline,
                "garbage": self._garbage,
                "burst": self._burst,
                "killed": self._killed,
                "restart": self._restart,
                "frees": self._frees,
                "query": self._query,
            }.items()
        }

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
            await self._pass(GRACE + self._answers_after)
            return True
        now = await self._settled(seconds or CLEAR_SECONDS)
        return now is not None and not (now[0] or now[1])

    async def leave(self) -> None:
        """Takes everything back before it is told to end: what it booked, it frees."""
        if self._runs():
            await self._clear()

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

    async def _goes_on(self, case: str, after: str, seconds: float = 0.0) -> bool:
        """Whether it answers one more request; told if not. ``seconds``: until what was asked
        before is taken back, if that is a lot."""
        await self._clear(seconds)
        [asked] = await self._stand.ask(f"{case}.after")
        if await self._answered(asked):
            return True
        self._put(case, FAILED, f"after {after} it answered nothing more")
        return False

    # The cases. ---------------------------------------------------------------------------

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

    async def _twice(self) -> None:
        [asked] = await self._stand.ask("twice.1")
        if not await self._ended(asked):
            self._put("twice", FAILED, f"no end within {self._timeout:g} s")
            return
        await self._stand.ask_again(asked)
        await self._heard_all()
        await self._quiet()
        why = self._contradiction(asked)
        self._put("twice", FAILED if why else PASSED, *([why] if why else []))

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

    async def _attempt(self) -> None:
        [first] = await self._stand.ask("attempt.1")
        await self._ended(first)
        await self._clear()
        [second] = await self._stand.ask("attempt.1", attempt=2)
        if await self._ended(second):
            self._put("attempt", PASSED)
        else:
            why = f"nothing about the request {second.id} within {self._timeout:g} s"
            self._put("attempt", FAILED, f"{why}, after one of an attempt before was taken back")

    async def _unknown_id(self) -> None:
        asked = await self._stand.cancel_unknown("unknown-id.1")
        acknowledged = await self._heard_all()
        if not await self._goes_on("unknown-id", "such a cancellation"):
            return
        words = self._stand.words(asked)
        if not acknowledged:
            self._put("unknown-id", FAILED, "it did not acknowledge such a cancellation")
        elif words:
            why = f"said {words[-1]} of a request that was only taken back"
            self._put("unknown-id", FAILED, why)
        else:
            self._put("unknown-id", PASSED)

    async def _cancelled(self) -> None:
        """Once when it has answered, and once before it can have, if it takes its time."""
        answered, asked = await self._stand.ask("cancelled.1", "cancelled.2")
        patience = self._timeout + 2 * self._answers_after
        known: dict[Asked | None, float] = {}
        for one in (asked, answered):
            if one == answered:
                await self._answered(answered)
            await self._stand.cancel(one, reason="Preempted")
            # Only then it has heard of it: one that does one thing at a time may have been busy.
            await self._heard_all(patience)
            known[one] = clock.monotonic()
        await self._pass(max(WATCH, 2 * self._answers_after + GRACE))
        for said in self._stand.about(answered, asked):
            since = said.at - known[said.asked]
            if said.told is not None and said.told.word == "provisioned" and since > GRACE:
                why = f"said provisioned {since:.1f} s after it heard that the request was taken"
                self._put("cancelled", FAILED, f"{why} back: nobody frees that any more")
                return
        self._put("cancelled", PASSED)

    async def _overtaken(self) -> None:
        """As when whoever heard of the request died, and the next one hears of its end first."""
        asked = await self._stand.cancel_unknown("overtaken.1")
        await self._heard_all()
        await self._stand.ask_again(asked)
        await self._heard_all(self._timeout)
        await self._quiet()
        if "provisioned" in self._stand.words(asked):
            # What it has booked is to be freed all the same.
            await self._stand.cancel(asked, reason="Preempted")
            why = "said provisioned of a request that had been taken back: nobody frees that"
            self._put("overtaken", FAILED, why)
        else:
            self._put("overtaken", PASSED)

    async def _unknown_parameters(self) -> None:
        more = {**self._stand.shape.parameters, "providerTestUnknown": "x"}
        [asked] = await self._stand.ask("unknown-parameters.1", parameters=more)
        answered = await self._ended(asked)
        if not await self._goes_on("unknown-parameters", "such a request"):
            return
        if not answered:
            why = f"no answer to such a request within {self._timeout:g} s"
            self._put("unknown-parameters", FAILED, why)
        elif self.usual != "failed" and self._may_be_retried(asked):
            why = "failed, and did not say retryable: false; it will be asked the same again"
            self._put("unknown-parameters", FAILED, why)
        else:
            self._put("unknown-parameters", PASSED)

    async def _wrong_parameters(self) -> None:
        if self._way.wrong is None:
            why = "give it parameters that must fail: --wrong"
            self._put("wrong-parameters", NOT_APPLICABLE, why)
            return
        [asked] = await self._stand.ask("wrong-parameters.1", parameters=self._way.wrong)
        if not await self._ended(asked):
            why = f"no answer to such a request within {self._timeout:g} s"
            self._put("wrong-parameters", FAILED, why)
        elif self._end(asked) != "failed":
            self._put("wrong-parameters", FAILED, f"answered {self._end(asked)} to such a request")
        elif self._may_be_retried(asked):
            why = "failed, and did not say retryable: false; it will be asked the same again"
            self._put("wrong-parameters", FAILED, why)
        else:
            self._put("wrong-parameters", PASSED)

    def _may_be_retried(self, asked: Asked) -> bool:
        """It failed, and said no word of that being for good."""
        failed = [one.told for one in self._stand.about(asked) if one.told is not None]
        return any(one.word == "failed" and getattr(one.fact, "retryable", True) for one in failed)

    async def _unknown_fields(self) -> None:
        more = {"providerTestUnknown": {"a": [1, None, "x"]}}
        [asked] = await self._stand.ask("unknown-fields.1", more=more)
        answered = await self._ended(asked)
        if not await self._goes_on("unknown-fields", "such a request"):
            return
        if not answered:
            why = f"no answer to such a request within {self._timeout:g} s"
            self._put("unknown-fields", FAILED, why)
        elif self._end(asked) != self.usual:
            why = f"answered {self._end(asked)} to such a request, and {self.usual} to others"
            self._put("unknown-fields", FAILED, why)
        else:
            self._put("unknown-fields", PASSED)

    async def _deadline(self) -> None:
        past = clock.now() - timedelta(hours=1)
        [asked] = await self._stand.ask("deadline.1", more={"deadline": past})
        await self._heard_all(self._timeout)
        await self._quiet()
        if "provisioned" in self._stand.words(asked):
            why = "said provisioned an hour after the deadline: nobody waits for that any more"
            self._put("deadline", FAILED, why)
        elif await self._goes_on("deadline", "such a request"):
            self._put("deadline", PASSED)

    async def _garbage(self) -> None:
        await self._stand.babble("garbage.1", BABBLE)
        if await self._goes_on("garbage", "bytes that are no request"):
            self._put("garbage", PASSED)

    async def _burst(self) -> None:
        began = clock.monotonic()
        asked = await self._stand.ask(*(f"burst.{number}" for number in range(BURST)))
        # No slower than one by one; what was lost is not waited for long.
        patience = self._timeout + min(2 * BURST * self._answers_after, 10 * self._timeout)
        await self._answered(*asked, seconds=patience)
        count = len({one.asked for one in self._stand.about(*asked)})
        took = clock.monotonic() - began
        goes_on = await self._goes_on(
            "burst", f"{BURST} requests at once", self._timeout + 2 * took
        )
        if count < BURST:
            why = f"{count} of {BURST} requests at once were answered within {took:.1f} s"
            self._put("burst", FAILED, why if goes_on else f"{why}, and none after them")
        elif goes_on:
            self._put("burst", PASSED)

    async def _killed(self) -> None:
        program = self._way.program
        if program is None:
            why = "it was not started here: give its command"
            self._put("killed", NOT_APPLICABLE, why)
            return
        [before] = await self._stand.ask("killed.1")
        await self._ended(before)
        # Killed right when it was asked, and asked while it is away.
        [during] = await self._stand.ask("killed.2")
        await self._stand.until(
            lambda: bool(self._stand.words(during)), min(0.2, self._answers_after / 2)
        )
        await program.kill()
        [away] = await self._stand.ask("killed.3")
        await program.start()
        patience = START_SECONDS + ACK_WAIT + self._timeout
        for asked, when in ((away, "while it was away"), (during, "right before it was killed")):
            if not await self._ended(asked, seconds=patience):
                why = f"what it was asked {when} was not answered within {patience:g} s"
                self._put("killed", FAILED, why)
                return
        await self._stand.ask_again(before, during)
        await self._heard_all(self._timeout + ACK_WAIT)
        await self._quiet()
        found = [why for one in (before, during, away) if (why := self._contradiction(one))]
        self._put("killed", FAILED if found else PASSED, *found[:1])

    async def _restart(self) -> None:
        if self._way.restart is None:
            why = "the server is not ours to restart: try it --embedded"
            self._put("restart", NOT_APPLICABLE, why)
            return
        await self._way.restart()
        [asked] = await self._stand.ask("restart.1")
        patience = self._timeout + START_SECONDS
        if await self._answered(asked, seconds=patience):
            self._put("restart", PASSED)
        else:
            why = f"nothing within {patience:g} s after the server had been away"
            self._put("restart", FAILED, why if self._runs() else "it ended with the server")

    async def _frees(self) -> None:
        room = self._way.room
        if not room:
            why = "say for how many such requests it has capacity: --room"
            self._put("frees", NOT_APPLICABLE, why)
            return
        held = await self._stand.ask(*(f"frees.{number}" for number in range(1, room)))
        await self._ended(*held)
        # One that books again what it hears again has no room for the last of them.
        await self._stand.ask_again(*held)
        await self._heard_all()
        held += await self._stand.ask("frees.last")
        await self._ended(*held)
        got = sum(self._end(one) == "provisioned" for one in held)
        if got < room:
            why = f"{got} of {room} requests were provisioned: it has no room for so many, "
            self._put("frees", FAILED, f"{why}booked one twice, or did not free one of before")
            return
        [beyond] = await self._stand.ask("frees.beyond")
        await self._ended(beyond, seconds=WATCH)
        if self._end(beyond) == "provisioned":
            self._put("frees", FAILED, f"it has room for more than {room} such requests: --room")
            return
        await self._stand.cancel(beyond, held[0], reason="Preempted")
        await self._heard_all()
        deadline = clock.monotonic() + self._timeout
        number = 0
        while clock.monotonic() < deadline:
            number += 1
            [asked] = await self._stand.ask(f"frees.again.{number}")
            await self._ended(asked, seconds=max(0.1, deadline - clock.monotonic()))
            if self._end(asked) == "provisioned":
                self._put("frees", PASSED)
                return
            await self._stand.cancel(asked, reason="Preempted")
            await self._pass(GRACE / 2)
        why = f"a request was taken back, and no other one got its room within {self._timeout:g} s"
        self._put("frees", FAILED, why)

    async def _query(self) -> None:
        unknown = await self._stand.query("provider-test/unknown/1/1")
        if unknown is None:
            why = "it answers no questions: what it was asked lies in its durable anyway"
            self._put("query", NOT_APPLICABLE, why)
            return
        found = reply_faults("provider-test/unknown/1/1", unknown, {""}, known=False)
        [asked] = await self._stand.ask("query.1")
        await self._ended(asked)
        await self._quiet()
        found += reply_faults(asked.id, await self._stand.query(asked.id), {self._end(asked)})
        await self._stand.cancel(asked, reason="Preempted")
        await self._heard_all()
        over = {"", "cancelled", "failed"}
        found += reply_faults(asked.id, await self._stand.query(asked.id), over)
        self._put("query", FAILED if found else PASSED, *found[: cases.DETAILS_MAX])
