"""Records of requests in one replica, so that a duplicate delivery has no effect.

The number of records is bounded, and they do not survive a restart: then a request that was not
acknowledged is judged again.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

import structlog

from admittance.checks.request import Request, Withdrawal
from admittance.events import reasons
from admittance.events.facts import CheckRequested, CheckWithdrawn
from admittance.runtime.tasks import until_returned
from admittance.sdk.requests import Acknowledger, OpenDeliveries
from admittance.sdk.threads import author_backoff

log = structlog.get_logger()


RECORDS_MAX: Final = 50_000
"""The most requests and withdrawals that are remembered."""


class JudgementKey(NamedTuple):
    """The key of the judgement of one workload by one check in one cycle."""

    uid: str
    namespace: str
    name: str
    check: str
    cycle: int

    @classmethod
    def of(cls, fact: CheckRequested | CheckWithdrawn) -> JudgementKey:
        """The key of the judgement that the fact is about; equal for all facts about one
        judgement."""
        return cls(fact.uid, fact.namespace, fact.name, fact.check, fact.cycle)


class JudgementRecord:
    """The data that one replica keeps about one judgement.

    ``judged``: the request was answered, or never will be. ``begun``: this replica has called the
    check's function for the request. ``cancelled``: the request was withdrawn and must not be
    judged. ``unlisted``: the request was withdrawn because the queue no longer lists the check,
    which may be listed again in the same cycle. ``revision``: the workload's revision in the newest
    request. ``freed``: the withdrawal reasons for which the callback for withdrawn requests has
    run. ``request``: a weak reference to the newest request. ``parameters``: the encoded parameters
    of the newest request.
    """

    __slots__ = (
        "begun",
        "cancelled",
        "freed",
        "judged",
        "parameters",
        "request",
        "revision",
        "unlisted",
    )

    def __init__(self) -> None:
        self.judged = False
        self.begun = False
        self.cancelled = False
        self.freed: tuple[str, ...] = ()
        self.request: weakref.ref[Request] | None = None
        self.parameters = b""
        self.revision = 0
        self.unlisted = False


class JudgementMemory:
    """The records of the newest `RECORDS_MAX` judgements."""

    def __init__(self) -> None:
        self._records: dict[JudgementKey, JudgementRecord] = {}

    def of(self, identity: JudgementKey) -> JudgementRecord | None:
        """Returns the record of a judgement, or None."""
        return self._records.get(identity)

    def begun(self, identity: JudgementKey, request: Request) -> None:
        """Records that the check is called for the request."""
        record = self._get_or_add(identity)
        record.begun = True
        record.request = weakref.ref(request)

    def judged(self, identity: JudgementKey) -> None:
        """Records that the request needs no further judgement."""
        self._get_or_add(identity).judged = True

    def cancelled(self, identity: JudgementKey, *, unlisted: bool = False) -> None:
        """Records that the request was withdrawn."""
        record = self._get_or_add(identity)
        record.cancelled = True
        record.unlisted = unlisted

    def requested(self, identity: JudgementKey, parameters: bytes, revision: int = 0) -> None:
        """Records that the request is to be judged with these parameters, even if it was judged
        with others before.
        """
        record = self._get_or_add(identity)
        record.parameters = parameters
        record.revision = max(record.revision, revision)
        record.judged = False

    def freed(self, identity: JudgementKey, reason: str) -> None:
        """Records that the callback for withdrawn requests ran for this withdrawal reason."""
        self._get_or_add(identity).freed += (reason,)

    def forget(self, identity: JudgementKey) -> None:
        """Lets the request be judged once more."""
        self._records.pop(identity, None)

    def request(self, identity: JudgementKey) -> Request | None:
        """Returns the request, if it is still in memory."""
        record = self._records.get(identity)
        return record.request() if record is not None and record.request is not None else None

    def _get_or_add(self, identity: JudgementKey) -> JudgementRecord:
        record = self._records.get(identity)
        if record is None:
            if len(self._records) >= RECORDS_MAX:
                del self._records[next(iter(self._records))]
            record = self._records[identity] = JudgementRecord()
        return record


class Judgement:
    """One request to a check, until its verdict is published."""

    __slots__ = ("backoff", "calls", "identity", "reply", "request", "task", "timer")

    def __init__(self, identity: JudgementKey, request: Request, reply: str) -> None:
        self.identity = identity
        self.request = request
        self.reply = reply
        self.backoff = author_backoff()
        self.calls = False
        """Whether the judgement counts against the controller's ``concurrency``."""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class JudgementQueue:
    """The judgements of one workload by one check: the current one and the next."""

    __slots__ = ("first", "next")

    def __init__(self, first: Judgement) -> None:
        self.first = first
        self.next: Judgement | None = None


def is_over(request: Request) -> bool:
    """Whether the request was withdrawn and no verdict of it counts."""
    return request.withdrawn not in ("", reasons.ADMISSION_CHECK)


def names_of(identity: JudgementKey) -> dict[str, object]:
    """The fields of a log line that identify a judgement."""
    return {
        "workload": f"{identity.namespace}/{identity.name}",
        "check": identity.check,
        "cycle": identity.cycle,
    }


class WithdrawnCallbacks:
    """Calls the callback for a withdrawn request after the judgement has ended, until one call
    succeeds.

    With ``callback`` None, deliveries of withdrawals are only acknowledged. ``start``: runs a
    coroutine as a task.
    """

    def __init__(
        self,
        deliveries: Acknowledger,
        memory: JudgementMemory,
        callback: Callable[[Withdrawal], Awaitable[None]] | None,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._deliveries = deliveries
        self._memory = memory
        self._callback = callback
        self._start = start
        self._under_way = OpenDeliveries[tuple[JudgementKey, str]](deliveries)

    def free(
        self, identity: JudgementKey, reason: str, reply: str, *, after: asyncio.Task[None] | None
    ) -> None:
        """Calls the callback for a withdrawn request once per withdrawal reason, after the task
        ``after``, then acknowledges the delivery of the withdrawal.
        """
        what = (identity, reason)
        record = self._memory.of(identity)
        if self._callback is None or (record is not None and reason in record.freed):
            self._deliveries.ack(reply)
        elif self._under_way.add(what, reply):
            self._start(self._free(self._callback, what, after))

    def hand_back(self) -> None:
        """Leaves callbacks for withdrawn requests that have not succeeded to another replica."""
        self._under_way.hand_back()

    async def _free(
        self,
        callback: Callable[[Withdrawal], Awaitable[None]],
        what: tuple[JudgementKey, str],
        after: asyncio.Task[None] | None,
    ) -> None:
        if after is not None:
            # The callback waits for the judgement, which may book something that the callback
            # frees.
            await asyncio.wait([after])
        identity, reason = what
        withdrawal = Withdrawal(**identity._asdict(), reason=reason)

        def failed(_: Exception, pause: float) -> None:
            log.exception("withdrawn_callback_failed", again_seconds=pause, **names_of(identity))
            self._under_way.let_wait(what)

        await until_returned(lambda: callback(withdrawal), author_backoff(), failed)
        self._memory.freed(identity, reason)
        self._under_way.ack(what)
