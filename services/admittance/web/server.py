"""Serves the page over HTTP/1.1, until a stop signal."""

from __future__ import annotations

import socket
from typing import Final

import structlog
import uvicorn

from admittance.runtime import clock
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.process.web_page import Trust
from admittance.web.application import application
from admittance.web.codes import OneTimeCodes
from admittance.web.origins import Origins
from admittance.web.people import People
from admittance.web.sessions import Sessions, Target

STREAMS_END_SECONDS: Final = 1
"""How long open requests may take after a stop signal; streams end at once."""
HEADER_BYTES_MAX: Final = 32 << 10

log = structlog.get_logger()


async def serve(
    listens: socket.socket,
    nats: str,
    access: ConnectionOptions,
    *,
    url: str,
    key: str = "",
    code: str = "",
    credentials: str = "",
    trust: Trust | None = None,
) -> None:
    """Serves the page at a listening socket. ``nats``, ``access``: the nats-server, and TLS of the
    connections to it. ``url``: the page as browsers reach it. ``key``: the
    secret of `admit web`; ``code``: the first one-time code, "": there is none. Codes sign in with
    ``credentials``. ``trust``: people that a proxy has signed in."""
    codes = OneTimeCodes(key, credentials)
    if code:
        codes.add(code, credentials, clock.monotonic())
    sessions = Sessions(Target(nats, access))
    server = uvicorn.Server(
        uvicorn.Config(
            application(sessions, codes, Origins(url), None if trust is None else People(trust)),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=STREAMS_END_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        )
    )
    log.info("page_serves", url=url)
    try:
        await server.serve(sockets=[listens])
    finally:
        await sessions.close()
