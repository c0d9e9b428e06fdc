"""The runner as a service: its tasks, and how the runner shuts down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from msgspec.structs import replace

from admittance.events.codec import Undecodable, decode
from admittance.events.facts import Admitted, Evicted
from admittance.events.names import token
from admittance.events.requests.services import HealthReply
from admittance.events.subjects import CLAIMS, runner_orders
from admittance.job_rules.machine_options import NOTHING_GIVEN, GivenMachine
from admittance.job_rules.rules import NO_RULES, JobRules
from admittance.runner import decide
from admittance.runner.admissions import AdmissionReader
from admittance.runner.claims import Claims
from admittance.runner.decide import Stage
from admittance.runner.disk.checkpoints import CheckpointSweeper, Owner, base_folder
from admittance.runner.disk.trash import TrashRemover, trash_of
from admittance.runner.fact_handlers import (
    admit,
    admit_current,
    evict,
    on_claims_changed,
    recover,
    resume_runs,
    take_left_out,
)
from admittance.runner.groups.job_groups import Offers
from admittance.runner.jobs.devices import MachineDevices
from admittance.runner.jobs.live_rules import LOOK_SECONDS, LiveRules
from admittance.runner.launcher import LocalMachine
from admittance.runner.machine import HostMachine, RunFiles
from admittance.runner.machine_reports import MachineReports
from admittance.runner.output.log_reader import LogReader
from admittance.runner.output.namespace_limit import NamespaceOutput
from admittance.runner.own_machine import OwnMachine
from admittance.runner.run_checks import FailureReports, check_runs
from admittance.runner.run_manager import RunManager
from admittance.runtime import clock
from admittance.runtime.bus.bucket import follow_bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import end_tasks
from admittance.runtime.telemetry import tracing
from admittance.runtime.telemetry.findings import disk_findings, report_findings
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.metrics import Gauges, gauge
from admittance.runtime.telemetry.object_faults import faults

SERVICE: Final = "runner"
BATCH: Final = 200
"""The most facts that the runner reads in one batch: many, so that their claims are requested
together, but few enough to write their runs quickly.
"""
CHECK_SECONDS: Final = 2.0
CLEANUP_SECONDS: Final = 600.0
OUTPUT_SECONDS: Final = 7 * 86_400.0
OUTPUT_RUNS_MAX: Final = 5_000
"""How long the output of ended jobs is kept, and of how many jobs at the most."""
SHUTDOWN_SECONDS: Final = 60.0
"""Longest wait for the end of the jobs when the runner shuts down: the usual grace period of 30 s,
and time to publish facts.
"""
NO_BUS_SECONDS: Final = 2.0
"""Most seconds to wait for an unreachable bus when the runner shuts down and no job runs any
more."""

log = structlog.get_logger(service="runner")


async def run(
    bus: Bus,
    settings: Settings,
    *,
    executor: str = "local",
    claim_ttl: float | None = None,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    detach_jobs: bool = False,
    machine: HostMachine | None = None,
    name: str | None = None,
    rules: JobRules = NO_RULES,
    given: GivenMachine = NOTHING_GIVEN,
) -> None:
    """Runs admitted jobs until ``stop`` is set; then stops these jobs, which run again later.

    ``detach_jobs``: whether the runner leaves its jobs running when it ends, for the next runner
    with the same data folder. ``claim_ttl``: seconds without a renewal after which other runners
    may report this runner's jobs as lost; None: as the settings say. ``ready``: an event that is
    set once the runner handles facts. ``machine``: the machine where jobs run; None means this
    machine.
    ``name``: the runner's name; permissions prescribe the consumer of a name. By default the user
    that the credentials file names, else the id of the data folder.
    ``rules``: which jobs the runner may start. ``given``: what options say about the machine.
    Raises SetupError.
    """
    claim_ttl = settings.claim_seconds if claim_ttl is None else claim_ttl
    live = LiveRules(rules, local=executor == "local")
    machine = machine or LocalMachine(live)
    kind = machine.executor(executor)
    await kind.check()
    folder = machine.open_files(settings.data_dir or Path.home() / ".local/share/admittance")
    manager = RunManager(
        AdmissionReader(bus, rules.namespaces),
        Claims(bus, folder.runner, claim_ttl),
        machine,
        folder,
        kind,
        ttl=claim_ttl,
        clock=clock.now,
        limits=rules.limits,
        file_limit=settings.file_limit,
    )
    try:
        checkpoints = base_folder(rules.checkpoint_folder, folder.root)
        kind.open(folder.runner, checkpoints)
        _log_limits(kind.offers())
        _announce_rules(manager, live.current, executor)
        name = name or bus.nc.user or folder.runner
        inventory = await asyncio.to_thread(
            machine.inventory,
            given,
            id=folder.runner,
            name=name,
            executor=executor,
            starts=live.current.starts(),
            messages=limit_messages(kind.offers()),
        )
        inventory = replace(inventory, folders=live.current.shared_folders)
        kind.machine = MachineDevices(folder.runner, inventory.devices)
        own = OwnMachine(manager, inventory, MachineReports(bus, inventory, claim_ttl))
        await manager.launcher.open()
        disk = partial(disk_findings, "disk of the runner", folder.root)
        shown = show_metrics(settings, Gauges(RUNNER_GAUGES, partial(_gauges, manager)))
        waits = manager.launcher.findings
        with report_findings(disk), report_findings(live.findings), report_findings(waits):
            async with shown:
                await _serve(
                    bus,
                    settings,
                    manager,
                    live,
                    stop,
                    ready,
                    executor,
                    own,
                    checkpoints,
                    detach_jobs=detach_jobs,
                )
    finally:
        await manager.close()
        kind.close()
        folder.close()


def _log_limits(offers: Offers) -> None:
    limited = [name for name in ("memory", "processes", "cpu") if getattr(offers, name)]
    if limited:
        log.info("jobs_limited", by=offers.version, limits=limited, why_not=offers.why_not or None)
    if not offers.memory:
        log.warning("memory_not_limited", reason=offers.why_not)


def limit_messages(offers: Offers) -> tuple[str, ...]:
    """What the groups of the machine cannot do, one sentence each, for its inventory."""
    why = f": {offers.why_not}" if offers.why_not else ""
    lacking = [
        word
        for word, offered in (
            ("memory", offers.memory),
            ("cpu", offers.cpu),
            ("processes", offers.processes),
        )
        if not offered
    ]
    said = [f"cannot limit {' and '.join(lacking)} of jobs{why}"] if lacking else []
    if not offers.devices:
        said.append("cannot keep jobs from devices that they were not given")
    return tuple(said)


RUNS: Final = gauge("runner_jobs", "Jobs of the runner, by the stage of their run", ("stage",))
START_SLOTS: Final = gauge(
    "runner_start_slots",
    "Slots for jobs that are being started at the same time, used and free; the number of running "
    "jobs is limited by quota and by --pod-limit",
    ("state",),
)
WAITING_JOBS: Final = gauge(
    "runner_waiting_jobs",
    "Jobs that wait on the runner for pods of their namespace or for disk space",
)
RUNNER_GAUGES: Final = (RUNS, START_SLOTS, WAITING_JOBS)


def _gauges(manager: RunManager) -> dict[str, dict[tuple[str, ...], float]]:
    counts: dict[tuple[str, ...], float] = {(stage.value,): 0 for stage in Stage}
    for run in tuple(manager.runs.values()):
        counts[(run.stage.value,)] += 1
    used, free = manager.launcher.start_slots()
    return {
        RUNS.name: counts,
        START_SLOTS.name: {("used",): used, ("free",): free},
        WAITING_JOBS.name: {(): len(manager.launcher.waiting)},
    }


async def _serve(
    bus: Bus,
    settings: Settings,
    manager: RunManager,
    rules: LiveRules,
    stop: asyncio.Event,
    ready: asyncio.Event | None,
    executor: str,
    own: OwnMachine,
    checkpoints: str,
    *,
    detach_jobs: bool,
) -> None:
    name = own.inventory.name
    make = manager.admissions.make_consumer
    manager.other_folders.consumer = name
    puller = Puller(
        bus,
        f"{SERVICE}-{token(name)}",
        runner_orders(manager.admissions.namespaces),
        batch=BATCH,
        request=partial(make, name, "log"),
    )
    logs = LogReader(
        manager.runs_of,
        manager.given_back.values,
        lambda key: manager.launcher.waiting.get(key, ""),
        lambda run: run.journal.failures.summary(manager.clock(), manager.machine.boot_seconds()),
    )

    async def health(_: bytes, __: str) -> HealthReply:
        return HealthReply(
            service=SERVICE,
            instance=settings.instance,
            ready=True,
            lag=puller.pending,
            details={
                "runner": manager.folder.runner,
                "runs": str(len(manager.runs)),
                "executor": executor,
            },
        )

    renewing = asyncio.create_task(_renew(manager), name="runner renews")
    stopping = asyncio.create_task(stop.wait())
    tasks: list[asyncio.Task[Any]] = [renewing, stopping]
    try:
        recovering = asyncio.create_task(_begin(manager, puller, own), name="runner recovers")
        tasks.append(recovering)
        await asyncio.wait([*tasks, manager.broken], return_when=asyncio.FIRST_COMPLETED)
        if manager.broken.done():
            manager.broken.result()
        if renewing.done():
            renewing.result()
        if not recovering.done():
            # The runner was stopped before it had recovered; its next start finds the jobs that
            # run.
            return
        recovering.result()
        tasks.remove(recovering)
        spaces = map(token, manager.admissions.namespaces) if manager.admissions.namespaces else "*"
        endpoints = {
            "admit.api.health": health,
            **{f"admit.api.logs.{space}": logs.handle for space in spaces},
        }
        served = await micro.serve(bus.nc, SERVICE, settings.instance, {}, every_instance=endpoints)
        following_claims = follow_bucket(
            bus,
            (">",),
            partial(on_claims_changed, manager),
            lambda _: manager.other_folders.loaded.set(),
            bucket=CLAIMS,
            # An end of the service here would leave the jobs without a runner that can stop them.
            request=lambda after: manager.retry(lambda: make(name, "claims", after)),
        )
        handling = [
            asyncio.create_task(_handle_facts(manager, puller), name="runner reads facts"),
            asyncio.create_task(following_claims, name="runner watches claims"),
        ]
        tasks += handling
        tasks.append(asyncio.create_task(_check_runs(manager), name="runner looks after"))
        tasks.append(asyncio.create_task(own.keep_alive(), name="runner is alive"))
        tasks.append(asyncio.create_task(own.report_runs(), name="runner reports runs"))
        tasks.append(asyncio.create_task(own.cordon.follow(), name="runner cordon"))
        tasks.append(asyncio.create_task(own.give_back_drained(), name="runner is drained"))
        tasks.append(asyncio.create_task(_clean_up(manager, own), name="tidy"))
        sweeping = _sweep_checkpoints(manager, checkpoints)
        tasks.append(asyncio.create_task(sweeping, name="runner sweeps checkpoints"))
        limiting = _limit_output(manager, rules.current.limits.namespace_output)
        tasks.append(asyncio.create_task(limiting, name="runner limits output"))
        tasks.append(asyncio.create_task(_empty_trash(manager), name="runner empties trash"))
        if rules.can_change:
            tasks.append(
                asyncio.create_task(
                    _follow_rules(manager, rules, executor, own), name="runner rules"
                )
            )
        if ready is not None:
            ready.set()
        log.info("runner_ready", runner=manager.folder.runner)
        done, _ = await asyncio.wait([*tasks, manager.broken], return_when=asyncio.FIRST_COMPLETED)
        await _stop_handling_facts(manager, handling)
        for ended in done - {stopping}:
            ended.result()  # an error of a task ends the runner's process; the shims continue
        if detach_jobs:
            await _detach(manager)
        else:
            await own.begin_to_leave(NO_BUS_SECONDS)
            if not await manager.shut_down(SHUTDOWN_SECONDS, NO_BUS_SECONDS):
                # At its next start, the runner derives the facts that were not published from its
                # data folder.
                log.warning(
                    "jobs_left_stopping", runs=len(manager.runs), bus=manager.admissions.bus.is_up
                )
            await own.leave(NO_BUS_SECONDS)
        await served.stop()
    finally:
        await end_tasks(*tasks)
        logs.close()
        await puller.close()


async def _begin(manager: RunManager, puller: Puller, own: OwnMachine) -> None:
    await resume_runs(manager)
    await own.begin()
    # Before any job is claimed: if this runner dies, the result of a job is found by its folder.
    await manager.retry(manager.other_folders.announce)
    # The consumer of facts is made before the bucket is read: changes after the reading arrive as
    # facts.
    await manager.retry(puller.start)
    await recover(manager)


async def _handle_facts(manager: RunManager, puller: Puller) -> None:
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
        async with manager.handling_facts:
            # All admissions of the batch are handled before the evictions: the bucket shows whether
            # an admission was evicted meanwhile, and an eviction stops only older admissions.
            await admit(manager, admitted)
            for each in evicted:
                try:
                    await evict(manager, each)
                except AdmittanceError:
                    raise
                except Exception as error:
                    about = f"workload {each.namespace}/{each.name}"
                    faults.record(SERVICE, "evict a job", about, error)
        await manager.retry(lambda: puller.ack(batch[-1]))  # noqa: B023  (done before the next one)


async def _detach(manager: RunManager) -> None:
    """Leaves the jobs running and renews their claims, so that the next runner has the full TTL of
    the claims to start in."""
    began = manager.machine.boot_seconds()
    try:
        async with asyncio.timeout(NO_BUS_SECONDS):
            lost = await manager.claims.renew()
        if not lost:
            manager.folder.touch_lease(began)
    except (BusUnavailable, BusRefused, TimeoutError) as error:
        log.warning("claims_not_renewed", error=str(error), claims=len(manager.claims.held))
    log.info("jobs_detached", runs=len(manager.runs))


async def _stop_handling_facts(manager: RunManager, handling: Sequence[asyncio.Task[None]]) -> None:
    """Stops handling facts after the current batch: a run that still waits for its claim would
    otherwise never end.
    """
    manager.shutting_down = True
    with suppress(TimeoutError):
        async with asyncio.timeout(
            SHUTDOWN_SECONDS if manager.admissions.bus.is_up else NO_BUS_SECONDS
        ):
            await manager.handling_facts.acquire()
    for task in handling:
        task.cancel()


def _fact(delivery: Delivery) -> object:
    try:
        return decode(delivery.subject, delivery.data)
    except Undecodable as error:
        # Only the workload-controller publishes these facts, so a fact that cannot be decoded is
        # forged: the runner logs it and writes no dead letter.
        log.warning("undecodable", subject=delivery.subject, reason=str(error))
        return None


async def _renew(manager: RunManager) -> None:
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


async def _check_runs(manager: RunManager) -> None:
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
        if manager.left_out and manager.may_claim(is_placed=False):
            await take_left_out(manager)


def _announce_rules(manager: RunManager, rules: JobRules, executor: str) -> None:
    """Makes the next announcement say what the rules are."""
    announced = manager.other_folders
    announced.starts = rules.starts()
    announced.folders = (
        rules.sight(manager.machine.machine_facts(), os.geteuid()) if executor == "local" else None
    )


async def _follow_rules(
    manager: RunManager, rules: LiveRules, executor: str, own: OwnMachine
) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if await asyncio.to_thread(rules.refresh):
            log.info("rules_changed")
            _announce_rules(manager, rules.current, executor)
            await manager.retry(manager.other_folders.announce)
            await own.announce(manager.other_folders.starts)


async def _clean_up(manager: RunManager, own: OwnMachine) -> None:
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


async def _sweep_checkpoints(manager: RunManager, base: str) -> None:
    """Removes the checkpoint folders of workloads that are gone."""

    async def is_gone(owner: Owner) -> bool:
        return await manager.retry(lambda: manager.admissions.is_gone(*owner))

    sweeper = CheckpointSweeper(base, trash_of(manager.folder.root), is_gone)
    while True:
        await asyncio.sleep(CLEANUP_SECONDS)
        uids = {run.uid for run in manager.runs.values()}
        await sweeper.look(uids, manager.admissions.namespaces)


async def _limit_output(manager: RunManager, limit: int) -> None:
    output = NamespaceOutput(limit)
    while True:
        closed = {**manager.given_back, **manager.closed}
        old = await asyncio.to_thread(output.excess, dict(manager.folders), closed)
        if old:
            log.info("output_removed", runs=len(old), reason="--namespace-output-limit")
            await remove_output(manager, closed, old)
        await asyncio.sleep(CHECK_SECONDS)


async def _empty_trash(manager: RunManager) -> None:
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
