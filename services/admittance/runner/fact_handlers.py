"""Handles ``admitted`` and ``evicted``: claims admissions, stops jobs, reports lost jobs.

Requests to the bus are repeated until the bus answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from admittance.events.facts import Admitted, Evicted, Stopped
from admittance.runner import decide
from admittance.runner.admissions import AdmissionState
from admittance.runner.claims import State
from admittance.runner.decide import NODE_FAILURES
from admittance.runner.folder import run_key
from admittance.runner.other_folders import wait_for_shim
from admittance.runner.run_manager import RunManager

log = structlog.get_logger(service="runner")


async def admit(manager: RunManager, facts: Sequence[tuple[Admitted, str]]) -> None:
    """Claims the admissions, each with its trace, and starts those that we got and that are still
    current. When it returns, these are in the data folder.
    """
    new: dict[str, Admitted] = {}
    for fact, trace in facts:
        if not manager.has_run(fact) and not manager.shutting_down:
            new[manager.add_run(fact, trace)] = fact
    keys = list(new)
    if not keys:
        return
    claims = await manager.retry(lambda: manager.claims.take(keys))
    ours = []
    for key, claim in zip(keys, claims, strict=True):
        if claim.state is State.HELD and claim.runner == manager.folder.runner:
            ours.append(key)
            continue
        manager.handle(key, decide.NotOurs())
        of = new[key].namespace, new[key].name, new[key].revision
        if claim.state is State.EXPIRED:
            manager.run_in_background(report_lost_job(manager, *of), key)
        elif claim.state is State.OVER and claim.runner == manager.folder.runner:
            # We may have marked it over and crashed before publishing.
            manager.run_in_background(publish_end(manager, *of), key)
    # Read after claiming: an admission evicted before that is not started.
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
                manager.handle(key, decide.Evicted(view.evicted))
        manager.handle(key, decide.Claimed())
    await manager.wait_for_effects(keys)


async def evict(manager: RunManager, fact: Evicted) -> None:
    """Stops the job; publishes ``stopped`` at once when the job runs nowhere."""
    keys = decide.runs_to_evict(manager.runs, fact.namespace, fact.name, fact.revision)
    if any(manager.runs[key].evicted for key in keys):
        last = await manager.retry(
            lambda: manager.admissions.last_admitted(fact.namespace, fact.name)
        )
        admitted = last[0].revision if last is not None else 0
        keys = decide.runs_to_evict(
            manager.runs, fact.namespace, fact.name, fact.revision, admitted
        )
    for key in keys:
        manager.handle(key, decide.Evicted(fact.revision))
    await manager.wait_for_effects(keys)
    if not keys:
        await answer_eviction(manager, fact.namespace, fact.name, fact.uid, fact.revision)


async def answer_eviction(
    manager: RunManager, namespace: str, name: str, uid: str, evicted: int
) -> None:
    """Answers an eviction of a workload that does not run here.

    The runner that marks the claim over answers; the mark also keeps slower runners from starting.
    """
    found = await manager.retry(
        lambda: manager.admissions.last_admitted(namespace, name, lambda at: at < evicted)
    )
    if found is not None:
        key = run_key(namespace, name, found[0].revision)
        claim = await manager.retry(lambda: manager.claims.read(key))
        if claim.state is State.EXPIRED:
            manager.run_in_background(
                report_lost_job(manager, namespace, name, found[0].revision), key
            )
            return
        if not await manager.retry(lambda: manager.claims.mark_over(key)):
            return
    await manager.publish(Stopped(namespace=namespace, name=name, uid=uid, revision=evicted))


async def report_lost_job(manager: RunManager, namespace: str, name: str, revision: int) -> None:
    """Marks an expired claim over and publishes the end of its job; one runner succeeds in this.
    The job is lost, unless its folder can be read here and has a result."""
    key = run_key(namespace, name, revision)
    other = await manager.retry(lambda: manager.other_folders.find(key))
    if other is not None:
        await wait_for_shim(other)
    if await manager.retry(lambda: manager.claims.mark_over(key, dead_only=True)):
        await publish_end(manager, namespace, name, revision)


async def publish_end(manager: RunManager, namespace: str, name: str, revision: int) -> None:
    """Publishes the end of a job with an expired claim that we marked over."""
    key = run_key(namespace, name, revision)
    other = await manager.retry(lambda: manager.other_folders.find(key))
    if other is not None:
        other.folder.read_journal()
    if other is not None and other.folder.journal.is_result:
        log.info("result_found", run=key, folder=str(other.folder.path))
        await manager.publish_result_of(other)
        return
    view = (await manager.retry(lambda: manager.admissions.views([(namespace, name, revision)])))[0]
    lost = Stopped(
        namespace=namespace,
        name=name,
        uid=view.uid,
        revision=revision,
        reason=NODE_FAILURES,
        message="the runner of the job is gone",
    )
    match view.state:
        case AdmissionState.CURRENT:
            log.warning("job_lost", run=key)
            await manager.publish(lost)
        case AdmissionState.EVICTED:
            await manager.publish(msgspec.structs.replace(lost, revision=view.evicted, reason=""))


async def admit_current(manager: RunManager, namespace: str, name: str) -> None:
    """Claims and starts the workload's admission if it is current and its fact is on the log."""
    view = await manager.retry(lambda: manager.admissions.view(namespace, name))
    if view is None or view.state is not AdmissionState.CURRENT:
        return
    found = await manager.retry(
        lambda: manager.admissions.last_admitted(namespace, name, lambda at: at == view.revision)
    )
    if found is not None:
        await admit(manager, [found])
