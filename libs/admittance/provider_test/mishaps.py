"""Cases about what goes wrong around a provider: garbage, a burst, a crash, a server away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from admittance.provider_test.watched import Watched
from admittance.runtime import clock
from admittance.trials.cases import Attempt
from admittance.trials.program import START_SECONDS
from admittance.trials.report import FAILED, NOT_APPLICABLE, PASSED

BURST: Final = 100
ACK_WAIT: Final = 6.0
"""Seconds until the durable says again what nobody acknowledged."""
BABBLE: Final = (b"", b"{", b"[]", b'"x"', b"{}", b'{"id": 7}', b"\xff\xfe", b'{"podSets": null}')


class Mishaps(Watched):
    """How it comes through."""

    def _of_mishaps(self) -> Mapping[str, Attempt]:
        return {
            "garbage": self._garbage,
            "burst": self._burst,
            "killed": self._killed,
            "restart": self._restart,
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
