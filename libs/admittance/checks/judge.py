"""Turns requests and withdrawals, as they are delivered, into calls of the check's function.

Rules within one replica:

- A check judges one workload one judgement at a time, the newest cycle last. A judgement that has
not begun when a newer cycle arrives is dropped. One that has begun continues, because its Retry may
still count. - A withdrawal because of another check's Retry ends no judgement. Any other withdrawal
cancels it (a function in a thread cannot be cancelled: its answer is dropped). After that only a
Retry or Rejected that the check itself reports is published. - The withdrawn callback runs after
the judgement has ended, or beside a judgement that continues. - A function that raises gives no
answer. It is called again after 1, 2, 4, … 60 s. - A delivery is acknowledged once its verdict is
on the log. A duplicate of a request is acknowledged and not judged again. - A request with other
parameters is judged again with these, after the judgement under way has ended. So is a request
after the queue dropped the check and listed it again in the same cycle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import structlog

from admittance.checks.judgements import (
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
from admittance.sdk.requests import Acknowledger
from admittance.sdk.threads import pause_after

BAD_KEPT: Final = 10_000
"""Requests with wrong parameters that are kept until the parameters are corrected."""

log = structlog.get_logger()


class Judge:
    """Judges requests, ``concurrency`` at a time.

    ``judge`` calls the check's function. ``say`` publishes a verdict and returns whether it counts.
    ``freed`` is the withdrawn callback, or None.
    """

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
        """Handles a delivered request."""
        if self._stopping:
            self._desk.again(reply)
            return
        known = self._memory.of(identity)
        if known is not None and known.cancelled:
            if not known.unlisted or request.revision <= known.revision:
                self._desk.done(reply)
                return
            # The queue lists the check again in the same cycle: judge again.
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
            # A redelivery during the judgement, most likely because this process was suspended.
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
            # Not begun, or between two attempts: the newer request replaces it now.
            self._drop(line.first)

    def bad_parameters(self, identity: Identity, request: Request, reply: str, why: str) -> None:
        """Reports wrong parameters. The request is judged when a later request of the same check
        has valid parameters."""
        self._memory.asked(identity, request.raw)
        self._memory.judged(identity)
        if len(self._bad) < BAD_KEPT:
            self._bad[identity] = request
        self._start(self._tell_bad(request, reply, why))

    def good_parameters(
        self, check: str, parameters: Callable[[], object], raw: bytes = b"null"
    ) -> None:
        """Judges the requests that waited for valid parameters of this check. ``raw``: the encoded
        parameters."""
        for identity in [one for one in self._bad if one.check == check] if self._bad else ():
            request = self._bad.pop(identity)
            request.parameters = parameters()
            request.raw = raw
            self._memory.forget(identity)
            self.requested(identity, request, "")

    # Withdrawals. -------------------------------------------------------------------------

    def withdrawn(self, identity: Identity, reason: str, reply: str) -> None:
        """Handles a withdrawal. With an empty ``reply`` (it came by the plain subscription) the
        callback runs only if this replica called the check."""
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
            # The callback does not wait for a judgement that continues.
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
            # Only once, even if the withdrawal is delivered twice: its cleanup must not be cut.
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
        # In the callback, because a task that is cancelled before its first step never runs.
        self._leave(judgement)
        if task.cancelled():
            if self._stopping and not is_over(judgement.request):
                self._desk.again(judgement.reply)
            self._end(judgement)

    def _leave(self, judgement: Judgement) -> None:
        """Gives the place of a finished call to the next one."""
        if judgement.calls:
            judgement.calls = False
            self._active -= 1
            self._pump()

    async def _failed(self, judgement: Judgement, error: Exception) -> None:
        """Schedules another call after a pause. No verdict is published for the failed call."""
        self._leave(judgement)
        request = judgement.request
        judgement.attempts += 1
        pause = pause_after(judgement.attempts)
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
            # Only the kind of the error: its text may hold what others must not read.
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
        """Drops a judgement that must not be called (again)."""
        if judgement.timer is not None:
            judgement.timer.cancel()
        if judgement in self._queue:
            self._queue.remove(judgement)
        self._end(judgement)

    def _end(self, judgement: Judgement) -> None:
        """Ends a judgement and begins the next one of its queue."""
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
        """Hands back what has not begun, and waits for judgements under way. After
        ``grace_seconds`` the rest is cancelled and handed back too."""
        self._stopping = True
        for line in list(self._lines.values()):
            for one in (line.next, line.first):
                if one is not None and one.task is None:
                    self._desk.again(one.reply)
                    self._drop(one)
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)
        for line in self._lines.values():
            # Handed back before its end, because a function in a thread may never end.
            if line.first.calls and not is_over(line.first.request):
                self._desk.again(line.first.reply)
        for task in list(self._running):
            task.cancel()
        if self._running:
            # A function in a thread may take longer; it is not waited for.
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
