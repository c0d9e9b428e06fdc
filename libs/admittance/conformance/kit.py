"""Runs conformance cases against a program and reports the results. The kit for check controllers
and the kit for providers add their own cases.

How long the kit waits depends on how long the tested program takes for its first answer.
``timeout`` limits each wait of a test case.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from admittance.conformance.program import START_SECONDS, ProgramProcess
from admittance.conformance.requester import ReceivedMessage, Requester, quoted
from admittance.runtime import clock

PASSED: Final = "passed"
FAILED: Final = "failed"
NOT_APPLICABLE: Final = "not applicable"

QUIET_SECONDS: Final = 1.0
"""After this many seconds without a message from the tested program, the kit expects no further
message.
"""
GRACE_SECONDS: Final = 1.0
"""For how many seconds after a request was withdrawn an answer to the request is still allowed."""
WATCH_SECONDS: Final = 2.0
"""For how many seconds, at least, the kit watches that the program sends no answer to a withdrawn
or surplus request.
"""
HEARTBEAT_SECONDS: Final = 10.5
REPEAT_SECONDS: Final = 5.0
"""Seconds after which the kit sends the first request again, if the program has not answered."""
REPEATS_MAX: Final = 20
DETAILS_MAX: Final = 3
NOT_STARTED: Final = "the test did not start the program: add its command"
NO_CAPACITY: Final = "it is not known for how many such requests it has capacity: add --room"
PLAIN_SUBSCRIPTION: Final = "it uses a plain subscription: it loses messages while it is down"

A = TypeVar("A")
T = TypeVar("T")
Attempt = Callable[[], Awaitable[None]]


class CaseResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one test case. ``details``: the program's faults that the test case found, or
    why the test case does not apply.
    """

    case: str
    title: str
    outcome: str
    details: tuple[str, ...] = ()


class KitReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The results of all test cases. ``usual``: the tested program's usual answer to a request;
    empty if the program did not answer.
    """

    outcomes: tuple[CaseResult, ...]
    usual: str = ""
    seconds: float = 0.0

    @property
    def program(self) -> str:
        """The name of the tested program."""
        raise NotImplementedError

    @property
    def passed(self) -> bool:
        """Whether no test case failed."""
        return all(result.outcome != FAILED for result in self.outcomes)

    def count(self, outcome: str) -> int:
        """The number of test cases with this outcome: passed, failed or not applicable."""
        return sum(result.outcome == outcome for result in self.outcomes)


class CaseList(NamedTuple):
    """The test cases of a kit. ``titles``: the title of every test case by its name, in the order
    of the report. ``message_cases``: the names of the test cases that check every message of the
    tested program.
    """

    titles: Mapping[str, str]
    message_cases: Collection[str]

    def result(self, case: str, outcome: str, *details: str) -> CaseResult:
        """Makes the result of one test case."""
        return CaseResult(case=case, title=self.titles[case], outcome=outcome, details=details)


class ConformanceKit(ABC, Generic[A, T]):
    """Runs the test cases of a kit that the options choose against one program. ``process``: the
    program's, if the test started it.
    """

    def __init__(
        self,
        cases: CaseList,
        requester: Requester[A, T],
        options: KitOptions,
        process: ProgramProcess | None,
    ) -> None:
        self._case_list = cases
        self._base: Requester[A, T] = requester
        self._process = process
        self._timeout = options.timeout
        self._first_timeout = options.first_timeout
        if process is not None:
            self._first_timeout = options.timeout + START_SECONDS
        self._only = frozenset(options.only) or frozenset(cases.titles)
        self._began = clock.monotonic()
        self._answer_seconds = 0.0
        self._results: dict[str, CaseResult] = {}
        self.usual = ""
        """The tested program's final answer to an ordinary request, with which later answers are
        compared.
        """

    # Methods that each kit implements. -----------------------------------------------------

    @abstractmethod
    async def _first_request(self, number: int) -> A:
        """Sends the first request; ``number`` is how often it was sent before."""

    @abstractmethod
    async def _answers(self) -> bool:
        """Runs the test case "answers". Returns False if the other test cases cannot be run."""

    @abstractmethod
    def _cases(self) -> Mapping[str, Attempt]:
        """The test cases of this kit that need a program that answers, by name."""

    @abstractmethod
    def _content(self, message: ReceivedMessage[A, T]) -> Hashable:
        """The content of a message without its time, so that repeated messages have equal
        content.
        """

    @abstractmethod
    def _shown(self, message: ReceivedMessage[A, T]) -> str:
        """A sentence that reports a message as repeated, with %s where the number of repeats
        belongs.
        """

    async def clean_up(self) -> None:
        """Cleans up after the test cases, before the kit asks the tested program to end."""

    # Running. -----------------------------------------------------------------------------

    async def run(self, on_case: Callable[[str], None]) -> list[CaseResult]:
        """Runs the test cases. ``on_case`` is called with the title of each test case that
        starts."""
        titles = self._case_list.titles
        on_case(titles["answers"])
        general = {"acknowledges": self._acknowledges, "heartbeat": self._heartbeat}
        if not await self._answers():
            for case in titles:
                if case not in (*self._results, *general, "ends", *self._case_list.message_cases):
                    self._record(case, NOT_APPLICABLE, "the program did not answer")
        else:
            await self._try(self._cases(), on_case)
        await self._try(general, on_case)
        self._message_cases()
        wanted = self._only | {"answers"}
        return [self._results[case] for case in titles if case in self._results.keys() & wanted]

    async def _try(self, cases: Mapping[str, Attempt], on_case: Callable[[str], None]) -> None:
        for case, attempt in cases.items():
            if case in self._only:
                on_case(self._case_list.titles[case])
                await attempt()

    def _runs(self) -> bool:
        """Whether the program runs, as far as the test started it."""
        return self._process is None or self._process.runs()

    def _record(self, case: str, outcome: str, *details: str) -> None:
        self._results[case] = self._case_list.result(case, outcome, *details)

    def _record_faults(self, case: str, *faults: str) -> None:
        """Records the test case as failed with these faults, or as passed if there are none."""
        sentences = tuple(filter(None, faults))
        self._record(case, FAILED if sentences else PASSED, *sentences)

    async def _until_answered(self, *requests: A, seconds: float = 0.0) -> bool:
        """Waits until the program has answered each of the requests, at most ``seconds``. Returns
        False if some requests have no answer by then.
        """

        def answered() -> bool:
            return {answer.request for answer in self._base.answers_to(*requests)} >= set(requests)

        def settled() -> bool:
            return answered() or not self._runs()

        return await self._base.until(settled, seconds or self._timeout) and answered()

    async def _until_quiet(self) -> None:
        """Waits until the program has sent no message for `QUIET_SECONDS`."""
        deadline = clock.monotonic() + self._timeout
        while clock.monotonic() < deadline:
            if not await self._more_than(len(self._base.messages)):
                return

    async def _more_than(self, count: int) -> bool:
        return await self._base.until(lambda: len(self._base.messages) > count, QUIET_SECONDS)

    async def _listen_for(self, seconds: float) -> None:
        """Waits for ``seconds``, while the program's messages are received."""
        await self._base.until(lambda: False, seconds)

    async def _first_answer(self) -> bool:
        """Waits for the program's first answer; returns whether the answer came in time, and
        records a fault if not. Sends the first request again and again, because a program with a
        plain subscription misses requests that were sent before the program subscribed.
        """
        requests: list[A] = []
        deadline = clock.monotonic() + self._first_timeout
        while (left := deadline - clock.monotonic()) > 0 and self._runs():
            requests.append(await self._first_request(len(requests)))
            if await self._base.until(
                lambda: bool(self._base.answers_to(*requests)), min(left, REPEAT_SECONDS)
            ):
                return True
        if not self._runs():
            self._record("answers", FAILED, "the program ended before it answered")
        elif self._base.messages:
            shown = quoted(self._base.messages[0].data)
            self._record("answers", FAILED, f"its messages contain no answer, for example {shown}")
        else:
            now = await self._base.deliveries()
            why = f"no message within {self._first_timeout:g} s"
            if now is None or not self._base.has_delivered(now):
                why += f", and no pull from the durable of {self._base.program}"
            self._record("answers", FAILED, why)
        return False

    # Test cases of both kits. -------------------------------------------------------------

    async def _until_acknowledged_or(self, seconds: float) -> tuple[int, int, int] | None:
        """Waits until the program has fetched and acknowledged all messages of its durable, at most
        ``seconds``. Returns the durable's counts of messages, as `Requester.deliveries` does.
        """
        deadline = clock.monotonic() + seconds
        while True:
            now = await self._base.deliveries()
            if now is None or not (now[0] or now[1]) or clock.monotonic() >= deadline:
                return now
            if self.usual and not self._base.has_delivered(now):
                # It answers requests that it has not fetched, by a plain subscription.
                return now
            await self._listen_for(0.25)

    async def _acknowledges(self) -> None:
        await self._base.withdraw_all()
        now = await self._until_acknowledged_or(self._timeout + self._answer_seconds)
        if now is None:
            self._record("acknowledges", FAILED, "its durable was deleted")
        elif not self._base.has_delivered(now):
            if self.usual:
                self._record("acknowledges", NOT_APPLICABLE, PLAIN_SUBSCRIPTION)
            else:
                self._record("acknowledges", FAILED, "it never pulled from its durable")
        elif now[0]:
            why = f"{now[0]} requests are not acknowledged: they are redelivered again and again"
            self._record("acknowledges", FAILED, why)
        elif now[1]:
            self._record("acknowledges", FAILED, f"{now[1]} requests were never fetched")
        else:
            self._record("acknowledges", PASSED)

    async def _heartbeat(self) -> None:
        left = HEARTBEAT_SECONDS - (clock.monotonic() - self._began)
        await self._base.until(lambda: self._base.heartbeats > 0, max(0.0, left))
        sentences = self._sentences("heartbeat")
        if sentences:
            self._record("heartbeat", FAILED, *sentences)
        elif not self._base.heartbeats:
            why = "no heartbeat: a program that never sends one counts as active"
            self._record("heartbeat", NOT_APPLICABLE, why)
        else:
            self._record("heartbeat", PASSED)

    # Cases about all messages. ------------------------------------------------------------

    def _message_cases(self) -> None:
        for case in self._case_list.message_cases:
            sentences = self._sentences(case)
            if sentences:
                self._record(case, FAILED, *sentences)
            elif not self._base.messages:
                self._record(case, NOT_APPLICABLE, "the program sent no message")
            else:
                self._record(case, PASSED)
        if self._base.messages:
            self._message_ids()
            self._repeats()

    def _message_ids(self) -> None:
        contents: dict[str, set[Hashable]] = defaultdict(set)
        for message in self._base.messages:
            if message.message_id:
                contents[message.message_id].add(self._content(message))
        shared = [message_id for message_id, several in contents.items() if len(several) > 1]
        if shared:
            why = f"different messages have the id {quoted(shared[0].encode())}: the server drops "
            self._record("message-id", FAILED, f"{why}all but the first")
        elif not contents:
            why = "its messages have no Nats-Msg-Id: a repeated message counts twice"
            self._record("message-id", NOT_APPLICABLE, why)
        else:
            self._record("message-id", PASSED)

    def _repeats(self) -> None:
        answers = [
            message
            for message in self._base.messages
            if message.request is not None and message.content is not None
        ]
        counts = Counter(map(self._repeated, answers))
        for content, count in counts.most_common(1):
            if count > REPEATS_MAX:
                [first, *_] = (answer for answer in answers if self._repeated(answer) == content)
                self._record("repeats", FAILED, self._shown(first) % f"{count} times")
                return
        self._record("repeats", PASSED)

    def _repeated(self, message: ReceivedMessage[A, T]) -> Hashable:
        """A value that is equal for messages that count as repeats of each other."""
        return message.request, self._content(message)

    def _sentences(self, case: str) -> list[str]:
        """The sentences about the different faults of a test case: at most `DETAILS_MAX`, and one
        about how many more there are.
        """
        sentences = list(
            dict.fromkeys(fault.sentence for fault in self._base.faults if fault.case == case)
        )
        if len(sentences) > DETAILS_MAX:
            return [*sentences[:DETAILS_MAX], f"and {len(sentences) - DETAILS_MAX} more like these"]
        return sentences


class KitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the kit for check controllers and the kit for providers. ``timeout``: how many
    seconds the program may take for an answer. ``command``: the command that starts the program,
    with ADMIT_NATS_URL set; if empty, the program runs already, or the user starts it within
    ``first_timeout`` seconds. ``only``: the names of the test cases to run; empty means all.
    ``own_server``: the NATS server was started for the test, so the program gets no login and no
    TLS settings from the environment.
    """

    timeout: float
    first_timeout: float
    command: Sequence[str] = ()
    only: Collection[str] = ()
    own_server: bool = False


class KitResult(NamedTuple):
    """The result of `run_kit`: the fields that the report on a check controller and the report on a
    provider share.
    """

    outcomes: tuple[CaseResult, ...]
    usual: str
    seconds: float


async def run_kit(
    cases: CaseList,
    requester: Requester[A, T],
    kit_of: Callable[[ProgramProcess | None], ConformanceKit[A, T]],
    options: KitOptions,
    url: str,
    *,
    on_case: Callable[[str], None],
    on_ready: Callable[[], None],
) -> KitResult:
    """Starts the program if the options have a command, runs the test cases, and then ends the
    program that was started.

    ``kit_of`` makes the kit from the program's process, None if the kit did not start the program.
    ``on_ready`` is called when the kit is ready for requests, so that the user may start a program
    without a command. Raises SetupError if the program cannot be started or the bus has no log.
    """
    began = clock.monotonic()
    await requester.start()
    outcomes: list[CaseResult] = []
    try:
        on_ready()
        process = None
        if options.command:
            process = ProgramProcess(options.command, url, is_ours=options.own_server)
        if process is not None:
            await process.start()
        try:
            kit = kit_of(process)
            outcomes += await kit.run(on_case)
            await kit.clean_up()
        finally:
            if process is not None:
                fault = await process.end()
                outcome = (FAILED, fault) if fault else (PASSED,)
                outcomes.append(cases.result("ends", *outcome))
            elif not options.only:
                outcomes.append(cases.result("ends", NOT_APPLICABLE, NOT_STARTED))
    finally:
        await requester.stop()
    return KitResult(tuple(outcomes), kit.usual, round(clock.monotonic() - began, 1))
