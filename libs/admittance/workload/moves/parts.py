"""The parts of a job on several machines. docs/spec/lifecycle.md#2.10.

Each runner of the assignment starts one part of the job and reports about it; the parts are
numbered from 1 on in the order of the runners. Their reports are collected here, and become the
reports that one runner would send: all parts are ready, the job has ended, no process is left. The
first part that fails or is lost ends the others, and quota and room stay booked until no part is
left, so a part never runs beside the next run of its job.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from admittance.events import facts, reasons
from admittance.events.placement import runners_of
from admittance.workload.change import Change, ignored, with_status
from admittance.workload.outputs import kept_outputs
from admittance.workload.phase import is_stopping
from admittance.workload.stored import JobParts, PartFailure, StoredWorkload

PartFact: TypeAlias = facts.JobFact | facts.Finished
"""A report about one part of a job, or about a whole job."""


class OthersMustStop(NamedTuple):
    """The end of one part, which ends the others: the reason and message of their eviction.
    ``counts``: whether it counts as an eviction of the workload."""

    reason: str
    message: str
    counts: bool = False


class Collected(NamedTuple):
    """The workload with the report of a part noted. ``then``: the report of the whole job that
    follows from it, if one does."""

    workload: StoredWorkload
    then: PartFact | OthersMustStop | None = None


def part_of(fact: object) -> int:
    """The part of its job that a fact is about; 0: the whole job."""
    return fact.part if isinstance(fact, facts.JobFact | facts.Finished) else 0


def collect(workload: StoredWorkload, fact: PartFact) -> Collected | Change:
    """Notes the report of a part. Returns a `Change` that changes nothing for a report of another
    admission or a repeated one."""
    status = workload.status
    count = len(runners_of(status.placement))
    if not 1 <= fact.part <= count or count < 2:
        return ignored(workload, reasons.STALE, f"part {fact.part}: the job has {count} parts")
    admission = status.admitted_revision
    current = {admission}
    if isinstance(fact, facts.Stopped) and is_stopping(workload):
        current.add(status.evicted_revision)
    if fact.revision not in current:
        return ignored(workload, reasons.STALE, f"it is about the admission {fact.revision}")
    before = status.parts or JobParts()
    parts = note_part(before, fact)
    if parts == before:
        return ignored(workload, reasons.REPEATED)
    noted = with_status(workload, parts=parts)
    if isinstance(fact, facts.PodsNotReady):
        return Collected(noted, replace(fact, part=0))
    if len(parts.over) == count:
        return Collected(noted, end_of_job(parts, fact, admission, count))
    if is_stopping(workload):
        return Collected(noted)
    if isinstance(fact, facts.Stopped):
        message = f"part {fact.part} of {count}: {fact.message or 'it was lost with its runner'}"
        lost = fact.reason == reasons.NODE_FAILURES
        return Collected(noted, OthersMustStop(reasons.NODE_FAILURES, message, counts=lost))
    if parts.failure is not None:
        return Collected(
            noted, OthersMustStop(reasons.PART_FAILED, _failure_text(parts.failure, count))
        )
    if {*parts.ready, *parts.succeeded} >= set(range(1, count + 1)):
        return Collected(noted, facts.PodsReady(**_of(fact), revision=admission))
    return Collected(noted)


def note_part(parts: JobParts, fact: PartFact) -> JobParts:
    """The parts with the report noted; equal to ``parts`` if it says nothing new."""
    number = fact.part
    match fact:
        case facts.PodsReady():
            return replace(parts, ready=_with(parts.ready, number))
        case facts.PodsNotReady():
            return replace(parts, ready=tuple(n for n in parts.ready if n != number))
        case facts.Finished() if number not in parts.over:
            ended = replace(
                parts,
                over=_with(parts.over, number),
                outputs=kept_outputs((*parts.outputs, *fact.outputs)),
            )
            if fact.succeeded:
                return replace(ended, succeeded=_with(parts.succeeded, number))
            failure = PartFailure(
                part=number, reason=fact.reason, message=fact.message, exit_code=fact.exit_code
            )
            return replace(ended, failure=parts.failure or failure)
        case facts.Stopped():
            return replace(parts, over=_with(parts.over, number))
    return parts


def end_of_job(parts: JobParts, last: PartFact, admission: int, count: int) -> PartFact:
    """The report of the whole job after its last part has ended. A failure counts also if the job
    was evicted meanwhile, like that of a job with one part."""
    if parts.failure is not None:
        return _failed(parts, parts.failure, _of(last), admission, count)
    if len(parts.succeeded) == count:
        return facts.Finished(**_of(last), revision=admission, outputs=parts.outputs)
    reason = last.reason if isinstance(last, facts.Stopped) else ""
    message = last.message if isinstance(last, facts.Stopped) else ""
    return facts.Stopped(**_of(last), revision=last.revision, reason=reason, message=message)


def end_without_reports(workload: StoredWorkload, now: datetime) -> facts.Finished | None:
    """The report of a job of which a part has failed, although runners never reported that the
    others have stopped; None: no part has failed."""
    status, meta = workload.status, workload.metadata
    if status.parts is None or status.parts.failure is None:
        return None
    of = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid, "time": now}
    count = len(runners_of(status.placement))
    return _failed(status.parts, status.parts.failure, of, status.admitted_revision, count)


def _failed(
    parts: JobParts, failure: PartFailure, of: dict[str, Any], admission: int, count: int
) -> facts.Finished:
    return facts.Finished(
        **of,
        revision=admission,
        succeeded=False,
        reason=failure.reason,
        message=_failure_text(failure, count),
        exit_code=failure.exit_code,
        outputs=parts.outputs,
    )


def _failure_text(failure: PartFailure, count: int) -> str:
    return f"part {failure.part} of {count} failed: {failure.message or 'Job failed'}"


def _of(fact: PartFact) -> dict[str, Any]:
    return {"namespace": fact.namespace, "name": fact.name, "uid": fact.uid, "time": fact.time}


def _with(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(sorted({*numbers, number}))
