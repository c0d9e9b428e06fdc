"""Opens the first connection to the bus, or raises an error with one line that says what to do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
import nats.errors

from admittance.runtime import chance, clock
from admittance.runtime.bus.connection import Connection, PermissionDenied
from admittance.runtime.errors import (
    AccessDenied,
    AdmittanceError,
    NoServer,
    SetupError,
    Unavailable,
)
from admittance.runtime.server_url import BadUrl, Login, ServerUrl, read_urls, shown

OLDEST_SERVER: Final = (2, 12)
PING_SECONDS: Final = 3
PINGS_UNANSWERED: Final = 3
"""The most pings without an answer: if a server does not answer for 9 to 12 s, the client
reconnects. After a pause of the server shorter than this, all requests get their answers late.
"""
CONNECT_SECONDS: Final = 2.0
"""Time limit for connecting to one server."""
CONNECT_ALL_SECONDS: Final = 3.0
"""Time limit for connecting to any of the servers."""
JETSTREAM_SECONDS: Final = 1.8
"""Time limit for the first answer of JetStream on a new connection."""
UNAVAILABLE: Final = 10008
"""The server's error code for a cluster without a leader. This code shows that JetStream is
enabled.
"""


class Opening(Protocol):
    """Makes a connection to the bus, as `open_connection` does."""

    async def __call__(
        self,
        url: str,
        *,
        name: str,
        creds: str | None,
        on_error: Callable[[Exception], Awaitable[None]],
        on_lost: Callable[[], Awaitable[None]],
        on_back: Callable[[], Awaitable[None]],
    ) -> Connection: ...


class _Error(msgspec.Struct, frozen=True):
    err_code: int = 0


class _Info(msgspec.Struct, frozen=True):
    error: _Error | None = None


class _Target(NamedTuple):
    """Server and credentials with which to connect. ``shown``: the address without secrets."""

    shown: str
    login: Login | None
    creds: str | None


async def open_connection(
    url: str,
    *,
    name: str,
    creds: str | None,
    on_error: Callable[[Exception], Awaitable[None]],
    on_lost: Callable[[], Awaitable[None]],
    on_back: Callable[[], Awaitable[None]],
) -> Connection:
    """Returns a connection to the first usable server of ``url``. After a loss the connection tries
    all these servers every 0.2 s until one accepts.

    Raises NoServer if no server answers, AccessDenied if the server refuses credentials,
    certificate or permissions, Unavailable if JetStream has no leader, and SetupError if a person
    must change something: the address, the credentials file, a server without JetStream or older
    than 2.12. Raises one of these errors within about 5 s.
    """
    try:
        servers = read_urls(url)
    except BadUrl as error:
        raise SetupError(f"{error}: check --nats URL or ADMIT_NATS_URL") from None
    if creds:
        _check_file(creds)
    logins = {one.address: one.login for one in servers if one.login is not None}
    # Servers are tried in random order, so that the clients of a cluster spread over its servers.
    order = chance.shuffled(servers)
    deadline = clock.monotonic() + CONNECT_ALL_SECONDS
    failures: list[AdmittanceError] = []
    for number, server in enumerate(order):
        left = (deadline - clock.monotonic()) / (len(order) - number)
        nc = Connection(logins)
        target = _Target(shown(url), server.login or next(iter(logins.values()), None), creds)
        try:
            await _connect(nc, server, name, creds, min(CONNECT_SECONDS, max(0.5, left)))
            await _check_server(nc, target)
        except AdmittanceError as error:
            nc.abandon()
            failures.append(error)
        except (TimeoutError, OSError, ValueError, LookupError, nats.errors.Error) as error:
            failures.append(_failure(nc, target, error))
            nc.abandon()
        except BaseException:
            nc.abandon()
            raise
        else:
            nc._setup_server_pool([one.address for one in order if one is not server])
            nc.options["allow_reconnect"] = True
            nc._error_cb = on_error
            nc._disconnected_cb = on_lost
            nc._reconnected_cb = on_back
            return nc
    # Raise an error that a person can fix rather than the error that a server does not answer.
    raise min(failures, key=lambda failure: isinstance(failure, NoServer))


async def _connect(
    nc: Connection, server: ServerUrl, name: str, creds: str | None, seconds: float
) -> None:
    options: dict[str, Any] = {"user_credentials": creds} if creds else {}
    try:
        async with asyncio.timeout(seconds):
            await nc.connect(
                [server.address],
                name=name,
                # Reconnecting is allowed after the first connection, then without limit; nats-py's
                # default is to give up after 60 attempts.
                allow_reconnect=False,
                max_reconnect_attempts=-1,
                reconnect_time_wait=cast(int, 0.2),
                connect_timeout=cast(int, CONNECT_SECONDS),
                ping_interval=PING_SECONDS,
                max_outstanding_pings=PINGS_UNANSWERED,
                pending_size=64 * 1024 * 1024,
                error_cb=_ignore,
                **options,
            )
    except ModuleNotFoundError as error:
        raise SetupError(
            f"credentials files need the Python package {error.name}, which is not installed"
        ) from None


def _check_file(creds: str) -> None:
    try:
        Path(creds).read_bytes()
    except FileNotFoundError:
        raise SetupError(f"credentials file {creds} not found") from None
    except OSError as error:
        raise SetupError(f"cannot read the credentials file {creds}: {error.strerror}") from None


async def _ignore(_: Exception) -> None:
    """Ignores errors before the first connection: `open_connection` raises them."""


def _failure(nc: Connection, target: _Target, error: BaseException) -> AdmittanceError:
    """The error to raise for a connection that failed."""
    at = target.shown
    text = str(error).lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessDenied(
            f"the certificate of {at} is not trusted ({error.verify_message}): have it signed by "
            "a known authority for this host name, or name your authority's file in SSL_CERT_FILE"
        )
    info = nc._server_info
    if info.get("tls_verify") and isinstance(error, OSError):
        return AccessDenied(
            f"{at} demands client certificates, which Admittance does not support: "
            "disable tls_verify there"
        )
    if isinstance(error, ssl.SSLError):
        return AccessDenied(f"no TLS connection to {at} ({error.reason or error}): check its TLS")
    if isinstance(error, nats.errors.SecureConnWantedError):
        return AccessDenied(f"{at} has no TLS: use nats:// instead of tls://, or enable TLS there")
    # A server may close the connection before the client reads the server's reason.
    refused = "authorization" in text or "authentication" in text
    if refused or (info.get("auth_required") and isinstance(error, ConnectionError)):
        return AccessDenied(_refusal(target, operator="nonce" in info))
    if "credential" in text or "nkey" in text or (target.creds and "key" in text):
        return SetupError(f"the credentials file {target.creds} is not valid: check its content")
    if isinstance(error, ConnectionRefusedError):
        return NoServer(
            f"nothing listens at {at}: start `admit up`, or name your server with --nats URL"
        )
    if isinstance(error, TimeoutError):
        return NoServer(
            f"{at} does not answer: check the address and the firewall, or use --nats URL"
        )
    if isinstance(error, nats.errors.Error | ValueError) and not info:
        return NoServer(f"the server at {at} is not a nats-server: check --nats URL")
    reason = str(error) or type(error).__name__
    return NoServer(f"cannot connect to {at} ({reason}): check --nats URL or ADMIT_NATS_URL")


def _refusal(target: _Target, *, operator: bool) -> str:
    if target.creds:
        return f"{target.shown} refuses these credentials: check the file {target.creds}"
    if operator:
        return (
            f"{target.shown} demands signed credentials: name a credentials file with "
            "ADMIT_NATS_CREDS"
        )
    if target.login is None:
        return (
            f"{target.shown} demands credentials: put user and password into the URL "
            "(nats://USER:PASSWORD@HOST:PORT), or name a credentials file with ADMIT_NATS_CREDS"
        )
    what = "token" if target.login.password is None else "user and password"
    return f"{target.shown} refuses these credentials: check the {what} in the URL"


async def _check_server(nc: Connection, target: _Target) -> None:
    at = target.shown
    version = nc.connected_server_version
    if (version.major, version.minor) < OLDEST_SERVER:
        raise SetupError(
            f"{at} is nats-server {version.major}.{version.minor}.{version.patch}: "
            "Admittance needs 2.12 or newer (atomic batches and schedules)"
        )
    # A server that has just started needs a moment to load its streams.
    deadline = clock.monotonic() + JETSTREAM_SECONDS
    missing: AdmittanceError
    while True:
        try:
            answer = await nc.request("$JS.API.INFO", b"", timeout=JETSTREAM_SECONDS)
        except PermissionDenied as error:
            raise AccessDenied(f"{at}: {error}: give it the permissions of a client") from None
        except nats.errors.NoRespondersError:
            missing = SetupError(_no_jetstream(at))
        except (nats.errors.Error, TimeoutError):
            missing = Unavailable(
                f"JetStream of {at} does not answer: perhaps its servers elect a leader, or "
                "fewer than half of them run"
            )
        else:
            error_found = msgspec.json.decode(answer.data, type=_Info).error
            if error_found is None:
                return
            if error_found.err_code != UNAVAILABLE:
                raise SetupError(_no_jetstream(at))
            missing = Unavailable(
                f"JetStream of {at} has no leader: fewer than half of its servers run, or they "
                "are about to elect one"
            )
        if clock.monotonic() >= deadline or not nc._server_info.get("jetstream"):
            raise missing
        await asyncio.sleep(0.1)


def _no_jetstream(at: str) -> str:
    return (
        f"the server at {at} has no JetStream for this account: "
        "start it with `nats-server -js`, or enable JetStream for the account"
    )
