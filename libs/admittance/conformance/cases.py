"""What is tried with any program, whatever it is asked; a kit adds the cases of its own.

Times follow the program: how long it takes for its first answer tells how long it may take for
others. ``timeout`` bounds each wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from admittance.conformance.faults import quoted
from admittance.conformance.report import FAILED, NOT_APPLICABLE, PASSED, Outcome
from admittance.conformance.stand import Said, Stand
from admittance.runtime import clock

QUIET: Final = 1.0
"""Seconds without a word after which nothing more is expected."""
GRACE: Final = 1.0
"""Seconds in which an answer may still be on its way when its request is taken back."""
WATCH: Final = 2.0
"""Seconds that a request is watched at least, of which nothing is expected."""
BEAT: Final = 10.5
ASKED_AGAIN: Final = 5.0
"""Seconds after which the very first question is asked again."""
REPEATS_MAX: Final = 20
DETAILS_MAX: Final = 3

A = TypeVar("A")
T = TypeVar("T")
Attempt = Callable[[], Awaitable[None]]


class Kit(NamedTuple):
    """``titles``: every case, in the order of the report. ``forms``: those that are about every
    message, whatever it was said in."""

    titles: Mapping[str, str]
    forms: Collection[str]

    def outcome(self, case: str, word: str, *details: str) -> Outcome:
        """One outcome."""
        return Outcome(case=case, title=self.titles[case], outcome=word, details=details)


class Trial(ABC, Generic[A, T]):
    """Cases with one program: all, or those in ``only``. ``patience``: seconds to wait for its
    very first answer. ``runs``: whether its process still does, as far as that is known."""

    def __init__(
        self,
        kit: Kit,
        stand: Stand[A, T],
        *,
        timeout: float,
        patience: float,
        only: Collection[str] = (),
        runs: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kit = kit
        self._base: Stand[A, T] = stand
        self._timeout = timeout
        self._patience = patience
        self._only = frozenset(only) or frozenset(kit.titles)
        self._runs = runs
        self._began = clock.monotonic()
        self._answers_after = 0.0
        self._outcomes: dict[str, Outcome] = {}
        self.usual = ""
        """What the first request was answered with in the end."""

    # What a kit says. ---------------------------------------------------------------------

    @abstractmethod
    async def _ask_first(self, times: int) -> A:
        """Asks the very first question, for that time."""

    @abstractmethod
    async def _answers(self) -> bool:
        """The case of that name; False: there is no use in trying others."""

    @abstractmethod
    def _cases(self) -> Mapping[str, Attempt]:
        """What is tried with one that answers."""

    @abstractmethod
    def _content(self, said: Said[A, T]) -> Hashable:
        """What makes a message the same as another, but for its time."""

    @abstractmethod
    def _shown(self, said: Said[A, T]) -> str:
        """A message in a sentence: ``Ready ... about one cycle of w``, with %s for how often."""

    async def leave(self) -> None:
        """What is to be done before the program is asked to end."""

    # Running. -----------------------------------------------------------------------------

    async def run(self, tell: Callable[[str], None]) -> list[Outcome]:
        """Tries everything; ``tell`` hears the title of what is tried now."""
        titles = self._kit.titles
        tell(titles["answers"])
        general = {"acknowledges": self._acknowledges, "heartbeat": self._heartbeat}
        if not await self._answers():
            for case in titles:
                if case not in (*self._outcomes, *general, "ends", *self._kit.forms):
                    self._put(case, NOT_APPLICABLE, "it answered nothing")
        else:
            await self._try(self._cases(), tell)
        await self._try(general, tell)
        self._forms()
        wanted = self._only | {"answers"}
        return [self._outcomes[case] for case in titles if case in self._outcomes.keys() & wanted]

    async def _try(self, cases: Mapping[str, Attempt], tell: Callable[[str], None]) -> None:
        for case, attempt in cases.items():
            if case in self._only:
                tell(self._kit.titles[case])
                await attempt()

    def _put(self, case: str, word: str, *details: str) -> None:
        self._outcomes[case] = self._kit.outcome(case, word, *details)

    async def _answered(self, *asked: A, seconds: float = 0.0) -> bool:
        """Waits until something was said about each of asked."""

        def all_are() -> bool:
            return {one.asked for one in self._base.about(*asked)} >= set(asked)

        def settled() -> bool:
            return all_are() or not self._runs()

        return await self._base.until(settled, seconds or self._timeout) and all_are()

    async def _quiet(self) -> None:
        """Waits until it says nothing more for a while."""
        deadline = clock.monotonic() + self._timeout
        while clock.monotonic() < deadline:
            heard = len(self._base.said)
            if not await self._more_than(heard):
                return

    async def _more_than(self, heard: int) -> bool:
        return await self._base.until(lambda: len(self._base.said) > heard, QUIET)

    async def _pass(self, seconds: float) -> None:
        """Lets time pass, and listens."""
        await self._base.until(lambda: False, seconds)

    async def _first_answer(self) -> bool:
        """Whether it answers anything in time, told if it does not. It is asked again and again,
        since one that subscribes plainly does not hear what was asked before it listened."""
        asked: list[A] = []
        deadline = clock.monotonic() + self._patience
        while (left := deadline - clock.monotonic()) > 0 and self._runs():
            asked.append(await self._ask_first(len(asked)))
            if await self._base.until(
                lambda: bool(self._base.about(*asked)), min(left, ASKED_AGAIN)
            ):
                return True
        if not self._runs():
            self._put("answers", FAILED, "it ended before it answered")
        elif self._base.said:
            shown = quoted(self._base.said[0].data)
            self._put("answers", FAILED, f"no answer in what it said, as {shown}")
        else:
            now = await self._base.deliveries()
            why = f"silent: nothing within {self._patience:g} s"
            if now is None or not self._base.delivered(now):
                why += f", nor did it ask the durable of {self._base.program} for anything"
            self._put("answers", FAILED, why)
        return False

    # Cases of any program. ----------------------------------------------------------------

    async def _settled(self, seconds: float) -> tuple[int, int, int] | None:
        """The deliveries, once all are acknowledged, or that time is over."""
        deadline = clock.monotonic() + seconds
        while True:
            now = await self._base.deliveries()
            if now is None or not (now[0] or now[1]) or clock.monotonic() >= deadline:
                return now
            await self._pass(0.25)

    async def _acknowledges(self) -> None:
        await self._base.take_back()
        now = await self._settled(self._timeout + self._answers_after)
        if now is None:
            self._put("acknowledges", FAILED, "its durable is gone")
        elif not self._base.delivered(now):
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
        await self._base.until(lambda: self._base.heartbeats > 0, max(0.0, left))
        found = self._sentences("heartbeat")
        if found:
            self._put("heartbeat", FAILED, *found)
        elif not self._base.heartbeats:
            why = "none was heard: it counts as active as long as it never says one"
            self._put("heartbeat", NOT_APPLICABLE, why)
        else:
            self._put("heartbeat", PASSED)

    # What all messages together show. -----------------------------------------------------

    def _forms(self) -> None:
        for case in self._kit.forms:
            found = self._sentences(case)
            if found:
                self._put(case, FAILED, *found)
            elif not self._base.said:
                self._put(case, NOT_APPLICABLE, "it said nothing")
            else:
                self._put(case, PASSED)
        if self._base.said:
            self._message_ids()
            self._repeats()

    def _message_ids(self) -> None:
        contents: dict[str, set[Hashable]] = defaultdict(set)
        for one in self._base.said:
            if one.message_id:
                contents[one.message_id].add(self._content(one))
        shared = [one for one, said in contents.items() if len(said) > 1]
        if shared:
            why = f"said different things under the id {quoted(shared[0].encode())}: all but the "
            self._put("message-id", FAILED, f"{why}first are dropped")
        elif not contents:
            why = "no Nats-Msg-Id: what is published twice counts as two"
            self._put("message-id", NOT_APPLICABLE, why)
        else:
            self._put("message-id", PASSED)

    def _repeats(self) -> None:
        said = [one for one in self._base.said if one.asked is not None and one.told is not None]
        counts = Counter(map(self._repeated, said))
        for content, count in counts.most_common(1):
            if count > REPEATS_MAX:
                [first, *_] = (one for one in said if self._repeated(one) == content)
                self._put("repeats", FAILED, self._shown(first) % f"{count} times")
                return
        self._put("repeats", PASSED)

    def _repeated(self, said: Said[A, T]) -> Hashable:
        """What counts as said again: what `_content` has, of one request."""
        return said.asked, self._content(said)

    def _sentences(self, case: str) -> list[str]:
        """What is wrong about a case, each thing once, and not too many of them."""
        found = list(dict.fromkeys(one.sentence for one in self._base.faults if one.case == case))
        if len(found) > DETAILS_MAX:
            return [*found[:DETAILS_MAX], f"and {len(found) - DETAILS_MAX} more like these"]
        return found
