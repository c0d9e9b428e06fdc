"""The page of events, and the page of one fact of the log."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import datetime
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from admittance.client import Client
from admittance.client.arguments.written_times import moment_of
from admittance.client.errors import BadInput, NotFound
from admittance.events.requests.history import LogEntry
from admittance.runtime import clock
from admittance.web.rendering import page, whole_number
from admittance.web.sessions import Session
from admittance.web.views.accounts.events import (
    AROUND,
    ROWS_MAX,
    EventsPart,
    Filters,
    build,
    build_one,
    merged,
)
from admittance.web.views.frame import Frame


async def show(request: Request, session: Session) -> Response:
    """The page."""
    given = request.query_params
    filters = Filters(**{name: given.get(name, "").strip() for name in asdict(Filters())})
    before, after = (whole_number(given.get(name, "0"), name) for name in ("before", "after"))
    if before and after:
        raise BadInput("before and after both name a place of the log: give one")
    now = clock.now()
    asked = _asked(filters, now)
    spaces, name = _scope(session, filters)
    client = session.client
    if after:
        later = await asyncio.gather(
            *(_after(client, name, space, after, ROWS_MAX, asked) for space in spaces)
        )
        entries = [entry for facts in later for entry in facts]
        entries.sort(key=lambda entry: entry.sequence)
        entries = entries[:ROWS_MAX]
        part = EventsPart(
            entries=tuple(reversed(entries)),
            before=after + 1,
            after=entries[-1].sequence if entries else after,
        )
    else:
        parts = await asyncio.gather(
            *(_newest(client, name, space, before, asked) for space in spaces)
        )
        part = merged(parts, ROWS_MAX)
    fixed = bool(before or after)
    view = build(part, filters, now, fixed=fixed, newer=fixed and not filters.queue)
    frame = Frame(title=view.title, as_of=now, at="/events", live=not fixed)
    return page(request, "events.html", frame, view, session=session)


async def show_one(request: Request, session: Session) -> Response:
    """The page of the fact at the sequence of the path."""
    sequence: int = request.path_params["sequence"]
    client = session.client
    spaces, _ = _scope(session, Filters())
    facts: list[LogEntry] = []
    for space in spaces:
        scope = _scope_arguments(space)
        older = await client.newest_events(before=sequence + 1, limit=AROUND + 1, **scope)
        facts += older.entries
        facts += await _after(client, None, space, sequence, AROUND, {})
    now = clock.now()
    facts.sort(key=lambda entry: -entry.sequence)
    view = build_one(facts, sequence, now)
    if view is None:
        raise NotFound(f"the log has no fact {sequence}")
    frame = Frame(title=view.title, as_of=now, at="/events", live=False)
    return page(request, "event.html", frame, view, session=session)


def _asked(filters: Filters, now: datetime) -> dict[str, Any]:
    """The arguments of the question. Raises BadInput."""
    return {
        "types": filters.type or (),
        "queue": filters.queue or None,
        "since": moment_of(filters.since, "since", now) if filters.since else None,
        "until": moment_of(filters.until, "until", now) if filters.until else None,
    }


def _scope(session: Session, filters: Filters) -> tuple[tuple[str | None, ...], str | None]:
    """The namespaces to ask about, None for all, and the name of a workload. Raises BadInput."""
    namespace, _, name = filters.workload.rpartition("/")
    namespace = namespace or filters.namespace
    if namespace:
        return (namespace,), name or None
    spaces: tuple[str | None, ...] = session.login.namespaces or (None,)
    if name and spaces == (None,):
        raise BadInput("the workload needs its namespace: write NAMESPACE/NAME")
    return spaces, name or None


def _scope_arguments(space: str | None) -> dict[str, Any]:
    return {"namespace": space, "all_namespaces": space is None}


async def _newest(
    client: Client, name: str | None, space: str | None, before: int, asked: dict[str, Any]
) -> EventsPart:
    scope = _scope_arguments(space)
    reply = await client.newest_events(name, before=before, limit=ROWS_MAX, **asked, **scope)
    return EventsPart(
        entries=reply.entries, before=0 if reply.complete else reply.before, after=reply.after
    )


async def _after(
    client: Client,
    name: str | None,
    space: str | None,
    after: int,
    many: int,
    asked: dict[str, Any],
) -> list[LogEntry]:
    """The first facts after a sequence, the oldest first."""
    entries: list[LogEntry] = []
    events = client.events(name, after=after, **asked, **_scope_arguments(space))
    async with aclosing(events):
        async for entry in events:
            entries.append(entry)
            if len(entries) == many:
                break
    return entries
