"""The runner as a service: what runs beside what, and for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import structlog

from admittance.events.codec import Undecodable, decode
from admittance.events.facts import Admitted, Evicted
from admittance.events.requests import HealthReply
from admittance.events.subjects import CLAIMS
from admittance.runner import decide
from admittance.runner.claims import Claims
from admittance.runner.folder import DataFolder, RunFolder
from admittance.runner.hearing import admit, consider, evict
from admittance.runner.launcher import executor_of
from admittance.runner.logs import LogReader
from admittance.runner.recover import heed_claims, recover
from admittance.runner.shell import Shell
from admittance.runner.shim import boot_seconds
from admittance.runner.world import World
from admittance.runtime import clock
from admittance.runtime.bus import micro
from admittance.runtime.bus.bucket import BucketReader
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.errors import Refused, Unavailable
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry import tracing
from admittance.runtime.telemetry.seldom import Seldom

SERVICE: Final = "runner"
FACTS: Final = ("admit.workload.admitted.>", "admit.workload.evicted.>")
BATCH: Final = 200
"""Facts taken at once: enough to pipeline their claims, few enough to be written in a moment."""
LOOK_AFTER_SECONDS: Final = 2.0
TIDY_SECONDS: Final = 600.0
LEAVE_SECONDS: Final = 60.0
"""Longest wait for jobs at a clean end: the usual grace of 30 s, and what is to be said."""
GONE_SECONDS: Final = 2.0
"""Longest wait for a bus that is away at a clean end, once no job runs any more."""

log = structlog.get_logger(service="runner")


async def run(
    bus: Bus,
    settings: Settings,
    *,
    executor: str = "local",
    claim_ttl: float = 300.0,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    retention_seconds: float = 7 * 86_400.0,
    retention_runs: int = 5_000,
    detach_jobs: bool = False,
) -> None:
    """Runs what is admitted until ``stop`` is set; then ends its jobs, which run again later.

    ``detach_jobs``: leaves them running instead, for the next runner of this folder.
    ``claim_ttl``: seconds after which others may call our jobs lost. ``ready`` is set once the
    runner hears facts. Output of ended jobs is kept for ``retention_seconds``, of at most
    ``retention_runs``. Raises SetupError.
    """
    kind = executor_of(executor)
    await kind.check()
    folder = DataFolder.open(settings.data_dir or Path.home() / ".local/share/admittance")
    shell = Shell(
        World(bus),
        Claims(bus, folder.runner, claim_ttl),
        folder,
        kind,
        ttl=claim_ttl,
        clock=clock.now,
    )
    try:
        await shell.launcher.open()
        await _serve(
            bus,
            settings,
            shell,
            stop,
            ready,
            retention_seconds,
            retention_runs,
            executor,
            detach_jobs=detach_jobs,
        )
    finally:
        await shell.close()
        folder.close()


async def _serve(
    bus: Bus,
    settings: Settings,
    shell: Shell,
    stop: asyncio.Event,
    ready: asyncio.Event | None,
    retention_seconds: float,
    retention_runs: int,
    executor: str,
    *,
    detach_jobs: bool,
) -> None:
    # Where the log ended before the bucket was read: what comes after is heard as facts.
    end = await shell.insist(shell.world.end_of_log)
    puller = Puller(
        bus, f"{SERVICE}-{shell.folder.runner}", FACTS, ack="all", batch=BATCH, start_at=end + 1
    )
    await puller.start()
    claims = BucketReader(bus, bucket=CLAIMS)
    logs = LogReader(
        lambda: [*shell.folders.values(), *shell.closed.values()],
        shell.given_back.values,
    )

    async def health(_: bytes, __: str) -> HealthReply:
        return HealthReply(
            service=SERVICE,
            instance=settings.instance,
            ready=True,
            lag=puller.pending,
            details={
                "runner": shell.folder.runner,
                "runs": str(len(shell.runs)),
                "executor": executor,
            },
        )

    renewing = asyncio.create_task(_renew(shell), name="runner renews")
    stopping = asyncio.create_task(stop.wait())
    tasks: list[asyncio.Task[Any]] = [renewing, stopping]
    try:
        recovering = asyncio.create_task(recover(shell), name="runner recovers")
        tasks.append(recovering)
        await asyncio.wait([*tasks, shell.broken], return_when=asyncio.FIRST_COMPLETED)
        if shell.broken.done():
            shell.broken.result()
        if renewing.done():
            renewing.result()
        if not recovering.done():
            return  # told to stop before it began; what runs goes on, and is found again
        recovering.result()
        tasks.remove(recovering)
        endpoints = {"admit.api.logs.*": logs.handle, "admit.api.health": health}
        served = await micro.serve(bus, SERVICE, settings.instance, {}, everyone=endpoints)
        hearing = [
            asyncio.create_task(_hear(shell, puller), name="runner hears"),
            asyncio.create_task(_watch(shell, claims), name="runner watches claims"),
        ]
        tasks += hearing
        tasks.append(asyncio.create_task(_look_after(shell), name="runner looks after"))
        tasks.append(
            asyncio.create_task(_tidy(shell, retention_seconds, retention_runs), name="tidy")
        )
        if ready is not None:
            ready.set()
        log.info("runner_ready", runner=shell.folder.runner)
        done, _ = await asyncio.wait([*tasks, shell.broken], return_when=asyncio.FIRST_COMPLETED)
        await _deafen(shell, hearing)
        for ended in done - {stopping}:
            ended.result()  # a bug ends the process; the shims go on
        if detach_jobs:
            await _detach(shell)
        elif not await shell.leave(LEAVE_SECONDS, GONE_SECONDS):
            # What is left to say is in the folder, and said at the next start.
            log.warning("jobs_left_stopping", runs=len(shell.runs), bus=shell.world.bus.is_up)
        await served.stop()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await puller.close()
        await claims.close()


async def _hear(shell: Shell, puller: Puller) -> None:
    while True:
        batch = await puller.batch()
        admitted: list[tuple[Admitted, str]] = []
        evicted: list[Evicted] = []
        for delivery in batch:
            fact = _fact(delivery)
            if isinstance(fact, Admitted):
                admitted.append((fact, tracing.extract(delivery.headers)))
            elif isinstance(fact, Evicted):
                evicted.append(fact)
        async with shell.at_work:
            # All admissions first: one that was taken back meanwhile is seen in the bucket, and an
            # eviction stops only what is older than itself.
            await admit(shell, admitted)
            for each in evicted:
                await evict(shell, each)
        await shell.insist(lambda: puller.ack(batch[-1]))  # noqa: B023  (done before the next one)


async def _detach(shell: Shell) -> None:
    """Lets jobs run on, with the full time of their claims until a runner has to be back."""
    began = boot_seconds()
    try:
        async with asyncio.timeout(GONE_SECONDS):
            lost = await shell.claims.renew()
        if not lost:
            shell.folder.touch_lease(began)
    except (Unavailable, Refused, TimeoutError) as error:
        log.warning("claims_not_renewed", error=str(error), claims=len(shell.claims.held))
    log.info("jobs_detached", runs=len(shell.runs))


async def _deafen(shell: Shell, hearing: Sequence[asyncio.Task[None]]) -> None:
    """Hears nothing more, but deals with what was heard: a run that was begun, and whose claim
    nobody waits for any more, would never end."""
    shell.leaving = True
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_SECONDS if shell.world.bus.is_up else GONE_SECONDS):
            await shell.at_work.acquire()
    for task in hearing:
        task.cancel()


def _fact(delivery: Delivery) -> object:
    try:
        return decode(delivery.subject, delivery.data)
    except Undecodable as error:
        # The workload-controller alone states these; whoever forged one gets no dead letter of it.
        log.warning("undecodable", subject=delivery.subject, reason=str(error))
        return None


async def _watch(shell: Shell, claims: BucketReader) -> None:
    async for entries in claims.batches():
        await heed_claims(shell, entries)


async def _renew(shell: Shell) -> None:
    pause = shell.ttl / 3
    told = Seldom()
    while True:
        await asyncio.sleep(pause)
        began = boot_seconds()
        try:
            lost = await shell.claims.renew()
        except (Unavailable, Refused) as error:
            # The lease stays as old as it is: the shims end their jobs before the claims end.
            if told.due(clock.monotonic()):
                log.warning("claims_not_renewed", error=str(error), claims=len(shell.claims.held))
            pause = min(1.0, shell.ttl / 20)
            continue
        pause = shell.ttl / 3
        shell.folder.touch_lease(began)
        for key in lost:
            log.warning("claim_lost", run=key)
            shell.happen(key, decide.ClaimLost())


async def _look_after(shell: Shell) -> None:
    while True:
        await asyncio.sleep(LOOK_AFTER_SECONDS)
        await shell.look_after()
        while shell.returned and not shell.leaving:
            await consider(shell, *shell.returned.pop())


async def _tidy(shell: Shell, seconds: float, runs: int) -> None:
    while True:
        await shell.insist(shell.others.tell)
        await tidy(shell, seconds, runs)
        await asyncio.sleep(TIDY_SECONDS)


async def tidy(shell: Shell, seconds: float, runs: int) -> None:
    """Removes the output of closed runs: what is too old, and the oldest of too many."""
    closed = {**shell.given_back, **shell.closed}
    old = await asyncio.to_thread(expired, closed, now=time.time(), seconds=seconds, runs_max=runs)
    for key in old:
        if shell.closed.drop(key) or shell.given_back.pop(key, None):
            await asyncio.to_thread(closed[key].remove)


def expired(
    closed: Mapping[str, RunFolder], *, now: float, seconds: float, runs_max: int
) -> list[str]:
    """The runs whose output is kept no longer, oldest first. Times in seconds since 1970."""
    aged = []
    for key, found in closed.items():
        with suppress(FileNotFoundError):  # about to be closed
            aged.append((found.closed_at(), key))
    aged.sort()
    return [
        key
        for count, (closed_at, key) in enumerate(aged)
        if len(aged) - count > runs_max or now - closed_at > seconds
    ]
