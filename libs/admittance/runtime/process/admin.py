"""The admin port of a process: ``/livez``, ``/readyz`` and ``/metrics`` over HTTP.

Requests are answered in threads of their own, so that a scrape does not delay the services, and a
process that hangs can still be noticed: ``/livez`` asks the event loop for a sign of life.
"""

from __future__ import annotations

import asyncio
import platform
import selectors
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.metrics import Gauges, Metric, gauge, prefix_of, text_of
from admittance.runtime.telemetry.object_faults import faults
from admittance.runtime.telemetry.other_process import merged, text_of_process

ANSWER_SECONDS: Final = 5.0
"""How long ``/livez`` waits for the event loop."""
READY_SECONDS: Final = 8.0
"""How long ``/readyz`` waits; longer than a service may take to answer a health query."""
CLIENT_SECONDS: Final = 10.0
"""The admin port disconnects a client that sends or reads nothing for this many seconds."""
CLIENTS_MAX: Final = 64
"""How many clients are served at the same time; further ones are disconnected at once, so that
clients that send nothing cannot use up the open files of the process."""
STARTING: Final = "starting"
SERVER: Final = "admittance"
"""The value of the HTTP header `Server` in every answer of the admin port."""
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
PATHS: Final = "use /livez, /readyz or /metrics\n"

BUILD_INFO: Final = gauge("build_info", "1; the labels say what runs", ("version", "python"))

T = TypeVar("T")
log = structlog.get_logger()

WhyNotReady = Callable[[], Awaitable[str]]
"""A function that returns why a service is not ready; empty if it is ready."""


UNIX: Final = "unix:"
"""What the address of a socket that is a file begins with."""


def address_of(text: str) -> tuple[str, int]:
    """Returns host and port of ``HOST:PORT``, or of ``:PORT``, which means all addresses; the path
    and 0 of ``unix:PATH``. Raises SetupError for any other text.
    """
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return text.removeprefix(UNIX), 0
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise SetupError(f"the admin address must be HOST:PORT or unix:PATH, not {text!r}")
    return host or "0.0.0.0", int(port)


