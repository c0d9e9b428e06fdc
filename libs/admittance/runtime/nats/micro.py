"""Answers requests as NATS micro services, which ``nats micro ls`` lists."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.metadata import version
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import msgspec
import nats.errors
import nats.micro
import structlog
from msgspec.structs import replace
from nats.micro.request import Request
from nats.micro.service import Service

from admittance.events.names import BadToken, service_name
from admittance.events.requests.base import Reply
from admittance.events.requests.services import HealthReply
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError, BusUnavailable
from admittance.runtime.nats.connection import Connection
from admittance.runtime.nats.reconnecting_client import reply_subject
from admittance.runtime.telemetry.findings import own_findings


class Parts(NamedTuple):
    """An answer of several messages, for a client with its own inbox. A client that waits for only
    one message gets the first one.
    """

    messages: tuple[msgspec.Struct | msgspec.Raw, ...]


Handler: TypeAlias = Callable[[bytes, str], Awaitable[msgspec.Struct | Parts]]
"""A function that gets the bytes and the subject of a request and returns the answer. An exception
of the function becomes the error of the answer: `msgspec.MsgspecError` or ValueError is an error of
the request (400), BusUnavailable is an error of the service (503).
"""

CONCURRENT_MAX: Final = 1000
"""How many requests one endpoint answers at the same time; further requests wait."""

DENIED_SECONDS: Final = 600.0
"""Seconds for which the health of a service names a subject that it could not publish."""

SPARE_BYTES: Final = 1024
"""Bytes of the server's limit of a message that are kept for headers."""
STOP_SECONDS: Final = 1.0
"""How long `stop` waits until the server confirms the end of the endpoints."""

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class Turns:
    """Places for requests that take much time or memory: at most ``places`` requests at once, and
    at most ``each`` of one namespace; others wait. So the work of one namespace leaves room for
    others, whatever its users ask for."""

    def __init__(self, places: int, each: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._each = each
        self._of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Waits for a place of the namespace, and holds it."""
        turn = self._of.setdefault(namespace, asyncio.Semaphore(self._each))
        async with turn, self._places:
            yield


def in_turns(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """The handlers so that one request is answered at a time, and other tasks run between two
    requests: for answers that are computed in the event loop. Namespaces take turns: the last word
    of the subject of a request names its namespace."""
    turns = Turns(1, 1)

    def taking_turns(handler: Handler) -> Handler:
        async def handle(data: bytes, subject: str) -> msgspec.Struct | Parts:
            async with turns.of(subject.rpartition(".")[2]):
                await asyncio.sleep(0)
                return await handler(data, subject)

        return handle

    return {subject: taking_turns(handler) for subject, handler in handlers.items()}


class Serving:
    """The running endpoints of one service; `stop` ends them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def stop(self) -> None:
        """Ends the endpoints. `stop` raises nothing if the connection is lost or nats-server does
        not answer.
        """
        # The endpoints are ended in a task of their own, because nats-py loses a cancellation while
        # it waits for the server.
        stopping = asyncio.create_task(self._end(), name="endpoints end")
        await asyncio.wait([stopping], timeout=STOP_SECONDS)
        if not stopping.done():
            stopping.cancel()

    async def _end(self) -> None:
        with suppress(nats.errors.Error, asyncio.TimeoutError):
            await self._service.stop()


async def serve(
    nc: Connection,
    service: str,
    instance: str,
    endpoints: Mapping[str, Handler],
    *,
    every_instance: Mapping[str, Handler] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Serving:
    """Answers requests by subject (with wildcards for the namespace) until the returned `Serving`
    is stopped or the connection is closed.

    ``endpoints``: one instance of the service answers each request; ``every_instance``: all
    instances answer each request.
    """
    added = await nats.micro.add_service(
        nc,
        name=service_name(service),
        version=_version(),
        description=f"Admittance: {service}",
        metadata={"instance": instance, **(metadata or {})},
        queue_group=service_name(service),
    )
    for subject, handler in endpoints.items():
        await added.add_endpoint(
            name=_name(subject),
            subject=subject,
            handler=_answering(nc, service, handler, shares="*" in subject),
        )
    for subject, handler in (every_instance or {}).items():
        await added.add_endpoint(
            name=_name(subject),
            subject=subject,
            handler=_answering(nc, service, handler),
            queue_group=f"{service_name(service)}-{service_name(instance)}",
        )
    return Serving(added)


def _answering(
    nc: Connection, service: str, handler: Handler, *, shares: bool = False
) -> Callable[[Request], Awaitable[None]]:
    """``shares``: namespaces share the endpoint. The requests of one namespace get at most half of
    the places that the others leave, and an error beyond: requests that wait, such as for a fact
    that does not exist, must not hold up other namespaces. Copies of a request that come while it
    is answered are dropped: the answer to the first one is theirs, too."""
    running: dict[asyncio.Task[None], tuple[str, str]] = {}
    answering: set[str] = set()
    taken: Counter[str] = Counter()
    room = asyncio.Semaphore(CONCURRENT_MAX)

    async def begin(request: Request) -> None:
        # nats-py handles one request after another, so a request that waits would delay all later
        # requests.
        subject, inbox = request.subject, reply_subject(request)
        if inbox in answering:
            return
        if shares and taken[subject] > CONCURRENT_MAX - len(running):
            with suppress(ValueError, nats.errors.Error):
                await request.respond(*_failure("503", f"too many requests {subject}: ask again"))
            return
        await room.acquire()
        task = asyncio.create_task(answer(request))
        running[task] = subject, inbox
        answering.add(inbox)
        taken[subject] += 1
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[None]) -> None:
        subject, inbox = running.pop(task)
        answering.discard(inbox)
        taken[subject] -= 1
        if not taken[subject]:
            del taken[subject]
        room.release()

    async def answer(request: Request) -> None:
        headers: dict[str, str] | None = None
        more: list[bytes] = []
        try:
            answered = await handler(request.data, request.subject)
            if isinstance(answered, HealthReply):
                answered = replace(
                    answered,
                    denied=_denied_lately(nc.denials),
                    user=nc.user,
                    time=clock.now(),
                    replicas=nc.replicas_wanted,
                    findings=own_findings(),
                )
            parts = answered.messages if isinstance(answered, Parts) else (answered,)
            reply, *more = map(_encode, parts)
        except (msgspec.MsgspecError, BadToken, ValueError, RecursionError) as error:
            reply, headers = _failure("400", str(error) or type(error).__name__)
        except BusUnavailable as error:
            reply, headers = _failure("503", str(error))
        except AdmittanceError as error:
            reply, headers = _failure("409", str(error))
        except Exception:
            # A failed request loses no data: the service continues.
            log.exception("request_failed", service=service, subject=request.subject)
            reply, headers = _failure("500", "internal error; the service's log has the reason")
        if max(map(len, (reply, *more))) > nc.max_payload - SPARE_BYTES:
            more = []
            reply, headers = _failure("413", "the answer is too long; ask for less at once")
        try:
            await request.respond(reply, headers)
            for part in more:
                await request.respond(part)
        except (ValueError, nats.errors.Error):
            # The reply subject is missing or not valid, or the connection is lost.
            return

    return begin


def _denied_lately(denials: Mapping[str, float]) -> tuple[str, ...]:
    """The refused subjects of a connection: each subscription, because it is not repeated, and what
    was published a while ago."""
    since = clock.monotonic() - DENIED_SECONDS
    return tuple(
        sorted(
            denial
            for denial, at in denials.items()
            if at >= since or denial.startswith("subscribe ")
        )
    )


def _failure(code: str, sentence: str) -> tuple[bytes, dict[str, str]]:
    line = " ".join(sentence.split())[:500]
    return _encode(Reply(error=line)), {
        "Nats-Service-Error": line.encode("ascii", "replace").decode(),
        "Nats-Service-Error-Code": code,
    }


def _name(subject: str) -> str:
    """The name of the endpoint: ``admit.api.explain.*`` becomes ``explain-ns``."""
    tail = subject.removeprefix("admit.api.").replace("*", "ns").replace(">", "all")
    return service_name(tail)


@cache
def _version() -> str:
    match: Any = re.match(r"\d+\.\d+\.\d+", version("admittance"))
    return match.group() if match else "0.0.0"
