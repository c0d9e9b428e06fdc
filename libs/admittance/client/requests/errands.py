"""Questions that the scheduler has answered by a process of its own: simulations and replays."""

from __future__ import annotations

from typing import Final, TypeVar

from admittance.client.errors import NotAllowed, RequestFailed
from admittance.client.requests.link import Link
from admittance.events.requests.base import Request
from admittance.events.requests.replays import Replay, ReplayReply
from admittance.runtime.bus.outside_reads import InParts

P = TypeVar("P", bound=InParts)

ERRAND_SECONDS: Final = 130.0
"""Seconds to wait for an answer, a little more than the scheduler's time limit for one."""


async def errand(
    link: Link, what: str, request: Request, reply: type[P], namespace: str = ""
) -> list[P]:
    """The messages of the answer to ``admit.api.<what>``: about all namespaces, or, for a user that
    may use only some namespaces, about the namespace."""
    try:
        return await link.ask_at_length(what, request, reply, timeout=ERRAND_SECONDS)
    except NotAllowed:
        if link.bus.refused is not None:
            raise
        space = namespace or link.namespace
        return await link.ask_at_length(
            what, request, reply, timeout=ERRAND_SECONDS, namespace=space
        )


async def replay(link: Link, sequence: int, namespace: str = "") -> ReplayReply:
    """The decision at a sequence of the log, decided again; ``impossible`` says why it cannot be.
    Raises RequestFailed."""
    request = Replay(sequence=sequence)
    [answer] = await errand(link, "replay", request, ReplayReply, namespace)
    if answer.error:
        raise RequestFailed(answer.error)
    return answer
