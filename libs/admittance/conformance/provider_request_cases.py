"""Test cases about requests, cancellations, and failures around a provider: unreadable messages,
many requests, a crash, a restart of the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
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
from admittance.conformance.provider_cases import ProviderCases
from admittance.conformance.provider_requester import CapacityRequestKey, reply_faults
from admittance.events import reasons
from admittance.runtime import clock

RETRYABLE: str = "sent failed without retryable: false, so it will get the same request again"


class RequestCases(ProviderCases):
    """Test cases in which requests are delivered again, sent in another attempt, or have unknown or
    wrong content.
    """

    def _request_cases(self) -> Mapping[str, Attempt]:
        return {
            "twice": self._twice,
            "attempt": self._attempt,
            "unknown-parameters": self._unknown_parameters,
            "wrong-parameters": self._wrong_parameters,
            "unknown-fields": self._unknown_fields,
            "deadline": self._deadline,
            "query": self._query,
        }

    def _late(self) -> str:
        return f"no answer to such a request within {self._timeout:g} s"

    async def _twice(self) -> None:
        [request] = await self._requester.send("twice.1")
        if not await self._until_final(request):
            self._record("twice", FAILED, f"no final status within {self._timeout:g} s")
            return
        await self._requester.send_again(request)
        await self._until_acknowledged()
        await self._until_quiet()
        self._record_faults("twice", self._contradiction(request))

    async def _attempt(self) -> None:
        [first] = await self._requester.send("attempt.1")
        await self._until_final(first)
        await self._clear()
        [second] = await self._requester.send("attempt.1", attempt=2)
        answered = await self._until_final(second)
        why = (
            f"no answer to the request {second.id} within {self._timeout:g} s, after the request "
            "of the attempt before was cancelled"
        )
        self._record_faults("attempt", "" if answered else why)

    async def _unknown_parameters(self) -> None:
        more = {**self._requester.shape.parameters, "providerTestUnknown": "x"}
        [request] = await self._requester.send("unknown-parameters.1", parameters=more)
        answered = await self._until_final(request)
        if not await self._still_answers("unknown-parameters", "such a request"):
            return
        why = "" if answered else self._late()
        if answered and self.usual != "failed" and self._may_be_retried(request):
            why = RETRYABLE
        self._record_faults("unknown-parameters", why)

    async def _wrong_parameters(self) -> None:
        case = "wrong-parameters"
        if self._wrong is None:
            why = "no parameters are known that it must refuse: add --wrong"
            self._record(case, NOT_APPLICABLE, why)
            return
        [request] = await self._requester.send(f"{case}.1", parameters=self._wrong)
        if not await self._until_final(request):
            self._record(case, FAILED, self._late())
        elif self._final_word(request) != "failed":
            self._record(case, FAILED, f"sent {self._final_word(request)} for such a request")
        else:
            self._record_faults(case, RETRYABLE if self._may_be_retried(request) else "")

    def _may_be_retried(self, request: CapacityRequestKey) -> bool:
        return any(
            answer.content is not None
            and answer.content.word == "failed"
            and getattr(answer.content.fact, "retryable", True)
            for answer in self._requester.answers_to(request)
        )

    async def _unknown_fields(self) -> None:
        more = {"providerTestUnknown": {"a": [1, None, "x"]}}
        [request] = await self._requester.send("unknown-fields.1", more=more)
        answered = await self._until_final(request)
        if not await self._still_answers("unknown-fields", "such a request"):
            return
        why = "" if answered else self._late()
        word = self._final_word(request)
        if answered and word != self.usual:
            why = f"sent {word} for such a request, and {self.usual} for others"
        self._record_faults("unknown-fields", why)

    async def _deadline(self) -> None:
        past = clock.now() - timedelta(hours=1)
        [request] = await self._requester.send("deadline.1", more={"deadline": past})
        await self._until_acknowledged(self._timeout)
        await self._until_quiet()
        if "provisioned" in self._requester.words(request):
            why = "sent provisioned an hour after the deadline, when the request no longer exists"
            self._record("deadline", FAILED, why)
        elif await self._still_answers("deadline", "such a request"):
            self._record("deadline", PASSED)

    async def _query(self) -> None:
        unknown = await self._requester.query("provider-test/unknown/1/1")
        if unknown is None:
            why = "it does not answer queries: its durable keeps the requests anyway"
            self._record("query", NOT_APPLICABLE, why)
            return
        faults = reply_faults("provider-test/unknown/1/1", unknown, {""}, known=False)
        [request] = await self._requester.send("query.1")
        await self._until_final(request)
        await self._until_quiet()
        reply = await self._requester.query(request.id)
        faults += reply_faults(request.id, reply, {self._final_word(request)})
        await self._requester.cancel(request, reason=reasons.PREEMPTED)
        await self._until_acknowledged()
        reply = await self._requester.query(request.id)
        faults += reply_faults(request.id, reply, {"", "cancelled", "failed"})
        self._record_faults("query", *faults[: kit.DETAILS_MAX])


class CancellationCases(ProviderCases):
    """Test cases for cancelled requests: the provider must provision nothing more for them, and
    free their bookings.
    """

    def _cancellation_cases(self) -> Mapping[str, Attempt]:
        return {
            "unknown-id": self._unknown_id,
            "cancelled": self._cancelled,
            "overtaken": self._overtaken,
            "frees": self._frees,
        }

    async def _unknown_id(self) -> None:
        request = await self._requester.cancel_unknown("unknown-id.1")
        acknowledged = await self._until_acknowledged()
        if not await self._still_answers("unknown-id", "such a cancellation"):
            return
        words = self._requester.words(request)
        why = f"sent {words[-1]} for a request that was only cancelled" if words else ""
        if not acknowledged:
            why = "it did not acknowledge such a cancellation"
        self._record_faults("unknown-id", why)

    async def _cancelled(self) -> None:
        """Sends two requests, and cancels one of them after the provider's answer, the other one at
        once, before a slow provider can answer.
        """
        answered, unanswered = await self._requester.send("cancelled.1", "cancelled.2")
        limit = self._timeout + 2 * self._answer_seconds
        known: dict[CapacityRequestKey | None, float] = {}
        for request in (unanswered, answered):
            if request == answered:
                await self._until_answered(answered)
            await self._requester.cancel(request, reason=reasons.PREEMPTED)
            # The time since a cancellation is counted from its acknowledgement: a provider that
            # handles one message at a time may read the cancellation late.
            await self._until_acknowledged(limit)
            known[request] = clock.monotonic()
        await self._listen_for(max(kit.WATCH_SECONDS, 2 * self._answer_seconds + kit.GRACE_SECONDS))
        for message in self._requester.answers_to(answered, unanswered):
            since = message.at - known[message.request]
            word = message.content.word if message.content is not None else ""
            if word == "provisioned" and since > kit.GRACE_SECONDS:
                why = f"sent provisioned {since:.1f} s after it acknowledged the cancellation"
                self._record("cancelled", FAILED, f"{why}: that capacity is never freed")
                return
        self._record("cancelled", PASSED)

    async def _overtaken(self) -> None:
        """Sends the cancellation of a request before the request itself, as if a replica of the
        provider had crashed with the request and the next replica had got the cancellation first.
        """
        request = await self._requester.cancel_unknown("overtaken.1")
        await self._until_acknowledged()
        await self._requester.send_again(request)
        await self._until_acknowledged(self._timeout)
        await self._until_quiet()
        if "provisioned" in self._requester.words(request):
            # The provider has wrongly booked capacity for the cancelled request: a second
            # cancellation frees the booking for the next test cases.
            await self._requester.cancel(request, reason=reasons.PREEMPTED)
            why = "sent provisioned for a request that was already cancelled: it is never freed"
            self._record("overtaken", FAILED, why)
        else:
            self._record("overtaken", PASSED)

    async def _frees(self) -> None:
        room = self._room
        if not room:
            self._record("frees", NOT_APPLICABLE, NO_CAPACITY)
            return
        held = await self._requester.send(*(f"frees.{number}" for number in range(1, room)))
        await self._until_final(*held)
        # A provider that books a request again when the request is sent again then has no capacity
        # left for the request "frees.last".
        await self._requester.send_again(*held)
        await self._until_acknowledged()
        held += await self._requester.send("frees.last")
        await self._until_final(*held)
        got = self._provisioned(held)
        if got < room:
            why = f"{got} of {room} requests were provisioned: it has less capacity than --room, "
            self._record("frees", FAILED, f"{why}booked one twice, or did not free an earlier one")
            return
        [beyond] = await self._requester.send("frees.beyond")
        await self._until_final(beyond, seconds=kit.WATCH_SECONDS)
        if self._final_word(beyond) == "provisioned":
            why = f"it has capacity for more than {room} such requests: correct --room"
            self._record("frees", FAILED, why)
            return
        await self._requester.cancel(beyond, held[0], reason=reasons.PREEMPTED)
        await self._until_acknowledged()
        deadline = clock.monotonic() + self._timeout
        number = 0
        while clock.monotonic() < deadline:
            number += 1
            [request] = await self._requester.send(f"frees.again.{number}")
            await self._until_final(request, seconds=max(0.1, deadline - clock.monotonic()))
            if self._final_word(request) == "provisioned":
                self._record("frees", PASSED)
                return
            await self._requester.cancel(request, reason=reasons.PREEMPTED)
            await self._listen_for(kit.GRACE_SECONDS / 2)
        why = (
            "a request was cancelled, and no other request got its capacity within "
            f"{self._timeout:g} s"
        )
        self._record("frees", FAILED, why)


BURST: Final = 100
ACK_WAIT: Final = 6.0
"""Seconds after which the provider's durable redelivers an unacknowledged request."""
GARBAGE: Final = (b"", b"{", b"[]", b'"x"', b"{}", b'{"id": 7}', b"\xff\xfe", b'{"podSets": null}')


