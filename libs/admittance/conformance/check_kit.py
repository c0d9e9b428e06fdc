"""The conformance kit for check controllers: its test cases, and the function that runs them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from admittance.conformance import kit
from admittance.conformance.check_requester import (
    FIRST_CYCLE,
    CheckAnswer,
    CheckRequester,
    CheckRequestKey,
)
from admittance.conformance.kit import (
    FAILED,
    NOT_APPLICABLE,
    PASSED,
    Attempt,
    CaseList,
    ConformanceKit,
    KitOptions,
    KitReport,
    run_kit,
)
from admittance.conformance.program import ProgramProcess
from admittance.events import reasons
from admittance.events.codec import encode
from admittance.events.facts import CheckReported
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus

TITLES: Final = {
    "answers": "answers a request",
    "json": "sends JSON with the right fields",
    "state": "sends only states that exist",
    "names": "names the workload, check and cycle of the request",
    "subject": "publishes on the subject of its verdicts, with escaped names",
    "delay": "asks only for valid delays",
    "updates": "adds only to pod sets of the workload",
    "message-id": "gives each verdict its own message id",
    "new-cycle": "judges again in a new cycle",
    "twice": "does not contradict itself when a request is delivered twice",
    "withdrawn": "sends no Ready after the request was withdrawn",
    "late-retry": "still sends Retry when another check's Retry withdrew the request",
    "unknown-parameters": "tolerates unknown parameters",
    "unknown-fields": "tolerates unknown fields",
    "flood": "answers a flood of requests",
    "repeats": "does not repeat the same verdict again and again",
    "acknowledges": "acknowledges its requests",
    "heartbeat": "sends valid heartbeats, if any",
    "ends": "ends in order on SIGTERM",
}
"""The title of every test case, in the order of the report."""
CASES: Final = CaseList(TITLES, ("json", "state", "names", "subject", "delay", "updates"))
FLOOD: Final = 200


class CheckKitReport(KitReport, frozen=True, kw_only=True, rename="camel"):
    """The results of all test cases for a check controller. ``usual``: the state of the
    controller's verdict on an ordinary request with the given parameters; empty if the controller
    did not answer.
    """

    controller: str
    check: str

    @property
    def program(self) -> str:
        """The name of the tested check controller."""
        return self.controller


class CheckKit(ConformanceKit[CheckRequestKey, CheckReported]):
    """Runs the test cases for one check controller."""

    def __init__(
        self, requester: CheckRequester, options: KitOptions, process: ProgramProcess | None
    ) -> None:
        super().__init__(CASES, requester, options, process)
        self._requester = requester

    async def _first_request(self, number: int) -> CheckRequestKey:
        [request] = await self._requester.send("answers.1", cycle=FIRST_CYCLE + number)
        return request

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

    def _content(self, message: CheckAnswer) -> Hashable:
        # A verdict that is published again may have another time, which has no effect.
        if message.content is None:
            return message.data
        return encode(replace(message.content, time=None))

    def _repeated(self, message: CheckAnswer) -> Hashable:
        assert message.content is not None, "only readable messages are counted"
        return message.request, message.content.state, message.content.message

    def _shown(self, message: CheckAnswer) -> str:
        assert message.request is not None and message.content is not None, "as in `_repeated`"
        return f"sent {message.content.state} %s for one cycle of {message.request.name}"

    # The cases. ---------------------------------------------------------------------------

    async def _answers(self) -> bool:
        if not await self._first_answer():
            return False
        # The controller's answer time is measured with a second request, because the controller may
        # still have been starting when the first request was sent.
        began = clock.monotonic()
        [request] = await self._requester.send("answers.2")
        if not await self._until_answered(request):
            self._record("answers", FAILED, "it answered the first request, but not the second")
            return False
        self._answer_seconds = clock.monotonic() - began
        await self._until_quiet()
        self.usual = self._requester.states(request)[-1]
        self._record("answers", PASSED)
        return True

    async def _new_cycle(self) -> None:
        [first] = await self._requester.send("new-cycle.1")
        await self._until_answered(first)
        await self._requester.withdraw([first], reasons.PREEMPTED)
        [second] = await self._requester.send("new-cycle.1", cycle=FIRST_CYCLE + 1)
        if not await self._until_answered(second):
            why = f"no answer for cycle {second.cycle} within {self._timeout:g} s"
            self._record("new-cycle", FAILED, why)
            return
        wrong = {
            answer.content.cycle
            for answer in self._requester.answers_to(second)
            if answer.content is not None and answer.content.cycle != second.cycle
        }
        cycles = ", ".join(map(str, sorted(wrong)))
        why = f"it answered the request of cycle {second.cycle} for cycle {cycles}"
        self._record_faults("new-cycle", why if wrong else "")

    async def _twice(self) -> None:
        [request] = await self._requester.send("twice.1")
        await self._requester.send("twice.1")
        if not await self._until_answered(request):
            self._record("twice", FAILED, f"no answer within {self._timeout:g} s")
            return
        await self._until_quiet()
        final = [state for state in self._requester.states(request) if state != "Pending"]
        why = f"sent {', then '.join(final)} for one cycle" if len(set(final)) > 1 else ""
        self._record_faults("twice", why)

    async def _withdrawn(self) -> None:
        """Sends two requests, and withdraws one of them after the controller's answer, the other
        one at once, before a slow controller can answer.
        """
        answered, unanswered = await self._requester.send("withdrawn.1", "withdrawn.2")
        await self._requester.withdraw([unanswered], reasons.PREEMPTED)
        first_at = clock.monotonic()
        await self._until_answered(answered)
        await self._listen_for(kit.GRACE_SECONDS)
        await self._requester.withdraw([answered], reasons.PREEMPTED)
        second_at = clock.monotonic()
        # Listens as long as the controller takes for two answers: a late Ready must be found.
        await self._listen_for(max(kit.WATCH_SECONDS, 2 * self._answer_seconds + kit.GRACE_SECONDS))
        for answer in self._requester.answers_to(answered, unanswered):
            since = answer.at - (first_at if answer.request == unanswered else second_at)
            allowed = kit.GRACE_SECONDS if answer.request == unanswered else 0.0
            if _is_ready(answer) and since > allowed:
                why = f"sent Ready {since:.1f} s after the request was withdrawn"
                self._record("withdrawn", FAILED, why)
                return
        if any(_is_ready(answer) for answer in self._requester.answers_to(unanswered)):
            why = "it answers faster than a request can be withdrawn"
            self._record("withdrawn", NOT_APPLICABLE, why)
        else:
            self._record("withdrawn", PASSED)

    async def _late_retry(self) -> None:
        [request] = await self._requester.send("late-retry.1")
        await self._requester.withdraw([request], reasons.ADMISSION_CHECK)
        if self.usual != "Retry":
            why = f"with these parameters it sends {self.usual}, not Retry"
            self._record("late-retry", NOT_APPLICABLE, why)
            return
        limit = self._timeout + 2 * self._answer_seconds
        retried = await self._requester.until(
            lambda: "Retry" in self._requester.states(request), limit
        )
        why = (
            "sent no Retry after a withdrawal with the reason AdmissionCheck: its delay is lost, "
            "and the workload is requeued too early"
        )
        self._record_faults("late-retry", "" if retried else why)

    async def _unknown_parameters(self) -> None:
        known = self._requester.parameters
        if known is not None and not isinstance(known, dict):
            self._record("unknown-parameters", NOT_APPLICABLE, "its parameters are not an object")
            return
        more = {**(known or {}), "checkTestUnknown": {"a": [1, None, "x"]}}
        await self._tolerates("unknown-parameters", {"parameters": more})

    async def _unknown_fields(self) -> None:
        await self._tolerates("unknown-fields", {"checkTestUnknown": {"a": [1, None, "x"]}})

    async def _tolerates(self, case: str, more: dict[str, object]) -> None:
        [request] = await self._requester.send(f"{case}.1", more=more)
        answered = await self._until_answered(request)
        [after] = await self._requester.send(f"{case}.2")
        if not await self._until_answered(after):
            self._record(case, FAILED, "after such a request it did not answer any more")
        elif not answered:
            self._record(case, FAILED, f"no answer to such a request within {self._timeout:g} s")
        else:
            await self._until_quiet()
            state = self._requester.states(request)[-1]
            wrong = state != self.usual and "Pending" not in (state, self.usual)
            why = f"sent {state} for such a request, and {self.usual} for others"
            self._record_faults(case, why if wrong else "")

    async def _flood(self) -> None:
        began = clock.monotonic()
        requests = await self._requester.send(*(f"flood.{number}" for number in range(FLOOD)))
        await self._until_answered(*requests, seconds=self._timeout + 10 * self._answer_seconds)
        count = len({answer.request for answer in self._requester.answers_to(*requests)})
        took = clock.monotonic() - began
        await self._requester.withdraw(requests, reasons.DELETED)
        [after] = await self._requester.send("flood.after")
        alive = await self._until_answered(after)
        if count < FLOOD:
            why = f"it answered {count} of {FLOOD} simultaneous requests within {took:.1f} s"
            self._record("flood", FAILED, why if alive else f"{why}, and no request after them")
        else:
            why = f"after {FLOOD} simultaneous requests it did not answer any more"
            self._record_faults("flood", "" if alive else why)


def _is_ready(message: CheckAnswer) -> bool:
    return message.content is not None and message.content.state == "Ready"


class CheckKitOptions(KitOptions, frozen=True, kw_only=True):
    """Options of the kit for check controllers. ``controller``: the name of the controller to test.
    ``check``, ``parameters``: the name of the AdmissionCheck in the test's requests, and the
    parameters of that check.
    """

    controller: str
    check: str
    parameters: Any


async def run_check_kit(
    bus: Bus,
    url: str,
    options: CheckKitOptions,
    *,
    on_case: Callable[[str], None],
    on_ready: Callable[[], None],
) -> CheckKitReport:
    """Tests one check controller on this bus. ``on_case`` and ``on_ready`` are called as in
    `run_kit`. Raises the exceptions of `run_kit`.
    """
    requester = CheckRequester(bus, options.controller, options.check, options.parameters)
    kit_of = partial(CheckKit, requester, options)
    result = await run_kit(
        CASES, requester, kit_of, options, url, on_case=on_case, on_ready=on_ready
    )
    return CheckKitReport(controller=options.controller, check=options.check, **result._asdict())
