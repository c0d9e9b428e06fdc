"""Turns delivered requests and withdrawals into calls of the check's function.

Rules within one replica:

- A check runs one judgement per workload at a time, the newest cycle last. When a newer cycle
  arrives, a judgement that has not begun is dropped. A judgement that has begun continues when a
  newer cycle arrives, because its Retry may still count.
- A withdrawal because of another check's Retry ends no judgement. Any other withdrawal cancels the
  judgement; a function in a thread cannot be cancelled, so its answer is dropped. After a
  withdrawal only a Retry or Rejected that the check itself reports is published.
- The withdrawn callback runs after the judgement has ended, or beside a judgement that continues.
- A function that raises gives no answer. The function is called again after 1, 2, 4, … 60 s.
- A delivery is acknowledged when its verdict is on the log. A duplicate of a request is
  acknowledged and not judged again.
- A request with other parameters is judged again, after the judgement under way. A request is also
  judged again after the queue dropped the check and listed it again in the same cycle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import structlog

from admittance.checks.judgements import (
    Judgement,
    JudgementKey,
    JudgementMemory,
    JudgementQueue,
    WithdrawnCallbacks,
    is_over,
    names_of,
)
from admittance.checks.request import Request, Withdrawal
from admittance.checks.verdicts import Pending, Verdict
from admittance.events import reasons
from admittance.runtime.errors import BusRefused
from admittance.runtime.tasks import BackgroundTasks
from admittance.sdk.requests import Acknowledger

BAD_REQUESTS_MAX: Final = 10_000
"""The most requests with wrong parameters that are remembered until the parameters are
corrected.
"""

log = structlog.get_logger()


class Judge:
    """Judges requests, ``concurrency`` at a time.

    ``judge`` calls the check's function. ``publish`` publishes a verdict and returns whether it
    counts. ``release``: the callback for withdrawn requests, if any.
    """

    def __init__(
        self,
        deliveries: Acknowledger,
        *,
        judge: Callable[[Request], Awaitable[Verdict | None]],
        publish: Callable[[Request, Verdict], Awaitable[bool]],
        release: Callable[[Withdrawal], Awaitable[None]] | None,
        concurrency: int,
    ) -> None:
        self._deliveries = deliveries
        self._judge = judge
        self._publish = publish
        self._concurrency = concurrency
        self._queues: dict[JudgementKey, JudgementQueue] = {}
        self._waiting: deque[Judgement] = deque()
        self._tasks = BackgroundTasks(_log_failure)
        self._active = 0
        self._memory = JudgementMemory()
        self._callbacks = WithdrawnCallbacks(deliveries, self._memory, release, self._tasks.start)
        self._bad_requests: dict[JudgementKey, Request] = {}
        self._stopping = False

    # Requests. ----------------------------------------------------------------------------

    def requested(self, identity: JudgementKey, request: Request, reply: str) -> None:
        """Handles a delivered request to the check."""
        if self._stopping:
            self._deliveries.nak(reply)
            return
        record = self._memory.of(identity)
        if record is not None and record.cancelled:
            if not record.unlisted or request.revision <= record.revision:
                self._deliveries.ack(reply)
                return
            # The queue lists the check again in the same cycle, so the request is judged again.
            self._memory.forget(identity)
            record = None
        if record is not None and record.judged and record.parameters == request.raw:
            self._deliveries.ack(reply)
            return
        key = identity._replace(cycle=0)
        queue = self._queues.get(key)
        if queue is None:
            self._memory.requested(identity, request.raw, request.revision)
            self._queues[key] = JudgementQueue(Judgement(identity, request, reply))
            self._begin(self._queues[key].first)
            return
        newest = queue.next or queue.first
        same = newest if newest.identity == identity else self._under_way(identity)
        if same is not None and not is_over(same.request) and same.request.raw == request.raw:
            # The request was redelivered during its judgement, most likely because this process was
            # suspended.
            self._deliveries.ack(same.reply)
            same.reply = reply
            return
        if identity.cycle < newest.identity.cycle:
            self._deliveries.ack(reply)
            return
        if queue.next is not None:
            self._deliveries.ack(queue.next.reply)
        self._memory.requested(identity, request.raw, request.revision)
        queue.next = Judgement(identity, request, reply)
        queue.first.request.superseded = True
        if queue.first.task is None:
            # The current judgement has not begun, or waits between two attempts: the newer request
            # replaces it.
            self._drop(queue.first)

    def bad_parameters(
        self, identity: JudgementKey, request: Request, reply: str, why: str
    ) -> None:
        """Reports wrong parameters. A request with wrong parameters is judged when a later request
        of the same check has valid parameters.
        """
        self._memory.requested(identity, request.raw)
        self._memory.judged(identity)
        if len(self._bad_requests) < BAD_REQUESTS_MAX:
            self._bad_requests[identity] = request
        self._tasks.start(self._report_bad_parameters(request, reply, why))

    def good_parameters(
        self, check: str, parameters: Callable[[], object], raw: bytes = b"null"
    ) -> None:
        """Judges the requests that waited for valid parameters of this AdmissionCheck. ``raw``: the
        parameters as encoded JSON.
        """
        for identity in [identity for identity in self._bad_requests if identity.check == check]:
            request = self._bad_requests.pop(identity)
            request.parameters = parameters()
            request.raw = raw
            self._memory.forget(identity)
            self.requested(identity, request, "")

    # Withdrawals. -------------------------------------------------------------------------

    def withdrawn(self, identity: JudgementKey, reason: str, reply: str) -> None:
        """Handles a withdrawal. With an empty ``reply`` (the withdrawal came by the plain
        subscription) the callback runs only if this replica called the check for the request.
        """
        if self._stopping and reply:
            self._deliveries.nak(reply)
            return
        record = self._memory.of(identity)
        ours = record is not None and record.begun
        request = self._memory.request(identity)
        if request is not None and not is_over(request):
            request.withdrawn = reason
        self._bad_requests.pop(identity, None)
        under_way = self._under_way(identity)
        if reason != reasons.ADMISSION_CHECK:
            self._memory.cancelled(identity, unlisted=reason == reasons.CHECK_REMOVED)
            queue = self._queues.get(identity._replace(cycle=0))
            if queue is not None and queue.next is not None and queue.next.identity == identity:
                self._drop(queue.next)
            under_way = self._under_way(identity)
            if under_way is not None:
                self._cancel(under_way)
        if reply or ours:
            # The callback for withdrawn requests does not wait for a judgement that continues after
            # the withdrawal.
            ending = (
                None if reason == reasons.ADMISSION_CHECK or under_way is None else under_way.task
            )
            self._callbacks.free(identity, reason, reply, after=ending)

    def _under_way(self, identity: JudgementKey) -> Judgement | None:
        queue = self._queues.get(identity._replace(cycle=0))
        if queue is not None:
            for request in (queue.first, queue.next):
                if request is not None and request.identity == identity:
                    return request
        return None

    def _cancel(self, judgement: Judgement) -> None:
        if judgement.task is None:
            self._drop(judgement)
        elif not judgement.task.cancelling():
            # A judgement is cancelled only once, even if its withdrawal is delivered twice: a
            # second cancellation would interrupt the cleanup of the check.
            judgement.task.cancel()

    # One judgement. -----------------------------------------------------------------------

    def _begin(self, judgement: Judgement) -> None:
        judgement.timer = None
        self._memory.begun(judgement.identity, judgement.request)
        self._waiting.append(judgement)
        self._pump()

    def _pump(self) -> None:
        while self._waiting and self._active < self._concurrency and not self._stopping:
            judgement = self._waiting.popleft()
            self._active += 1
            judgement.calls = True
            judgement.task = self._tasks.start(self._attempt(judgement))
            judgement.task.add_done_callback(partial(self._attempted, judgement))

    async def _attempt(self, judgement: Judgement) -> None:
        request = judgement.request
        try:
            verdict = await self._verdict_of(judgement)
            if verdict is not None and not is_over(request):
                await self._publish(request, verdict)
        except Exception as error:
            judgement.task = None
            await self._failed(judgement, error)
        else:
            self._end(judgement)

    async def _verdict_of(self, judgement: Judgement) -> Verdict | None:
        request = judgement.request
        try:
            verdict = await self._judge(request)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError("something that the check awaited was cancelled") from None
        self._release_slot(judgement)
        if verdict is None and not (request.published or request.later):
            raise TypeError(
                "the check's function answered None: return Pending, Ready, Retry or Rejected"
            )
        return verdict

    def _attempted(self, judgement: Judgement, task: asyncio.Task[None]) -> None:
        # The judgement's slot is released in a callback of its task, because a task that is
        # cancelled before its first step runs no code.
        self._release_slot(judgement)
        if task.cancelled():
            if self._stopping and not is_over(judgement.request):
                self._deliveries.nak(judgement.reply)
            self._end(judgement)

    def _release_slot(self, judgement: Judgement) -> None:
        """Frees the judgement's slot after a call of the check's function, and starts the next
        waiting judgement.
        """
        if judgement.calls:
            judgement.calls = False
            self._active -= 1
            self._pump()

    async def _failed(self, judgement: Judgement, error: Exception) -> None:
        """Schedules another call of the check after a pause. No verdict is published for the call
        that failed.
        """
        self._release_slot(judgement)
        request = judgement.request
        pause = judgement.backoff.next()
        log.error(
            "check_failed",
            attempt=judgement.backoff.failures,
            again_seconds=pause,
            exc_info=error,
            **names_of(judgement.identity),
        )
        queue = self._queues.get(judgement.identity._replace(cycle=0))
        if is_over(request) or (queue is not None and queue.next is not None):
            self._drop(judgement)
            return
        if self._stopping:
            self._deliveries.nak(judgement.reply)
            self._end(judgement)
            return
        self._deliveries.let_wait(judgement.reply)
        loop = asyncio.get_running_loop()
        judgement.timer = loop.call_later(pause, self._begin, judgement)
        if judgement.backoff.failures == 1 and not request.published:
            # The message of the verdict shows only the type of the error, because the text of the
            # error may contain secrets.
            why = f"the check failed ({type(error).__name__}) and is tried again"
            try:
                await self._publish(request, Pending(why))
            except BusRefused as refused:
                log.warning("verdict_refused", reason=str(refused), **names_of(judgement.identity))

    async def _report_bad_parameters(self, request: Request, reply: str, why: str) -> None:
        log.error("wrong_parameters", check=request.check, reason=why)
        try:
            await self._publish(request, Pending(f"check {request.check}: {why}"))
        except BusRefused as refused:
            log.warning("verdict_refused", check=request.check, reason=str(refused))
        self._deliveries.ack(reply)

    def _drop(self, judgement: Judgement) -> None:
        """Drops a judgement: the check's function must not be called for it, or not again."""
        if judgement.timer is not None:
            judgement.timer.cancel()
        if judgement in self._waiting:
            self._waiting.remove(judgement)
        self._end(judgement)

    def _end(self, judgement: Judgement) -> None:
        """Ends a judgement and begins the next one of the same workload."""
        key = judgement.identity._replace(cycle=0)
        queue = self._queues.get(key)
        again = queue.next if queue is not None and queue.first is judgement else None
        if again is None or again.identity != judgement.identity:
            self._memory.judged(judgement.identity)
        self._deliveries.ack(judgement.reply)
        if queue is None:
            return
        if queue.next is judgement:
            queue.next = None
        elif queue.first is judgement:
            if queue.next is None:
                del self._queues[key]
            else:
                queue.first, queue.next = queue.next, None
                self._begin(queue.first)

    # The end. -----------------------------------------------------------------------------

    async def stop(self, grace_seconds: float) -> None:
        """Returns requests that are not being judged yet to the server, for another replica, and
        waits for judgements under way. After ``grace_seconds`` the judgements that still run are
        cancelled, and their requests are returned to the server too.
        """
        self._stopping = True
        for queue in list(self._queues.values()):
            for request in (queue.next, queue.first):
                if request is not None and request.task is None:
                    self._deliveries.nak(request.reply)
                    self._drop(request)
        await self._tasks.settled(grace_seconds)
        for queue in self._queues.values():
            # At shutdown a request is returned to the server before its judgement ends, because a
            # function in a thread may never end.
            if queue.first.calls and not is_over(queue.first.request):
                self._deliveries.nak(queue.first.reply)
        self._tasks.cancel()
        # The process waits one second for cancelled judgements, not until a function in a thread
        # ends, which may take longer.
        await self._tasks.settled(1.0)
        self._callbacks.hand_back()


def _log_failure(_: asyncio.Task[Any], error: BaseException) -> None:
    log.error("judging_failed", exc_info=error)