class FailureCases(ProviderCases):
    """Test cases for failures after which a provider must continue."""

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
        # The provider gets twice the time that it needs to answer the burst of requests one by one,
        # but at most ten timeouts, because lost requests are never answered.
        limit = self._timeout + min(2 * BURST * self._answer_seconds, 10 * self._timeout)
        await self._until_answered(*requests, seconds=limit)
        count = len({answer.request for answer in self._requester.answers_to(*requests)})
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
        process = self._process
        if process is None:
            self._record("killed", NOT_APPLICABLE, NOT_STARTED)
            return
        [before] = await self._requester.send("killed.1")
        await self._until_final(before)
        # Of the next two requests one is sent just before the provider is killed, the other one
        # while the provider is down.
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
        contradictions = [
            why for request in (before, during, down) if (why := self._contradiction(request))
        ]
        self._record_faults("killed", *contradictions[:1])

    async def _restart(self) -> None:
        if self._restart_server is None:
            why = "the test cannot restart this server: use --embedded"
            self._record("restart", NOT_APPLICABLE, why)
            return
        await self._restart_server()
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
        process, room = self._process, self._room
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
        """Returns the fault if the provider books one request twice. Sends requests from before and
        during a crash of the provider again, then requests for all remaining capacity.
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
        for request in held:
            if why := self._contradiction(request):
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
        """Returns the fault if the provider loses a booking in a crash. When all capacity is
        booked, sends one request too many, once before and once after a crash: the provider must
        not provision it.
        """
        for number in (1, 2):
            [beyond] = await self._requester.send(f"remembers.beyond.{number}")
            await self._until_unacknowledged(1)
            await self._until_final(beyond, seconds=kit.WATCH_SECONDS + self._answer_seconds)
            if self._final_word(beyond) == "provisioned":
                why = f"after a crash it had capacity for more than {room} requests"
                return f"{why}: it forgot a booking, or --room is wrong"
            await self._requester.cancel(beyond, reason=reasons.PREEMPTED)
            await self._until_acknowledged(ACK_WAIT)
            if number == 1:
                await self._crash(process)
        return ""

    async def _leaked(self, room: int) -> str:
        """Returns the fault if the provider does not free the capacity of cancelled requests.
        Cancels all requests and requests all capacity again.
        """
        deadline = clock.monotonic() + self._timeout
        number = 0
        while clock.monotonic() < deadline:
            await self._clear(ACK_WAIT)
            number += 1
            names = [f"remembers.again.{number}.{place}" for place in range(room)]
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
        """Sends a request, and returns when the provider most likely works on the request but has
        not finished it.
        """
        [request] = await self._requester.send(name)
        await self._requester.until(
            lambda: bool(self._requester.words(request)), min(0.2, self._answer_seconds / 2)
        )
        return request

    async def _crash(self, process: ProgramProcess) -> int:
        """Kills and restarts the provider. Returns the number of unacknowledged messages, which the
        NATS server redelivers later.
        """
        await process.kill()
        now = await self._requester.deliveries()
        await process.start()
        return now[0] if now is not None else 0

    async def _until_unacknowledged(self, count: int) -> None:
        """Waits until the provider has fetched all messages of its durable and has acknowledged all
        but ``count`` of them.
        """
        deadline = clock.monotonic() + START_SECONDS + ACK_WAIT + self._timeout
        while clock.monotonic() < deadline and self._runs():
            now = await self._requester.deliveries()
            if now is None or (now[0] <= count and not now[1]):
                return
            await self._listen_for(0.1)
