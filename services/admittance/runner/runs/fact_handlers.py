"""Starts and stops jobs as required by facts, claims and, at the start of a runner, the bucket.

The log alone is not enough at the start of a runner: a new runner that read an old log would start
jobs that ended long ago. So a runner notes the position of the log, then reads its data folder, its
claims and the bucket, and then the facts after that position. Requests to the bus are repeated
until the bus answers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from admittance.events.facts import Admitted
from admittance.events.shapes import EvictedJob
from admittance.runner import decide
from admittance.runner.decide import Run, Stage
from admittance.runner.host.port import RunFiles
from admittance.runner.host.records import run_key
from admittance.runner.plans.devices import is_for, part_here, runners_to_run
from admittance.runner.runs.admissions import (
    REQUESTS_MAX,
    AdmissionState,
    AdmissionView,
    view_of,
)
from admittance.runner.runs.claims import ClaimState, read_claim
from admittance.runner.runs.jobs_elsewhere import answer, report_lost_job
from admittance.runner.runs.left_evictions import ClaimedRun, EvictedRun
from admittance.runner.runs.run_checks import check_runs
from admittance.runner.runs.run_manager import RunManager
from admittance.runtime import clock
from admittance.runtime.bus.bucket import LAG_PAUSE_SECONDS, LAG_SECONDS, Entry
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.telemetry.object_faults import faults

log = structlog.get_logger(service="runner")


def _claimed_run(fact: Admitted, runner: str) -> ClaimedRun:
    """The job of an admission, or the part of it, that the runner starts."""
    part = part_here(runners_to_run(fact.pod_sets), runner)
    return ClaimedRun(fact.namespace, fact.name, fact.revision, part)


async def admit(manager: RunManager, facts: Sequence[tuple[Admitted, str]]) -> None:
    """Claims the admissions, each given with its trace, and starts the jobs of admissions that this
    runner has claimed and that are still current. Admissions that are placed on other runners are
    left to them, and nothing is started where a program holds the quota itself. When the function
    returns, the runs of these admissions are in the data folder.
    """
    new: dict[str, Admitted] = {}
    for fact, trace in facts:
        if fact.held or not is_for(runners_to_run(fact.pod_sets), manager.folder.runner):
            continue
        if not manager.may_claim(is_placed=any(pod_set.parts for pod_set in fact.pod_sets)):
            manager.left_out = True
        elif not manager.has_run(fact):
            new[manager.add_run(fact, trace)] = fact
    keys = list(new)
    if not keys:
        return
    began = manager.machine.boot_seconds()
    claims = await manager.retry(lambda: manager.claims.take(keys))
    while manager.machine.boot_seconds() - began > manager.ttl / 2:
        # If this process paused for a long time, the claims may have expired unseen, so they are
        # taken again.
        began = manager.machine.boot_seconds()
        claims = await manager.retry(lambda: manager.claims.take(keys))
    ours = []
    for key, claim in zip(keys, claims, strict=True):
        if claim.state is ClaimState.HELD and claim.runner == manager.folder.runner:
            ours.append(key)
            continue
        manager.handle(key, decide.NotOurs())
        of = _claimed_run(new[key], manager.folder.runner)
        if claim.state is ClaimState.EXPIRED:
            manager.run_in_background(report_lost_job(manager, of), key)
    # The bucket is read after the claims are taken, so that no admission starts that was evicted
    # before its claim.
    views = await manager.retry(
        lambda: manager.admissions.views(
            [(new[key].namespace, new[key].name, new[key].revision) for key in ours]
        )
    )
    for key, view in zip(ours, views, strict=True):
        match view.state:
            case AdmissionState.OVER:
                log.info("admission_is_over", run=key)
                await manager.retry(lambda key=key: manager.claims.mark_over(key))  # type: ignore[misc]
                manager.handle(key, decide.NotOurs())
                continue
            case AdmissionState.EVICTED:
                manager.handle(key, decide.JobEvicted(view.evicted))
        manager.handle(key, decide.Claimed())
    await manager.wait_for_effects(keys)


async def admit_current(manager: RunManager, namespace: str, name: str) -> None:
    """Claims and starts the workload's admission if it is current and its ``admitted`` fact is on
    the log.
    """
    view = await manager.retry(lambda: manager.admissions.view(namespace, name))
    if view is None or view.state is not AdmissionState.CURRENT:
        return
    deadline = clock.monotonic() + LAG_SECONDS
    while True:
        newest = await manager.retry(
            lambda: manager.admissions.last_admitted(
                namespace, name, lambda at: at == view.revision
            )
        )
        if newest is not None:
            await admit(manager, [newest])
            return
        if clock.monotonic() > deadline:
            return  # the fact ``admitted`` is not on the log yet, and will arrive
        await asyncio.sleep(LAG_PAUSE_SECONDS)


# The start of a runner. ----------------------------------------------------------------


async def resume_runs(manager: RunManager) -> None:
    """Reads the runs in this runner's data folder and takes their claims again. Needs no other
    service, so that claims of running jobs do not expire while the workload-controller does not
    answer.
    """
    read_folder(manager)
    await _take_claims_again(manager)


async def recover(manager: RunManager) -> None:
    """Compares the resumed runs with the stored workloads and starts admissions that no runner has
    claimed.
    """
    views = await manager.retry(manager.admissions.all_views)
    known = dict(manager.runs)
    # The list of workloads may come from a replica that lags, so the workloads of runs that are
    # over according to the list are read again.
    unsure = [
        (key, (run.namespace, run.name, run.revision))
        for key, run in known.items()
        if view_of(views.get((run.namespace, run.name)), run.revision).state is AdmissionState.OVER
    ]
    read = await manager.retry(lambda: manager.admissions.views([of for _, of in unsure]))
    reread = {key: view for (key, _), view in zip(unsure, read, strict=True)}
    for key, run in known.items():
        files = manager.folders.get(key)
        if files is None:
            # The run ended and was closed while the workloads were read.
            continue
        view = reread.get(key) or view_of(views.get((run.namespace, run.name)), run.revision)
        if view.state is AdmissionState.EVICTED:
            manager.handle(key, decide.JobEvicted(view.evicted))
        elif view.state is AdmissionState.OVER and files.journal.end is None:
            # The runner missed the fact of the eviction, so the revision of the eviction is
            # unknown; the workload-controller does not wait for an answer to that eviction.
            manager.handle(key, decide.JobEvicted(run.revision + 1))
    for key, files in list(manager.folders.items()):
        manager.report_journal(key, files)
    await check_runs(manager)
    considered = await _take_unclaimed(manager, views)
    log.info("runner_recovered", runs=len(manager.runs), considered=considered)


async def take_left_out(manager: RunManager) -> None:
    """Starts admissions that no runner has claimed, after this runner left some to others."""
    manager.left_out = False
    considered = await _take_unclaimed(manager, await manager.retry(manager.admissions.all_views))
    log.info("admissions_taken_up", considered=considered)


async def _take_unclaimed(
    manager: RunManager, views: Mapping[tuple[str, str], AdmissionView]
) -> int:
    """Starts admissions that no runner has claimed, and answers for evictions of those. ``views``:
    of all workloads. Returns the number of admissions that may be unclaimed."""
    waiting = []
    for (namespace, name), view in views.items():
        mine = part_here(view.runners, manager.folder.runner)
        key = run_key(namespace, name, view.revision, mine)
        has_run = key in manager.runs or key in manager.closed
        if has_run and not mine:
            continue
        if view.state is AdmissionState.EVICTED:
            if not view.held:
                job = EvictedJob(revision=view.revision, runners=view.runners)
                of = ClaimedRun(namespace, name, view.revision)
                answer(manager, job, EvictedRun(of, view.uid, view.evicted))
            continue
        is_ours = view.state is AdmissionState.CURRENT and not has_run and not view.held
        if is_ours and is_for(view.runners, manager.folder.runner):
            waiting.append((namespace, name))
    for start in range(0, len(waiting), REQUESTS_MAX):
        part = waiting[start : start + REQUESTS_MAX]
        await asyncio.gather(*(admit_current(manager, namespace, name) for namespace, name in part))
    return len(waiting)


def read_folder(manager: RunManager) -> None:
    """Reads the runs of the data folder: open ones, closed ones, and those that were given back."""
    manager.given_back.update((files.identity.key, files) for files in manager.folder.given_back())
    for files in manager.folder.runs():
        identity = files.identity
        if files.is_closed() and not _is_in_epilog(files):
            manager.closed[identity.key] = files
            continue
        files.read_journal()
        note = files.stop_note()
        manager.launcher.resume(files)
        manager.folders[identity.key] = files
        manager.runs[identity.key] = Run(
            namespace=identity.namespace,
            name=identity.name,
            uid=identity.uid,
            revision=identity.revision,
            # A resumed run begins again at an early stage, so facts that were published before are
            # published again, with the same message ids.
            stage=Stage.STARTING if note is None else Stage.STOPPING,
            evicted=note.evicted if note else 0,
            leaving=note.leaving if note else False,
            claim_lost=note.claim_lost if note else False,
            part=identity.part,
            placed=identity.placed,
        )
        if note is not None:
            # The previous process may have written the stop note without telling the shim to stop.
            manager.launcher.stop(files)


def _is_in_epilog(files: RunFiles) -> bool:
    """Whether a run of which another runner has published the result may still have its epilog."""
    hooks = files.identity.hooks
    if hooks is None or not hooks.epilog:
        return False
    files.read_journal()
    return files.journal.begun and files.journal.outcome is None


async def _take_claims_again(manager: RunManager) -> None:
    """Takes the claims of runs without a recorded outcome again; stops a run if its claim is over
    or another runner holds it."""
    keys = [key for key, files in manager.folders.items() if files.journal.outcome is None]
    began = manager.machine.boot_seconds()
    claims = await manager.retry(lambda: manager.claims.take(keys, again=True))
    for key, claim in zip(keys, claims, strict=True):
        if not (claim.state is ClaimState.HELD and claim.runner == manager.folder.runner):
            manager.handle(key, decide.ClaimLost())
    manager.folder.touch_lease(began)


# Claims of other runners. ---------------------------------------------------------------


def claims_loaded(manager: RunManager) -> None:
    """All claims were handled once since the runner has started."""
    manager.other_folders.loaded.set()
    for run in manager.drain.others_known(manager.folders.values()):
        manager.launcher.tell_drain(run)


async def on_claims_changed(manager: RunManager, entries: Sequence[Entry]) -> None:
    """Reacts to changed claims: expired, released, or taken from this runner by another."""
    manager.other_folders.learn(entries)
    for entry in entries:
        try:
            await _on_claim_changed(manager, entry)
        except AdmittanceError:
            raise
        except Exception as error:
            faults.record("runner", "read a claim", f"claim {entry.key}", error)


async def _on_claim_changed(manager: RunManager, entry: Entry) -> None:
    of = ClaimedRun.at(entry.key)
    if of is None:
        return
    claim = read_claim(entry)
    manager.left_evictions.claim_changed(entry.key, claim, clock.monotonic())
    at_start = not manager.other_folders.loaded.is_set()
    manager.ends.see(entry.key, claim, manager.machine.boot_seconds(), at_start=at_start)
    if of.part and manager.drain.set_elsewhere(entry.key, claim):
        for run in manager.drain.note_part(entry.key, manager.folders.values()):
            manager.launcher.tell_drain(run)
    if claim.state is ClaimState.OVER or claim.runner == manager.folder.runner:
        return
    if entry.key in manager.runs:
        if entry.revision > manager.claims.held.get(entry.key, entry.revision):
            manager.claims.held.pop(entry.key, None)
            manager.handle(entry.key, decide.ClaimLost())
        return
    if claim.state is ClaimState.EXPIRED:
        # The lost job is reported in the background, because the report may wait for the end of
        # a shim.
        manager.run_in_background(report_lost_job(manager, of), entry.key)
    elif claim.state is ClaimState.FREE and not manager.shutting_down:
        await admit_current(manager, of.namespace, of.name)
