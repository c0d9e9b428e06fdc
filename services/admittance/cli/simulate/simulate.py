"""``admit simulate``: what would start, wait, or be evicted if manifests were applied now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from admittance.api.reading.manifest import Document, encode
from admittance.api.workload import Job, Workload
from admittance.cli.get import find
from admittance.cli.simulate.report import tell
from admittance.cli.submit.submit import submission_of
from admittance.cli.support import files, kinds, output
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call, Output
from admittance.events.applying import Applied, Delete
from admittance.events.whatif import Simulate, SimulateReply
from admittance.whatif.simulate import joined

SECONDS: Final = 130.0
"""A little more than the scheduler gives itself."""
ROWS: Final = 20
ALL: Final = 0


async def simulate(
    call: Call, paths: Sequence[str], deletes: Sequence[str], limit: int | None
) -> int:
    """Prints what would follow. The status is 1 when a workload would be refused.

    Raises BadInput for what `apply` would not take, AnswerIsNo for what `delete` would not.
    """
    targets = [kinds.target(word, None) for word in deletes]
    for word, (_, name) in zip(deletes, targets, strict=True):
        if name is None:
            raise BadInput(f'--delete "{word}" names no object; write kind/name')
    if not paths and not targets:
        raise BadInput("nothing to try: name manifests with -f, or an object with --delete")
    objects = _objects(files.documents(paths, call.namespace)) if paths else ()
    whole = call.output in (Output.JSON, Output.YAML)
    most = limit if limit is not None else ALL if whole else ROWS
    async with link(call) as bus:
        request = Simulate(
            objects=objects,
            deletes=tuple([await _delete(bus, kind, name or "") for kind, name in targets]),
            limit=most,
        )
        parts = await bus.ask_at_length("simulate", request, SimulateReply, timeout=SECONDS)
    reply = joined(parts)
    if reply.problems:
        raise BadInput(*reply.problems)
    if reply.error:
        raise AnswerIsNo(reply.error)
    for one in reply.results:
        _complain(one)
    for warning in reply.warnings:
        output.warn(warning)
    match call.output:
        case Output.JSON:
            output.show_json(shown(reply))
        case Output.YAML:
            output.show_yaml(shown(reply))
        case _:
            tell(reply, wide=call.output is Output.WIDE)
    return int(any(one.outcome == "refused" for one in reply.results))


def _objects(documents: Sequence[Document]) -> tuple[msgspec.Raw, ...]:
    """In the order in which `apply` does them: the queues first, then who waits in them."""
    for document in documents:
        for warning in document.warnings:
            output.warn(f"{document.source}, {document.place}: {warning}")
    runs = [one for one in documents if isinstance(one.manifest, Workload | Job)]
    objects = [one.raw for one in documents if not isinstance(one.manifest, Workload | Job)]
    submissions = [encode(submission_of(one).workload) for one in runs]
    return tuple(msgspec.Raw(raw) for raw in (*objects, *submissions))


async def _delete(bus: Link, kind: kinds.Kind, name: str) -> Delete:
    found = await find(bus, kind, name)
    spelled = f"{kind.singular}.{kind.group}" if kind.is_foreign else kind.manifest
    return Delete(kind=spelled, namespace=found.namespace, name=name)


def shown(reply: SimulateReply) -> dict[str, Any]:
    """The reply as programs get it: every list and number is there, also where it is empty."""
    return {
        "revision": reply.revision,
        "settled": reply.settled,
        "counts": msgspec.structs.asdict(reply.counts),
        "results": reply.results,
        "warnings": reply.warnings,
        "evictions": reply.evictions,
        "starts": reply.starts,
        "waits": reply.waits,
    }


def _complain(one: Applied) -> None:
    about = f"{one.kind.lower()}/{one.name}"
    for line in one.warnings:
        if one.outcome == "refused":
            output.error(f"{about} would be refused: {line}")
        else:
            output.warn(f"{about}: {line}")
