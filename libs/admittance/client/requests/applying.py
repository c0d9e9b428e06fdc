"""Applies, deletes and simulates objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from admittance.api.reading.manifest import Document
from admittance.api.reading.objects import encode
from admittance.api.workload import Job, Workload
from admittance.client import kinds
from admittance.client.errors import BadInput, NotFound, Refused
from admittance.client.kinds import ObjectKind
from admittance.client.requests.errands import errand
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, find, follow
from admittance.client.requests.submissions import submitting, warnings
from admittance.client.requests.submissions.manifests import Manifests, documents_of, parted
from admittance.client.requests.workloads import changes
from admittance.client.requests.workloads.families import refuse_variant
from admittance.events import facts
from admittance.events.requests.manifests import Applied, Apply, ApplyReply, Delete, DeleteReply
from admittance.events.requests.whatif import (
    Simulate,
    SimulateReply,
    WorkloadChange,
    joined_reply,
)

T = TypeVar("T")

APPLY_SECONDS: Final = 30.0
AT_ONCE_BYTES: Final = 700_000
AT_ONCE: Final = 500
"""The greatest number of objects in one apply request. The request is applied as a whole, and must
fit into one message of the bus.
"""
GONE_SECONDS: Final = 10.0
"""How long a deletion waits for the job of a workload to stop."""


def parts(objects: Iterable[T], sizes: Iterable[int]) -> Iterator[list[T]]:
    """Splits objects, in order, into parts that fit one request. ``sizes``: their bytes."""
    part: list[T] = []
    size = 0
    for item, length in zip(objects, sizes, strict=True):
        if part and (size + length > AT_ONCE_BYTES or len(part) == AT_ONCE):
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part


async def apply(
    link: Link, objects: Sequence[bytes], expected: Sequence[int | None] = ()
) -> ApplyReply:
    """Applies manifests as JSON that fit one request, all or none. ``expected``: as `Apply` has it.
    Raises BadInput and Refused."""
    request = Apply(objects=tuple(map(msgspec.Raw, objects)), expected=tuple(expected))
    reply = await link.ask("apply", request, ApplyReply, timeout=APPLY_SECONDS)
    if reply.problems:
        raise BadInput(*reply.problems)
    if reply.error:
        raise Refused(reply.error)
    return reply


async def apply_all(
    link: Link, given: Manifests, namespace: str, expected: Sequence[int | None] = ()
) -> list[Applied]:
    """Applies the manifests, and then submits the workloads among them. ``expected``: for each
    manifest, as `Apply` has it; None for workloads. Returns the outcome of each object."""
    documents = documents_of(given, namespace)
    others, runs = parted(documents)
    revisions = _revisions_of(documents, expected)
    applied: list[Applied] = []
    for part in parts(zip(others, revisions, strict=True), map(len, others)):
        of_part = [revision for _, revision in part]
        wanted = of_part if expected else ()
        applied += (await apply(link, [manifest for manifest, _ in part], wanted)).results
    for workload, told in runs:
        created = await submitting.submit(link, workload)
        applied.append(
            Applied(
                kind=workload.kind,
                namespace=workload.metadata.namespace,
                name=workload.metadata.name,
                outcome="created" if created else "unchanged",
                warnings=(*told, *await warnings.about(link, workload)),
            )
        )
    return applied


def _revisions_of(
    documents: Sequence[Document], expected: Sequence[int | None]
) -> list[int | None]:
    """The expected revisions of the documents that are no workloads. Raises BadInput."""
    if expected and len(expected) != len(documents):
        raise BadInput(
            f"expected has {len(expected)} revisions for {len(documents)} manifests: give one for "
            "each"
        )
    revisions: list[int | None] = []
    for document, revision in zip(documents, expected or [None] * len(documents), strict=True):
        if not isinstance(document.manifest, Workload | Job):
            revisions.append(revision)
        elif revision is not None:
            raise BadInput("expected: a workload is submitted, and has no expected revision")
    return revisions


def spelled(kind: ObjectKind) -> str:
    """The kind as requests to the workload-controller name it."""
    return f"{kind.singular}.{kind.group}" if kind.is_foreign else kind.manifest


async def deletion(link: Link, kind: ObjectKind, name: str, namespace: str = "") -> Delete:
    """The request to delete an existing object. Raises NotFound."""
    stored = await find(link, kind, name, namespace)
    return Delete(kind=spelled(kind), namespace=stored.namespace, name=name)


async def delete_object(
    link: Link, kind: ObjectKind, name: str, namespace: str = ""
) -> DeleteReply:
    """Deletes an object other than a workload: the outcome is deleted or deferred. Raises NotFound,
    and Refused if the object is kept."""
    request = await deletion(link, kind, name, namespace)
    reply = await link.ask("delete", request, DeleteReply)
    if reply.outcome == "absent":
        raise NotFound(f'{kind.qualified} "{name}" not found')
    if reply.outcome not in ("deleted", "deferred"):
        raise Refused(
            reply.error
            or f'{kind.qualified} "{name}" was not deleted: {reply.outcome or "no answer"}'
        )
    return reply


async def delete_workload(
    link: Link, workload: BucketObject, instead: str = 'workload "{}"'
) -> DeleteReply:
    """Deletes a workload, and waits up to `GONE_SECONDS` for its job to stop: the outcome is
    deleted, or deferred while the job stops. Raises Refused."""
    refuse_variant(workload, instead)
    await changes.outcome_of(link, changes.fact_about(workload, facts.Deleted))
    uid = workload.workload().metadata.uid
    try:
        async with asyncio.timeout(GONE_SECONDS):
            async for seen in follow(link, workload.namespace, workload.name):
                if seen is None or seen.workload().metadata.uid != uid:
                    break
    except TimeoutError:
        return DeleteReply(outcome="deferred")
    return DeleteReply(outcome="deleted")


# What-if. -------------------------------------------------------------------------------


async def simulate(link: Link, request: Simulate, namespace: str = "") -> SimulateReply:
    """What would happen: about all namespaces, or, for a user that may use only some namespaces,
    about the namespace. A reply with ``problems`` or ``error`` is returned as it is."""
    return joined_reply(await errand(link, "simulate", request, SimulateReply, namespace))


def workload_changes(
    given: Iterable[Mapping[str, Any]], namespace: str
) -> tuple[WorkloadChange, ...]:
    """Reads changes of workloads; those without a namespace are in ``namespace``. Raises
    BadInput."""
    read = []
    for number, change in enumerate(given, 1):
        known = {"namespace": namespace, **change}
        if unknown := sorted(set(known) - set(WorkloadChange.__struct_fields__)):
            raise BadInput(f"changes: number {number} has no field {unknown[0]}")
        try:
            read.append(msgspec.convert(known, WorkloadChange))
        except msgspec.ValidationError as error:
            raise BadInput(f"changes: number {number}: {error}") from None
    return tuple(read)


async def what_if(
    link: Link,
    given: Manifests,
    deletes: Iterable[str],
    limit: int,
    namespace: str,
    changes: Iterable[WorkloadChange] = (),
) -> SimulateReply:
    """What would happen if the manifests were applied, the workloads changed, and then the objects
    ``kind/name`` deleted. Raises BadInput with the problems of the manifests, and Refused if
    nothing was simulated."""
    targets = [kinds.object_named(word, "deletes:") for word in deletes]
    others, runs = parted(documents_of(given, namespace))
    gone = [await deletion(link, kind, name, namespace) for kind, name in targets]
    raws = tuple(msgspec.Raw(raw) for raw in (*others, *(encode(run.workload) for run in runs)))
    request = Simulate(objects=raws, deletes=tuple(gone), changes=tuple(changes), limit=limit)
    reply = await simulate(link, request, namespace)
    if reply.problems:
        raise BadInput(*reply.problems)
    if reply.error:
        raise Refused(reply.error)
    return reply
