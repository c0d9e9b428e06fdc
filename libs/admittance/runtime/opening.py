"""The first connection to the bus: made, or refused with one line that says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec
import nats.errors

from admittance.runtime import clock
from admittance.runtime.connection import Connection
from admittance.runtime.errors import AdmittanceError, NoServer, SetupError, Unavailable

OLDEST_SERVER: Final = (2, 12)
PING_SECONDS: Final = 3
PINGS_UNANSWERED: Final = 3
"""A server that answers nothing for 9 to 12 s is connected to anew. A shorter pause costs nothing
but its own time: what was asked meanwhile is answered behind it."""
CONNECT_SECONDS: Final = 2
"""For one address."""
PATIENCE: Final = 5.0
"""Seconds within which JetStream has to answer once there is a connection."""
UNAVAILABLE: Final = 10008
"""The server's code for: the cluster has no leader. It has JetStream, then."""


class _Error(msgspec.Struct, frozen=True):
    err_code: int = 0


class _Info(msgspec.Struct, frozen=True):
    error: _Error | None = None


async def open_connection(
    url: str,
    *,
    name: str,
    creds: str | None,
    on_error: Callable[[Exception], Awaitable[None]],
    on_lost: Callable[[], Awaitable[None]],
    on_back: Callable[[], Awaitable[None]],
) -> Connection:
    """A connection to a server that will do; lost, it is sought for ever, every 0.2 s.

    Raises NoServer when no server answers at url, Unavailable when JetStream has no leader there,
    and SetupError for what a person must change: the credentials are refused, the server has no
    JetStream for them, or is older than 2.12.
    """
    nc = Connection()
    shown = _shown(url)
    urls = url.split(",")
    first = True
    failures: list[Exception] = []

    async def told(error: Exception) -> None:
        if first:
            failures.append(error)
            if len(failures) >= len(urls):
                # With endless reconnecting nats-py would also try the first connection for ever.
                raise _FirstFailure(_clearest(failures))
            return
        await on_error(error)

    options: dict[str, Any] = {"user_credentials": creds} if creds else {}
    connecting: Awaitable[None] = nc.connect(
        urls,
        name=name,
        # nats-py gives up for good after 60 tries by default.
        max_reconnect_attempts=-1,
        reconnect_time_wait=cast(int, 0.2),
        connect_timeout=CONNECT_SECONDS,
        ping_interval=PING_SECONDS,
        max_outstanding_pings=PINGS_UNANSWERED,
        pending_size=64 * 1024 * 1024,
        error_cb=told,
        disconnected_cb=on_lost,
        reconnected_cb=on_back,
        **options,
    )
    try:
        # One of several servers may take the whole of its time and say nothing.
        await asyncio.wait_for(connecting, CONNECT_SECONDS * len(urls) + 3.0)
    except _FirstFailure as failure:
        nc.abandon()
        raise _not_connected(shown, failure.error) from None
    except FileNotFoundError:
        raise SetupError(f"there is no credentials file {creds}") from None
    except (TimeoutError, OSError, ValueError, nats.errors.Error) as error:
        nc.abandon()
        raise _not_connected(shown, error) from None
    except asyncio.CancelledError:
        nc.abandon()
        raise
    first = False
    try:
        await _check_server(nc, shown)
    except BaseException:
        nc.abandon()
        raise
    return nc


class _FirstFailure(Exception):
    def __init__(self, error: Exception) -> None:
        self.error = error


def _clearest(failures: list[Exception]) -> Exception:
    """Of what several addresses answered: rather that one refused us than that another is down."""
    return next((one for one in failures if not isinstance(one, OSError)), failures[-1])


def _not_connected(shown: str, error: BaseException) -> AdmittanceError:
    text = str(error).lower()
    if "authorization" in text or "credential" in text or "nkey" in text:
        return SetupError(
            f"{shown} refuses these credentials: check ADMIT_NATS_CREDS or the user in the URL"
        )
    if isinstance(error, ConnectionRefusedError):
        return NoServer(
            f"nothing listens at {shown}: start `admit up`, or name your server with --nats URL"
        )
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return NoServer(
            f"{shown} does not answer: check the address and the firewall, or use --nats URL"
        )
    reason = str(error) or type(error).__name__
    sentence = f"cannot connect to {shown} ({reason}): check --nats URL or ADMIT_NATS_URL"
    if isinstance(error, ValueError) or "hostname" in text:
        return SetupError(sentence)
    return NoServer(sentence)


def _shown(url: str) -> str:
    """The URL without a password."""
    shown = []
    for part in url.split(","):
        with suppress(ValueError):
            parts = urlsplit(part)
            if "@" in parts.netloc:
                shown.append(part.replace(parts.netloc, parts.netloc.rpartition("@")[2]))
                continue
        shown.append(part)
    return ",".join(shown)


async def _check_server(nc: Connection, shown: str) -> None:
    version = nc.connected_server_version
    if (version.major, version.minor) < OLDEST_SERVER:
        raise SetupError(
            f"{shown} is nats-server {version.major}.{version.minor}.{version.patch}: "
            "Admittance needs 2.12 or newer (atomic batches and schedules)"
        )
    # A server that has just started may need a moment for its streams.
    deadline = clock.monotonic() + PATIENCE
    while True:
        try:
            answer = await nc.request("$JS.API.INFO", b"", timeout=PATIENCE / 2)
        except nats.errors.NoRespondersError:
            missing = None
        except (nats.errors.Error, TimeoutError):
            missing = Unavailable(
                f"JetStream of {shown} does not answer: perhaps its servers elect a leader, or "
                "fewer than half of them run"
            )
        else:
            error = msgspec.json.decode(answer.data, type=_Info).error
            if error is None:
                return
            if error.err_code != UNAVAILABLE:
                raise SetupError(_no_jetstream(shown))
            missing = Unavailable(
                f"JetStream of {shown} has no leader: fewer than half of its servers run, or they "
                "are about to elect one"
            )
        if clock.monotonic() >= deadline or not nc._server_info.get("jetstream"):
            raise missing or SetupError(_no_jetstream(shown))
        await asyncio.sleep(0.1)


def _no_jetstream(shown: str) -> str:
    return (
        f"the server at {shown} has no JetStream for this account: "
        "start it with `nats-server -js`, or enable JetStream for the account"
    )
