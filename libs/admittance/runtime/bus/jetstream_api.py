"""Requests to the API of JetStream, which servers without a leader lose.

While a stream or the cluster elects a leader, 4 to 9 s, no server answers a request, and the next
leader does not know the request. So a request is sent again until it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

import nats.errors
from nats.aio.msg import Msg

from admittance.runtime import chance, clock
from admittance.runtime.bus.connection import Connection, PermissionDenied
from admittance.runtime.errors import AccessDenied, Unavailable

RESEND_SECONDS: Final = 0.5
"""How often an unanswered request is sent again."""
NOT_REPEATED: Final = ("STREAM.PURGE.", "STREAM.DELETE.", "STREAM.SNAPSHOT.", "STREAM.RESTORE.")
"""The beginnings of requests that are sent once: a copy that a server executes late could remove
messages that were published after the first copy, or would begin anew."""
NO_RESPONDERS: Final = "503"


async def ask_jetstream(nc: Connection, what: str, data: bytes, timeout: float) -> bytes:
    """The answer to the request ``$JS.API.<what>``. Raises Unavailable or AccessDenied."""
    subject = f"$JS.API.{what}"
    if what.startswith(NOT_REPEATED):
        return await answer_to(subject, nc.request(subject, data, timeout=timeout))
    return await answer_to(subject, _request_repeatedly(nc, subject, data, timeout))


async def answer_to(subject: str, asking: Awaitable[Msg]) -> bytes:
    """The data of the answer to a request on the subject. Raises Unavailable if nothing responds or
    no answer comes in time, and AccessDenied."""
    try:
        message = await asking
    except nats.errors.NoRespondersError:
        raise Unavailable(f"no responder on {subject}") from None
    except PermissionDenied as error:
        raise AccessDenied(str(error)) from None
    except (nats.errors.Error, TimeoutError) as error:
        raise Unavailable(f"no answer on {subject}: {error or 'timeout'}") from None
    answer: bytes = message.data
    return answer


async def _request_repeatedly(nc: Connection, subject: str, data: bytes, timeout: float) -> Msg:
    """Returns the first answer to any copy of the request. Raises what `Connection.request`
    raises."""
    if not nc._resp_sub_prefix:
        await nc._init_request_sub()
    assert nc._resp_sub_prefix
    name = chance.token_hex(12)
    answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
    answer.add_done_callback(lambda _: nc._resp_map.pop(name, None))
    nc._resp_map[name] = answer
    deadline = clock.monotonic() + timeout
    try:
        while not answer.done():
            left = deadline - clock.monotonic()
            if left <= 0:
                raise nats.errors.TimeoutError
            await nc.publish(subject, data, reply=f"{nc._resp_sub_prefix.decode()}{name}")
            await asyncio.wait([answer], timeout=min(RESEND_SECONDS, left))
        found = answer.result()
    finally:
        answer.cancel()
    if found.headers and found.headers.get("Status") == NO_RESPONDERS:
        raise nats.errors.NoRespondersError
    return found
