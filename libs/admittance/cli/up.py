"""The composition: which services there are, how they start together, when they are ready, and in
which order they end. ``admit up`` starts all of them in one process, ``admit serve`` one.

Each service gets a connection of its own: they share nothing but the bus, here as anywhere.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors
import structlog

from admittance.cli import output
from admittance.cli.errors import AnswerIsNo, BadInput
from admittance.cli.link import check_url
from admittance.cli.options import DEFAULT_URL, Call, UrlFrom
from admittance.events.requests import Health, HealthReply, Settled
from admittance.runtime import clock, logs, streams
from admittance.runtime.bus import Bus
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.runtime.server import EmbeddedServer
from admittance.runtime.settings import Settings

DEFAULT_PORT: Final = int(DEFAULT_URL.rpartition(":")[2])
READY_SECONDS: Final = 120.0
STOP_SECONDS: Final = 20.0
RESTARTS: Final = 5
"""A service that ends by itself more often than this within `RESTARTS_WITHIN` ends us, too."""
RESTARTS_WITHIN: Final = 60.0
SERVER_CHECK_SECONDS: Final = 0.2

log = structlog.get_logger()


class Service(NamedTuple):
    """``probe`` is a request that only an instance that leads answers; None: health is enough."""

    name: str
    module: str
    probe: str | None = None


SERVICES: Final = {
    service.name: service
    for service in (
        Service("workload-controller", "admittance.workload_controller.shell", "settled"),
        Service("scheduler", "admittance.scheduler.shell", "queues"),
        Service("runner", "admittance.runner.service"),
    )
}
"""In the order in which they start. They end in the opposite order: the runner's last words about
its jobs are still heard."""


class Options(NamedTuple):
    """What ``admit up`` was asked for."""

    data_dir: Path
    port: int | None = None
    runner: bool = True
    executor: str = "local"
    sync_always: bool = False


async def up(call: Call, options: Options) -> int:
    """Runs everything until SIGINT or SIGTERM; says ``ready nats://…`` once everything serves."""
    stop = _stop_on_signals()
    logs.configure("up", "", None)
    names = [name for name in SERVICES if options.runner or name != "runner"]
    async with AsyncExitStack() as stack:
        url = call.url
        server: EmbeddedServer | None = None
        if embeds(call, options):
            server = await stack.enter_async_context(_embedded(options))
            url = server.url
        else:
            check_url(url)
        bus = await Bus.connect(url, name="admit-up", creds=_creds())
        stack.push_async_callback(bus.close)
        await streams.ensure(bus, replicas=_settings("up", url, options.data_dir).replicas)
        fleet = Fleet(url, options, stop)
        stack.push_async_callback(fleet.end)
        if server is not None:
            stack.enter_context(_watched(server, stop))
        for name in names:
            fleet.start(name)
        await _ready_or_stopped(bus, names, stop)
        if not stop.is_set():
            output.say(f"ready {url}")
            output.flush()
        await stop.wait()
        log.info("stopping")
    return fleet.status


def embeds(call: Call, options: Options) -> bool:
    """Whether ``up`` brings its own server: unless a URL was chosen. Where only the environment
    chose it, a port that was typed means a server of our own."""
    match call.url_from:
        case UrlFrom.OPTION:
            return False
        case UrlFrom.ENVIRONMENT:
            return options.port is not None
        case UrlFrom.DEFAULT:
            return True


async def serve(call: Call, name: str, data_dir: Path, executor: str) -> int:
    """Runs one service against the server of call until SIGINT or SIGTERM."""
    service_named(name)
    check_url(call.url)
    stop = _stop_on_signals()
    settings = _settings(name, call.url, data_dir)
    logs.configure(name, settings.instance, settings.json_logs, level=settings.log_level)
    bus = await Bus.connect(call.url, name=f"admit-{name}", creds=settings.creds)
    try:
        await streams.ensure(bus, replicas=settings.replicas)
        await run_service(name, bus, settings, stop, executor)
    finally:
        await bus.close()
    return 0


def service_named(name: str) -> Service:
    """The service of that name, hyphens or underscores. Raises BadInput with all there are."""
    found = SERVICES.get(name.lower().replace("_", "-"))
    if found is None:
        raise BadInput(f'there is no service "{name}"; there are {", ".join(SERVICES)}')
    return found


async def run_service(
    name: str, bus: Bus, settings: Settings, stop: asyncio.Event, executor: str
) -> None:
    """Runs one service until stop is set. Raises whatever ends it before."""
    module = import_module(SERVICES[name].module)
    more: dict[str, Any] = {}
    if name == "runner":
        more = {"executor": executor, "claim_ttl": settings.claim_seconds}
    await module.run(bus, settings, stop=stop, **more)


