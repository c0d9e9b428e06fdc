"""Fixtures for tests against a real nats-server, and how properties are tried."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
import structlog
from xdist.scheduler import LoadFileScheduling

from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.telemetry import logger
from admittance.runtime.telemetry.object_faults import faults
from simulation.nats.simulated_server import SimulatedServer
from simulation.virtual_time.loop import VirtualLoop
from support.servers import TestServer

# Collecting makes no garbage to speak of, in each worker of pytest-xdist.
gc.disable()

# Processes that tests start inherit an ignored SIGHUP, as `nohup make test` leaves it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A test is no benchmark: on a machine that others use, any example may take its time.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders the tests: while some workers wait for processes, others play stories, which compute
    only. Files that wait long come first and short ones last, so that workers end together."""
    folders = {item.path: item.nodeid.split("/", 2)[1] for item in items}
    waiting = sorted(
        (f for f in folders if folders[f] in ("system", "integration")), key=_by_folder
    )
    place = {file: number / len(waiting) for number, file in enumerate(waiting)}
    stories = [item for item in items if _plays_stories(item.nodeid)]
    apart = {item: number / len(stories) for number, item in enumerate(stories)}
    items.sort(key=lambda item: apart.get(item, place.get(item.path, 1.0)))


def _plays_stories(nodeid: str) -> bool:
    return "/hunting/test_seeds_of_" in nodeid or "/hunting/test_bites" in nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives a worker whole files, for fixtures of modules, but stories one by one."""
    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda test: test if _plays_stories(test) else file_of(test)
    return scheduler


LONGEST: Final = (
    *("providers_page", "aws_reconciler", "kubernetes_reconciler", "auth_command"),
    *("budget_sample", "aws_live", "checks_page", "runner_claims", "runner_crashes", "logins"),
    *("provider_test", "ends_in_time", "samples_conform", "shell_sample"),
)
"""The files outside of `system` that wait longest, in this order."""


def _by_folder(file: Path) -> tuple[bool, int]:
    name = file.stem.removeprefix("test_")
    if name in LONGEST:
        return False, LONGEST.index(name)
    return "system" not in file.parts, len(LONGEST)


def pytest_collection_finish() -> None:
    """Spares the garbage collector the thousands of tests that live to the end."""
    gc.freeze()
    gc.enable()


_cancel_all_tasks: Final = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]


def _cancel_until_ended(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels the tasks that a test left behind, again every five seconds: `asyncio.wait_for` of
    Python 3.11 loses a cancellation that comes together with the answer."""

    def again() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_later(5.0, again)

    loop.call_later(5.0, again)
    _cancel_all_tasks(loop)


asyncio.runners._cancel_all_tasks = _cancel_until_ended  # type: ignore[attr-defined]

# No test reads or writes the contexts of the person that runs it; processes of tests inherit this.
_configuration_folder = tempfile.TemporaryDirectory(prefix="admit-tests-")
os.environ["XDG_CONFIG_HOME"] = _configuration_folder.name
# The web page is slow to load, so only its own tests start one beside `admit up`.
os.environ["ADMIT_NO_WEB"] = "1"
# A second process takes half a second more to start, so only its own tests have one.
os.environ["ADMIT_PROCESSES"] = "1"


def _bind_at_loopback(self: socket.socket, address: Any) -> None:
    """Binds, but fails a test that would listen where another machine can connect."""
    if self.family in (socket.AF_INET, socket.AF_INET6):
        host = address[0]
        if host != "localhost" and not (host and ipaddress.ip_address(host).is_loopback):
            raise AssertionError(f"a test listens at {host!r}: only loopback is allowed")
    _bind(self, address)


_bind = socket.socket.bind
socket.socket.bind = _bind_at_loopback  # type: ignore[method-assign, assignment]


def _configure_without_cache(**options: Any) -> None:
    """Configures logs so that the loggers of modules follow the next test's configuration."""
    _configure_logs(**{**options, "cache_logger_on_first_use": False})


# Tracebacks in colours and boxes take a second each.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

_configure_logs = structlog.configure
structlog.configure = _configure_without_cache  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Iterator[None]:
    """Each test begins with the default configuration of logs, and no test hides a fault: one that
    expects faults takes them."""
    yield
    hidden = faults.take()
    structlog.reset_defaults()
    logger._errors_only.clear()
    logger._logged.clear()
    assert hidden == []


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], Any]]:
    """The loops that a test runs on: on virtual time it gets a simulated server."""
    marker = item.get_closest_marker("servers")
    kinds = marker.args if marker is not None else ("real",)
    return {kind: _LOOPS[kind] for kind in kinds}


_LOOPS = {"real": asyncio.new_event_loop, "simulated": VirtualLoop}


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[TestServer | SimulatedServer]:
    """A running nats-server with an empty store."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        simulated = SimulatedServer(loop)
        with simulated.installed():
            yield simulated
        return
    server = TestServer(tmp_path / "data")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def bare_bus(nats_server: TestServer | SimulatedServer) -> AsyncIterator[Bus]:
    """A connection to a server without streams."""
    bus = await Bus.connect(nats_server.url, name="test")
    yield bus
    await bus.close()


@pytest.fixture
async def bus(bare_bus: Bus) -> Bus:
    """A connection to a server that has all streams and buckets."""
    await streams.ensure(bare_bus)
    return bare_bus
