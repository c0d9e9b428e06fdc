"""The button *Decide again* of a decision in the log of a workload."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from admittance.client.errors import BadInput
from admittance.runtime import clock
from admittance.web.pages import workload
from admittance.web.pages.acting import acted
from admittance.web.paths import fact_path
from admittance.web.rendering import whole_number
from admittance.web.sessions import Session
from admittance.web.views.accounts.log import Replayed


async def decide_again(request: Request, session: Session, form: dict[str, str]) -> Response:
    """Has the decision decided again, and goes back to it; its answer stays beneath it while the
    session lasts."""
    namespace, name = workload.named(request)

    async def replayed() -> str:
        sequence = whole_number(form.get("sequence", ""), "sequence")
        if not sequence:
            raise BadInput("sequence 0 is no place on the log")
        reply = await session.client.replay(sequence, namespace=namespace)
        session.keep(sequence, Replayed(reply, clock.now()))
        return fact_path(namespace, name, sequence)

    return await acted(replayed(), partial(workload.shown, request, session))
