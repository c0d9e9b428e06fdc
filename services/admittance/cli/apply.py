"""``admit apply`` and ``admit delete``: send manifests to the workload-controller.

Workloads and Jobs among the manifests are submitted after all other objects, such as queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from admittance.api.checks import Foreign
from admittance.api.reading.manifest import Document
from admittance.api.workload import Job, Workload
from admittance.cli import lifecycle
from admittance.cli.get import find
from admittance.cli.show.capacity_requests import record_of
from admittance.cli.show.objects import Found, lookup
from admittance.cli.submit import submission_of, submit_all
from admittance.cli.support import files, kinds, output
from admittance.cli.support.errors import AnswerIsNo, BadInput, CliError
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call
from admittance.events.requests import Apply, ApplyReply, Delete, DeleteReply
from admittance.provisioning.records import Record
from admittance.runtime import clock
from admittance.workload.check_rows import row_of

APPLY_SECONDS: Final = 30.0
FOREIGN: Final = " (foreign parameters)"
AT_ONCE_BYTES: Final = 700_000
AT_ONCE: Final = 500
"""Limits of one apply request, which is applied as a whole and must fit one message of the bus."""


async def apply(call: Call, paths: Sequence[str]) -> int:
    """Applies all manifests in paths and prints the outcome of each object, one line each."""
    documents = files.documents(paths, call.namespace)
    for document in documents:
        for warning in document.warnings:
            output.warn(f"{document.source}, {document.place}: {warning}")
    runs = [one for one in documents if isinstance(one.manifest, Workload | Job)]
    objects = [one for one in documents if not isinstance(one.manifest, Workload | Job)]
    submissions = [submission_of(one) for one in runs]
    async with link(call) as bus:
        foreign = [await _apply_part(bus, part) for part in _parts(objects)]
        if any(foreign):
            output.note(
                "objects of a foreign kind are stored unchanged, as parameters for checks and "
                "providers; Admittance itself does not use them"
            )
        return await submit_all(bus, submissions) if submissions else 0


def _parts(objects: Sequence[Document]) -> Iterator[list[Document]]:
    """Splits objects, in order, into parts that fit one request."""
    part: list[Document] = []
    size = 0
    for one in objects:
        length = len(one.raw)
        if part and (size + length > AT_ONCE_BYTES or len(part) == AT_ONCE):
            yield part
            part, size = [], 0
        part.append(one)
        size += length
    if part:
        yield part


async def _apply_part(bus: Link, part: Sequence[Document]) -> bool:
    """Applies one part and prints each outcome. Returns whether any object is of a foreign kind."""
    request = Apply(objects=tuple(msgspec.Raw(one.raw) for one in part))
    reply = await bus.ask("apply", request, ApplyReply, timeout=APPLY_SECONDS)
    if reply.problems:
        raise BadInput(*reply.problems)
    if reply.error:
        raise AnswerIsNo(reply.error)
    unknown = {_qualified(one) for one in part if _is_unknown(one)}
    foreign = False
    spelled = {_identity(one): _qualified(one) for one in part}
    for result in reply.results:
        kind = spelled.get((result.kind, result.namespace, result.name), result.kind.lower())
        is_unknown = kind in unknown and result.outcome != "unchanged"
        output.outcome(f"{kind}/{result.name}", result.outcome + (FOREIGN if is_unknown else ""))
        foreign = foreign or is_unknown
        for warning in result.warnings:
            output.warn(f"{kind}/{result.name}: {warning}")
    return foreign


def _identity(document: Document) -> tuple[str, str, str]:
    manifest = document.manifest
    return manifest.kind, manifest.metadata.namespace, manifest.metadata.name


def _is_unknown(document: Document) -> bool:
    """Whether the object's kind is of a foreign API group and `admit` has no table for the kind."""
    manifest = document.manifest
    if not isinstance(manifest, Foreign):
        return False
    return kinds.kind_of_manifest(manifest.kind, manifest.group) not in kinds.KINDS


def _qualified(document: Document) -> str:
    manifest = document.manifest
    group = manifest.group if isinstance(manifest, Foreign) else ""
    return kinds.kind_of_manifest(manifest.kind, group).qualified


