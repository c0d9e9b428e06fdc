"""Waits for a workload: follows it in the bucket until it reaches a phase, or can no longer reach
it; and how a job ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

from admittance.client.errors import BadInput, JobFailed, NotFound, Refused, TimedOut, Unavailable
from admittance.client.kinds import WORKLOAD
from admittance.client.requests.link import Link
from admittance.client.requests.objects import (
    BucketObject,
    follow,
    is_stored,
    not_found,
    stored_name,
)
from admittance.events import reasons
from admittance.phases import End as End
from admittance.runtime import clock
from admittance.runtime.bus.bucket import LAG_SECONDS
from admittance.runtime.tasks import end_tasks
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.waiting_reason import reason_of

REACHED_BY: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.QUOTA_RESERVED: frozenset({Phase.QUOTA_RESERVED, Phase.ADMITTED, Phase.RUNNING}),
    Phase.ADMITTED: frozenset({Phase.ADMITTED, Phase.RUNNING}),
}
"""Maps a phase that a user waits for to the phases of a workload that count as having reached that
phase. For a phase without an entry, only the phase itself counts.
"""

ON_THE_WAY: Final = frozenset({Phase.QUOTA_RESERVED, Phase.ADMITTED, Phase.RUNNING})
"""Phases that a workload has passed if it ran to its end."""

PHASE_CLOCK_SECONDS: Final = 1.0
"""Seconds between two computations of the phase, since Backoff ends by time, without a write to the
bucket.
"""


Goal: TypeAlias = Phase | End
GOALS: Final[tuple[Goal, ...]] = (*Phase, *End)


def goal_named(typed: str, spelled: str = "phase") -> Goal:
    """The phase or result of that name, in upper or lower case. ``spelled``: how the program names
    the argument. Raises BadInput with the known names if there is none.
    """
    for goal in GOALS:
        if goal.lower() == typed.strip().lower().replace("-", "").replace("_", ""):
            return goal
    raise BadInput(f'{spelled} "{typed}" is not a phase; there are {", ".join(GOALS)}')


async def reach(
    link: Link,
    namespace: str,
    name: str,
    wanted: Goal,
    timeout: float | None,
    seen: Callable[[StoredWorkload, Phase], None] = lambda _workload, _phase: None,
) -> StoredWorkload:
    """Returns the workload once it has reached ``wanted``; calls ``seen`` for every state before.

    Raises NotFound if the workload does not exist or was deleted, TimedOut after ``timeout``
    seconds, and Refused if ``wanted`` can no longer be reached.
    """
    name = await stored_name(link, name, namespace)
    last = "not there"
    # The replica that is read may lag, for example behind a submission.
    lags_until = clock.monotonic() + LAG_SECONDS
    try:
        async with asyncio.timeout(timeout), AsyncExitStack() as stack:
            existed = False
            states = await stack.enter_async_context(aclosing(_ticking(link, namespace, name)))
            async for stored in states:
                if stored is None:
                    if existed:
                        raise NotFound(f'workload "{name}" was deleted')
                    if clock.monotonic() < lags_until and await is_stored(link, namespace, name):
                        continue
                    raise await not_found(link, WORKLOAD, name, namespace)
                existed = True
                workload = stored.workload()
                now = phase(workload, clock.now())
                seen(workload, now)
                last = str(now)
                if is_reached(workload, now, wanted):
                    return workload
                if why := why_unreachable(workload, now, wanted):
                    line = f'workload "{name}" will not be {wanted}: {why}'
                    raise Refused(line, reason=str(now))
    except TimeoutError:
        raise TimedOut(
            f'workload "{name}" is {last}, not {wanted}, after {round(timeout or 0.0, 1):g} s; '
            f"`admit explain workload {name}` says why"
        ) from None
    raise Unavailable(f'workload "{name}": the connection to the bus ended')


async def _ticking(link: Link, namespace: str, name: str) -> AsyncGenerator[BucketObject | None]:
    """Yields what `follow` yields, and the last state again every second, because Backoff ends by
    time."""
    changes: asyncio.Queue[BucketObject | BaseException | None] = asyncio.Queue()

    async def pump() -> None:
        try:
            async for stored in follow(link, namespace, name):
                changes.put_nowait(stored)
        except Exception as error:
            changes.put_nowait(error)

    pumping = asyncio.create_task(pump())
    try:
        current = await changes.get()
        while True:
            if isinstance(current, BaseException):
                raise current
            yield current
            try:
                async with asyncio.timeout(PHASE_CLOCK_SECONDS):
                    current = await changes.get()
            except TimeoutError:
                continue
    finally:
        await end_tasks(pumping)


def is_reached(workload: StoredWorkload, now: Phase, wanted: Goal) -> bool:
    """Whether the workload is or was in the wanted phase, or finished with the wanted result.

    A workload that ran to its end was admitted before. A workload that a user declared finished
    while it waited was never admitted.
    """
    if wanted in (Phase.FINISHED, End.FAILED) and _out_of_time(workload):
        return True
    if isinstance(wanted, End):
        return now is Phase.FINISHED and bool(is_failure(workload)) is (wanted is End.FAILED)
    if now in REACHED_BY.get(wanted, {wanted}):
        return True
    if now is Phase.FINISHED and wanted in ON_THE_WAY:
        return _was(workload, wanted)
    return False


def _was(workload: StoredWorkload, wanted: Phase) -> bool:
    kind = {
        Phase.QUOTA_RESERVED: Type.QUOTA_RESERVED,
        Phase.ADMITTED: Type.ADMITTED,
        Phase.RUNNING: Type.ADMITTED,
    }[wanted]
    if wanted is Phase.RUNNING and find(workload, Type.PODS_READY) is not None:
        kind = Type.PODS_READY
    return is_true(workload, kind)


def why_unreachable(workload: StoredWorkload, now: Phase, wanted: Goal) -> str:
    """Why the phase or result ``wanted`` can no longer be reached; empty while it can be reached.

    Deactivated and Rejected end only when a user activates the workload, so a wait would not end. A
    workload that is being deleted reaches no other phase.
    """
    reason, message = reason_of(workload, clock.now())
    because = f" ({reason}: {message})" if message else f" ({reason})" if reason else ""
    if now is Phase.FINISHED and isinstance(wanted, End):
        how = "failed" if is_failure(workload) else "succeeded"
        return f"it has finished and {how}{because}"
    if now is Phase.FINISHED:
        return f"it is Finished{because}"
    if now in (Phase.DEACTIVATED, Phase.REJECTED) and wanted not in (
        Phase.DEACTIVATED,
        Phase.REJECTED,
    ):
        return f"it is {now}{because}"
    if now is Phase.REJECTED and wanted is Phase.DEACTIVATED:
        return f"it is Rejected{because}"
    if workload.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    return ""


def is_failure(workload: StoredWorkload) -> str:
    """Why a workload counts as failed: it has finished so, or its execution time is over; empty
    when it succeeded or has not ended."""
    finished = find(workload, Type.FINISHED)
    if finished is None:
        return _out_of_time(workload)
    if finished.status != "True" or finished.reason == reasons.SUCCEEDED:
        return ""
    if not finished.message:
        return finished.reason
    if finished.reason == reasons.FAILED:
        return finished.message  # Callers print the word "failed" before this text.
    return f"{finished.reason}: {finished.message}"


def _out_of_time(workload: StoredWorkload) -> str:
    """Why a workload beyond its execution time was deactivated; empty for any other. Such a
    workload does not run again unless a user activates it, so its job has failed."""
    evicted = find(workload, Type.EVICTED)
    if (
        head(workload).active
        or evicted is None
        or evicted.reason != reasons.DEACTIVATED_DUE_TO_EXECUTION_TIME
    ):
        return ""
    return evicted.message or evicted.reason


def exit_status(workload: StoredWorkload) -> int:
    """The exit status for a failed job: that of the job, which is 128+n after signal n; 1 if the
    runner reported no valid status.
    """
    code = workload.status.exit_code
    return code if code is not None and 0 < code < 256 else 1


@dataclass(frozen=True)
class Result:
    """How a job ended. ``exit_code``: that of the first container that failed, 128+n after signal
    n; 0 if it succeeded, None if it is not known. ``reason`` and ``message``: those of the
    condition Finished, or of the eviction that ended the job."""

    name: str
    namespace: str
    succeeded: bool
    exit_code: int | None
    reason: str
    message: str

    def check(self) -> None:
        """Raises JobFailed if the job failed."""
        if not self.succeeded:
            why = ": ".join(filter(None, (self.reason, self.message)))
            line = f'workload "{self.name}" failed: {why}'
            raise JobFailed(line, reason=self.reason, exit_code=self.exit_code)


def result_of(workload: StoredWorkload) -> Result:
    """How the job ended of a workload that has finished, or is beyond its execution time."""
    failed = is_failure(workload)
    reason, message = reason_of(workload, clock.now())
    meta = workload.metadata
    code = workload.status.exit_code if failed else 0
    return Result(meta.name, meta.namespace, not failed, code, reason, message)
