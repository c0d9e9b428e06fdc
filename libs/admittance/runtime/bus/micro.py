"""Requests that want an answer at once: NATS micro endpoints, seen by ``nats micro ls``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import nats.errors
import nats.micro
import structlog
from nats.micro.request import Request
from nats.micro.service import Service

from admittance.events.names import BadToken
from admittance.events.requests import Reply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, Unavailable


class Parts(NamedTuple):
    """An answer in several messages, for a client with its own inbox. A client that waits for one
    message gets the first."""

    messages: tuple[msgspec.Struct | msgspec.Raw, ...]


Handler: TypeAlias = Callable[[bytes, str], Awaitable[msgspec.Struct | Parts]]
"""Takes the request's bytes and subject. What it raises becomes the answer's error: a
`msgspec.MsgspecError` or ValueError is the asker's fault (400), Unavailable ours (503)."""

AT_ONCE: Final = 1000
"""Requests of one endpoint answered side by side; more wait at the server."""

STOP_SECONDS: Final = 1.0
"""How long the server has to confirm that it sends no more requests."""

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode
_UNNAMEABLE: Final = re.compile(r"[^A-Za-z0-9_-]+")


class Serving:
    """Endpoints that are answered, until `stop`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def stop(self) -> None:
        """Answers no longer. Harmless when the connection is gone, or the server answers nothing:
        then the server's view ends with the connection."""
        # In a task of its own: while it waits for the server it drops a cancellation.
        stopping = asyncio.create_task(self._end(), name="endpoints end")
        await asyncio.wait([stopping], timeout=STOP_SECONDS)
        if not stopping.done():
            stopping.cancel()

    async def _end(self) -> None:
        with suppress(nats.errors.Error, asyncio.TimeoutError):
            await self._service.stop()


async def serve(
    bus: Bus,
    service: str,
    instance: str,
    endpoints: Mapping[str, Handler],
    *,
    every_instance: Mapping[str, Handler] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Serving:
    """Answers requests on subjects (with wildcards for the namespace) until the returned `Serving`
    is stopped or the bus is closed.

    One instance of the service answers ``endpoints``; every instance answers ``every_instance``.
    """
    added = await nats.micro.add_service(
        bus.nc,
        name=_UNNAMEABLE.sub("-", service),
        version=_version(),
        description=f"Admittance: {service}",
        metadata={"instance": instance, **(metadata or {})},
        queue_group=_UNNAMEABLE.sub("-", service),
    )
    for subject, handler in endpoints.items():
        await added.add_endpoint(
            name=_name(subject), subject=subject, handler=_answering(service, handler)
        )
    for subject, handler in (every_instance or {}).items():
        await added.add_endpoint(
            name=_name(subject),
            subject=subject,
            handler=_answering(service, handler),
            queue_group=f"{_UNNAMEABLE.sub('-', service)}-{_UNNAMEABLE.sub('-', instance)}",
        )
    return Serving(added)


def _answering(service: str, handler: Handler) -> Callable[[Request], Awaitable[None]]:
    running: set[asyncio.Task[None]] = set()
    room = asyncio.Semaphore(AT_ONCE)

    async def begin(request: Request) -> None:
        # The library waits for each request before it takes the next: one that waits for
        # something to happen would hold up all behind it.
        await room.acquire()
        task = asyncio.create_task(answer(request))
        running.add(task)
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[None]) -> None:
        running.discard(task)
        room.release()

    async def answer(request: Request) -> None:
        headers: dict[str, str] | None = None
        more: list[bytes] = []
        try:
            found = await handler(request.data, request.subject)
            parts = found.messages if isinstance(found, Parts) else (found,)
            reply, *more = map(_encode, parts)
        except (msgspec.MsgspecError, BadToken, ValueError, RecursionError) as error:
            reply, headers = _failure("400", str(error) or type(error).__name__)
        except Unavailable as error:
            reply, headers = _failure("503", str(error))
        except AdmittanceError as error:
            reply, headers = _failure("409", str(error))
        except Exception:
            # A request is no fact: nothing is lost by answering, and others still want answers.
            log.exception("request_failed", service=service, subject=request.subject)
            reply, headers = _failure("500", "internal error; the service's log has the reason")
        if max(map(len, (reply, *more))) > bus_limit(request):
            more = []
            reply, headers = _failure("413", "the answer is too long; ask for less at once")
        try:
            await request.respond(reply, headers)
            for part in more:
                await request.respond(part)
        except (ValueError, nats.errors.Error):
            # It named no reply subject, or a broken one, or the connection is gone.
            return

    return begin


def bus_limit(request: Request) -> int:
    """Bytes that an answer may have."""
    limit: int = request._msg._client.max_payload
    return limit - 1024


def _failure(code: str, sentence: str) -> tuple[bytes, dict[str, str]]:
    line = " ".join(sentence.split())[:500]
    return _encode(Reply(error=line)), {
        "Nats-Service-Error": line.encode("ascii", "replace").decode(),
        "Nats-Service-Error-Code": code,
    }


def _name(subject: str) -> str:
    """``admit.api.explain.*`` → ``explain-ns``."""
    tail = subject.removeprefix("admit.api.").replace("*", "ns").replace(">", "all")
    return _UNNAMEABLE.sub("-", tail)


@cache
def _version() -> str:
    found: Any = re.match(r"\d+\.\d+\.\d+", version("admittance"))
    return found.group() if found else "0.0.0"
