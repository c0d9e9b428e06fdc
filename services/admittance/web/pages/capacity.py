"""The page of capacity."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.api.checks import AdmissionCheck, ProvisioningRequestConfig
from admittance.client import Client
from admittance.client.errors import NoResponder, NotAllowed, NotFound, TimedOut
from admittance.client.requests.objects import BucketObject
from admittance.provisioning.records import Record
from admittance.runtime import clock
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.system.capacity import build, classes_of, down_classes

AGAIN_SECONDS: Final = 15
"""A provider falls silent without a fact of the log."""


async def show(request: Request, session: Session) -> Response:
    """The page."""
    client = session.client
    spaces: tuple[str | None, ...] = session.login.namespaces or (None,)
    asked = await asyncio.gather(
        *(
            client.list("provisioningrequests", namespace=space, all_namespaces=space is None)
            for space in spaces
        )
    )
    decoded = [stored.decoded(Record) for of in asked for stored in of]
    records = [record for record in decoded if record is not None]
    stored_configs, stored_pools, stored_checks = await asyncio.gather(
        *(
            _listed(client, kind)
            for kind in ("provisioningrequestconfigs", "machinepools", "admissionchecks")
        )
    )
    read = [stored.decoded(ProvisioningRequestConfig) for stored in stored_configs]
    configs = [config for config in read if config is not None]
    pools = [stored.plain() for stored in stored_pools]
    checks = [stored.decoded(AdmissionCheck) for stored in stored_checks]
    down = down_classes((check for check in checks if check is not None), configs)
    now = clock.now()
    answering = await _answering(client, classes_of(configs, records, pools))
    view = build(configs, records, pools, answering, now, down)
    frame = Frame(
        title=view.title, as_of=now, at="/capacity", trouble=view.trouble, every=AGAIN_SECONDS
    )
    return page(request, "capacity.html", frame, view, session=session)


async def _listed(client: Client, kind: str) -> Sequence[BucketObject]:
    """The objects of a kind; () if the user may not list them."""
    try:
        return await client.list(kind)
    except (NotAllowed, NotFound):
        return ()


async def _answering(client: Client, classes: Sequence[str]) -> frozenset[str] | None:
    """The classes for which a provider answers; None if the user may not ask, or the provisioning
    check does not answer."""
    if client.login.namespaces:
        return None
    try:
        return await client.answering_providers(classes)
    except (NotAllowed, NoResponder, TimedOut):
        return None
