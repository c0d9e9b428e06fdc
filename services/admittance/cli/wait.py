"""``admit wait``: follows one workload in the bucket until it reaches a phase.

The wait ends at once with status 1 if the phase can no longer be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from enum import StrEnum
from typing import Final, TypeAlias

from admittance.cli.show import tables
from admittance.cli.show.objects import Found
from admittance.cli.support import kinds, output
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.bus.outside_reads import KeyFollower
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head

REACHED_BY: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.QUOTA_RESERVED: frozenset({Phase.QUOTA_RESERVED, Phase.ADMITTED, Phase.RUNNING}),
    Phase.ADMITTED: frozenset({Phase.ADMITTED, Phase.RUNNING}),
}
"""Maps a phase that a user waits for to the phases of a workload that count as having reached that
phase. For a phase without an entry, only the phase itself counts.
"""

ON_THE_WAY: Final = frozenset({Phase.QUOTA_RESERVED, Phase.ADMITTED, Phase.RUNNING})
"""Phases that a workload has passed if it ran to its end."""

READ_AGAIN_SECONDS: Final = 5.0
"""Seconds between two readings of the workload, which are needed because the watch gets no message
when the workload expires."""
PHASE_CLOCK_SECONDS: Final = 1.0
"""Seconds between two computations of the phase, since Backoff ends by time, without a write to the
bucket.
"""


class End(StrEnum):
    """Results of a finished workload; `admit wait --for` accepts them besides phases."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


Goal: TypeAlias = Phase | End


def goal_named(typed: str) -> Goal:
    """The phase or result of that name, in upper or lower case. Raises BadInput with the known
    names if there is none.
    """
    goals: tuple[Goal, ...] = (*Phase, *End)
    for one in goals:
        if one.lower() == typed.strip().lower().replace("-", "").replace("_", ""):
            return one
    raise BadInput(f'--for "{typed}" is not a phase; there are {", ".join(goals)}')


async def follow(bus: Link, namespace: str, name: str) -> AsyncGenerator[Found | None]:
    """Yields the workload now and at every change; None while the workload does not exist."""
    key = kinds.WORKLOAD.object_key(namespace, name)

    async def read() -> list[Entry]:
        entry = await bus.get(key)
        return [] if entry is None else [entry]

    reading = bus.reading_again(read)
    follower = KeyFollower(bus.bus, (key,), reading, again_seconds=READ_AGAIN_SECONDS)
    first = True
    async with aclosing(follower.batches()) as batches:
        async for batch in batches:
            if first and not batch:
                yield None
            first = False
            for entry in batch:
                value = entry.value
                yield None if value is None else Found(entry.key, value, entry.revision)


async def wait(call: Call, name: str, typed: str, timeout: float | None) -> None:
    """Waits until the workload has the phase or result, and prints it.

    Raises AnswerIsNo on timeout, if the phase or result can no longer be reached, and for Finished
    if the job failed.
    """
    wanted = goal_named(typed)
    async with link(call) as bus:
        workload = await reach(bus, call.namespace, name, wanted, timeout)
    if wanted is Phase.FINISHED and (why := is_failure(workload)):
        raise AnswerIsNo(f'workload "{name}" is Finished, and failed: {why}')
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", str(wanted))


async def reach(
    bus: Link,
    namespace: str,
    name: str,
    wanted: Goal,
    timeout: float | None,
    seen: Callable[[StoredWorkload, Phase], None] = lambda _workload, _phase: None,
) -> StoredWorkload:
    """Returns the workload once it has reached ``wanted``; calls ``seen`` for every state before.

    Raises AnswerIsNo: not found, deleted, timeout (seconds), or ``wanted`` can no longer be
    reached.
    """
    last = "not there"
    try:
        async with asyncio.timeout(timeout), AsyncExitStack() as stack:
            existed = False
            states = await stack.enter_async_context(aclosing(_ticking(bus, namespace, name)))
            async for found in states:
                if found is None:
                    gone = "was deleted" if existed else f"not found in namespace {namespace}"
                    raise AnswerIsNo(f'workload "{name}" {gone}')
                existed = True
                workload = found.workload()
                now = phase(workload, clock.now())
                seen(workload, now)
                last = str(now)
                if is_reached(workload, now, wanted):
                    return workload
                if why := why_unreachable(workload, now, wanted):
                    raise AnswerIsNo(f'workload "{name}" will not be {wanted}: {why}')
    except TimeoutError:
        raise AnswerIsNo(
            f'workload "{name}" is {last}, not {wanted}, after {round(timeout or 0.0, 1):g} s; '
            f"`admit explain workload {name}` says why"
        ) from None
    raise AnswerIsNo(f'workload "{name}": the connection to the bus ended')


async def _ticking(bus: Link, namespace: str, name: str) -> AsyncGenerator[Found | None]:
    """Yields what `follow` yields, and the last state again every second, because Backoff ends by
    time."""
    changes: asyncio.Queue[Found | BaseException | None] = asyncio.Queue()

    async def pump() -> None:
        try:
            async for found in follow(bus, namespace, name):
                changes.put_nowait(found)
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
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)


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
    reason, message = tables.reason_of(workload, clock.now())
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
    if finished.status != "True" or finished.reason == "Succeeded":
        return ""
    if not finished.message:
        return finished.reason
    if finished.reason == "Failed":
        return finished.message  # Callers print the word "failed" before this text.
    return f"{finished.reason}: {finished.message}"


OUT_OF_TIME: Final = "DeactivatedDueToMaximumExecutionTimeExceeded"


def _out_of_time(workload: StoredWorkload) -> str:
    """Why a workload was deactivated whose execution time is over; empty for any other. Such a
    workload does not run again unless a user activates it, so its job has failed."""
    evicted = find(workload, Type.EVICTED)
    if head(workload).active or evicted is None or evicted.reason != OUT_OF_TIME:
        return ""
    return evicted.message or evicted.reason


def exit_status(workload: StoredWorkload) -> int:
    """The exit status for a failed job: that of the job, which is 128+n after signal n; 1 if the
    runner reported no valid status.
    """
    code = workload.status.exit_code
    return code if code is not None and 0 < code < 256 else 1
