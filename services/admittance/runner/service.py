"""The runner as a service: its tasks, and how the runner shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
from admittance.runner.disk.checkpoints import base_folder
from admittance.runner.groups.job_groups import Offers
from admittance.runner.host.live_rules import LiveRules
from admittance.runner.host.local_machine import LocalMachine
from admittance.runner.host.port import HostMachine
from admittance.runner.inventory.limit_messages import limit_messages
from admittance.runner.inventory.machine_inventory import AnnouncedRunner
from admittance.runner.logs.log_reader import LogReader
from admittance.runner.machines.device_watch import DeviceWatch, with_devices
from admittance.runner.machines.machine_reports import MachineReports
from admittance.runner.machines.own_machine import OwnMachine
from admittance.runner.runner_gauges import RUNNER_GAUGES, values_of
from admittance.runner.runs.admissions import AdmissionReader
from admittance.runner.runs.claims import Claims
from admittance.runner.runs.fact_handlers import (
    admit,
    claims_loaded,
    on_claims_changed,
    recover,
    resume_runs,
)
from admittance.runner.runs.jobs_elsewhere import evict
from admittance.runner.runs.run_manager import RunManager
from admittance.runner.runs.shutting_down import shut_down
from admittance.runner.upkeep import (
    announce_rules,
    check_all_runs,
    clean_up,
    empty_trash,
    follow_rules,
    limit_output,
    renew,
    sweep_checkpoints,
)
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
from admittance.runtime.telemetry.metrics import Gauges
from admittance.runtime.telemetry.object_faults import faults

SERVICE: Final = "runner"
BATCH: Final = 200
"""The most facts that the runner reads in one batch: many, so that their claims are requested
together, but few enough to write their runs quickly.
"""
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
        Claims(bus, folder.runner, claim_ttl, folder.secret),
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
        announce_rules(manager, live.current, executor)
        name = name or bus.nc.user or folder.runner
        announced = AnnouncedRunner(
            id=folder.runner,
            name=name,
            executor=executor,
            starts=live.current.starts(),
            messages=limit_messages(kind.offers()),
        )
        look = partial(machine.inventory, given, announced)
        inventory = with_devices(kind, await asyncio.to_thread(look))
        for message in inventory.messages[len(announced.messages) :]:
            log.warning("devices_noted", message=message)
        inventory = replace(inventory, folders=live.current.shared_folders)
        own = OwnMachine(manager, inventory, MachineReports(bus, inventory, claim_ttl))
        watch = DeviceWatch(manager, own, look)
        await manager.launcher.open()
        disk = partial(disk_findings, "disk of the runner", folder.root)
        shown = show_metrics(settings, Gauges(RUNNER_GAUGES, partial(values_of, manager)))
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
                    watch,
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


def _why_waiting(manager: RunManager, key: str) -> str:
    """Why no process of a run has started; "": some have."""
    files = manager.folders.get(key)
    if files is not None and files.journal.in_prolog:
        return f"the prolog of runner {manager.name} runs"
    return manager.launcher.waiting.get(key, "")


async def _serve(
    bus: Bus,
    settings: Settings,
    manager: RunManager,
    rules: LiveRules,
    stop: asyncio.Event,
    ready: asyncio.Event | None,
    executor: str,
    own: OwnMachine,
    watch: DeviceWatch,
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
        partial(_why_waiting, manager),
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

    renewing = asyncio.create_task(renew(manager), name="runner renews")
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
            lambda _: claims_loaded(manager),
            bucket=CLAIMS,
            # An end of the service here would leave the jobs without a runner that can stop them.
            request=lambda after: manager.retry(lambda: make(name, "claims", after)),
        )
        handling = [
            asyncio.create_task(_handle_facts(manager, puller), name="runner reads facts"),
            asyncio.create_task(following_claims, name="runner watches claims"),
        ]
        tasks += handling
        tasks.append(asyncio.create_task(check_all_runs(manager), name="runner looks after"))
        tasks.append(asyncio.create_task(own.keep_alive(), name="runner is alive"))
        tasks.append(asyncio.create_task(own.report_runs(), name="runner reports runs"))
        tasks.append(asyncio.create_task(own.cordon.follow(), name="runner cordon"))
        tasks.append(asyncio.create_task(own.give_back_drained(), name="runner is drained"))
        tasks.append(asyncio.create_task(watch.run(), name="runner watches devices"))
        tasks.append(asyncio.create_task(clean_up(manager, own), name="tidy"))
        sweeping = sweep_checkpoints(manager, checkpoints)
        tasks.append(asyncio.create_task(sweeping, name="runner sweeps checkpoints"))
        limiting = limit_output(manager, rules.current.limits.namespace_output)
        tasks.append(asyncio.create_task(limiting, name="runner limits output"))
        tasks.append(asyncio.create_task(empty_trash(manager), name="runner empties trash"))
        if rules.can_change:
            tasks.append(
                asyncio.create_task(
                    follow_rules(manager, rules, executor, own), name="runner rules"
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
            if not await shut_down(manager, SHUTDOWN_SECONDS, NO_BUS_SECONDS):
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
