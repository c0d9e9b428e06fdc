"""``admit up`` runs all services in one process or two, ``admit serve`` runs one of them.

Each service has its own connection: services share nothing but the bus, even in one process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import structlog

from admittance.api.fields.problems import ManifestError
from admittance.api.reading.configuration_file import read_file
from admittance.cli.support import output
from admittance.cli.support.link import check_url
from admittance.cli.support.options import Call, UrlFrom
from admittance.cli.up.ending import Ending
from admittance.cli.up.lock import ADMIN, WATCH, Lock, rules_of_server
from admittance.cli.up.options import (
    Options,
    has_two_processes,
    refuse_wrong,
    refuse_wrong_of,
    with_real_folder,
)
from admittance.cli.up.own_context import write_own_context
from admittance.cli.up.page import own_page
from admittance.cli.up.readiness import until_serving
from admittance.cli.up.server_watch import watch
from admittance.client.errors import BadInput
from admittance.job_rules.machine_options import GivenMachine, machine_of_texts
from admittance.job_rules.options import rules_of
from admittance.job_rules.rules import JobRules
from admittance.job_rules.runner_name import given_name
from admittance.runtime import clock, tasks
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import (
    AccessDenied,
    BusRefused,
    BusUnavailable,
    NoServer,
    SetupError,
    is_temporary,
)
from admittance.runtime.nats.connection_options import (
    DEFAULT_URL,
    NO_OPTIONS,
    OPTIONS,
    ConnectionOptions,
)
from admittance.runtime.nats.server_url import BadUrl, is_loopback, read_urls, shown
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.server_accounts import LOCKED, open_accounts
from admittance.runtime.nats_server.server_process import refuse_used
from admittance.runtime.process.admin import AdminPort, admin_port
from admittance.runtime.process.on_demand import on_demand_task
from admittance.runtime.process.service import Service, WithUp
from admittance.runtime.process.service_child import child_task, run_child
from admittance.runtime.process.settings import Settings, new_instance
from admittance.runtime.process.startup import collect_garbage_less_often
from admittance.runtime.process.supervise import (
    STOP_SECONDS,
    ServiceTask,
    bound_to_log,
    supervise,
    task_of,
)
from admittance.runtime.process.supervise import serve as serve_one
from admittance.runtime.process.this_machine import cpu_milli
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry import logs
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.services import RUNNER, SERVICES, STREAMS_KEEPER

DEFAULT_PORT: Final = int(DEFAULT_URL.rpartition(":")[2])
WAIT_SECONDS: Final = 1.0
"""Pause between two attempts to create the streams."""

log = structlog.get_logger()


WHAT_INSECURE_MEANS: Final = (
    "--insecure: every program of this machine may do everything here, also run commands as the "
    "Unix user of the runner"
)


async def up(call: Call, options: Options) -> int:
    """Runs all services until a stop signal; prints ``web http://…`` and ``ready nats://…`` once
    all are ready."""
    executor = options.executor if options.runner else None
    refuse_wrong(options, executor, uses_folder=options.runner or embeds(call, options))
    # One spelling of the folder, for the paths in contexts and in the files of the server.
    options = with_real_folder(options)
    if executor is not None:
        # The runner checks the executor as well, but only after everything else has started.
        await RUNNER.check(executor, job_rules(call, options))
        given_machine(options)
        given_runner()
    if embeds(call, options):
        refuse_unused(call)
        # On a folder with a configuration, the server may be one that an earlier start left.
        if options.port and not (options.data_dir / "nats.conf").exists():
            refuse_used(options.port)
    else:
        refuse_unprotected(call, options.insecure)
    ending = Ending(in_time=False, has_jobs=options.runner)
    collect_garbage_less_often()
    _warn(options.config)
    if options.insecure:
        output.warn(WHAT_INSECURE_MEANS)
    # An embedded server is reached without the connection options of the call, which are meant for
    # other servers.
    connection = NO_OPTIONS if embeds(call, options) else call.connection
    settings = Settings.from_env(
        "up",
        url=call.url,
        connection=connection,
        data_dir=options.data_dir,
        config=options.config,
        admin=options.admin,
        metrics_prefix=options.metrics_prefix,
    )
    logs.configure("up", "", settings.json_logs, level=settings.log_level)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(admin_port(settings))
        tasks: list[ServiceTask] = []
        url, instance = call.url, None
        lock: Lock | None = None
        page = own_page(options, gives_codes=embeds(call, options) or not call.has_login)
        if page is not None:
            stack.callback(page.close)
        if embeds(call, options):
            has_page = page is not None
            lock = None if options.insecure else Lock(options.data_dir, has_page=has_page)
            server = await stack.enter_async_context(_embedded(options, lock, ending))
            url, instance = server.url, lasting_instance(options.data_dir)
            tasks += await _server_tasks(server, lock)
        else:
            check_url(url)

        def access(name: str) -> ConnectionOptions:
            return connection if lock is None else lock.access(name)

        if not await _prepared(url, access(STREAMS_KEEPER.name), settings, ending.stop):
            return 0
        for service in started_by(options):
            mine = Settings.from_env(
                service.name,
                url=url,
                connection=access(service.name),
                data_dir=options.data_dir,
                instance=instance,
                config=options.config,
                admin=options.admin,
                metrics_prefix=options.metrics_prefix,
            )
            asks = None if lock is None else lock.access(ADMIN)
            tasks.append(_task(service, mine, options, job_rules(call, options), admin, asks))
        if page is not None:
            credentials = "" if lock is None else lock.page_credentials
            tasks.append(page.task(url, connection, credentials))

        def ready() -> None:
            if embeds(call, options):
                creds = None if lock is None else lock.access(ADMIN).creds
                write_own_context(url, creds, options.data_dir, use=options.use)
            if page is not None:
                output.say(f"web {page.link}")
            output.say(f"ready {shown(url)}")
            output.flush()

        await supervise(tasks, ending.stop, ready=ready, grace_seconds=STOP_SECONDS)
    return 0


async def _server_tasks(server: EmbeddedServer, lock: Lock | None) -> list[ServiceTask]:
    """The tasks that run beside the embedded server: the server watch, and the removal of expired
    users.
    """
    if lock is None:
        return [ServiceTask("nats-server", lambda serves: watch(server, serves))]
    await lock.apply(server)
    probes = lock.access(WATCH)

    async def remove_expired(serves: asyncio.Event) -> None:
        serves.set()
        await lock.remove_expired(server)

    return [
        ServiceTask("nats-server", lambda serves: watch(server, serves, probes)),
        ServiceTask("users", remove_expired),
    ]


def refuse_unused(call: Call) -> None:
    """Raises BadInput for options of the connection beside a server that `admit up` starts: it
    makes the users and credentials of that server itself."""
    if typed := [OPTIONS[name] for name in OPTIONS if call.given.get(name)]:
        raise BadInput(
            f"{typed[0]} is for a server that runs already: name that server with --nats URL, or "
            f"leave out {typed[0]}"
        )


def refuse_unprotected(call: Call, insecure: bool) -> None:
    """Raises BadInput for a server that other machines reach and that demands no credentials."""
    try:
        local = all(is_loopback(url.address) for url in read_urls(call.url))
    except BadUrl:
        return  # `check_url` reports it.
    if local:
        return
    if insecure:
        raise BadInput(f"--insecure is for loopback only, and {call.shown_url} is not")
    if not call.has_login and not call.connection.tls_cert:
        raise BadInput(
            f"{call.shown_url} is not on loopback: name credentials with --creds, or start the "
            "services with `admit serve`"
        )


async def _prepared(
    url: str, access: ConnectionOptions, settings: Settings, stop: asyncio.Event
) -> bool:
    """Creates the streams once JetStream has a leader; returns False if ``stop`` was set before
    that.

    Raises NoServer if no server answers, AccessDenied if the server refuses the login, SetupError
    if a setting is wrong.
    """
    throttle = LogThrottle()
    while not stop.is_set():
        bus = None
        try:
            bus = await Bus.connect(url, name="admit-up", access=access)
            await streams.ensure(bus, replicas=settings.replicas, log_days=settings.log_days)
            return True
        except (NoServer, AccessDenied):
            raise
        except (BusUnavailable, BusRefused) as error:
            if not is_temporary(error):
                raise
            if throttle.due(clock.monotonic()):
                log.warning("waiting_for_bus", reason=str(error))
        finally:
            if bus is not None:
                await bus.close()
        await set_within(stop, WAIT_SECONDS)
    return False


def started_by(options: Options) -> list[Service]:
    """The services that `admit up` starts. Raises BadInput."""
    services = [service for service in SERVICES.values() if options.runner or not service.runs_jobs]
    return [service for service in services if _starts(service)]


def _starts(service: Service) -> bool:
    if service.with_up is not WithUp.IF_ASKED:
        return service.with_up in (WithUp.ALWAYS, WithUp.ON_DEMAND)
    try:
        asked = service.asked(os.environ)
    except SetupError as error:
        raise BadInput(str(error)) from None
    if asked.warning:
        output.warn(asked.warning)
    return asked.starts


def job_rules(call: Call, options: Options) -> JobRules:
    """What the runner of `admit up` may start. Raises BadInput."""
    if not embeds(call, options):
        return served_rules(options)
    try:
        return rules_of_server(
            options.rules,
            options.data_dir,
            executor=options.executor,
            insecure=options.insecure,
        )
    except SetupError as error:
        raise BadInput(str(error)) from None


def served_rules(options: Options) -> JobRules:
    """What a runner may start, by its options and variables. Raises BadInput."""
    try:
        return rules_of(options.rules, os.environ, executor=options.executor)
    except SetupError as error:
        raise BadInput(str(error)) from None


def given_runner() -> str | None:
    """The name that the environment gives the runner. Raises BadInput."""
    try:
        return given_name(os.environ)
    except SetupError as error:
        raise BadInput(str(error)) from None


def given_machine(options: Options) -> GivenMachine:
    """What options and variables say about this machine. Raises BadInput."""
    try:
        return machine_of_texts(options.machine, os.environ)
    except SetupError as error:
        raise BadInput(str(error)) from None


def _task(
    service: Service,
    settings: Settings,
    options: Options,
    rules: JobRules,
    admin: AdminPort | None,
    asks: ConnectionOptions | None,
) -> ServiceTask:
    """The task of one service for `supervise`. ``asks``: the login that asks whether the service is
    ready; None: the service's own connection."""

    async def serving(bus: Bus, mine: Settings) -> None:
        if asks is None:
            await until_serving(bus, service, mine.instance)
            return
        other = await Bus.connect(mine.url, name="admit-up", access=asks)
        try:
            await until_serving(other, service, mine.instance)
        finally:
            await other.close()

    config = {} if options.config is None else {"ADMIT_CONFIG": str(options.config)}
    if service.with_up is WithUp.ON_DEMAND:
        return on_demand_task(
            service,
            settings,
            lambda: run_child(service, settings, variables=config),
            lambda bus: serving(bus, settings),
        )
    if service.own_process and has_two_processes(options.service_processes, cpu_milli()):
        return child_task(
            service,
            settings,
            variables={**config, "ADMIT_METRICS_PREFIX": settings.metrics_prefix},
            serving=serving,
            meanwhile=lambda: _load_others(service, options),
            admin=admin,
        )
    return task_of(
        service,
        settings,
        bound_to_log(service),
        serving=serving,
        admin=admin,
        **(job_arguments(options, rules) if service.runs_jobs else {}),
    )


