"""Test cases about failures around a provider: unreadable messages, many requests, a crash, a
restart of the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from admittance.conformance import kit
from admittance.conformance.kit import (
    FAILED,
    NO_CAPACITY,
    NOT_APPLICABLE,
    NOT_STARTED,
    PASSED,
    PLAIN_SUBSCRIPTION,
    Attempt,
)
from admittance.conformance.program import START_SECONDS, ProgramProcess
from admittance.conformance.providers.messages import CapacityRequestKey
from admittance.conformance.providers.provider_cases import ProviderCases
from admittance.runtime import clock

BURST: Final = 100
ACK_WAIT: Final = 6.0
"""Seconds until the durable redelivers an unacknowledged request."""
GARBAGE: Final = (b"", b"{", b"[]", b'"x"', b"{}", b'{"id": 7}', b"\xff\xfe", b'{"podSets": null}')


class FailureCases(ProviderCases):
    """Failures that a provider must survive."""

    def _failure_cases(self) -> Mapping[str, Attempt]:
        return {
            "garbage": self._garbage,
            "burst": self._burst,
            "killed": self._killed,
            "restart": self._restart,
            "remembers": self._remembers,
        }

    async def _garbage(self) -> None:
        await self._requester.publish_garbage("garbage.1", GARBAGE)
        if await self._still_answers("garbage", "messages that are not requests"):
            self._record("garbage", PASSED)

    async def _burst(self) -> None:
        began = clock.monotonic()
        requests = await self._requester.send(*(f"burst.{number}" for number in range(BURST)))
        # The limit is the time of twice as many requests handled one by one, but bounded, in case
        # some are lost.
        limit = self._timeout + min(2 * BURST * self._answer_seconds, 10 * self._timeout)
        await self._until_answered(*requests, seconds=limit)
        count = len({one.request for one in self._requester.answers_to(*requests)})
        took = clock.monotonic() - began
        alive = await self._still_answers(
            "burst", f"{BURST} simultaneous requests", self._timeout + 2 * took
        )
        if count < BURST:
            why = f"it answered {count} of {BURST} simultaneous requests within {took:.1f} s"
            self._record("burst", FAILED, why if alive else f"{why}, and no request after them")
        elif alive:
            self._record("burst", PASSED)

    async def _killed(self) -> None:
        process = self._provider.process
        if process is None:
            self._record("killed", NOT_APPLICABLE, NOT_STARTED)
            return
        [before] = await self._requester.send("killed.1")
        await self._until_final(before)
        # One request is sent just before the crash, another one while the program is down.
        during = await self._send_and_wait_briefly("killed.2")
        await process.kill()
        [down] = await self._requester.send("killed.3")
        await process.start()
        limit = START_SECONDS + ACK_WAIT + self._timeout
        for request, when in ((down, "while it was down"), (during, "just before it was killed")):
            if not await self._until_final(request, seconds=limit):
                why = f"a request from {when} was not answered within {limit:g} s"
                self._record("killed", FAILED, why)
                return
        await self._requester.send_again(before, during)
        await self._until_acknowledged(self._timeout + ACK_WAIT)
        await self._until_quiet()
        found = [why for one in (before, during, down) if (why := self._contradiction(one))]
        self._record_faults("killed", *found[:1])

    async def _restart(self) -> None:
        if self._provider.restart is None:
            why = "the test cannot restart this server: use --embedded"
            self._record("restart", NOT_APPLICABLE, why)
            return
        await self._provider.restart()
        [request] = await self._requester.send("restart.1")
        limit = self._timeout + START_SECONDS
        if await self._until_answered(request, seconds=limit):
            self._record("restart", PASSED)
        elif self._runs():
            why = f"no answer within {limit:g} s after the restart of the server"
            self._record("restart", FAILED, why)
        else:
            self._record("restart", FAILED, "the program ended when the server was restarted")

    async def _remembers(self) -> None:
        process, room = self._provider.process, self._provider.room
        if process is None:
            self._record("remembers", NOT_APPLICABLE, NOT_STARTED)
        elif not room:
            self._record("remembers", NOT_APPLICABLE, NO_CAPACITY)
        elif not self._requester.has_delivered(await self._requester.deliveries() or (0, 0, 0)):
            self._record("remembers", NOT_APPLICABLE, PLAIN_SUBSCRIPTION)
        else:
            why = await self._booked_twice(process, room) or await self._forgotten(process, room)
            self._record_faults("remembers", why or await self._leaked(room))

    async def _booked_twice(self, process: ProgramProcess, room: int) -> str:
        """Returns the fault if the provider books one request twice: requests from before and
        during a crash are sent again, then the rest of the capacity is requested.
        """
        held = await self._requester.send("remembers.1")
        await self._until_final(*held)
        if room > 1:
            held.append(await self._send_and_wait_briefly("remembers.2"))
        left = await self._crash(process)
        await self._requester.send_again(*held)
        await self._until_unacknowledged(left)
        await self._until_final(*held)
        await self._until_quiet()
        for one in held:
            if why := self._contradiction(one):
                return f"after a crash: {why}"
        held += await self._requester.send(
            *(f"remembers.{number}" for number in range(3, room + 1))
        )
        await self._until_final(*held)
        got = self._provisioned(held)
        if got == room:
            return ""
        why = f"{got} of {room} requests were provisioned, with a crash between them"
        return f"{why}: it booked one twice, or has less capacity than --room"

    async def _forgotten(self, process: ProgramProcess, room: int) -> str:
        """Returns the fault if the provider loses a booking in a crash: all capacity is booked and
        one more request is sent, before and after a further crash.
        """
        for number in (1, 2):
            [beyond] = await self._requester.send(f"remembers.beyond.{number}")
            await self._until_unacknowledged(1)
            await self._until_final(beyond, seconds=kit.WATCH_SECONDS + self._answer_seconds)
            if self._final_word(beyond) == "provisioned":
                why = f"after a crash it had capacity for more than {room} requests"
                return f"{why}: it forgot a booking, or --room is wrong"
            await self._requester.cancel(beyond, reason="Preempted")
            await self._until_acknowledged(ACK_WAIT)
            if number == 1:
                await self._crash(process)
        return ""

    async def _leaked(self, room: int) -> str:
        """Returns the fault if the provider does not free all capacity: all requests are cancelled
        and all capacity is requested again.
        """
        deadline = clock.monotonic() + self._timeout
        number = 0
        while clock.monotonic() < deadline:
            await self._clear(ACK_WAIT)
            number += 1
            names = [f"remembers.again.{number}.{one}" for one in range(room)]
            requests = await self._requester.send(*names)
            await self._until_final(*requests)
            if self._provisioned(requests) == room:
                return ""
            await self._listen_for(kit.GRACE_SECONDS / 2)
        return (
            f"after a crash and the cancellation of all requests it had no capacity for {room} "
            "requests"
        )

    async def _send_and_wait_briefly(self, name: str) -> CapacityRequestKey:
        """Sends a request, and returns when the provider most likely works on it."""
        [request] = await self._requester.send(name)
        await self._requester.until(
            lambda: bool(self._requester.words(request)), min(0.2, self._answer_seconds / 2)
        )
        return request

    async def _crash(self, process: ProgramProcess) -> int:
        """Kills and restarts the program. Returns the number of unacknowledged deliveries, which
        the server repeats later.
        """
        await process.kill()
        now = await self._requester.deliveries()
        await process.start()
        return now[0] if now is not None else 0

    async def _until_unacknowledged(self, count: int) -> None:
        """Waits until all requests are fetched, and all but ``count`` acknowledged."""
        deadline = clock.monotonic() + START_SECONDS + ACK_WAIT + self._timeout
        while clock.monotonic() < deadline and self._runs():
            now = await self._requester.deliveries()
            if now is None or (now[0] <= count and not now[1]):
                return
            await self._listen_for(0.1)