class AdminPort:
    """The admin port of this process. Services of the process add their metrics and their
    readiness."""

    def __init__(self, where: str, prefix: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._prefix = prefix_of(prefix)
        self._metrics: list[Metric] = [Gauges((BUILD_INFO,), _build_info), faults.counter]
        self._readiness: dict[str, WhyNotReady | None] = {}
        self._throttle = LogThrottle()
        self.users = 0
        self._processes: list[Path] = []
        host, port = address_of(where)
        is_file = where.startswith(UNIX)
        try:
            self._server = _Server(host if is_file else (host, port), self)
        except OSError as error:
            reason = error.strerror or str(error)
            raise SetupError(f"cannot serve the admin port at {where}: {reason}") from None
        self.address = (host, 0 if is_file else int(self._server.server_address[1]))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="admin", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        await asyncio.to_thread(self._thread.join)
        self._server.server_close()

    # Services. ----------------------------------------------------------------------

    def expect(self, service: str) -> None:
        """Adds a service to this process; the service counts as not ready until `ready_if` is
        called for it.
        """
        self._readiness.setdefault(service, None)

    @contextmanager
    def ready_if(self, service: str, why_not: WhyNotReady) -> Iterator[None]:
        """While the context is active, ``why_not`` says whether the service is ready."""
        self._readiness[service] = why_not
        try:
            yield
        finally:
            self._readiness[service] = None

    @contextmanager
    def show(self, metrics: Sequence[Metric]) -> Iterator[None]:
        """Shows the metrics while the context is active."""
        self._metrics += metrics
        try:
            yield
        finally:
            for metric in metrics:
                self._metrics.remove(metric)

    @contextmanager
    def show_process(self, path: Path) -> Iterator[None]:
        """Shows the metrics of another process, with its admin port at the socket ``path``, while
        the context is active."""
        self._processes.append(path)
        try:
            yield
        finally:
            self._processes.remove(path)

    # Answers, in threads of the server. ---------------------------------------------

    def answer(self, path: str) -> tuple[HTTPStatus, list[bytes]]:
        """The HTTP status for a path of the admin port, and the text of the answer in pieces."""
        match path.partition("?")[0]:
            case "/livez":
                return _status(self._why_not_alive())
            case "/readyz":
                return _status(self._why_not_ready())
            case "/metrics":
                return self._shown()
            case _:
                return HTTPStatus.NOT_FOUND, [PATHS.encode()]

    def _shown(self) -> tuple[HTTPStatus, list[bytes]]:
        try:
            pieces = text_of(list(self._metrics), self._prefix)
            for path in tuple(self._processes):
                pieces = merged(pieces, text_of_process(path))
            return HTTPStatus.OK, pieces
        except Exception as error:
            if self._throttle.due(clock.monotonic()):
                log.exception("metrics_not_shown")
            text = f"cannot read the metrics: {error!r}\n"
            return HTTPStatus.INTERNAL_SERVER_ERROR, [text.encode()]

    def _why_not_alive(self) -> list[str]:
        async def nothing() -> list[str]:
            return []

        return self._on_loop(nothing(), ANSWER_SECONDS)

    def _why_not_ready(self) -> list[str]:
        async def reasons() -> list[str]:
            services = list(self._readiness.items())
            if not services:
                return ["no service has started yet"]
            given = await asyncio.gather(*(_reason(why_not) for _, why_not in services))
            return [
                why if why.startswith(name) else f"{name} is not ready: {why}"
                for (name, _), why in zip(services, given, strict=True)
                if why
            ]

        return self._on_loop(reasons(), READY_SECONDS)

    def _on_loop(self, work: Coroutine[Any, Any, list[str]], seconds: float) -> list[str]:
        """The result of the coroutine on the event loop, or why the loop did not return a
        result.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            return ["the process is ending"]
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            return [f"the event loop of the process has not answered for {seconds:g} s"]
        except FutureCancelled:
            return ["the process is ending"]


async def _reason(why_not: WhyNotReady | None) -> str:
    return STARTING if why_not is None else await why_not()


def _status(reasons: list[str]) -> tuple[HTTPStatus, list[bytes]]:
    if reasons:
        return HTTPStatus.SERVICE_UNAVAILABLE, [f"{reason}\n".encode() for reason in reasons]
    return HTTPStatus.OK, [b"ok\n"]


def _build_info() -> dict[str, dict[tuple[str, ...], float]]:
    try:
        ours = version("admittance")
    except PackageNotFoundError:
        ours = "unknown"
    return {BUILD_INFO.name: {(ours, platform.python_version()): 1}}


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    timeout = 0.0  # a client that is gone again is not waited for

    def __init__(self, address: tuple[str, int] | str, port: AdminPort) -> None:
        self.port = port
        self._room = threading.Semaphore(CLIENTS_MAX)
        self._own_file: Path | None = None
        if isinstance(address, str):
            self.address_family = socket.AF_UNIX
            _remove_unserved(address)
        elif ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._wake, self._poke = socket.socketpair()
        super().__init__(address, _Handler)  # type: ignore[arg-type]  # a path, for AF_UNIX

    def server_bind(self) -> None:
        super().server_bind()
        if self.address_family == socket.AF_UNIX:
            self._own_file = Path(str(self.server_address))

    def serve_forever(self, poll_interval: float = 0.0) -> None:  # noqa: ARG002
        """Answers clients until `shutdown` is called. That of the base class wakes several times in
        a second to see whether it must end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while all(key.fileobj is self for key, _ in selector.select()):
                self.handle_request()

    def shutdown(self) -> None:
        self._poke.send(b"\0")

    def server_close(self) -> None:
        super().server_close()
        if self._own_file is not None:
            self._own_file.unlink(missing_ok=True)
        self._wake.close()
        self._poke.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers an HTTP request in a new thread, unless the limit of concurrent clients is
        reached.
        """
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers the request of one client, then frees the client's place for another client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Logs the error of one request, mostly a client that has gone."""
        log.debug("admin_request_failed", client=str(client_address), exc_info=True)


def _remove_unserved(path: str) -> None:
    """Removes a socket that a killed process left at this path."""
    with socket.socket(socket.AF_UNIX) as probe, suppress(FileNotFoundError):
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            if Path(path).is_socket():
                Path(path).unlink()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_SECONDS
    server_version = SERVER
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_text=True)

    def do_HEAD(self) -> None:
        self._answer(with_text=False)

    def _answer(self, *, with_text: bool) -> None:
        status, pieces = self.server.port.answer(self.path)
        self.send_response(status)
        self.send_header("Content-Type", TEXT)
        self.send_header("Content-Length", str(sum(map(len, pieces))))
        self.end_headers()
        if with_text:
            for piece in pieces:
                self.wfile.write(piece)

    def log_message(self, *_: Any) -> None:
        """HTTP requests are not logged, because a probe comes every few seconds."""


_here: Final[dict[str, AdminPort]] = {}


@asynccontextmanager
async def admin_port(settings: Settings) -> AsyncIterator[AdminPort | None]:
    """Serves the admin port of the settings while the context is active; yields None without an
    address. Raises SetupError if the address cannot be used.

    The services of one process share one port: the first service opens the port, the last one
    closes it.
    """
    where = settings.admin
    if where is None:
        yield None
        return
    port = _here.get(where)
    if port is None:
        port = _here[where] = AdminPort(where, settings.metrics_prefix)
        log.info("admin_port_served", host=port.address[0], port=port.address[1])
    port.users += 1
    try:
        yield port
    finally:
        port.users -= 1
        if not port.users:
            _here.pop(where, None)
            await port.close()


@asynccontextmanager
async def show_metrics(settings: Settings, *metrics: Metric) -> AsyncIterator[None]:
    """Shows the metrics at the admin port of the settings, if there is one, while the context is
    active."""
    async with admin_port(settings) as port:
        if port is None:
            yield
            return
        with port.show(metrics):
            yield
