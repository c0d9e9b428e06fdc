"""The page of usage; its JSON and its CSV have the rows of `admit usage`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from admittance.api.fields.usage_units import Unit
from admittance.client import Client
from admittance.client.arguments.written_times import day_of_text
from admittance.client.errors import BadInput, NotAllowed, NotFound
from admittance.client.requests.usage import checked_unit
from admittance.events.requests.reading import UsageReply
from admittance.runtime import clock
from admittance.usage.rows import Asked, csv_of, plain_of
from admittance.web.rendering import page, wants_json
from admittance.web.sessions import Session
from admittance.web.views.accounts.usage import UsageChoice, budget_states, build
from admittance.web.views.frame import Frame
from admittance.web.views.merging import merged_usage

FORMATS: Final = ("", "json", "csv")


async def show(request: Request, session: Session) -> Response:
    """The page, or its rows."""
    given = request.query_params
    chosen = UsageChoice(**{name: given.get(name, "").strip() for name in asdict(UsageChoice())})
    shape = given.get("format", "")
    if shape not in FORMATS:
        raise BadInput(f'format "{shape[:40]}" is not one of json, csv')
    now = clock.now()
    spaces = _spaces(session, chosen)
    by = _words(chosen.by or ("cluster-queue" if spaces == (None,) else "queue"))
    since, until = _day(chosen.since, "since", now), _day(chosen.until, "until", now)
    reply, unit = await _used(session.client, by, since, until, spaces, chosen.unit)
    asked = Asked(by, unit)
    if shape == "csv":
        rows = plain_of(asked, reply)["rows"]
        name = f"usage-{reply.since}-{reply.until}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(csv_of(asked, rows), media_type="text/csv", headers=headers)
    stored = await _budgets(session.client, spaces)
    if wants_json(request):
        whole = {**plain_of(asked, reply), "budgets": stored}
        return Response(msgspec.json.encode(whole), media_type="application/json")
    view = build(reply, chosen, by, unit, now, budget_states(stored))
    short = any(row.short for budget in view.budgets for row in budget.accounts)
    frame = Frame(title=view.title, as_of=now, at="/usage", trouble=short)
    return page(request, "usage.html", frame, view, session=session)


def _spaces(session: Session, chosen: UsageChoice) -> tuple[str | None, ...]:
    """The namespaces of the sums; (None,): all. A user without a choice has those of the own
    namespaces added."""
    if chosen.namespace:
        return (chosen.namespace,)
    return session.login.namespaces or (None,)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _day(text: str, name: str, now: datetime) -> date | None:
    return day_of_text(text, name, now) if text else None


async def _used(
    client: Client,
    by: tuple[str, ...],
    since: date | None,
    until: date | None,
    spaces: Sequence[str | None],
    unit: str,
) -> tuple[UsageReply, Unit]:
    """The sums, and their unit: without one hours of GPUs, if GPUs were used, else of CPUs."""
    reply = UsageReply()
    for name in (unit,) if unit else ("gpu-hours", "cpu-hours"):
        chosen = checked_unit(name)
        replies = await asyncio.gather(
            *(
                client.usage(
                    by,
                    since=since,
                    until=until,
                    unit=name,
                    namespace=space,
                    all_namespaces=space is None,
                )
                for space in spaces
            )
        )
        reply = replies[0] if len(replies) == 1 else merged_usage(replies, chosen)
        if any(
            chosen.counts(resource) for each in reply.sums for resource in each.resource_seconds
        ):
            break
    return reply, chosen


async def _budgets(client: Client, spaces: Sequence[str | None]) -> list[dict[str, Any]]:
    """The budgets with their states: all, or for a user of single namespaces those of ``spaces``;
    [] if the user may not read them."""
    try:
        lists = await asyncio.gather(*(client.list("budgets", namespace=each) for each in spaces))
    except (NotAllowed, NotFound):
        return []
    stored = {each.key: each for listed in lists for each in listed}
    return [each.plain() for each in stored.values()]
