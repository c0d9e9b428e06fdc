"""Runs several services in one process: started in order, restarted on a crash, ended in reverse
order.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
import uvloop

from admittance.api.reading.configuration_file import configuration_warnings
from admittance.backoff import Backoff
from admittance.runtime import clock, tasks
from admittance.runtime.bus import streams
from admittance.runtime.bus.bucket_history import ensure_history
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, BusUnavailable, SetupError, is_temporary
from admittance.runtime.nats.opening import is_open
from admittance.runtime.process.admin import AdminPort, admin_port
from admittance.runtime.process.health import why_not_ready
from admittance.runtime.process.service import Run, Service, Streams
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.startup import collect_garbage_less_often, stop_signals
from admittance.runtime.tasks import process_ends_within, raise_if_cancelled
from admittance.runtime.telemetry import logs
from admittance.runtime.telemetry.logger import LogThrottle

PAUSE_MIN: Final = 0.1
PAUSE_MAX: Final = 5.0
CALM: Final = 30.0
"""Seconds without a crash after which earlier crashes no longer count."""
CRASHES_MAX: Final = 20
"""After more crashes of a service in a row the process ends. Only crashes by bugs count: a service
that fails because of the bus is restarted without limit.
"""

log = structlog.get_logger()


class ServiceTask(NamedTuple):
    """A service that `supervise` runs. ``run`` works until it is cancelled, and sets its event once
    the service works.
    """

    name: str
    run: Callable[[asyncio.Event], Awaitable[None]]


async def supervise(
    tasks: Sequence[ServiceTask],
    stop: asyncio.Event,
    *,
    ready: Callable[[], None] | None = None,
    grace_seconds: float = 15.0,
) -> None:
    """Runs services until ``stop`` is set, then ends them one by one, in reverse order.

    Starts each service when the services before it work, and calls ``ready`` when all work. A
    service that ends or fails is restarted after a pause. Raises a service's SetupError at once,
    because a restart would not help, and AdmittanceError after too many crashes caused by a bug.
    """
    running: list[asyncio.Task[None]] = []
    stopping = asyncio.create_task(stop.wait())
    try:
        for task in tasks:
            serves = asyncio.Event()
            running.append(asyncio.create_task(_keep(task, serves), name=task.name))
            serving = asyncio.create_task(serves.wait())
            try:
                await asyncio.wait(
                    [serving, stopping, *running], return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                serving.cancel()
            if stop.is_set() or any(service.done() for service in running):
                break
        else:
            if ready is not None:
                ready()
        await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
        for ending in running:
            if ending.done():
                ending.result()
    finally:
        stopping.cancel()
        for ending in reversed(running):
            ending.cancel()
            done, _ = await asyncio.wait([ending], timeout=grace_seconds)
            if not done:
                log.warning("service_does_not_end", service=ending.get_name())
            elif not ending.cancelled():
                ending.exception()


async def _keep(task: ServiceTask, serves: asyncio.Event) -> None:
    crashes = Backoff(PAUSE_MIN, PAUSE_MAX)
    interruptions = Backoff(PAUSE_MIN, PAUSE_MAX)
    throttle = LogThrottle()
    while True:
        began = clock.monotonic()
        bug = True
        try:
            await task.run(serves)
            log.warning("service_ended", service=task.name)
        except SetupError:
            raise
        except Exception as error:
            bug = not is_temporary(error)
            if bug and not isinstance(error, AdmittanceError):
                log.exception("service_crashed", service=task.name)
            elif bug or throttle.due(clock.monotonic()):
                log.warning("service_interrupted", service=task.name, reason=str(error))
        # A failure while the service is being ended must not restart the service.
        raise_if_cancelled()
        if clock.monotonic() - began > CALM:
            crashes.reset()
            interruptions.reset()
            throttle = LogThrottle()
        pause = (crashes if bug else interruptions).next()
        if crashes.failures > CRASHES_MAX:
            raise AdmittanceError(
                f"{task.name} crashed {crashes.failures} times in a row; see its log"
            )
        await asyncio.sleep(pause)


def stop_on_signals(
    stop: asyncio.Event,
    *,
    in_time: bool = False,
    again: Callable[[signal.Signals], None] | None = None,
) -> Callable[[], None]:
    """Sets ``stop`` on a stop signal. Returns a function that removes the signal handlers.
    With ``in_time``, the process ends at the latest `tasks.PROCESS_SECONDS` after the stop signal.
    ``again``: called at each further SIGINT and SIGTERM.
    """
    loop = asyncio.get_running_loop()
    numbers = stop_signals()

    def on_signal(number: signal.Signals) -> None:
        # A closed terminal sends SIGHUP more than once: from the shell, and when the shell ends.
        if stop.is_set() and again is not None and number != signal.SIGHUP:
            again(number)
        elif in_time and not stop.is_set():
            process_ends_within()
        stop.set()

    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)

    def undo() -> None:
        for number in numbers:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)

    return undo


STOP_SECONDS: Final = 65.0
"""Most seconds for which `supervise` waits until a cancelled service has ended. A runner may need
the whole time limit, because it waits for its jobs' grace periods.
"""
CLOSE_SECONDS: Final = 0.5
"""Longest wait for a connection to close."""


Serving: TypeAlias = Callable[[Bus, Settings], Awaitable[None]]
"""A function that returns when the service with these settings works."""


async def _at_once(_bus: Bus, _settings: Settings) -> None:
    return


def task_of(
    service: Service,
    settings: Settings,
    run: Run,
    *,
    serving: Serving = _at_once,
    admin: AdminPort | None = None,
    **more: Any,
) -> ServiceTask:
    """Makes of a service the task that `supervise` runs. ``run``: runs the service, as the function
    of its package does. At each start the service gets a new
    connection, and the streams are checked. A service that is asked to stop has a grace period for
    its shutdown. ``serving``: waits until the service works. ``admin``: the admin port that says
    whether the service is ready.
    """
    if admin is not None:
        admin.expect(settings.service)
    connected = False

    async def once(serves: asyncio.Event) -> None:
        nonlocal connected
        try:
            bus = await Bus.connect(
                settings.url, name=f"admit-{settings.service}", access=settings.connection
            )
        except SetupError as error:
            if not connected:
                raise
            # The streams had the right settings at the start of this process, so a SetupError now
            # means a problem of nats-server. For example, the server disabled JetStream when its
            # disk was full.
            raise BusUnavailable(str(error)) from None
        connected = True
        stop = asyncio.Event()
        working = asyncio.create_task(
            tasks.run_with_grace(
                stop,
                _work(service, bus, settings, run, stop, more),
                grace_seconds=tasks.GRACE_SECONDS if service.ends_in_time else None,
            )
        )
        waiting = asyncio.create_task(_until_serving(bus, settings, serving, serves))
        readiness = ExitStack()
        if admin is not None:
            readiness.enter_context(
                admin.ready_if(settings.service, lambda: why_not_ready(bus, settings))
            )
        try:
            await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                waiting.result()
            await asyncio.shield(working)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.shield(working)
            raise
        finally:
            readiness.close()
            working.cancel()
            await asyncio.gather(
                tasks.cancel_and_wait(waiting),
                working,
                return_exceptions=True,
            )
            closing = asyncio.create_task(bus.close())
            await asyncio.wait([closing], timeout=CLOSE_SECONDS)

    return ServiceTask(settings.service, once)


async def _work(
    service: Service,
    bus: Bus,
    settings: Settings,
    run: Run,
    stop: asyncio.Event,
    more: dict[str, Any],
) -> None:
    if service.streams is not Streams.AWAITS:
        keeps = service.streams is Streams.KEEPS
        may_write = keeps or is_open(bus.nc)
        await _make_streams(bus, settings, stop, may_write=may_write, keeps=keeps)
    if not stop.is_set():
        await run(bus, settings, stop=stop, **more)


async def _make_streams(
    bus: Bus, settings: Settings, stop: asyncio.Event, *, may_write: bool, keeps: bool
) -> None:
    """Creates missing streams, unless ``stop`` is set first. Without ``may_write`` raises
    BusUnavailable until the service that keeps the streams has created and updated them; ``keeps``:
    this is that service, which also makes the history of the bucket."""
    making = asyncio.create_task(_made_streams(bus, settings, may_write=may_write, keeps=keeps))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([making, stopping], return_when=asyncio.FIRST_COMPLETED)
        if making.done():
            making.result()
    finally:
        making.cancel()
        stopping.cancel()


async def _made_streams(bus: Bus, settings: Settings, *, may_write: bool, keeps: bool) -> None:
    await streams.ensure(
        bus, replicas=settings.replicas, log_days=settings.log_days, may_write=may_write
    )
    if keeps:
        await ensure_history(
            bus,
            days=settings.history_days,
            replicas=settings.replicas,
            bytes_max=settings.log_bytes,
        )


async def _until_serving(
    bus: Bus, settings: Settings, serving: Serving, serves: asyncio.Event
) -> None:
    await serving(bus, settings)
    serves.set()


async def serve(
    service: Service, settings: Settings, run: Run, stop: asyncio.Event, **more: Any
) -> None:
    """Runs one service until ``stop`` is set. Raises what `supervise` raises."""
    async with admin_port(settings) as admin:
        task = task_of(service, settings, run, admin=admin, **more)
        await supervise([task], stop, grace_seconds=STOP_SECONDS)


def bound_to_log(service: Service) -> Run:
    """The function of the service; its log lines name the service. The name is bound for this
    task and its child tasks only, because several services share one process and its log.
    """

    async def run(bus: Bus, settings: Settings, **arguments: Any) -> None:
        structlog.contextvars.bind_contextvars(service=service.name)
        await service.load()(bus, settings, **arguments)

    return run


def main(service: Service, more: Callable[[Settings], Mapping[str, Any]] | None = None) -> int:
    """Runs the service until a stop signal. Returns the exit status of the process. ``more``:
    makes further arguments of ``run`` from the settings.
    """
    service.load()
    collect_garbage_less_often()
    try:
        uvloop.run(_main(service, bound_to_log(service), more))
    except AdmittanceError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


async def _main(
    service: Service, run: Run, more: Callable[[Settings], Mapping[str, Any]] | None
) -> None:
    settings = Settings.from_env(service.name)
    logs.configure(service.name, settings.instance, settings.json_logs, level=settings.log_level)
    for warning in configuration_warnings(settings.configuration):
        log.warning("configuration_warning", warning=warning)
    stop = asyncio.Event()
    stop_on_signals(stop, in_time=service.ends_in_time)
    await serve(service, settings, run, stop, **(more(settings) if more is not None else {}))
    # The time limit holds for a runner too, after its jobs have ended: a thread that resolves the
    # name of an unreachable server must not keep the process alive.
    tasks.process_ends_within()
