"""The first connection to the bus: made, or refused with one line that says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import urlsplit

import nats.errors

from admittance.runtime import clock
from admittance.runtime.connection import Connection
from admittance.runtime.errors import SetupError

OLDEST_SERVER: Final = (2, 12)
PING_SECONDS: Final = 3
PINGS_UNANSWERED: Final = 3
"""A server that answers nothing for 9 to 12 s is connected to anew. A shorter pause costs nothing
but its own time: what was asked meanwhile is answered behind it."""


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

    Raises SetupError when nobody answers at url, when the credentials are refused, when the server
    has no JetStream or is older than 2.12.
    """
    nc = Connection()
    shown = _shown(url)
    first = True

    async def told(error: Exception) -> None:
        if first:
            # With endless reconnecting nats-py would also try the first connection for ever.
            raise _FirstFailure(error)
        await on_error(error)

    options: dict[str, Any] = {"user_credentials": creds} if creds else {}
    connecting: Awaitable[None] = nc.connect(
        url.split(","),
        name=name,
        # nats-py gives up for good after 60 tries by default.
        max_reconnect_attempts=-1,
        reconnect_time_wait=cast(int, 0.2),
        connect_timeout=2,
        ping_interval=PING_SECONDS,
        max_outstanding_pings=PINGS_UNANSWERED,
        pending_size=64 * 1024 * 1024,
        error_cb=told,
        disconnected_cb=on_lost,
        reconnected_cb=on_back,
        **options,
    )
    try:
        await asyncio.wait_for(connecting, 5.0)
    except _FirstFailure as failure:
        nc.abandon()
        raise SetupError(_connect_sentence(shown, failure.error)) from None
    except FileNotFoundError:
        raise SetupError(f"there is no credentials file {creds}") from None
    except (TimeoutError, OSError, ValueError, nats.errors.Error) as error:
        nc.abandon()
        raise SetupError(_connect_sentence(shown, error)) from None
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


def _connect_sentence(shown: str, error: BaseException) -> str:
    text = str(error).lower()
    if "authorization" in text or "credential" in text or "nkey" in text:
        return f"{shown} refuses these credentials: check ADMIT_NATS_CREDS or the user in the URL"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {shown}: start `admit up`, or name your server with --nats URL"
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return f"{shown} does not answer: check the address and the firewall, or use --nats URL"
    reason = str(error) or type(error).__name__
    return f"cannot connect to {shown} ({reason}): check --nats URL or ADMIT_NATS_URL"


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
    deadline = clock.monotonic() + 5.0
    while True:
        try:
            answer = await nc.request("$JS.API.INFO", b"", timeout=2.0)
        except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
            # A server that has just started may need a moment for its streams.
            if nc._server_info.get("jetstream") and clock.monotonic() < deadline:
                await asyncio.sleep(0.1)
                continue
            raise SetupError(_no_jetstream(shown)) from None
        if b'"error"' in answer.data:
            raise SetupError(_no_jetstream(shown))
        return


def _no_jetstream(shown: str) -> str:
    return (
        f"the server at {shown} has no JetStream for this account: "
        "start it with `nats-server -js`, or enable JetStream for the account"
    )
