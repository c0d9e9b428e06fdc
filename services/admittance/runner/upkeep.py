"""What a runner does again and again: it renews its claims, looks after its runs, follows its
rules, and removes what is old."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from admittance.job_rules.rules import JobRules
from admittance.runner import decide
from admittance.runner.disk.checkpoints import CheckpointSweeper, Owner
from admittance.runner.disk.trash import TrashRemover, trash_of
from admittance.runner.host.live_rules import LOOK_SECONDS, LiveRules
from admittance.runner.host.port import RunFiles
from admittance.runner.logs.namespace_limit import NamespaceOutput
from admittance.runner.machines.own_machine import OwnMachine
from admittance.runner.runs.fact_handlers import (
    admit_current,
    take_left_out,
)
from admittance.runner.runs.jobs_elsewhere import answer_left, take_over_ends
from admittance.runner.runs.run_checks import FailureReports, check_runs
from admittance.runner.runs.run_manager import RunManager
from admittance.runtime import clock
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.telemetry.logger import LogThrottle

CHECK_SECONDS: Final = 2.0
CLEANUP_SECONDS: Final = 600.0
OUTPUT_SECONDS: Final = 7 * 86_400.0
OUTPUT_RUNS_MAX: Final = 5_000
"""How long the output of ended jobs is kept, and of how many jobs at the most."""

log = structlog.get_logger(service="runner")


async def renew(manager: RunManager) -> None:
    pause = manager.ttl / 3
    throttle = LogThrottle()
    while True:
        await asyncio.sleep(pause)
        began = manager.machine.boot_seconds()
        try:
            lost = await manager.claims.renew()
        except (BusUnavailable, BusRefused) as error:
            # After a failed renewal of the claims, the lease of the data folder is not renewed
            # either: so the shims end their jobs before the claims expire.
            if throttle.due(clock.monotonic()):
                log.warning("claims_not_renewed", error=str(error), claims=len(manager.claims.held))
            pause = min(1.0, manager.ttl / 20)
            continue
        pause = manager.ttl / 3
        manager.folder.touch_lease(began)
        for key in lost:
            log.warning("claim_lost", run=key)
            manager.handle(key, decide.ClaimLost())


async def check_all_runs(manager: RunManager) -> None:
    reports = FailureReports()
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        manager.launcher.set_problem(await manager.executor.problem())
        await check_runs(manager, reports)
        await manager.executor.end_leftovers(
            lambda: {files.path.name for files in manager.folders.values()}
        )
        while manager.released and not manager.shutting_down:
            await admit_current(manager, *manager.released.pop())
        if not manager.shutting_down:
            answer_left(manager)
        if manager.left_out and manager.may_claim(is_placed=False):
            await take_left_out(manager)
        await take_over_ends(manager)


def announce_rules(manager: RunManager, rules: JobRules, executor: str) -> None:
    """Makes the next announcement say what the rules are."""
    announced = manager.other_folders
    announced.starts = rules.starts()
    announced.folders = (
        rules.sight(manager.machine.machine_facts(), os.geteuid()) if executor == "local" else None
    )


async def follow_rules(
    manager: RunManager, rules: LiveRules, executor: str, own: OwnMachine
) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if await asyncio.to_thread(rules.refresh):
            log.info("rules_changed")
            announce_rules(manager, rules.current, executor)
            await manager.retry(manager.other_folders.announce)
            await own.announce(manager.other_folders.starts)


async def clean_up(manager: RunManager, own: OwnMachine) -> None:
    """Removes the output of closed runs, the oldest first, as far as they are too old or too
    many."""
    while True:
        closed = {**manager.given_back, **manager.closed}
        now = clock.now().timestamp()
        old = await asyncio.to_thread(expired, closed, now=now)
        await remove_output(manager, closed, old)
        await asyncio.sleep(CLEANUP_SECONDS)
        await manager.retry(manager.other_folders.announce)
        await own.announce(manager.other_folders.starts)
        manager.open_runs_changed.set()


async def sweep_checkpoints(manager: RunManager, base: str) -> None:
    """Removes the checkpoint folders of workloads that are gone."""

    async def is_gone(owner: Owner) -> bool:
        return await manager.retry(lambda: manager.admissions.is_gone(*owner))

    sweeper = CheckpointSweeper(base, trash_of(manager.folder.root), is_gone)
    while True:
        await asyncio.sleep(CLEANUP_SECONDS)
        uids = {run.uid for run in manager.runs.values()}
        await sweeper.look(uids, manager.admissions.namespaces)


async def limit_output(manager: RunManager, limit: int) -> None:
    output = NamespaceOutput(limit)
    while True:
        closed = {**manager.given_back, **manager.closed}
        old = await asyncio.to_thread(output.excess, dict(manager.folders), closed)
        if old:
            log.info("output_removed", runs=len(old), reason="--namespace-output-limit")
            await remove_output(manager, closed, old)
        await asyncio.sleep(CHECK_SECONDS)


async def empty_trash(manager: RunManager) -> None:
    remover = TrashRemover(manager.folder.root)
    while True:
        await remover.empty()
        await asyncio.sleep(CHECK_SECONDS)


async def remove_output(
    manager: RunManager, closed: Mapping[str, RunFiles], keys: Sequence[str]
) -> None:
    """Removes closed runs with their output."""
    for key in keys:
        if manager.closed.drop(key) or manager.given_back.pop(key, None):
            await asyncio.to_thread(closed[key].remove)


def expired(
    closed: Mapping[str, RunFiles],
    *,
    now: float,
    seconds: float = OUTPUT_SECONDS,
    runs_max: int = OUTPUT_RUNS_MAX,
) -> list[str]:
    """The keys of the closed runs with output that must be removed, the oldest run first. ``now``
    is in seconds since 1970."""
    aged = []
    for key, files in closed.items():
        with suppress(FileNotFoundError):  # another task is closing the run at this moment
            aged.append((files.closed_at(), key))
    aged.sort()
    return [
        key
        for count, (closed_at, key) in enumerate(aged)
        if len(aged) - count > runs_max or now - closed_at > seconds
    ]
