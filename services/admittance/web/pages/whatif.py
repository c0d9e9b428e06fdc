"""The page that tries a change, and applies what it has shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from admittance.api.reading.manifest import Document
from admittance.api.workload import Job, Workload
from admittance.client import Client
from admittance.client.errors import BadInput, ClientError, NotAllowed, NotFound, Unavailable
from admittance.client.kinds import kind_named
from admittance.client.requests.objects import BucketObject
from admittance.client.requests.submissions.manifests import documents_of
from admittance.runtime import clock
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.whatif.object_changes import (
    ObjectChange,
    change_of_object,
    manifest_text,
    with_more_quota,
)
from admittance.web.views.whatif.result import ROWS_MAX, result_of
from admittance.web.views.whatif.view import Attempt, build
from admittance.workload.stored import head

TEXT_MAX: Final = 250_000
"""The most characters of manifests in the form: with them, the form stays below the limit of a
body, in which a sign may take three bytes."""
COMPARED_MAX: Final = 100
"""The most manifests that are compared with the objects as they are."""


async def show(request: Request, session: Session) -> Response:
    """The form, filled with what the query names."""
    given = request.query_params
    try:
        attempt = await _filled(session.client, dict(given))
    except (NotFound, NotAllowed):
        what = given.get("edit", "")[:100]
        line = f"There is no {what}, or you may not see it."
        return _page(request, session, Attempt(), problems=[line], status=404)
    except BadInput as error:
        return _page(request, session, Attempt(), problems=error.lines, status=400)
    return _page(request, session, attempt)


async def _filled(client: Client, given: dict[str, str]) -> Attempt:
    """The fields of the form for the query. Raises BadInput, NotFound and NotAllowed."""
    attempt = Attempt(
        workload=given.get("workload", ""),
        priority=given.get("priority", ""),
        queue=given.get("queue", ""),
    )
    if "edit" not in given:
        return attempt
    kind, namespace, name = _object_named(given["edit"])
    stored = await client.get(kind, name, namespace=namespace or None)
    if kind_named(kind).manifest == "Workload":
        spec = head(stored.workload())
        return attempt._replace(
            workload=f"{stored.namespace}/{name}",
            priority=attempt.priority or str(spec.priority or 0),
            queue=attempt.queue,
        )
    plain = stored.plain()
    if more := given.get("more"):
        if not more.isascii() or not more.isdigit() or len(more) > 18:
            raise BadInput(f'more "{more[:40]}" is not a whole number')
        flavor, resource = given.get("flavor", ""), given.get("resource", "")
        changed = with_more_quota(plain, flavor, resource, int(more))
        if changed is None:
            raise BadInput(f"{given['edit']} has no quota of {resource} in flavor {flavor}")
        plain = changed
    return attempt._replace(text=manifest_text(plain))


def _object_named(word: str) -> tuple[str, str, str]:
    """Kind, namespace and name from ``kind/name`` or ``kind/namespace/name``. Raises BadInput."""
    kind, *rest = word.split("/")
    if len(rest) not in (1, 2) or not all(rest):
        raise BadInput(f'edit "{word[:100]}" is not an object: write kind/name')
    wanted = kind_named(kind)
    if wanted.namespaced != (len(rest) == 2):
        form = "kind/namespace/name" if wanted.namespaced else "kind/name"
        raise BadInput(f'edit "{word[:100]}" is not a {wanted.singular}: write {form}')
    return kind, rest[0] if len(rest) == 2 else "", rest[-1]


async def attempt(request: Request, session: Session, form: dict[str, str]) -> Response:
    """Tries what the form asks for. A refusal keeps the fields."""
    asked = _attempt_of(form)
    try:
        documents, changes = await asyncio.to_thread(_read, asked, session)
        began = clock.monotonic()
        namespace = _space(asked, session)
        reply = await session.client.simulate(
            [document.manifest for document in documents],
            changes=changes,
            limit=ROWS_MAX,
            namespace=namespace,
        )
        seconds = clock.monotonic() - began
        live = await _live(session.client, documents)
    except ClientError as error:
        return _refused(request, session, asked, error)
    compared = tuple(
        _compared(document, each.stored) for document, each in zip(documents, live, strict=False)
    )
    only = all(isinstance(each.manifest, Workload | Job) for each in documents)
    view = build(
        asked,
        session.login,
        result=result_of(reply, seconds),
        changes=compared,
        only_workloads=only,
        seen=await _seen(session.client, asked, documents, live),
    )
    return page(request, "whatif.html", _frame(view.title), view, session=session)


async def apply(request: Request, session: Session, form: dict[str, str]) -> Response:
    """Applies what was tried, unless an object that was shown has changed since."""
    asked = _attempt_of(form)
    client = session.client
    try:
        documents, changes = await asyncio.to_thread(_read, asked, session)
        live = await _live(client, documents)
        if await _seen(client, asked, documents, live) != form.get("seen"):
            raise BadInput("an object has changed since this was tried: try it again")
        if documents and changes:
            raise BadInput("the manifests and the change of a workload are applied one by one")
        if changes:
            done = await _prioritized(client, changes[0])
        else:
            manifests = [document.manifest for document in documents]
            applied = await client.apply(
                manifests, expected=_expected(documents, live), namespace=_space(asked, session)
            )
            done = [
                _outcome(each.kind, each.namespace, each.name, each.outcome) for each in applied
            ]
    except ClientError as error:
        return _refused(request, session, asked, error)
    return _page(request, session, asked, done=done)


def _expected(documents: Sequence[Document], live: Sequence[Live]) -> list[int | None]:
    """The revision that each object must still have when it is written."""
    shown = zip_longest(documents, (each.revision for each in live))
    return [
        None if isinstance(document.manifest, Workload | Job) else revision
        for document, revision in shown
    ]


async def _prioritized(client: Client, change: dict[str, Any]) -> list[str]:
    if "queue" in change:
        raise BadInput("a workload cannot change its queue: submit it again in the other queue")
    name, space = change["workload"], change["namespace"]
    await client.set_priority(name, change["priority"], namespace=space)
    return [f"Workload {space}/{name} has priority {change['priority']}."]


def _outcome(kind: str, namespace: str, name: str, outcome: str) -> str:
    full = f"{namespace}/{name}" if namespace else name
    return f"{kind} {full} {'is' if outcome == 'unchanged' else 'was'} {outcome}."


# The fields. -------------------------------------------------------------------------------------


def _attempt_of(form: dict[str, str]) -> Attempt:
    # Without the script a chosen file comes with the form, and replaces the text.
    text = form.get("file", "") or form.get("text", "")
    return Attempt(
        text=text.replace("\r\n", "\n"),
        workload=form.get("workload", "").strip(),
        priority=form.get("priority", "").strip(),
        queue=form.get("queue", "").strip(),
    )


def _read(asked: Attempt, session: Session) -> tuple[list[Document], list[dict[str, Any]]]:
    """The manifests and the changes of workloads in the form. Raises BadInput."""
    if len(asked.text) > TEXT_MAX:
        raise BadInput(
            f"the manifests have more than {TEXT_MAX:,} characters: admit simulate takes more"
        )
    changes = []
    if asked.workload or asked.priority or asked.queue:
        changes.append(_change_of(asked))
    if not asked.text.strip() and not changes:
        raise BadInput("there is nothing to try: write manifests, or name a workload")
    documents = []
    if asked.text.strip():
        documents = documents_of(asked.text, _space(asked, session))
        if not documents:
            raise BadInput("the manifests name no object")
    return documents, changes


def _change_of(asked: Attempt) -> dict[str, Any]:
    namespace, slash, name = asked.workload.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise BadInput(f'the workload "{asked.workload[:100]}" is not written namespace/name')
    change: dict[str, Any] = {"namespace": namespace, "workload": name}
    if asked.priority:
        try:
            change["priority"] = int(asked.priority)
        except ValueError:
            text = asked.priority[:40]
            raise BadInput(f'the priority "{text}" is not a whole number') from None
    if asked.queue:
        change["queue"] = asked.queue
    return change


def _space(asked: Attempt, session: Session) -> str:
    """The namespace of manifests that name none: that of the changed workload, else the first of
    the person."""
    if asked.workload:
        return asked.workload.partition("/")[0]
    return session.login.namespaces[0] if session.login.namespaces else "default"


# The objects as they are. ------------------------------------------------------------------------


class Live(NamedTuple):
    """An object as it is. ``revision`` 0: it does not exist; None: not known, as the person may not
    see it, or only its program has its kind."""

    stored: BucketObject | None
    revision: int | None


async def _live(client: Client, documents: Sequence[Document]) -> list[Live]:
    """The first `COMPARED_MAX` objects of the manifests as they are."""
    return await asyncio.gather(*(_found(client, each) for each in documents[:COMPARED_MAX]))


async def _found(client: Client, document: Document) -> Live:
    manifest = document.manifest
    if not manifest.metadata.name:
        return Live(None, None)
    kind = "Workload" if isinstance(manifest, Job) else manifest.kind
    try:
        stored = await client.get(
            kind, manifest.metadata.name, namespace=manifest.metadata.namespace or None
        )
    except NotFound:
        return Live(None, 0)
    except (NotAllowed, BadInput):
        return Live(None, None)
    return Live(stored, stored.revision)


def _compared(document: Document, live: BucketObject | None) -> ObjectChange:
    meta = document.manifest.metadata
    name = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    given = msgspec.json.decode(document.raw)
    is_run = isinstance(document.manifest, Workload | Job)
    about = f"{document.manifest.kind} {name}"
    if is_run and live is not None:
        return ObjectChange(name=about, note="A workload of this name exists.")
    return change_of_object(about, live.plain() if live is not None else None, given)


async def _seen(
    client: Client,
    asked: Attempt,
    documents: Sequence[Document],
    live: Sequence[Live],
) -> str:
    """The revisions of the objects that the page shows, and of the changed workload, as text.
    Raises NotFound."""
    revisions = [each.revision or 0 for each in live]
    if asked.workload:
        namespace, _, name = asked.workload.partition("/")
        stored = await client.get("workload", name, namespace=namespace)
        # Its status changes all the time; its priority is what is applied.
        revisions.append(head(stored.workload()).priority or 0)
    return " ".join(map(str, (len(documents), *revisions)))


# The page. ---------------------------------------------------------------------------------------


def _frame(title: str) -> Frame:
    # A page that asked again would lose its result.
    return Frame(title=title, as_of=clock.now(), at="/whatif", live=False)


def _page(
    request: Request,
    session: Session,
    asked: Attempt,
    *,
    problems: Sequence[str] = (),
    done: Sequence[str] = (),
    status: int = 200,
) -> Response:
    view = build(asked, session.login, problems=problems, done=tuple(done))
    return page(request, "whatif.html", _frame(view.title), view, session=session, status=status)


def _refused(request: Request, session: Session, asked: Attempt, error: ClientError) -> Response:
    """The page with the reason, and with the fields as they were."""
    if isinstance(error, NotAllowed):
        return _page(request, session, asked, problems=[f"Not allowed: {error}"], status=403)
    status = 400 if isinstance(error, BadInput) else 503 if isinstance(error, Unavailable) else 409
    return _page(request, session, asked, problems=error.lines, status=status)
