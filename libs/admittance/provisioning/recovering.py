"""Requests whose records somebody else deleted while nobody led: what the log tells of them. Pure.

What was asked for and never taken back may be booked. The log has all of a request but for its
answers, and these are told anew by a provider who is asked again.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from admittance.api.kind_names import V1BETA2
from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningRequested,
)
from admittance.events.reading import number
from admittance.provisioning.making import API, KIND
from admittance.provisioning.picture import Name
from admittance.provisioning.records import Record, RecordSpec, request_name


class Recovering:
    """``names``: where records were deleted."""

    def __init__(self, names: Collection[Name]) -> None:
        self._names = names
        self._asked: dict[str, Record] = {}
        self._freed: set[str] = set()

    def hear(self, fact: ProvisioningFact, at: datetime) -> None:
        """The next fact of the log."""
        if isinstance(fact, ProvisioningCancelled):
            self._freed.add(fact.id)
        elif isinstance(fact, ProvisioningRequested) and fact.id not in self._asked:
            name = self._name(fact)
            if name is not None:
                self._asked[fact.id] = _record(fact, name, at)

    def found(self) -> list[Record]:
        """What was asked for and not taken back, oldest first, as it was before it was answered."""
        return [record for id, record in self._asked.items() if id not in self._freed]

    def _name(self, fact: ProvisioningRequested) -> str | None:
        for force_hash in (False, True):
            name = request_name(
                fact.name, fact.uid, fact.check, fact.attempt, force_hash=force_hash
            )
            if (fact.namespace, name) in self._names:
                return name
        return None


def _record(fact: ProvisioningRequested, name: str, at: datetime) -> Record:
    _, _, generation = fact.id.partition("~")
    return Record(
        api_version=API,
        kind=KIND,
        metadata=ObjectMeta(
            name=name,
            namespace=fact.namespace,
            generation=number(generation) or 1,
            creation_timestamp=at,
            owner_references=(
                OwnerReference(api_version=V1BETA2, kind="Workload", name=fact.name, uid=fact.uid),
            ),
        ),
        spec=RecordSpec(
            id=fact.id,
            workload=fact.name,
            uid=fact.uid,
            check=fact.check,
            cycle=fact.cycle,
            attempt=fact.attempt,
            provisioning_class_name=fact.provisioning_class,
            parameters=dict(fact.parameters),
            pod_sets=fact.pod_sets,
            deadline=fact.deadline,
        ),
    )
