"""Requests for capacity: those of workloads, and whether a provider answers for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from admittance.client import kinds
from admittance.client.requests.families import Family, is_parent
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, lookup_all
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.requests import ProviderQuery
from admittance.provisioning.records import Record, State
from admittance.runtime.errors import Refused, Unavailable

ANSWER_SECONDS: Final = 1.0


def record_of(found: BucketObject) -> Record | None:
    """Decodes a request for capacity; None if it cannot be read."""
    return found.decoded(Record)


async def is_provider_answering(bus: Link, provisioning_class: str) -> bool:
    """Whether a provider answers queries about requests of this class; none has an empty name."""
    if not provisioning_class:
        return False
    question = encode(ProviderQuery(id="is a provider there"))
    try:
        await bus.bus.request(
            f"admit.api.provider.{token(provisioning_class)}", question, ANSWER_SECONDS
        )
    except (Refused, Unavailable):
        return False
    return True


async def of_workloads(bus: Link, namespace: str, workloads: Collection[str]) -> list[Record]:
    """The stored requests of these workloads, ordered by workload and check."""
    pattern = kinds.REQUEST.patterns(namespace)[0]
    records = [record_of(found) for found in await lookup_all(bus, pattern)]
    own = [one for one in records if one is not None and one.spec.workload in workloads]
    return sorted(own, key=lambda one: (one.spec.workload, one.spec.check))


async def of_family(bus: Link, found: BucketObject, family: Family | None) -> list[Record]:
    """The requests of a workload; for a parent, of its variants."""
    names = {found.name}
    if family is not None and is_parent(found.workload()):
        names |= {one.found.name for one in family.variants}
    checks = bool(found.workload().status.admission_checks)
    if len(names) == 1 and not checks:
        return []
    return await of_workloads(bus, found.namespace, names)


async def silent_classes(bus: Link, records: Sequence[Record]) -> frozenset[str]:
    """Classes of unanswered requests for which no provider answers."""
    waiting = {
        one.spec.provisioning_class_name
        for one in records
        if one.status.state is State.REQUESTED and not one.status.cancelled
    }
    return frozenset([one for one in sorted(waiting) if not await is_provider_answering(bus, one)])
