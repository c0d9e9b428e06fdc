"""Requests for capacity: those of workloads, and whether a provider answers for them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from admittance.client import kinds
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, lookup_all
from admittance.client.requests.workloads.families import Family, is_parent
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.requests.services import ProviderQuery
from admittance.provisioning.records import Record, State
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable

ANSWER_SECONDS: Final = 1.0


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


async def is_provider_answering(link: Link, provisioning_class: str) -> bool:
    """Whether a provider answers queries about requests of this class; none has an empty name."""
    if not provisioning_class:
        return False
    about = "is a provider there"
    return await ask_provider(link.bus, provisioning_class, about, ANSWER_SECONDS) is not None


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
    """Classes of unanswered requests for which no provider answers."""
    waiting = {
        record.spec.provisioning_class_name
        for record in records
        if record.status.state is State.REQUESTED and not record.status.cancelled
    }
    return frozenset(
        [name for name in sorted(waiting) if not await is_provider_answering(link, name)]
    )


async def answering(link: Link, classes: Sequence[str]) -> frozenset[str]:
    """The classes for which a provider answers. All are asked at once."""
    names = [*dict.fromkeys(classes)]
    answers = await asyncio.gather(*(is_provider_answering(link, name) for name in names))
    return frozenset(name for name, there in zip(names, answers, strict=True) if there)