def _load_others(service: Service, options: Options) -> None:
    """Imports the services that this process will run, all but ``service``."""
    for other in started_by(options):
        if other is not service and other.with_up is not WithUp.ON_DEMAND:
            other.load()


def job_arguments(options: Options, rules: JobRules) -> dict[str, Any]:
    """The arguments of a service that runs jobs."""
    return {
        "name": given_runner(),
        "executor": options.executor,
        "detach_jobs": options.detach_jobs,
        "rules": rules,
        "given": given_machine(options),
    }


def embeds(call: Call, options: Options) -> bool:
    """Whether ``up`` starts its own server.

    With --nats `admit up` starts no server. With a URL from the environment it starts one only if
    --port or --data-dir is given, since the variable is often set for other commands.
    """
    match call.url_from:
        case UrlFrom.OPTION:
            return False
        case UrlFrom.ENVIRONMENT:
            return options.port is not None or options.folder_chosen
        case UrlFrom.CONTEXT | UrlFrom.DEFAULT:
            return True


async def serve(call: Call, service: Service, options: Options) -> int:
    """Runs one service, connected to the server of ``call``, until a stop signal."""
    check_url(call.url)
    more: dict[str, Any] = {}
    refuse_wrong_of(service, options)
    if service.runs_jobs:
        rules = served_rules(options)
        await service.check(options.executor, rules)
        more = job_arguments(options, rules)
    stop = Ending(in_time=service.ends_in_time, has_jobs=service.runs_jobs).stop
    # Imported now and not after the wait for a server and its streams: after an election many
    # services would import at the same moment, which takes them seconds on a small machine.
    service.load()
    collect_garbage_less_often()
    _warn(options.config)
    settings = Settings.from_env(
        service.name,
        url=call.url,
        connection=call.connection,
        data_dir=options.data_dir,
        config=options.config,
        admin=options.admin,
        metrics_prefix=options.metrics_prefix,
    )
    logs.configure(service.name, settings.instance, settings.json_logs, level=settings.log_level)
    await serve_one(service, settings, bound_to_log(service), stop, **more)
    tasks.process_ends_within()
    return 0


