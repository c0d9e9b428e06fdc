"""Which facts of the log a question asks for, and its newest facts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from admittance.client.errors import BadInput, NotAllowed, RequestFailed, Unavailable
from admittance.client.requests.link import Link
from admittance.events.fact_types import FACT_TYPES
from admittance.events.names import token
from admittance.events.requests.history import Events, EventsReply
from admittance.runtime.bus.history import time_of_last
from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable

NEWEST_MAX: Final = 500
"""The most facts of one answer."""


class Narrowing(msgspec.Struct, frozen=True, kw_only=True):
    """Which facts are asked for: of these types, about workloads of this queue, before this time,
    before this sequence; "", (), None and 0: all."""

    types: tuple[str, ...] = ()
    queue: str = ""
    until: datetime | None = None
    before: int = 0

    def fields(self) -> dict[str, Any]:
        """The fields of the request."""
        return msgspec.structs.asdict(self)


ALL_FACTS: Final = Narrowing()


def narrowing(
    types: str | Sequence[str] = (),
    queue: str | None = None,
    until: datetime | None = None,
    at: int | datetime | None = None,
    *,
    spelled: str = "types",
) -> Narrowing:
    """Raises BadInput for a type that no fact has. ``types``: with "-" or a space for "_", too; a
    text may have several, with commas. ``at``: only facts up to this sequence or time.
    ``spelled``: how the program names ``types``."""
    if isinstance(at, datetime):
        after = at + timedelta(microseconds=1)
        until = after if until is None else min(until, after)
    given = types.split(",") if isinstance(types, str) else types
    chosen = [each.strip().lower().replace("-", "_").replace(" ", "_") for each in given]
    for each, written in zip(chosen, given, strict=True):
        if each and each not in FACT_TYPES:
            known = ", ".join(FACT_TYPES)
            raise BadInput(f'{spelled} "{written.strip()[:60]}" is not one of {known}')
    return Narrowing(
        types=tuple(dict.fromkeys(filter(None, chosen))),
        queue=queue or "",
        until=until,
        before=at + 1 if isinstance(at, int) else 0,
    )


def check_applied(query: Events, reply: EventsReply) -> None:
    """Raises RequestFailed for a reply with an error, and for one of a service that ignored a part
    of the question, since it is of an earlier version."""
    if reply.error:
        raise RequestFailed(reply.error)
    for name in ("newest_first", "before", "until", "types", "queue"):
        if getattr(query, name) and name not in reply.applied:
            raise RequestFailed(
                "the workload-controller is of a version that cannot narrow events by "
                f"{name.replace('_', ' ')}: update it"
            )


async def last_answers(link: Link, controllers: Iterable[str]) -> dict[str, datetime]:
    """When each check controller last reported a verdict, of those of which the log has one. Raises
    NotAllowed for a login that may not read the whole log, and RequestFailed."""
    names = sorted(set(controllers))
    asked = (f"admit.check.reported.{token(name)}.*.*" for name in names)
    try:
        times = await asyncio.gather(*(time_of_last(link.bus, subject) for subject in asked))
    except AccessDenied as error:
        raise NotAllowed(str(error)) from None
    except (BusRefused, BusUnavailable) as error:
        raise Unavailable(f"the log cannot be read: {error}") from None
    return {name: time for name, time in zip(names, times, strict=True) if time is not None}


async def newest_facts(
    link: Link,
    namespace: str | None,
    workload: str | None,
    *,
    after: int = 0,
    before: int = 0,
    since: datetime | None = None,
    narrowed: Narrowing = ALL_FACTS,
    also: tuple[str, ...] = (),
    limit: int = NEWEST_MAX,
) -> EventsReply:
    """The newest facts, the newest first, in one answer: at most ``limit``, after the sequence
    ``after`` and before ``before``; 0: the newest of all. `EventsReply.before` is where the next
    question goes on."""
    query = Events(
        workload=workload or "",
        also=also,
        family=workload is not None and not also,
        newest_first=True,
        after=after,
        since=since,
        limit=limit,
        **{**narrowed.fields(), "before": before or narrowed.before},
    )
    reply = await link.ask("events", query, EventsReply, namespace=namespace)
    check_applied(query, reply)
    return reply


async def newest_pages(
    link: Link, namespace: str | None, workload: str | None, **asked: Any
) -> AsyncGenerator[EventsReply]:
    """Answers of `newest_facts`, one before the other, up to the first fact of the log."""
    before = 0
    while True:
        reply = await newest_facts(link, namespace, workload, before=before, **asked)
        yield reply
        if reply.complete:
            return
        before = reply.before
