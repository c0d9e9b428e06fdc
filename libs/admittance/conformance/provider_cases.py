"""The test cases for a provider: their list, their report, and the base class with the waits and
checks that the test cases share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Final

from admittance.conformance import kit
from admittance.conformance.kit import (
    FAILED,
    Attempt,
    CaseList,
    ConformanceKit,
    KitOptions,
    KitReport,
)
from admittance.conformance.program import ProgramProcess
from admittance.conformance.provider_requester import (
    CapacityRequestKey,
    ProviderAnswer,
    ProviderRequester,
    RequestShape,
    StatusMessage,
    content_of,
)

TITLES: Final = {
    "answers": "answers a request, finally with provisioned or failed",
    "json": "sends JSON with the right fields",
    "names": "names the id and the workload of the request",
    "subject": "publishes on the subjects of statuses, with escaped names",
    "delay": "asks only for valid delays, and only with failed",
    "details": "sends messages and details within the limits",
    "updates": "adds only to pod sets of the workload",
    "order": "sends no status that cannot follow the one before",
    "seq": "numbers its statuses upwards, if at all",
    "message-id": "gives each status its own message id",
    "twice": "gives the same answer when a request is delivered again",
    "attempt": "treats another attempt as another request",
    "unknown-id": "acknowledges the cancellation of an unknown request",
    "cancelled": "sends no provisioned after the request was cancelled",
    "overtaken": "provisions nothing for a request that was cancelled before it arrived",
    "unknown-parameters": "tolerates unknown parameters, or fails without retry",
    "wrong-parameters": "fails without retry for wrong parameters",
    "unknown-fields": "tolerates unknown fields",
    "deadline": "provisions nothing after the deadline",
    "garbage": "continues after messages that it cannot read",
    "burst": "answers a hundred simultaneous requests",
    "killed": "answers requests from before and during a crash, without contradictions",
    "restart": "continues after a restart of the server",
    "frees": "books each request once, and frees cancelled requests",
    "remembers": "knows its bookings after a crash, and books nothing twice",
    "query": "answers queries about requests",
    "repeats": "does not repeat the same status again and again",
    "acknowledges": "acknowledges its requests",
    "heartbeat": "sends valid heartbeats, if any",
    "ends": "ends in order on SIGTERM",
}
"""The title of every test case, in the order of the report."""
CASES: Final = CaseList(
    TITLES, ("json", "names", "subject", "delay", "details", "updates", "order", "seq")
)
CLEAR_SECONDS: Final = 5.0
"""How many seconds a provider may take to acknowledge the cancellations of requests after a test
case.
"""
FINAL: Final = frozenset({"provisioned", "failed"})


class ProviderKitReport(KitReport, frozen=True, kw_only=True, rename="camel"):
    """The results of all test cases for a provider. ``usual``: the provider's final status for an
    ordinary request, provisioned or failed; empty if the provider did not answer.
    """

    provisioning_class: str

    @property
    def program(self) -> str:
        """The name of the provider's provisioning class."""
        return self.provisioning_class


class ProviderKitOptions(KitOptions, frozen=True, kw_only=True):
    """Options of the kit for providers. ``shape``: the content of the capacity requests that the
    kit sends. ``room``: for how many requests of this shape the provider has capacity; 0 if
    unknown. ``wrong``: request parameters that the provider must refuse, if known.
    """

    provisioning_class: str
    shape: RequestShape
    room: int = 0
    wrong: Mapping[str, str] | None = None