# The server. ----------------------------------------------------------------------------


@asynccontextmanager
async def _embedded(
    options: Options, lock: Lock | None, ending: Ending
) -> AsyncIterator[EmbeddedServer]:
    accounts = open_accounts(options.data_dir / "nats") if lock is None else LOCKED
    server = await _started(options, accounts, ending)
    try:
        yield server
    finally:
        await server.stop()


async def _started(options: Options, accounts: str, ending: Ending) -> EmbeddedServer:
    """An embedded server on the given port, else on the port last used with the folder, else on the
    default port if that is free.
    """

    async def started(port: int) -> EmbeddedServer:
        ending.server = server = EmbeddedServer(
            options.data_dir, port=port, sync_always=options.sync_always, accounts=accounts
        )
        await server.start()
        return server

    if options.port is not None or (options.data_dir / "port").exists():
        return await started(options.port or 0)
    try:
        return await started(DEFAULT_PORT)
    except SetupError:
        # Most likely the default port is in use. After any other problem, the start on a free port
        # fails too, and reports the problem.
        return await started(0)


# Settings. ------------------------------------------------------------------


def _warn(config: Path | None) -> None:
    """Warns about settings without effect in the configuration file. Raises BadInput for a wrong
    configuration file.
    """
    chosen = config or os.environ.get("ADMIT_CONFIG")
    if not chosen:
        return
    try:
        read = read_file(Path(chosen))
    except OSError as error:
        raise BadInput(f"cannot read {chosen}: {error.strerror}") from None
    except ManifestError as error:
        raise BadInput(str(error)) from None
    for warning in read.warnings:
        output.warn(f"{chosen}: {warning}")


def lasting_instance(data_dir: Path) -> str | None:
    """The instance name that belongs to this data folder, the same after every start; None if
    ADMIT_INSTANCE sets a name.

    A process that holds the folder's lock knows that the previous process is dead: with the same
    name it takes over the leases at once instead of waiting until they expire.
    """
    if os.environ.get("ADMIT_INSTANCE"):
        return None
    file = data_dir / "instance"
    with suppress(OSError):
        if not file.exists():
            file.write_text(new_instance())
        return file.read_text().strip() or None
    return None
