"""Makes HTML and JSON of view models."""

from __future__ import annotations

from typing import Any, Final

import jinja2
import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from admittance.client.errors import BadInput
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame, menu_of

TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("admittance.web"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
"""All values are escaped: names, messages and output are texts of other people."""


def wants_json(request: Request) -> bool:
    """Whether the request asks for the JSON twin of the page."""
    return request.query_params.get("format") == "json"


def skipped(request: Request) -> int:
    """How many rows the request leaves out at the top. Raises BadInput."""
    return whole_number(request.query_params.get("skip", "0"), "skip")


def whole_number(text: str, what: str) -> int:
    """The number that a request has as ``what``. Raises BadInput."""
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadInput(f'{what} "{text[:40]}" is not a whole number')
    return int(text)


def page(
    request: Request,
    template: str,
    frame: Frame,
    view: Any = None,
    *,
    session: Session | None = None,
    status: int = 200,
    **more: Any,
) -> Response:
    """The answer with a page, or with its JSON twin if the request asks for it. ``frame``: what
    all pages have; ``view``: the view model of this page."""
    if wants_json(request) and view is not None:
        return Response(msgspec.json.encode(view), status, media_type="application/json")
    text = TEMPLATES.get_template(template).render(
        frame=frame,
        view=view,
        menu=menu_of("" if session is None else session.login.role),
        login=None if session is None else session.login,
        csrf="" if session is None else session.csrf,
        **more,
    )
    return HTMLResponse(text, status)
