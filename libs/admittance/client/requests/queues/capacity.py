"""Requests for capacity: those of workloads, and whether a provider answers for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from admittance.client import kinds
from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, lookup_all
from admittance.client.requests.workloads.families import Family, is_parent
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.requests.services import (
    CLASSES_ASKED_MAX,
    ProviderQuery,
    Providers,
    ProvidersReply,
)
from admittance.provisioning.records import Record, State
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable


def record_of(stored: BucketObject) -> Record | None:
    """Decodes a request for capacity; None if it cannot be read."""
    return stored.decoded(Record)


async def ask_provider(
    bus: Bus, provisioning_class: str, request_id: str, seconds: float
) -> bytes | None:
    """The reply of the provider of a class to a query about one of its requests; None if no
    provider replies in time."""
    subject = f"admit.api.provider.{token(provisioning_class)}"
    try:
        return await bus.request(subject, encode(ProviderQuery(id=request_id)), seconds)
    except (BusRefused, BusUnavailable):
        return None


async def answering(link: Link, classes: Iterable[str]) -> frozenset[str]:
    """The classes for which a provider answers. Raises RequestFailed, such as NotAllowed for logins
    of single namespaces."""
    names = sorted({*classes} - {""})
    there: set[str] = set()
    for start in range(0, len(names), CLASSES_ASKED_MAX):
        asked = Providers(classes=tuple(names[start : start + CLASSES_ASKED_MAX]))
        reply = await link.ask("providers", asked, ProvidersReply)
        if reply.error:
            raise RequestFailed(reply.error)
        there.update(reply.answering)
    return frozenset(there)


async def of_workloads(link: Link, namespace: str, workloads: Collection[str]) -> list[Record]:
    """The stored requests of these workloads, ordered by workload and check."""
    pattern = kinds.REQUEST.patterns(namespace)[0]
    records = [record_of(stored) for stored in await lookup_all(link, pattern)]
    own = [record for record in records if record is not None and record.spec.workload in workloads]
    return sorted(own, key=lambda record: (record.spec.workload, record.spec.check))


async def of_family(link: Link, workload: BucketObject, family: Family | None) -> list[Record]:
    """The requests of a workload; for a parent, of its variants."""
    names = {workload.name}
    if family is not None and is_parent(workload.workload()):
        names |= {variant.found.name for variant in family.variants}
    checks = bool(workload.workload().status.admission_checks)
    if len(names) == 1 and not checks:
        return []
    return await of_workloads(link, workload.namespace, names)


async def silent_classes(link: Link, records: Sequence[Record]) -> frozenset[str]:
    """Classes of unanswered requests for which no provider answers; empty if that is not known,
    since the login may not ask or the provisioning check does not answer."""
    waiting = {
        record.spec.provisioning_class_name
        for record in records
        if record.status.state is State.REQUESTED and not record.status.cancelled
    }
    try:
        return frozenset(waiting) - await answering(link, waiting)
    except RequestFailed:
        return frozenset()
