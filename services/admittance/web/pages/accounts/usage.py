"""The page of usage; its JSON and its CSV have the rows of `admit usage`."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace
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

FORMATS: Final = ("", "json", "csv")


async def show(request: Request, session: Session) -> Response:
    """The page, or its rows."""
    given = request.query_params
    chosen = UsageChoice(**{name: given.get(name, "").strip() for name in asdict(UsageChoice())})
    shape = given.get("format", "")
    if shape not in FORMATS:
        raise BadInput(f'format "{shape[:40]}" is not one of json, csv')
    now = clock.now()
    space = _space(session, chosen)
    chosen = replace(chosen, namespace=space or "")
    by = _words(chosen.by or ("cluster-queue" if space is None else "queue"))
    since, until = _day(chosen.since, "since", now), _day(chosen.until, "until", now)
    reply, unit = await _used(session.client, by, since, until, space, chosen.unit)
    asked = Asked(by, unit)
    if shape == "csv":
        rows = plain_of(asked, reply)["rows"]
        name = f"usage-{reply.since}-{reply.until}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(csv_of(asked, rows), media_type="text/csv", headers=headers)
    stored = await _budgets(session.client, space)
    if wants_json(request):
        whole = {**plain_of(asked, reply), "budgets": stored}
        return Response(msgspec.json.encode(whole), media_type="application/json")
    view = build(reply, chosen, by, unit, now, budget_states(stored))
    short = any(row.short for budget in view.budgets for row in budget.accounts)
    frame = Frame(title=view.title, as_of=now, at="/usage", trouble=short)
    return page(request, "usage.html", frame, view, session=session)


def _space(session: Session, chosen: UsageChoice) -> str | None:
    """The namespace; None: all. A user has the sums of one namespace, since nothing adds those of
    several."""
    if chosen.namespace:
        return chosen.namespace
    return session.login.namespaces[0] if session.login.namespaces else None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _day(text: str, name: str, now: datetime) -> date | None:
    return day_of_text(text, name, now) if text else None


async def _used(
    client: Client,
    by: tuple[str, ...],
    since: date | None,
    until: date | None,
    space: str | None,
    unit: str,
) -> tuple[UsageReply, Unit]:
    """The sums, and their unit: without one hours of GPUs, if GPUs were used, else of CPUs."""
    reply = UsageReply()
    for name in (unit,) if unit else ("gpu-hours", "cpu-hours"):
        chosen = checked_unit(name)
        reply = await client.usage(
            by,
            since=since,
            until=until,
            unit=name,
            namespace=space,
            all_namespaces=space is None,
        )
        if any(
            chosen.counts(resource) for each in reply.sums for resource in each.resource_seconds
        ):
            break
    return reply, chosen


async def _budgets(client: Client, space: str | None) -> list[dict[str, Any]]:
    """The budgets with their states: all, or for a user of single namespaces those of ``space``; []
    if the user may not read them."""
    try:
        return [stored.plain() for stored in await client.list("budgets", namespace=space)]
    except (NotAllowed, NotFound):
        return []
