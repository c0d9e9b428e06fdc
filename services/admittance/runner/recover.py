"""The start of a runner: reads its data folder, then its claims, then the bucket.

The log alone is not enough: a new runner on an old log would start jobs that ended long ago. The
bucket has the current state, and facts are read from a log position noted before the bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from admittance.events.names import BadToken, plain
from admittance.events.reader import number
from admittance.runner import decide
from admittance.runner.admissions import REQUESTS_MAX, AdmissionState, view_of
from admittance.runner.claims import State, read_claim
from admittance.runner.decide import Run, Stage
from admittance.runner.fact_handlers import admit_current, answer_eviction, report_lost_job
from admittance.runner.folder import run_key
from admittance.runner.run_manager import RunManager
from admittance.runner.shim import boot_seconds
from admittance.runtime.bus.bucket import Entry

log = structlog.get_logger(service="runner")


async def recover(manager: RunManager) -> None:
    """Continues the runs in this data folder and starts admissions that no runner has claimed."""
    _read_folder(manager)
    await _renew(manager)
    views = await manager.retry(manager.admissions.all_views)
    for key, run in list(manager.runs.items()):
        view = view_of(views.get((run.namespace, run.name)), run.revision)
        if view.state is AdmissionState.EVICTED:
            manager.handle(key, decide.Evicted(view.evicted))
        elif view.state is AdmissionState.OVER and manager.folders[key].journal.outcome is None:
            # The eviction was missed; its revision is not known, and its answer is not awaited.
            manager.handle(key, decide.Evicted(run.revision + 1))
    for key, found in list(manager.folders.items()):
        manager.report_journal(key, found)
    await manager.check_runs()
    waiting = []
    for (namespace, name), view in views.items():
        key = run_key(namespace, name, view.revision)
        if key in manager.runs or key in manager.closed:
            continue
        if view.state is AdmissionState.EVICTED:
            await answer_eviction(manager, namespace, name, view.uid, view.evicted)
        elif view.state is AdmissionState.CURRENT:
            waiting.append((namespace, name))
    for start in range(0, len(waiting), REQUESTS_MAX):
        part = waiting[start : start + REQUESTS_MAX]
        await asyncio.gather(*(admit_current(manager, namespace, name) for namespace, name in part))
    log.info("runner_recovered", runs=len(manager.runs), considered=len(waiting))


def _read_folder(manager: RunManager) -> None:
    manager.given_back.update((found.identity.key, found) for found in manager.folder.given_back())
    for found in manager.folder.runs():
        identity = found.identity
        if found.is_closed():
            manager.closed[identity.key] = found
            continue
        found.read_journal()
        note = found.stop_note()
        manager.folders[identity.key] = found
        manager.runs[identity.key] = Run(
            namespace=identity.namespace,
            name=identity.name,
            uid=identity.uid,
            revision=identity.revision,
            # Facts published before are published again, with the same message ids.
            stage=Stage.STARTING if note is None else Stage.STOPPING,
            evicted=note.evicted if note else 0,
            leaving=note.leaving if note else False,
            claim_lost=note.claim_lost if note else False,
        )
        if note is not None:
            # The stop may have been noted but not sent.
            manager.launcher.stop(found)


async def _renew(manager: RunManager) -> None:
    """Renews the claims of runs that may still run; stops runs that another runner claimed."""
    keys = [key for key, found in manager.folders.items() if found.journal.outcome is None]
    began = boot_seconds()
    claims = await manager.retry(lambda: manager.claims.take(keys, again=True))
    for key, claim in zip(keys, claims, strict=True):
        if not (claim.state is State.HELD and claim.runner == manager.folder.runner):
            manager.handle(key, decide.ClaimLost())
    manager.folder.touch_lease(began)


async def on_claims_changed(manager: RunManager, entries: Sequence[Entry]) -> None:
    """Reacts to claims of other runners: expired, released, or taken from us."""
    for entry in entries:
        namespace, _, rest = entry.key.partition(".")
        name, _, written = rest.partition(".")
        revision = number(written)
        if namespace == "_alive" or revision is None:
            continue
        claim = read_claim(entry)
        if claim.state is State.OVER or claim.runner == manager.folder.runner:
            continue
        if entry.key in manager.runs:
            if entry.revision > manager.claims.held.get(entry.key, entry.revision):
                manager.claims.held.pop(entry.key, None)
                manager.handle(entry.key, decide.ClaimLost())
            continue
        try:
            plain_namespace, plain_name = plain(namespace), plain(name)
        except BadToken:
            continue
        if claim.state is State.EXPIRED:
            # In the background: it may wait for a shim's end.
            manager.run_in_background(
                report_lost_job(manager, plain_namespace, plain_name, revision), entry.key
            )
        elif claim.state is State.FREE and not manager.shutting_down:
            await admit_current(manager, plain_namespace, plain_name)
