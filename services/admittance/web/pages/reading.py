"""Asks everything that the page of a workload shows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck
from admittance.client import Client
from admittance.client.errors import NotFound, RequestFailed
from admittance.client.requests.objects import is_array
from admittance.events.requests.explanation import ExplainReply
from admittance.events.subjects import APPROVAL_CONTROLLER
from admittance.runtime import clock
from admittance.web.pages.output import RUNS, read_output
from admittance.web.sessions import Session
from admittance.web.views.details import elements
from admittance.web.views.details.elements import Elements, ElementsQuery
from admittance.web.views.details.output import READS_OUTPUT, Output, output_of
from admittance.web.views.details.relations import depends_on
from admittance.web.views.workload import WorkloadView, build
from admittance.workload.conditions import gated_by
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload

OUTPUT_LINES: Final = 12
OUTPUT_SECONDS: Final = 0.2
"""So long the page waits for the output of the job."""
PRINTED: Final = RUNS | {Phase.FINISHED}
"""The phases in which a job may have printed in its newest run."""


class Chosen(NamedTuple):
    """What a request asks to see. ``fact``: the sequence of the fact that is open at first;
    ``dependents``: also what waits for the workload, for which all workloads of the namespace are
    read."""

    fact: int = 0
    elements: ElementsQuery = ElementsQuery()
    dependents: bool = False


async def read(session: Session, namespace: str, name: str, chosen: Chosen) -> WorkloadView:
    """The view of a workload. Raises NotFound, NotAllowed, and ClientError."""
    client = session.client
    stored = await client.get("workload", name, namespace=namespace)
    workload = stored.workload()
    reply, entries, output, of_array, dependents, approvals = await asyncio.gather(
        explained(session, workload),
        session.facts.of(namespace, name),
        _output(session, workload),
        _elements(client, workload, chosen.elements),
        _dependents(client, workload, chosen),
        _approvals(client, workload),
    )
    return build(
        workload,
        reply,
        entries,
        session.login,
        clock.now(),
        approvals,
        open_fact=chosen.fact,
        replayed=session.replayed,
        output=output,
        elements=of_array,
        dependents=dependents,
    )


async def explained(session: Session, workload: StoredWorkload) -> ExplainReply | None:
    """The scheduler's explanation, with the expected start that the session has; None if the
    scheduler does not answer."""
    meta, of_array = workload.metadata, is_array(workload)
    waits = phase(workload, clock.now()) is Phase.PENDING and not gated_by(workload)
    asked = {meta.namespace: [meta.name]} if waits and not of_array else {}
    try:
        reply, starts = await asyncio.gather(
            session.client.explain(meta.name, namespace=meta.namespace, start=of_array),
            session.starts.of(asked),
        )
    except RequestFailed:
        return None
    start = starts.get(f"{meta.namespace}/{meta.name}") if asked else None
    return reply if start is None or start.p50 is None else replace(reply, start=start)


async def _output(session: Session, workload: StoredWorkload) -> Output | None:
    """The last lines of its job; None: it has none, or the user may not read them."""
    where, meta = phase(workload, clock.now()), workload.metadata
    if where not in PRINTED or session.login.role not in READS_OUTPUT or is_array(workload):
        return None
    tails, why = await read_output(
        session.client, meta.namespace, meta.name, OUTPUT_LINES, seconds=OUTPUT_SECONDS
    )
    return output_of(meta.namespace, meta.name, tails, why, OUTPUT_LINES, follows=where in RUNS)


async def _elements(
    client: Client, workload: StoredWorkload, wanted: ElementsQuery
) -> Elements | None:
    """The elements of an array; None: it is none."""
    if not is_array(workload):
        return None
    names = elements.to_read(workload, wanted)
    namespace = workload.metadata.namespace
    found = await asyncio.gather(*(_phase_of(client, namespace, name) for name in names))
    phases = {name: where for name, where in zip(names, found, strict=True) if where}
    return elements.build(workload, wanted, phases)


async def _phase_of(client: Client, namespace: str, name: str) -> str:
    """The phase of an element; "": it does not exist."""
    try:
        stored = await client.get("workload", name, namespace=namespace)
    except NotFound:
        return ""
    return phase(stored.workload(), clock.now())


async def _dependents(
    client: Client, workload: StoredWorkload, chosen: Chosen
) -> Sequence[StoredWorkload] | None:
    if not chosen.dependents:
        return None
    listed = await client.list("workloads", namespace=workload.metadata.namespace)
    others = [stored.workload() for stored in listed if stored.is_workload()]
    return [other for other in others if depends_on(other, workload.metadata.uid)]


async def _approvals(client: Client, workload: StoredWorkload) -> tuple[str, ...]:
    """Its checks that wait for the verdict of a person."""
    waits = [row.name for row in workload.status.admission_checks if row.state == "Pending"]
    given = await asyncio.gather(*(_is_approval(client, check) for check in waits))
    return tuple(check for check, by_people in zip(waits, given, strict=True) if by_people)


async def _is_approval(client: Client, check: str) -> bool:
    """Whether people give the verdict of the check; False if the user may not read the check."""
    try:
        stored = await client.get("admissioncheck", check)
    except RequestFailed:
        return False
    manifest = stored.decoded(AdmissionCheck)
    return manifest is not None and manifest.spec.controller_name == APPROVAL_CONTROLLER
