"""The first connection to the bus: made, or refused with one line that says what to do."""

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
"""A server that answers nothing for 9 to 12 s is connected to anew. A shorter pause costs nothing
but its own time: what was asked meanwhile is answered behind it."""
CONNECT_SECONDS: Final = 2.0
"""For one server, at the most."""
CONNECT_ALL_SECONDS: Final = 3.0
"""For all servers, one after the other."""
JETSTREAM_SECONDS: Final = 1.8
"""Within which JetStream has to answer once there is a connection."""
UNAVAILABLE: Final = 10008
"""The server's code for: the cluster has no leader. It has JetStream, then."""


class Opening(Protocol):
    """Makes a connection, as `open_connection` does."""

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
    """What is connected to, and with what. ``shown``: for people, without secrets."""

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
    """A connection to the first server of url that will do; lost, any of them is sought, every
    0.2 s, until there is one.

    Raises NoServer when no server answers at url, AccessDenied when it refuses credentials,
    certificate or permissions, Unavailable when JetStream has no leader there, and SetupError for
    what a person must change here: the address, the credentials file, a server without JetStream
    or older than 2.12. Takes about 5 s at the most.
    """
    try:
        servers = read_urls(url)
    except BadUrl as error:
        raise SetupError(f"{error}: check --nats URL or ADMIT_NATS_URL") from None
    if creds:
        _check_file(creds)
    logins = {one.address: one.login for one in servers if one.login is not None}
    # Not all clients of a cluster at its first server.
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
    # What a person can mend tells more than a server that is away.
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
                # The first time; afterwards for ever. nats-py's default is to give up after 60.
                allow_reconnect=False,
                max_reconnect_attempts=-1,
                reconnect_time_wait=cast(int, 0.2),
                connect_timeout=cast(int, CONNECT_SECONDS),
                ping_interval=PING_SECONDS,
                max_outstanding_pings=PINGS_UNANSWERED,
                pending_size=64 * 1024 * 1024,
                error_cb=_ignored,
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
        raise SetupError(f"there is no credentials file {creds}") from None
    except OSError as error:
        raise SetupError(f"cannot read the credentials file {creds}: {error.strerror}") from None


async def _ignored(_: Exception) -> None:
    """What is wrong with the first connection is raised."""


def _failure(nc: Connection, target: _Target, error: BaseException) -> AdmittanceError:
    """What to tell about a connection that was not made."""
    at = target.shown
    text = str(error).lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessDenied(
            f"the certificate of {at} is not trusted ({error.verify_message}): have it signed by "
            "a known authority for this host name, or name your authority's file in SSL_CERT_FILE"
        )
    info = nc._server_info
    if info.get("tls_verify") and isinstance(error, OSError):
        return AccessDenied(f"{at} demands a certificate of its clients, which admit has none of")
    if isinstance(error, ssl.SSLError):
        return AccessDenied(f"no TLS connection to {at} ({error.reason or error}): check its TLS")
    if isinstance(error, nats.errors.SecureConnWantedError):
        return AccessDenied(f"{at} has no TLS: write nats:// for tls://, or switch TLS on there")
    # A server may close the connection so fast that its reason for it is lost.
    refused = "authorization" in text or "authentication" in text
    if refused or (info.get("auth_required") and isinstance(error, ConnectionError)):
        return AccessDenied(_refusal(target, operator="nonce" in info))
    if "credential" in text or "nkey" in text or (target.creds and "key" in text):
        return SetupError(f"the credentials file {target.creds} is not understood: check it")
    if isinstance(error, ConnectionRefusedError):
        return NoServer(
            f"nothing listens at {at}: start `admit up`, or name your server with --nats URL"
        )
    if isinstance(error, TimeoutError):
        return NoServer(
            f"{at} does not answer: check the address and the firewall, or use --nats URL"
        )
    if isinstance(error, nats.errors.Error | ValueError) and not info:
        return NoServer(f"what answers at {at} is no nats-server: check --nats URL")
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
    # A server that has just started may need a moment for its streams.
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
