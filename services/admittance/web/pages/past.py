"""The pages of a workload, of queues and of pending workloads at a past moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import Final, TypeAlias
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admittance.client import Client
from admittance.client.errors import BadInput, NotAllowed, NotFound, RequestFailed
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.history import LogEntry
from admittance.events.requests.past import Moment
from admittance.events.requests.queues import NodeStatus
from admittance.runtime import clock
from admittance.web.pages.queues import folded
from admittance.web.paths import workload_path
from admittance.web.rendering import page, skipped, wants_json
from admittance.web.sessions import Session
from admittance.web.views import past as past_view
from admittance.web.views import pending as pending_view
from admittance.web.views import queues as queues_view
from admittance.web.views import workload as workload_view
from admittance.web.views.details.manifest import manifest_of
from admittance.web.views.frame import Frame
from admittance.web.views.missing import Missing
from admittance.web.views.past import takes_longer

TREES_MAX: Final = 50
AT_ONCE_MAX: Final = 3_000
"""From more messages of the log a page is made only if the address says so."""
SLOW: Final = "slow"
Page: TypeAlias = Callable[[Request, Session], Awaitable[Response]]


def is_asked(request: Request) -> bool:
    """Whether the request is about a past moment."""
    return "at" in request.query_params or "step" in request.query_params


def _at(request: Request) -> int | datetime:
    """The moment of the request. Raises BadInput."""
    text = request.query_params.get("at", "").strip()
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            f'"{text[:40]}" is no moment: give a sequence of the log, or a time such as '
            "2026-11-27T14:00:00Z"
        ) from None


class _TakesLonger(Exception):
    """The page of the moment is made from the log, which the person is asked about first."""

    def __init__(self, moment: Moment) -> None:
        super().__init__("the history of the bucket begins later")
        self.moment = moment


async def _moment(
    request: Request, client: Client, at: int | datetime, namespace: str | None
) -> Moment:
    """The moment. Raises BadInput for one that is not known, with the first one that is, and
    _TakesLonger."""
    try:
        moment = await client.moment(at, namespace=namespace)
    except (NotAllowed, NotFound):
        raise
    except RequestFailed as error:
        raise BadInput(str(error)) from None
    if moment.facts > AT_ONCE_MAX and not (SLOW in request.query_params or wants_json(request)):
        raise _TakesLonger(moment)
    return moment


def _asks_first(show: Page) -> Page:
    """The page, or one that says that it takes longer."""

    @wraps(show)
    async def asked(request: Request, session: Session) -> Response:
        try:
            return await show(request, session)
        except _TakesLonger as longer:
            query = [*request.query_params.multi_items(), (SLOW, "1")]
            view = takes_longer(longer.moment, f"{request.url.path}?{urlencode(query)}")
            frame = Frame(title=view.title, as_of=clock.now(), live=False)
            return page(request, "missing.html", frame, view, session=session)

    return asked


@_asks_first
async def workload(request: Request, session: Session) -> Response:
    """The page of a workload as it was."""
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    client, path = session.client, workload_path(namespace, name)
    entries = [entry async for entry in client.events(name, namespace=namespace)]
    moment = await _moment(request, client, _at_step(request, entries), namespace)
    whole = request.query_params.get("explain") == "1"
    bar = past_view.workload_bar(path, moment, entries, clock.now(), whole=whole)
    frame = Frame(title=name, as_of=moment.time, live=False, past=bar)
    try:
        stored = await client.get("workload", name, namespace=namespace, at=moment.sequence)
    except NotFound:
        absent = Missing(title=name, text=f"Workload {name} was not there at that moment.")
        return page(request, "missing.html", frame, absent, session=session, status=404)
    explained = await _explained(client, namespace, name, moment, whole=whole)
    known = [entry for entry in entries if entry.sequence <= moment.sequence]
    made = workload_view.build(
        stored.workload(), explained, known, session.login, moment.time, past=True
    )
    link = past_view.also_at(made.manifest, moment.sequence)
    view = msgspec.structs.replace(made, acts=(), manifest=link)
    return page(
        request,
        "workload.html",
        msgspec.structs.replace(frame, title=f"{view.title}, {moment.time:%Y-%m-%d %H:%M:%S}"),
        view,
        session=session,
        refused="",
        request_path=path,
    )


@_asks_first
async def manifest(request: Request, session: Session) -> Response:
    """The manifest of a workload as it was stored."""
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    client, back = session.client, workload_path(namespace, name)
    moment = await _moment(request, client, _at(request), namespace)
    stored = await client.get("workload", name, namespace=namespace, at=moment.sequence)
    view = manifest_of(namespace, name, stored.plain())
    bar = past_view.bar(f"{back}/manifest", moment, clock.now())
    frame = Frame(title=view.title, as_of=moment.time, live=False, past=bar)
    return page(request, "manifest.html", frame, view, session=session, request_path=back)


def _at_step(request: Request, entries: Sequence[LogEntry]) -> int | datetime:
    """The moment of the request: a step of the slider is a fact of the workload. Raises
    BadInput."""
    step = request.query_params.get("step")
    if step is None:
        return _at(request)
    if not (step.isascii() and step.isdigit() and 0 < int(step[:9]) <= len(entries)):
        raise BadInput(f'there is no fact "{step[:20]}": the workload has {len(entries)}')
    return entries[int(step) - 1].sequence


async def _explained(
    client: Client, namespace: str, name: str, moment: Moment, *, whole: bool
) -> ExplainReply | None:
    """Why it waited; None: it had finished, or no scheduler can say."""
    try:
        return await client.explain(name, namespace=namespace, at=moment.sequence, whole=whole)
    except RequestFailed:
        return None


@_asks_first
async def pending(request: Request, session: Session) -> Response:
    """The workloads that were pending."""
    queue = request.query_params.get("queue", "").strip()
    namespace = request.query_params.get("namespace", "").strip()
    if request.query_params.get("state") or request.query_params.get("reason"):
        raise BadInput("at goes without state and reason")
    skip, client = skipped(request), session.client
    everywhere = not session.login.namespaces and not namespace
    space = None if everywhere else namespace or session.login.namespaces[0]
    moment = await _moment(request, client, _at(request), space)
    reply = await client.pending(
        queue or None,
        skip=skip,
        limit=pending_view.ROWS_MAX,
        namespace=None if everywhere and not queue else space,
        all_namespaces=everywhere and not queue,
        at=moment.sequence,
    )
    chosen = pending_view.Chosen(queue, namespace, "", "")
    made = pending_view.build(reply, {}, moment.time, chosen, skip=skip)
    view = past_view.pending_at(made, moment.sequence)
    shown = {name: value for name, value in (("queue", queue), ("namespace", namespace)) if value}
    bar = past_view.bar("/pending", moment, clock.now(), **shown)
    frame = Frame(title=view.title, as_of=moment.time, at="/pending", live=False, past=bar)
    return page(request, "pending.html", frame, view, session=session)


async def of_queue(request: Request, _: Session) -> Response:
    """Leads to the workloads that were pending in the queue."""
    _at(request)
    query = {"queue": request.path_params["name"], "at": request.query_params.get("at", "")}
    return RedirectResponse(f"/pending?{urlencode(query)}", 303)


@_asks_first
async def queues(request: Request, session: Session) -> Response:
    """The cohort trees as they were."""
    client = session.client
    namespace = session.login.namespaces[0] if session.login.namespaces else None
    moment = await _moment(request, client, _at(request), namespace)
    at = moment.sequence
    reply = await client.queues(namespace=namespace, at=at)
    cohorts = {queue.domain: queue.cohort for queue in reply.cluster_queues if queue.cohort}
    trees: list[Sequence[NodeStatus]] = []
    for domain in sorted(cohorts)[:TREES_MAX]:
        found = await client.queues(cohort=cohorts[domain], namespace=namespace, at=at)
        trees.append(found.tree)
    resource = request.query_params.get("resource")
    made = queues_view.build(reply.cluster_queues, trees, resource, folded(request))
    view = past_view.queues_at(made, at)
    chosen = {name: request.query_params.get(name, "") for name in ("resource", "fold")}
    shown = {name: value for name, value in chosen.items() if value}
    bar = past_view.bar("/queues", moment, clock.now(), **shown)
    frame = Frame(title=view.title, as_of=moment.time, at="/queues", live=False, past=bar)
    return page(request, "queues.html", frame, view, session=session)
