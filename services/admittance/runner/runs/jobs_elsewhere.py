"""What a runner does about jobs that it does not run: it answers evictions of those that no runner
has claimed, and reports those that are lost with their runner."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from admittance.events import reasons
from admittance.events.facts import Evicted, Stopped
from admittance.events.shapes import EvictedJob
from admittance.runner import decide
from admittance.runner.host.other_folders import wait_for_shim
from admittance.runner.host.port import OtherRun
from admittance.runner.plans.devices import runners_to_run
from admittance.runner.runs.admissions import AdmissionState
from admittance.runner.runs.claims import Claim, ClaimState
from admittance.runner.runs.left_evictions import ClaimedRun, EvictedRun
from admittance.runner.runs.run_manager import RunManager
from admittance.runtime import clock

ORPHANS_SECONDS: Final = 1.0
"""Seconds between two attempts to end what is left of a run of another runner."""

log = structlog.get_logger(service="runner")


async def evict(manager: RunManager, fact: Evicted) -> None:
    """Stops the job of an evicted workload; publishes ``stopped`` for each part that runs on no
    runner. The bus is asked in the background, so that the runner reads on: what is not answered
    when the runner ends is answered by its next start, which reads the stored workloads.
    """
    namespace, name, evicted = fact.namespace, fact.name, fact.revision
    job = fact.job
    if job is None and any(
        manager.runs[key].evicted
        for key in decide.runs_to_evict(manager.runs, namespace, name, evicted)
    ):
        # Some of these runs were stopped by an earlier eviction, and answer only that one.
        job = await _job_before(manager, namespace, name, evicted)
    before = job.revision if job is not None else 0
    for key in decide.runs_to_evict(manager.runs, namespace, name, evicted, before):
        manager.handle(key, decide.JobEvicted(evicted))
    eviction = EvictedRun(ClaimedRun(namespace, name, before), fact.uid, evicted)
    if job is not None:
        answer(manager, job, eviction)
    else:
        manager.run_in_background(_answer_unnamed(manager, eviction), f"eviction {eviction}")


def answer(manager: RunManager, job: EvictedJob, eviction: EvictedRun) -> None:
    """Answers an eviction, in the background, for all parts of the job for which this runner is to
    answer and that do not run on this runner.

    The first runner that marks the claim of a part as over answers for it; the mark also keeps
    slower runners from starting the part.
    """
    for run in manager.left_evictions.evicted(job, eviction, clock.monotonic()):
        _answer_for(manager, run)


def answer_left(manager: RunManager) -> None:
    """Answers evictions that were left to other runners, which have not answered."""
    for run in manager.left_evictions.due(clock.monotonic()):
        _answer_for(manager, run)


async def _answer_unnamed(manager: RunManager, eviction: EvictedRun) -> None:
    """Answers an eviction that names no job: an older version has published it, or the job was
    admitted by the write that evicted it."""
    namespace, name, *_ = eviction.of
    job = await _job_before(manager, namespace, name, eviction.evicted)
    if job is None:
        await manager.publish(_stopped(eviction))
    else:
        answer(manager, job, eviction)


def _answer_for(manager: RunManager, run: EvictedRun) -> None:
    if run.of.key not in manager.runs:
        manager.run_in_background(_close_part(manager, run), run.of.key)


async def _close_part(manager: RunManager, run: EvictedRun) -> None:
    """Answers an eviction for one job or part, unless another runner has claimed it."""
    of = run.of
    async with manager.answering:
        claim = await manager.retry(lambda: manager.claims.read(of.key))
        if claim.state is not ClaimState.EXPIRED:
            await manager.end(of.key, _stopped(run))
            return
    await report_lost_job(manager, of)


def _stopped(run: EvictedRun) -> Stopped:
    of = run.of
    return Stopped(
        namespace=of.namespace, name=of.name, uid=run.uid, revision=run.evicted, part=of.part
    )


async def _job_before(
    manager: RunManager, namespace: str, name: str, evicted: int
) -> EvictedJob | None:
    """The job of the workload's last admission before the eviction; None: there was none.

    The job is taken from the stored workload, read from a replica that has the eviction, or from
    the log if the workload has changed since the eviction: a replica of the log may lack the last
    facts, and without the last admission this runner would report the stop of a job that another
    runner runs.
    """
    seen = await manager.retry(lambda: manager.admissions.view(namespace, name, at_least=evicted))
    if seen is not None and 0 < seen.revision < evicted:
        return (
            EvictedJob() if seen.held else EvictedJob(revision=seen.revision, runners=seen.runners)
        )
    newest = await manager.retry(
        lambda: manager.admissions.last_admitted(namespace, name, lambda at: at < evicted)
    )
    if newest is None:
        return None
    fact, _ = newest
    if fact.held:
        return EvictedJob()
    return EvictedJob(revision=fact.revision, runners=runners_to_run(fact.pod_sets))


async def report_lost_job(manager: RunManager, of: ClaimedRun) -> None:
    """Marks the expired claim of an admission as over and publishes the end of its job; only one
    runner can mark the claim. The job is reported as lost, unless this runner can read the folder
    of the job's run and finds a result.
    """
    key = of.key
    other = await manager.retry(lambda: manager.other_folders.find(key))
    if other is not None:
        await wait_for_shim(other)
        if other.folder.journal.outcome is None and not other.folder.shim_lives():
            await _end_orphans(manager, other)
    mark = await manager.retry(
        lambda: manager.claims.mark_over(key, dead_only=True, before_end=True)
    )
    if mark is not None:
        await _publish_end(manager, of, mark)


async def _end_orphans(manager: RunManager, other: OtherRun) -> None:
    """Ends what is left on this machine of another runner's run: if runner, fork server and shim
    were killed, nothing else ends the job before it runs again."""
    while not await manager.executor.sweep(other.folder):
        log.warning("processes_left", run=other.folder.identity.key)
        await asyncio.sleep(ORPHANS_SECONDS)


async def take_over_ends(manager: RunManager) -> None:
    """Publishes the ends of jobs with claims that were marked as over by runners that have not
    published the ends in time; of several runners only one can take over a mark."""
    for key, mark in manager.ends.take_due(manager.machine.boot_seconds()).items():
        of = ClaimedRun.at(key)
        if of is not None:
            manager.run_in_background(_take_over_end(manager, of, mark), key)


async def _take_over_end(manager: RunManager, of: ClaimedRun, mark: Claim) -> None:
    ours = await manager.retry(lambda: manager.claims.take_over(of.key, mark))
    if ours is not None:
        log.info("end_taken_over", run=of.key, marked_by=mark.runner)
        await _publish_end(manager, of, ours)


async def _publish_end(manager: RunManager, of: ClaimedRun, mark: Claim) -> None:
    """Publishes the end of a job after this runner has marked its claim as over."""
    key = of.key
    other = await manager.retry(lambda: manager.other_folders.find(key))
    if other is not None:
        other.folder.read_journal()
    if other is not None and other.folder.journal.is_result:
        log.info("result_found", run=key, folder=str(other.folder.path))
        await _publish_result_of(manager, other)
        await manager.publish_after(mark, None, key)
        return
    admission = (of.namespace, of.name, of.revision)
    view = (await manager.retry(lambda: manager.admissions.views([admission])))[0]
    lost = Stopped(
        namespace=of.namespace,
        name=of.name,
        uid=view.uid,
        revision=of.revision,
        part=of.part,
        reason=reasons.NODE_FAILURES,
        message="the runner of the job is gone",
    )
    end: Stopped | None = None
    match view.state:
        case AdmissionState.CURRENT:
            log.warning("job_lost", run=key)
            end = lost
        case AdmissionState.EVICTED:
            end = msgspec.structs.replace(lost, revision=view.evicted, reason="")
    await manager.publish_after(mark, end, key)


async def _publish_result_of(manager: RunManager, other: OtherRun) -> None:
    """Publishes the result of another runner's run, with the message id that the other runner
    would use, and marks the result as published.
    """
    of = other.folder.identity
    run = decide.Run(
        namespace=of.namespace, name=of.name, uid=of.uid, revision=of.revision, part=of.part
    )
    outcome = other.folder.journal.end
    assert outcome is not None, "it has ended"
    result = decide.result_of(run, outcome)
    if outputs := await manager.files.store(other.folder):
        result = msgspec.structs.replace(result, outputs=outputs)
    await manager.publish(result, start=of.mark, secret=other.secret or b"")
    await asyncio.to_thread(other.folder.mark_published)
