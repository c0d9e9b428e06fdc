"""Cases about what goes wrong around a provider: garbage, a burst, a crash, a server away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from admittance.conformance import cases
from admittance.conformance.cases import Attempt
from admittance.conformance.program import START_SECONDS, Program
from admittance.conformance.providers.form import Asked
from admittance.conformance.providers.watched import Watched
from admittance.conformance.report import FAILED, NOT_APPLICABLE, PASSED
from admittance.runtime import clock

BURST: Final = 100
ACK_WAIT: Final = 6.0
"""Seconds until the durable redelivers an unacknowledged request."""
BABBLE: Final = (b"", b"{", b"[]", b'"x"', b"{}", b'{"id": 7}', b"\xff\xfe", b'{"podSets": null}')


class Mishaps(Watched):
    """How it comes through."""

    def _of_mishaps(self) -> Mapping[str, Attempt]:
        return {
            "garbage": self._garbage,
            "burst": self._burst,
            "killed": self._killed,
            "restart": self._restart,
            "remembers": self._remembers,
        }

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
        during = await self._ask_amid("killed.2")
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

    async def _remembers(self) -> None:
        program, room = self._way.program, self._way.room
        if program is None:
            why = "it was not started here: give its command"
            self._put("remembers", NOT_APPLICABLE, why)
        elif not room:
            why = "say for how many such requests it has capacity: --room"
            self._put("remembers", NOT_APPLICABLE, why)
        elif not self._stand.delivered(await self._stand.deliveries() or (0, 0, 0)):
            why = "it listens by a plain subscription: what is said while it is away is lost"
            self._put("remembers", NOT_APPLICABLE, why)
        else:
            why = await self._booked_twice(program, room) or await self._forgotten(program, room)
            why = why or await self._leaked(room)
            self._put("remembers", FAILED if why else PASSED, *([why] if why else []))

    async def _booked_twice(self, program: Program, room: int) -> str:
        """What is wrong when it hears again what it had booked, and what it was about to book if
        there is room for two, and is filled up then; "": nothing."""
        held = await self._stand.ask("remembers.1")
        await self._ended(*held)
        if room > 1:
            held.append(await self._ask_amid("remembers.2"))
        left = await self._crash(program)
        await self._stand.ask_again(*held)
        await self._heard_but(left)
        await self._ended(*held)
        await self._quiet()
        for one in held:
            if why := self._contradiction(one):
                return f"when it had been killed: {why}"
        held += await self._stand.ask(*(f"remembers.{number}" for number in range(3, room + 1)))
        await self._ended(*held)
        got = sum(self._end(one) == "provisioned" for one in held)
        if got == room:
            return ""
        why = f"{got} of {room} requests were provisioned when it had been killed amid them"
        return f"{why}: it booked one twice, or has no room for so many"

    async def _forgotten(self, program: Program, room: int) -> str:
        """What is wrong when its room is full of what it does not hear again, with and without a
        further crash; "": nothing."""
        for number in (1, 2):
            [beyond] = await self._stand.ask(f"remembers.beyond.{number}")
            await self._heard_but(1)
            await self._ended(beyond, seconds=cases.WATCH + self._answers_after)
            if self._end(beyond) == "provisioned":
                why = f"when it had been killed it had room for more than {room} requests"
                return f"{why}: it forgot what it had booked, or --room is wrong"
            await self._stand.cancel(beyond, reason="Preempted")
            await self._heard_all(ACK_WAIT)
            if number == 1:
                await self._crash(program)
        return ""

    async def _leaked(self, room: int) -> str:
        """What is wrong with its room when everything was taken back; "": nothing."""
        deadline = clock.monotonic() + self._timeout
        number = 0
        while clock.monotonic() < deadline:
            await self._clear(ACK_WAIT)
            number += 1
            names = [f"remembers.again.{number}.{one}" for one in range(room)]
            asked = await self._stand.ask(*names)
            await self._ended(*asked)
            if all(self._end(one) == "provisioned" for one in asked):
                return ""
            await self._pass(cases.GRACE / 2)
        return (
            f"when it had been killed, and all was taken back, it had no room for {room} requests"
        )

    async def _ask_amid(self, name: str) -> Asked:
        """Asks, and returns when that is most likely under way."""
        [asked] = await self._stand.ask(name)
        await self._stand.until(
            lambda: bool(self._stand.words(asked)), min(0.2, self._answers_after / 2)
        )
        return asked

    async def _crash(self, program: Program) -> int:
        """Kills it, and starts it anew; how many deliveries are left that come again later."""
        await program.kill()
        now = await self._stand.deliveries()
        await program.start()
        return now[0] if now is not None else 0

    async def _heard_but(self, left: int) -> None:
        """Waits until it has fetched everything, and dealt with all but so many."""
        deadline = clock.monotonic() + START_SECONDS + ACK_WAIT + self._timeout
        while clock.monotonic() < deadline and self._runs():
            now = await self._stand.deliveries()
            if now is None or (now[0] <= left and not now[1]):
                return
            await self._pass(0.1)
