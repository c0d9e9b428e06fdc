"""Opens the first connection to the bus, or raises an error with one line that says what to do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
import nats.errors

from admittance.runtime import chance, clock
from admittance.runtime.errors import (
    AccessDenied,
    AdmittanceError,
    BusUnavailable,
    NoServer,
    SetupError,
)
from admittance.runtime.nats.connection import Connection, PermissionDenied
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.nats.credentials import user_key_of, why_refused
from admittance.runtime.nats.jetstream import ApiError
from admittance.runtime.nats.server_url import BadUrl, Login, read_urls, shown
from admittance.runtime.tasks import cancellation_kept
from admittance.runtime.telemetry.logger import logger

OLDEST_SERVER: Final = (2, 12)
PING_SECONDS: Final = 3
PINGS_UNANSWERED: Final = 3
"""The most pings without an answer: if a server does not answer for 9 to 12 s, the client
reconnects. After a shorter pause of the server all requests still get their answers, only late.
"""
CLUSTER_PING_SECONDS: Final = 1
CLUSTER_PINGS_UNANSWERED: Final = 4
"""The same if there are other servers: a paused server keeps its connections, so the client uses
another one after 4 to 5 s. Streams of a paused server have no new leader before that (4 to 9 s).
"""
CONNECT_SECONDS: Final = 2.0
"""Time limit for connecting to one server."""
CONNECT_ALL_SECONDS: Final = 3.0
"""Time limit for connecting to any of the servers."""
RELOAD_SECONDS: Final = 0.2
"""Pause before a refused login is tried once more: while a nats-server reads its users again, for
some milliseconds, it refuses every login."""
JETSTREAM_SECONDS: Final = 1.8
"""Time limit for the first answer of JetStream on a new connection."""
ASK_AGAIN_SECONDS: Final = 0.3
"""How often a new connection asks JetStream within this time limit."""
UNAVAILABLE: Final = 10008
"""The server's error code for a cluster without a leader. The error code 10008 shows that JetStream
is enabled.
"""


log = logger()


class Opening(Protocol):
    """Makes a connection to the bus, as `open_connection` does."""

    async def __call__(
        self,
        url: str,
        *,
        name: str,
        access: ConnectionOptions,
        on_error: Callable[[Exception], Awaitable[None]],
        on_lost: Callable[[], Awaitable[None]],
        on_back: Callable[[], Awaitable[None]],
    ) -> Connection: ...


class _Info(msgspec.Struct, frozen=True):
    error: ApiError | None = None


class _Target(NamedTuple):
    """Server and credentials with which to connect. ``shown``: the server's address without
    secrets. ``login``: the login in the address.
    """

    shown: str
    login: Login | None
    access: ConnectionOptions


async def open_connection(
    url: str,
    *,
    name: str,
    access: ConnectionOptions,
    on_error: Callable[[Exception], Awaitable[None]],
    on_lost: Callable[[], Awaitable[None]],
    on_back: Callable[[], Awaitable[None]],
) -> Connection:
    """Returns a connection to the first usable server of ``url``. After a loss the connection tries
    all these servers, and those that the cluster announces, every 0.2 s until one accepts.

    Raises NoServer if no server answers, AccessDenied if the server refuses credentials,
    certificate or permissions or if a file of ``access`` is missing or wrong, BusUnavailable if
    JetStream has no leader, and SetupError if a person must change something: the address, a server
    without JetStream or older than 2.12. If no server can be used, the error is raised within about
    5 s.
    """
    nc, target = await _open(url, name, access, _check_server)
    nc.reconnect_from_now_on(_described(nc, target, on_error), on_lost, on_back)
    if len(nc.server_pool) > 1:
        nc.options["ping_interval"] = CLUSTER_PING_SECONDS
        nc.options["max_outstanding_pings"] = CLUSTER_PINGS_UNANSWERED
    if access.has_login and is_open(nc):
        log.warning("server_is_open", reason=f"{target.shown} {WITHOUT_ACCOUNTS}")
    return nc


WITHOUT_ACCOUNTS: Final = (
    "has no accounts and demands no credentials, so every program that reaches it may do "
    "everything: include the auth.conf of `admit auth` in its configuration"
)


def is_open(nc: Connection) -> bool:
    """Whether the server accepts clients without a login."""
    info = nc.server_info
    return not info.get("auth_required") and not info.get("tls_verify")


async def open_system_connection(url: str, *, name: str, access: ConnectionOptions) -> Connection:
    """Returns a connection of a user of the system account, which has no JetStream. Raises what
    `open_connection` raises."""
    nc, _ = await _open(url, name, access, _check_nothing)
    return nc


async def _open(
    url: str,
    name: str,
    access: ConnectionOptions,
    check: Callable[[Connection, _Target], Awaitable[None]],
) -> tuple[Connection, _Target]:
    """A connection to the first usable server. ``check`` raises an error for a server that is not
    usable."""
    try:
        servers = read_urls(url)
    except BadUrl as error:
        raise SetupError(f"{error}: check --nats URL or ADMIT_NATS_URL") from None
    logins = {server.address: server.login for server in servers if server.login is not None}
    # Servers are tried in random order, so that the clients of a cluster spread over its servers.
    order = chance.shuffled(servers)
    deadline = clock.monotonic() + CONNECT_ALL_SECONDS
    failures: list[AdmittanceError] = []
    for number, server in enumerate(order):
        left = (deadline - clock.monotonic()) / (len(order) - number)
        addresses = [server.address, *(other.address for other in order if other is not server)]
        target = _Target(shown(url), server.login or next(iter(logins.values()), None), access)
        for pause in (0.0, RELOAD_SECONDS):
            await asyncio.sleep(pause)
            nc = Connection(logins, access)
            try:
                with cancellation_kept():
                    await _connect(
                        nc, addresses, name, access, min(CONNECT_SECONDS, max(0.5, left))
                    )
                    await check(nc, target)
            except AdmittanceError as error:
                failure, final = error, True
            except (TimeoutError, OSError, ValueError, LookupError, nats.errors.Error) as error:
                failure, final = _failure(nc, target, error), not _is_login_refused(nc, error)
            except BaseException:
                nc.abandon()
                raise
            else:
                return nc, target
            nc.abandon()
            if final:
                break
        failures.append(failure)
    # If several servers failed, the error that a person can fix is raised, not the error that a
    # server does not answer.
    raise min(failures, key=lambda failure: isinstance(failure, NoServer))


async def _connect(
    nc: Connection, addresses: Sequence[str], name: str, access: ConnectionOptions, seconds: float
) -> None:
    try:
        key = user_key_of(access)
        async with asyncio.timeout(seconds):
            await nc.connect_once(
                addresses,
                name=name,
                connect_timeout=CONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=PINGS_UNANSWERED,
                pending_size=64 * 1024 * 1024,
                tls_handshake_first=access.tls_first,
                inbox_prefix="_INBOX" if key is None else key.inbox,
            )
    except ModuleNotFoundError as error:
        raise SetupError(
            f"credentials files need the Python package {error.name}, which is not installed"
        ) from None


def _described(
    nc: Connection, target: _Target, on_error: Callable[[Exception], Awaitable[None]]
) -> Callable[[Exception], Awaitable[None]]:
    """``on_error`` for an open connection: a later refusal says which credentials, and what to
    do."""

    async def on_connection_error(error: Exception) -> None:
        if isinstance(error, ssl.SSLError) or _is_refusal(error):
            error = _failure(nc, target, error)
        await on_error(error)

    return on_connection_error


async def _check_nothing(_: Connection, __: _Target) -> None:
    """A check of the server that accepts every connected server."""


def _failure(nc: Connection, target: _Target, error: BaseException) -> AdmittanceError:
    """The error to raise for a failed attempt to connect."""
    at = target.shown
    access = target.access
    info = nc.server_info
    if isinstance(error, ssl.SSLError):
        return AccessDenied(_tls_failure(target, error, demanded=bool(info.get("tls_verify"))))
    if info.get("tls_verify") and isinstance(error, OSError):
        return AccessDenied(_certificate_refused(target))
    if isinstance(error, nats.errors.SecureConnWantedError):
        instead = "drop the TLS options" if access.demands_tls else "use nats:// instead of tls://"
        return AccessDenied(f"{at} has no TLS: {instead}, or enable TLS there")
    if _is_login_refused(nc, error):
        return AccessDenied(_refusal(target, str(error).lower(), takes_keys="nonce" in info))
    if isinstance(error, ConnectionRefusedError):
        return NoServer(
            f"nothing listens at {at}: start `admit up`, or name your server with --nats URL"
        )
    if isinstance(error, TimeoutError) and access.tls_first and nc.is_encrypted:
        # The server sent its first message before the TLS handshake, so the client has lost that
        # message.
        return AccessDenied(_not_first(at))
    if isinstance(error, TimeoutError):
        wants_tls = access.demands_tls or "tls://" in at
        return NoServer(
            f"{at} does not answer: look whether nats-server hangs or is paused, check the address "
            "and the firewall, or use --nats URL"
            + (_FIRST if wants_tls and not info and not access.tls_first else "")
        )
    if isinstance(error, nats.errors.Error | ValueError) and not info:
        return NoServer(f"the server at {at} is not a nats-server: check --nats URL")
    reason = str(error) or type(error).__name__
    return NoServer(f"cannot connect to {at} ({reason}): check --nats URL or ADMIT_NATS_URL")


_FIRST: Final = "; if it needs the TLS handshake first, use --tls-first or ADMIT_NATS_TLS_FIRST=1"


def _is_login_refused(nc: Connection, error: BaseException) -> bool:
    """Whether the server has refused the first connection because of its login."""
    # A server may close the connection before the client reads the reason that the server sends.
    return _is_refusal(error) or (
        bool(nc.server_info.get("auth_required"))
        and isinstance(error, ConnectionError | nats.errors.UnexpectedEOF)
    )


def _is_refusal(error: BaseException) -> bool:
    """Whether the error says that the server refuses the login or has ended the login."""
    text = str(error).lower()
    return isinstance(error, nats.errors.Error) and (
        "authorization" in text or "authentication" in text
    )


def _not_first(at: str) -> str:
    return f"{at} does not begin with the TLS handshake: drop --tls-first, or check its TLS"


def _tls_failure(target: _Target, error: ssl.SSLError, *, demanded: bool) -> str:
    """The error for a failed TLS handshake. ``demanded``: whether the server demands a client
    certificate."""
    at = target.shown
    if isinstance(error, ssl.SSLCertVerificationError):
        ca = target.access.tls_ca
        todo = f"check the CA file {ca}" if ca else "name your authority's file with --tls-ca"
        return (
            f"the certificate of {at} is not trusted ({error.verify_message}): {todo} "
            "(ADMIT_NATS_TLS_CA), or have it signed by a known authority for this host name"
        )
    reason = error.reason or str(error)
    if demanded or "CERTIFICATE" in reason.upper():
        return _certificate_refused(target)
    if target.access.tls_first and "WRONG_VERSION" in reason:
        return _not_first(at)
    return f"no TLS connection to {at} ({reason}): check its TLS"


def _certificate_refused(target: _Target) -> str:
    cert = target.access.tls_cert
    if cert is None:
        return (
            f"{target.shown} demands a client certificate: name it with --tls-cert and --tls-key "
            "(ADMIT_NATS_TLS_CERT, ADMIT_NATS_TLS_KEY)"
        )
    return (
        f"{target.shown} refuses the client certificate {cert}: it is expired, or of an authority "
        "that the server does not trust; get a new one"
    )


def _refusal(target: _Target, said: str, *, takes_keys: bool) -> str:
    """The error for a refused login. ``said``: the text of nats-server's refusal. ``takes_keys``:
    whether nats-server asked the client for the signature of an NKey.
    """
    at, access, login = target.shown, target.access, target.login
    if access.creds_text:
        return f"{at} refuses the credentials: they are not known there, expired, or were revoked"
    if access.creds:
        return why_refused(access.creds, at, said, takes_keys=takes_keys)
    if access.user:
        source = access.password_file or "ADMIT_NATS_PASSWORD"
        return f"{at} refuses user {access.user} with the password in {source}: check both"
    if access.token or access.token_file:
        return f"{at} refuses the token in {access.token_file or 'ADMIT_NATS_TOKEN'}: check it"
    if login is not None:
        what = "token" if login.password is None else "user and password"
        if not takes_keys:
            return f"{at} refuses these credentials: check the {what} in the URL"
    if takes_keys:
        return (
            f"{at} demands signed credentials: name a credentials file with --creds or "
            "ADMIT_NATS_CREDS; an administrator makes one with `admit auth add`"
        )
    if access.tls_cert:
        return f"{at} knows no user of the client certificate {access.tls_cert}: check its name"
    return (
        f"{at} demands credentials: name a credentials file with --creds or ADMIT_NATS_CREDS, or a "
        "user with --nats-user and --password-file (ADMIT_NATS_USER, ADMIT_NATS_PASSWORD)"
    )


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
            # A request that comes while the servers elect a leader is never answered, so the
            # request is sent again.
            answer = await nc.request_repeatedly(
                "$JS.API.INFO", b"", JETSTREAM_SECONDS, every=ASK_AGAIN_SECONDS
            )
        except PermissionDenied as error:
            raise AccessDenied(
                f"{at}: {error}: give this user the permissions of a client"
            ) from None
        except nats.errors.NoRespondersError:
            missing = SetupError(_no_jetstream(at))
        except (nats.errors.Error, TimeoutError):
            if nc.is_closed:
                raise nc.last_error or ConnectionResetError from None
            missing = BusUnavailable(
                f"JetStream of {at} does not answer: perhaps its servers elect a leader, or "
                "fewer than half of them run"
            )
        else:
            error_found = msgspec.json.decode(answer.data, type=_Info).error
            if error_found is None:
                return
            if error_found.err_code != UNAVAILABLE:
                raise SetupError(_no_jetstream(at))
            missing = BusUnavailable(
                f"JetStream of {at} has no leader: fewer than half of its servers run, or they "
                "are about to elect one"
            )
        if clock.monotonic() >= deadline or not nc.server_info.get("jetstream"):
            raise missing
        await asyncio.sleep(0.1)


def _no_jetstream(at: str) -> str:
    return (
        f"the server at {at} has no JetStream for this account: "
        "start it with `nats-server -js`, or enable JetStream for the account"
    )
