"""Cases about what is taken back: nothing is provided any more, and what was booked is freed."""

from __future__ import annotations

from collections.abc import Mapping

from admittance.conformance import cases
from admittance.conformance.cases import Attempt
from admittance.conformance.providers.form import Asked
from admittance.conformance.providers.watched import Watched
from admittance.conformance.report import FAILED, NOT_APPLICABLE, PASSED
from admittance.runtime import clock


class TakingBack(Watched):
    """What it makes of cancellations."""

    def _of_taking_back(self) -> Mapping[str, Attempt]:
        return {
            "unknown-id": self._unknown_id,
            "cancelled": self._cancelled,
            "overtaken": self._overtaken,
            "frees": self._frees,
        }

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
        await self._pass(max(cases.WATCH, 2 * self._answers_after + cases.GRACE))
        for said in self._stand.about(answered, asked):
            since = said.at - known[said.asked]
            if said.told is not None and said.told.word == "provisioned" and since > cases.GRACE:
                why = f"said provisioned {since:.1f} s after it heard that the request was taken"
                self._put("cancelled", FAILED, f"{why} back: nobody frees that any more")
                return
        self._put("cancelled", PASSED)

    async def _overtaken(self) -> None:
        """As if the replica with the request crashed, and the next replica gets the cancellation
        first."""
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
        await self._ended(beyond, seconds=cases.WATCH)
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
            await self._pass(cases.GRACE / 2)
        why = f"a request was taken back, and no other one got its room within {self._timeout:g} s"
        self._put("frees", FAILED, why)