async def delete(call: Call, targets: Sequence[tuple[kinds.Kind, str]]) -> int:
    """Deletes objects one by one and prints each outcome.

    The exit status is 1 if an object did not exist or is still needed; all other objects are
    deleted.
    """
    status = 0
    async with link(call) as bus:
        for kind, name in targets:
            try:
                if kind is kinds.WORKLOAD:
                    await lifecycle.delete(bus, name)
                elif kind is kinds.REQUEST:
                    await delete_request(bus, name)
                else:
                    await _delete_object(bus, kind, name)
            except CliError as error:
                if len(targets) == 1:
                    raise
                for line in error.lines:
                    output.error(line)
                status = max(status, error.status)
    return status


async def _delete_object(bus: Link, kind: kinds.Kind, name: str) -> None:
    found = await find(bus, kind, name)
    spelled = f"{kind.singular}.{kind.group}" if kind.is_foreign else kind.manifest
    request = Delete(kind=spelled, namespace=found.namespace, name=name)
    reply = await bus.ask("delete", request, DeleteReply)
    match reply.outcome:
        case "deleted":
            output.outcome(f"{kind.qualified}/{name}", "deleted")
        case "absent":
            raise AnswerIsNo(f'{kind.qualified} "{name}" not found')
        case "deferred":
            output.outcome(f"{kind.qualified}/{name}", "deleting")
            output.note(f"{name} is deleted as soon as no object needs it: {reply.error}")
        case other:
            raise AnswerIsNo(reply.error or f'{kind.qualified} "{name}": {other or "no answer"}')


def targets_of(typed: str, names: Sequence[str]) -> list[tuple[kinds.Kind, str]]:
    """``KIND NAME…`` or ``KIND/NAME…`` as kinds and names. Raises BadInput."""
    if "/" in typed:
        words = [typed, *names]
        found = []
        for word in words:
            kind, name = kinds.target(word, None)
            if name is None:
                raise BadInput(f'"{word}" is not an object; write kind/name')
            found.append((kind, name))
        return found
    kind = kinds.kind_named(typed)
    if not names:
        raise BadInput(f"which {kind.singular}? the name is missing")
    return [(kind, name) for name in names]


LATER: Final = (
    "the provisioning-check cancels it once it runs; `admit doctor` shows whether it runs"
)
PATIENCE_SECONDS: Final = 3.0
PAUSE_SECONDS: Final = 0.05


async def delete_request(bus: Link, name: str) -> None:
    """Deletes a ProvisioningRequest and prints the outcome. Raises AnswerIsNo."""
    found = await find(bus, kinds.REQUEST, name)
    before = record_of(found)
    request = Delete(kind=kinds.REQUEST.manifest, namespace=found.namespace, name=name)
    reply = await bus.ask("delete", request, DeleteReply)
    subject = f"{kinds.REQUEST.qualified}/{name}"
    if reply.outcome == "absent":
        raise AnswerIsNo(f'{kinds.REQUEST.qualified} "{name}" not found')
    if reply.outcome not in ("deleted", "deferred"):
        raise AnswerIsNo(reply.error or f"{subject}: {reply.outcome or 'no answer'}")
    if reply.outcome == "deferred" and not await _is_gone(bus, found, before):
        output.outcome(subject, "deleting")
        output.note(LATER)
        return
    output.outcome(subject, "deleted")
    if before is not None:
        output.note(await _what_follows(bus, before))


async def _is_gone(bus: Link, found: Found, before: Record | None) -> bool:
    """Whether the ProvisioningRequest was deleted or replaced within a few seconds."""
    until = clock.monotonic() + PATIENCE_SECONDS
    while clock.monotonic() < until:
        present = await lookup(bus, found.key)
        if present is None:
            return True
        now = record_of(present)
        if now is not None and before is not None and now.spec.id != before.spec.id:
            return True
        await asyncio.sleep(PAUSE_SECONDS)
    return False


async def _what_follows(bus: Link, record: Record) -> str:
    spec = record.spec
    key = kinds.WORKLOAD.object_key(record.metadata.namespace, spec.workload)
    found = await lookup(bus, key)
    workload = found.workload() if found is not None and found.is_workload() else None
    row = None if workload is None else row_of(workload.status.admission_checks, spec.check)
    freed = "its provider frees the capacity"
    if workload is None or row is None or workload.metadata.uid != spec.uid:
        return freed
    if row.state == "Ready":
        return (
            f"{freed} and gets no new request: {spec.workload} runs on without it; "
            f"`admit stop workload {spec.workload}` stops it"
        )
    if row.state == "Pending" and workload.status.admission is not None:
        return f"{freed}; {spec.workload} still waits and makes a new request in the same attempt"
    return freed