class Fleet:
    """Several services in one process; one that fails is started anew, as an orchestrator would."""

    def __init__(self, url: str, options: Options, stop: asyncio.Event) -> None:
        self._url = url
        self._options = options
        self._stop = stop
        self._stops: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.status = 0
        self.failure = ""

    def start(self, name: str) -> None:
        """Starts a service; from now on it is kept running."""
        self._stops[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._keep(name), name=f"service {name}")

    async def _keep(self, name: str) -> None:
        stop = self._stops[name]
        failures: list[float] = []
        while not stop.is_set():
            try:
                await self._run(name, stop)
                if stop.is_set():
                    return
                raise RuntimeError("it ended without being asked to")
            except asyncio.CancelledError:
                raise
            except SetupError as error:
                self._give_up(f"{name}: {error}")
                return
            except Exception as error:
                now = clock.monotonic()
                failures = [at for at in failures if now - at < RESTARTS_WITHIN] + [now]
                log.exception("service_failed", service=name, restarts=len(failures))
                if len(failures) > RESTARTS:
                    self._give_up(f"{name} fails again and again: {error!r}; its log has more")
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(0.1 * 2 ** len(failures), 5.0))

    async def _run(self, name: str, stop: asyncio.Event) -> None:
        settings = _settings(name, self._url, self._options.data_dir)
        bus = await Bus.connect(self._url, name=f"admit-{name}", creds=settings.creds)
        try:
            await run_service(name, bus, settings, stop, self._options.executor)
        finally:
            await bus.close()

    def _give_up(self, why: str) -> None:
        self.status = 1
        self.failure = why
        output.error(why)
        self._stop.set()

    async def end(self) -> None:
        """Ends all services in order, with force after `STOP_SECONDS` each."""
        for name in reversed(self._tasks):
            self._stops[name].set()
            task = self._tasks[name]
            _done, late = await asyncio.wait([task], timeout=STOP_SECONDS)
            if late:
                log.warning("service_late", service=name)
                task.cancel()
                await asyncio.wait([task], timeout=1.0)
            if not task.cancelled() and task.done() and (error := task.exception()):
                log.error("service_failed", service=name, error=repr(error))


# The server. ----------------------------------------------------------------------------


@asynccontextmanager
async def _embedded(options: Options) -> AsyncIterator[EmbeddedServer]:
    server = await _started(options)
    try:
        yield server
    finally:
        await server.stop()


async def _started(options: Options) -> EmbeddedServer:
    """A server on the port that was asked for; else on the one that every command looks at, if it
    is free and the folder has no other one already."""
    if options.port is not None or (options.data_dir / "port").exists():
        server = EmbeddedServer(
            options.data_dir, port=options.port or 0, sync_always=options.sync_always
        )
        await server.start()
        return server
    server = EmbeddedServer(options.data_dir, port=DEFAULT_PORT, sync_always=options.sync_always)
    try:
        await server.start()
    except SetupError:
        # Whatever else is wrong is wrong on any other port, too, and said then.
        server = EmbeddedServer(options.data_dir, sync_always=options.sync_always)
        await server.start()
    return server


class _watched:
    """Starts the server anew when it dies: the services reconnect by themselves."""

    def __init__(self, server: EmbeddedServer, stop: asyncio.Event) -> None:
        self._server = server
        self._stop = stop
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="server watch")

    def __exit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _watch(self) -> None:
        while not self._stop.is_set():
            await asyncio.sleep(SERVER_CHECK_SECONDS)
            if not self._server.alive() and not self._stop.is_set():
                log.error("server_died")
                self._server.leave()
                try:
                    await self._server.start()
                except AdmittanceError as error:
                    output.error(f"the server died and does not come back: {error}")
                    self._stop.set()


# Readiness. -----------------------------------------------------------------------------


async def _ready_or_stopped(bus: Bus, names: list[str], stop: asyncio.Event) -> None:
    ready = asyncio.create_task(until_ready(bus, names), name="readiness")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        async with asyncio.timeout(READY_SECONDS):
            await asyncio.wait([ready, stopping], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
    except TimeoutError:
        raise AnswerIsNo(f"not ready within {READY_SECONDS:g} s; the log above has more") from None
    finally:
        for task in (ready, stopping):
            task.cancel()
        await asyncio.gather(ready, stopping, return_exceptions=True)


async def until_ready(bus: Bus, names: list[str]) -> None:
    """Waits until an instance of every service says that it is ready, and a leader answers."""
    missing = set(names)
    pause = 0.02
    while missing:
        answers = await health(bus, seconds=0.25, enough=len(names))
        for name in sorted(missing & {one.service for one in answers if one.ready}):
            probe = SERVICES[name].probe
            if probe is None or await _answers(bus, probe):
                missing.discard(name)
        if missing:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.25)


async def _answers(bus: Bus, probe: str) -> bool:
    data = msgspec.json.encode(Settled(sequence=0)) if probe == "settled" else b"{}"
    try:
        await bus.nc.request(f"admit.api.{probe}", data, timeout=1.0)
    except (nats.errors.Error, TimeoutError):
        return False
    return True


async def health(bus: Bus, *, seconds: float = 1.0, enough: int | None = None) -> list[HealthReply]:
    """What every instance that answers within seconds says of itself; fewer seconds when enough
    have answered."""
    found: list[HealthReply] = []
    full = asyncio.Event()

    async def on_answer(message: Any) -> None:
        with suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(message.data, type=HealthReply))
        if enough is not None and len(found) >= enough:
            full.set()

    inbox = bus.nc.new_inbox()
    subscription = await bus.nc.subscribe(inbox, cb=on_answer)
    try:
        await bus.nc.publish("admit.api.health", msgspec.json.encode(Health()), reply=inbox)
        with suppress(TimeoutError):
            await asyncio.wait_for(full.wait(), seconds)
    finally:
        await subscription.unsubscribe()
    return [one for one in found if one.service]


# Settings and signals. ------------------------------------------------------------------


def _settings(name: str, url: str, data_dir: Path) -> Settings:
    return Settings.from_env(name, url=url, data_dir=data_dir)


def _creds() -> str | None:
    return Settings.from_env("up").creds


def _stop_on_signals() -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM; the second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            loop.remove_signal_handler(number)
            signal.raise_signal(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return stop
