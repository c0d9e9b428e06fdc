"""Asks one instance of a service whether it is ready. This module imports little, because a command
uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client

from admittance.events.reader import BROKEN
from admittance.events.requests import Health, HealthReply
from admittance.runtime import clock
from admittance.runtime.tasks import raise_if_cancelled

SUBJECT: Final = "admit.api.health"

_reply = msgspec.json.Decoder(HealthReply)


async def trouble(
    nc: Client, service: str, is_ours: Callable[[str], bool], *, seconds: float
) -> str:
    """Why an instance of the service is not ready; empty if it is ready. ``is_ours`` picks the
    instance by name, since every instance of every service answers; ``seconds``: the time limit for
    the answer.
    """
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox)
    try:
        await nc.publish(SUBJECT, msgspec.json.encode(Health()), reply=inbox)
        deadline = clock.monotonic() + seconds
        while (left := deadline - clock.monotonic()) > 0:
            message = await answers.next_msg(timeout=left)
            # In Python 3.11 ``next_msg`` drops a cancellation that comes with a message.
            raise_if_cancelled()
            if not message.data:
                return "no service answers"
            try:
                found = _reply.decode(message.data)
            except BROKEN:
                continue
            if found.service == service and is_ours(found.instance):
                reason = found.details.get("trouble") or found.error
                if found.ready and not reason:
                    return ""
                return f"{service} is not ready: {reason or 'starting'}"
    except (nats.errors.Error, TimeoutError):
        return f"{service} does not answer"
    finally:
        with suppress(nats.errors.Error):
            await answers.unsubscribe()
    return f"{service} does not answer"
