"""Requests and withdrawals, as they come, made into calls of the check's function.

What holds, for each replica:

- A workload is judged by one check one judgement at a time, the newest cycle last. A cycle that
  was not begun when a newer one came is never begun; one that was begun goes on, since its Retry
  may still count.
- A withdrawal because of another check's Retry ends no judgement. Any other one cancels it (a
  function in a thread cannot be: its answer is dropped), and nothing more is said but a Retry or a
  Rejected that the check reports itself.
- The withdrawn callback runs when the judgement has ended, or, beside it, where that goes on.
- A function that fails answers nothing: it is called again, after 1, 2, 4, … 60 s.
- A delivery is acknowledged when its verdict is on the log, and not before. One and the same
  request heard again is acknowledged, and judged once.
- A request that comes again with other parameters is judged anew, with these; the judgement that is
  under way ends first. So is one that comes after the check was taken off the queue and listed
  again in the same cycle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import structlog

from admittance.checks.judgements import (
    Acknowledger,
    Identity,
    Judgement,
    JudgementMemory,
    JudgementQueue,
    WithdrawnCallbacks,
    is_over,
    names_of,
)
from admittance.checks.request import BY_OTHER_CHECK, CHECK_REMOVED, Request, Withdrawal
from admittance.checks.verdicts import Pending, Verdict
from admittance.runtime.errors import Refused

PAUSE_MIN: Final = 1.0
PAUSE_MAX: Final = 60.0
BAD_KEPT: Final = 10_000
"""Requests with wrong parameters that are judged again once these are right."""

log = structlog.get_logger()


class Judge:
    """``judge`` calls the check's function; ``say`` puts a verdict on the log and answers whether
    it counted; ``freed`` is the withdrawn callback, if there is one. ``concurrency``: how many
    calls are under way at once."""

    def __init__(
        self,
        desk: Acknowledger,
        *,
        judge: Callable[[Request], Awaitable[Verdict | None]],
        say: Callable[[Request, Verdict], Awaitable[bool]],
        freed: Callable[[Withdrawal], Awaitable[None]] | None,
        concurrency: int,
    ) -> None:
        self._desk = desk
        self._judge = judge
        self._say = say
        self._concurrency = concurrency
        self._lines: dict[Identity, JudgementQueue] = {}
        self._queue: deque[Judgement] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._active = 0
        self._memory = JudgementMemory()
        self._freeing = WithdrawnCallbacks(desk, self._memory, freed, self._start)
        self._bad: dict[Identity, Request] = {}
        self._stopping = False

    # Requests. ----------------------------------------------------------------------------

    def requested(self, identity: Identity, request: Request, reply: str) -> None:
        """A request came."""
        if self._stopping:
            self._desk.again(reply)
            return
        known = self._memory.of(identity)
        if known is not None and known.cancelled:
            if not known.unlisted or request.revision <= known.revision:
                self._desk.done(reply)
                return
            # The queue lists the check again, in the same cycle: it is asked anew.
            self._memory.forget(identity)
            known = None
        if known is not None and known.judged and known.parameters == request.raw:
            self._desk.done(reply)
            return
        key = identity._replace(cycle=0)
        line = self._lines.get(key)
        if line is None:
            self._memory.asked(identity, request.raw, request.revision)
            self._lines[key] = JudgementQueue(Judgement(identity, request, reply))
            self._begin(self._lines[key].first)
            return
        newest = line.next or line.first
        same = newest if newest.identity == identity else self._under_way(identity)
        if same is not None and not is_over(same.request) and same.request.raw == request.raw:
            # It came again while it is judged, most likely since this process was asleep.
            self._desk.done(same.reply)
            same.reply = reply
            return
        if identity.cycle < newest.identity.cycle:
            self._desk.done(reply)
            return
        if line.next is not None:
            self._desk.done(line.next.reply)
        self._memory.asked(identity, request.raw, request.revision)
        line.next = Judgement(identity, request, reply)
        line.first.request.superseded = True
        if line.first.task is None:
            # Not begun, or between two attempts: the newer one has its turn now.
            self._drop(line.first)

    def bad_parameters(self, identity: Identity, request: Request, reply: str, why: str) -> None:
        """A request came whose parameters are wrong: it is told so, and judged when a later request
        of the same check shows that they are right."""
        self._memory.asked(identity, request.raw)
        self._memory.judged(identity)
        if len(self._bad) < BAD_KEPT:
            self._bad[identity] = request
        self._start(self._tell_bad(request, reply, why))

    def good_parameters(
        self, check: str, parameters: Callable[[], object], raw: bytes = b"null"
    ) -> None:
        """The parameters of check are right: those who waited for that are judged with them.
        ``raw``: as they came."""
        for identity in [one for one in self._bad if one.check == check] if self._bad else ():
            request = self._bad.pop(identity)
            request.parameters = parameters()
            request.raw = raw
            self._memory.forget(identity)
            self.requested(identity, request, "")

    # Withdrawals. -------------------------------------------------------------------------

    def withdrawn(self, identity: Identity, reason: str, reply: str) -> None:
        """A request was taken back. ``reply`` empty: heard by the way; then the callback is run
        only if this replica has judged or judges it."""
        if self._stopping and reply:
            self._desk.again(reply)
            return
        known = self._memory.of(identity)
        ours = known is not None and known.begun
        request = self._memory.request(identity)
        if request is not None and not is_over(request):
            request.withdrawn = reason
        self._bad.pop(identity, None)
        under_way = self._under_way(identity)
        if reason != BY_OTHER_CHECK:
            self._memory.cancelled(identity, unlisted=reason == CHECK_REMOVED)
            line = self._lines.get(identity._replace(cycle=0))
            if line is not None and line.next is not None and line.next.identity == identity:
                self._drop(line.next)
            under_way = self._under_way(identity)
            if under_way is not None:
                self._cancel(under_way)
        if reply or ours:
            # A judgement that goes on is not waited for.
            ending = None if reason == BY_OTHER_CHECK or under_way is None else under_way.task
            self._freeing.free(identity, reason, reply, after=ending)

    def _under_way(self, identity: Identity) -> Judgement | None:
        line = self._lines.get(identity._replace(cycle=0))
        if line is not None:
            for one in (line.first, line.next):
                if one is not None and one.identity == identity:
                    return one
        return None

    def _cancel(self, judgement: Judgement) -> None:
        if judgement.task is None:
            self._drop(judgement)
        elif not judgement.task.cancelling():
            # Once, though a withdrawal is heard twice: what it puts in order it may put in order.
            judgement.task.cancel()

    # One judgement. -----------------------------------------------------------------------

    def _begin(self, judgement: Judgement) -> None:
        judgement.timer = None
        self._memory.begun(judgement.identity, judgement.request)
        self._queue.append(judgement)
        self._pump()

    def _pump(self) -> None:
        while self._queue and self._active < self._concurrency and not self._stopping:
            judgement = self._queue.popleft()
            self._active += 1
            judgement.calls = True
            judgement.task = self._start(self._attempt(judgement))
            judgement.task.add_done_callback(partial(self._attempted, judgement))

    async def _attempt(self, judgement: Judgement) -> None:
        request = judgement.request
        try:
            verdict = await self._called(judgement)
            if verdict is not None and not is_over(request):
                await self._say(request, verdict)
        except Exception as error:
            judgement.task = None
            await self._failed(judgement, error)
        else:
            self._end(judgement)

    async def _called(self, judgement: Judgement) -> Verdict | None:
        request = judgement.request
        try:
            verdict = await self._judge(request)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError("something that the check awaited was cancelled") from None
        self._leave(judgement)
        if verdict is None and not (request.said or request.later):
            raise TypeError("the check answered None: return Pending, Ready, Retry or Rejected")
        return verdict

    def _attempted(self, judgement: Judgement, task: asyncio.Task[None]) -> None:
        # Here, since what is cancelled before its first step never takes one.
        self._leave(judgement)
        if task.cancelled():
            if self._stopping and not is_over(judgement.request):
                self._desk.again(judgement.reply)
            self._end(judgement)

    def _leave(self, judgement: Judgement) -> None:
        """Its call is over: the next one has its place."""
        if judgement.calls:
            judgement.calls = False
            self._active -= 1
            self._pump()

    async def _failed(self, judgement: Judgement, error: Exception) -> None:
        """Nothing is answered for it; the function is called again after a pause."""
        self._leave(judgement)
        request = judgement.request
        judgement.attempts += 1
        pause = min(PAUSE_MIN * 2 ** (judgement.attempts - 1), PAUSE_MAX)
        log.error(
            "check_failed",
            attempt=judgement.attempts,
            again_seconds=pause,
            exc_info=error,
            **names_of(judgement.identity),
        )
        line = self._lines.get(judgement.identity._replace(cycle=0))
        if is_over(request) or (line is not None and line.next is not None):
            self._drop(judgement)
            return
        if self._stopping:
            self._desk.again(judgement.reply)
            self._end(judgement)
            return
        self._desk.let_wait(judgement.reply)
        loop = asyncio.get_running_loop()
        judgement.timer = loop.call_later(pause, self._begin, judgement)
        if judgement.attempts == 1 and not request.said:
            # Of the error only its kind: its words may hold what is nobody's business.
            why = f"the check failed ({type(error).__name__}) and is tried again"
            try:
                await self._say(request, Pending(why))
            except Refused as refused:
                log.warning("verdict_refused", reason=str(refused), **names_of(judgement.identity))

    async def _tell_bad(self, request: Request, reply: str, why: str) -> None:
        log.error("wrong_parameters", check=request.check, reason=why)
        try:
            await self._say(request, Pending(f"check {request.check}: {why}"))
        except Refused as refused:
            log.warning("verdict_refused", check=request.check, reason=str(refused))
        self._desk.done(reply)

    def _drop(self, judgement: Judgement) -> None:
        """It is never to be judged, or not again."""
        if judgement.timer is not None:
            judgement.timer.cancel()
        if judgement in self._queue:
            self._queue.remove(judgement)
        self._end(judgement)

    def _end(self, judgement: Judgement) -> None:
        """Its turn is over."""
        key = judgement.identity._replace(cycle=0)
        line = self._lines.get(key)
        again = line.next if line is not None and line.first is judgement else None
        if again is None or again.identity != judgement.identity:
            self._memory.judged(judgement.identity)
        self._desk.done(judgement.reply)
        if line is None:
            return
        if line.next is judgement:
            line.next = None
        elif line.first is judgement:
            if line.next is None:
                del self._lines[key]
            else:
                line.first, line.next = line.next, None
                self._begin(line.first)

    # The end. -----------------------------------------------------------------------------

    async def stop(self, grace_seconds: float) -> None:
        """Begins nothing more, hands back what was not begun, and waits for what is under way; what
        takes longer than grace_seconds is cancelled and handed back, too."""
        self._stopping = True
        for line in list(self._lines.values()):
            for one in (line.next, line.first):
                if one is not None and one.task is None:
                    self._desk.again(one.reply)
                    self._drop(one)
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)
        for line in self._lines.values():
            # Before it has ended: a function in a thread may never.
            if line.first.calls and not is_over(line.first.request):
                self._desk.again(line.first.reply)
        for task in list(self._running):
            task.cancel()
        if self._running:
            # A function in a thread ends when it ends; nobody waits for that.
            await asyncio.wait(self._running, timeout=1.0)
        self._freeing.hand_back()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("judging_failed", exc_info=task.exception())