class ProviderCases(ConformanceKit[CapacityRequestKey, StatusMessage]):
    """The base class of all groups of test cases for one provider. ``restart``: restarts the NATS
    server; None if the server was not started for the test."""

    def __init__(
        self,
        requester: ProviderRequester,
        options: ProviderKitOptions,
        restart: Callable[[], Awaitable[None]] | None,
        process: ProgramProcess | None,
    ) -> None:
        super().__init__(CASES, requester, options, process)
        self._requester = requester
        self._room = options.room
        self._wrong = options.wrong
        self._restart_server = restart

    def _content(self, message: ProviderAnswer) -> Hashable:
        return content_of(message.content) if message.content is not None else message.data

    def _shown(self, message: ProviderAnswer) -> str:
        assert message.request is not None and message.content is not None, (
            "only readable messages are counted"
        )
        return f"sent {message.content.word} %s for one request of {message.request.name}"

    # Between cases. -----------------------------------------------------------------------

    def _with_clearing(self, attempt: Attempt) -> Attempt:
        async def run() -> None:
            try:
                await attempt()
            finally:
                await self._clear()

        return run

    async def _clear(self, seconds: float = 0.0) -> bool:
        """Cancels all requests of the test. Returns whether the provider acknowledged the
        cancellations within ``seconds``.
        """
        await self._requester.withdraw_all()
        return await self._until_acknowledged(seconds or CLEAR_SECONDS)

    async def _until_acknowledged(self, seconds: float = 0.0) -> bool:
        """Waits until the provider has acknowledged all requests and cancellations. Returns False
        if some of them are not acknowledged within ``seconds``. If the provider uses a plain
        subscription, which acknowledges nothing, waits as long as the provider takes for an answer.
        """
        now = await self._requester.deliveries()
        if now is not None and not self._requester.has_delivered(now):
            await self._listen_for(kit.GRACE_SECONDS + self._answer_seconds)
            return True
        now = await self._until_acknowledged_or(seconds or CLEAR_SECONDS)
        return now is not None and not (now[0] or now[1])

    async def clean_up(self) -> None:
        """Cancels all requests of the test, so that the provider frees its bookings for them."""
        if self._runs():
            await self._clear()

    # The final status of a request. -------------------------------------------------------

    async def _until_final(self, *requests: CapacityRequestKey, seconds: float = 0.0) -> bool:
        """Waits until the provider has sent provisioned or failed for each request. Returns False
        if a request has neither status within ``seconds``.
        """

        def all_final() -> bool:
            return all(FINAL & set(self._requester.words(request)) for request in requests)

        def settled() -> bool:
            return all_final() or not self._runs()

        return await self._requester.until(settled, seconds or self._timeout) and all_final()

    def _final_word(self, request: CapacityRequestKey) -> str:
        """The final status of a request, provisioned or failed; empty if the request has no final
        status yet.
        """
        final = [word for word in self._requester.words(request) if word in FINAL]
        return final[-1] if final else ""

    def _provisioned(self, requests: Collection[CapacityRequestKey]) -> int:
        """The number of the given requests that were provisioned."""
        return sum(self._final_word(request) == "provisioned" for request in requests)

    def _contradiction(self, request: CapacityRequestKey) -> str:
        """Says how the final statuses that the provider sent for one request contradict each other;
        empty if they agree.
        """
        final = [
            answer.content
            for answer in self._requester.answers_to(request)
            if answer.content is not None and answer.content.word in FINAL
        ]
        words = [status.word for status in final]
        if len(set(words)) > 1:
            return f"sent {', then '.join(words)} for one request"
        for status in final[1:]:
            if status.fact.details != final[0].fact.details:
                before, now = dict(final[0].fact.details), dict(status.fact.details)
                return f"booked twice: the details were {before}, and {now} after a redelivery"
        return ""

    async def _still_answers(self, case: str, after: str, seconds: float = 0.0) -> bool:
        """Whether the provider still answers a new request; records a fault of the test case if
        not. ``seconds``: time allowed for cancelling the earlier requests of the test case, if they
        are many.
        """
        await self._clear(seconds)
        [request] = await self._requester.send(f"{case}.after")
        if await self._until_answered(request):
            return True
        self._record(case, FAILED, f"after {after} it did not answer any more")
        return False
