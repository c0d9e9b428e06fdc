"""Builds the record of a new request: id, name, content and deadline; and rebuilds deleted records
from the log. Pure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.kinds import V1BETA2
from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.api.problems import shown
from admittance.api.workload import CheckState
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningRequested,
)
from admittance.events.reader import number
from admittance.events.shapes import PodSetToProvision
from admittance.provisioning.observed_state import Name, ObservedState, StoredRecord
from admittance.provisioning.records import Record, RecordSpec, request_id, request_name, with_note
from admittance.provisioning.request_content import parameters_of
from admittance.provisioning.steps import Memory, Slot
from admittance.workload.stored import StoredWorkload

API: Final = "autoscaling.x-k8s.io/v1"
KIND: Final = "ProvisioningRequest"
VALID_UNTIL: Final = "ValidUntilSeconds"
"""Parameter: seconds until the request fails if the provider has not answered."""


class RecordBuilder:
    """``patience``: the provider's time limit if the parameters set none; None: no limit."""

    def __init__(self, observed: ObservedState, memory: Memory, patience: timedelta | None) -> None:
        self._observed = observed
        self._memory = memory
        self._patience = patience

    def record(
        self,
        slot: Slot,
        work: StoredWorkload,
        row: CheckState,
        before: StoredRecord | None,
        config: ProvisioningRequestConfigSpec,
        wanted: tuple[PodSetToProvision, ...],
        now: datetime,
    ) -> Record:
        """A request for the workload's current reservation. ``before``: the cancelled request that
        it replaces."""
        meta, cycle, attempt = work.metadata, work.status.admission_cycle, row.retry_count + 1
        identity = request_id(meta.uid, slot.check, cycle, attempt)
        name = request_name(meta.name, meta.uid, slot.check, attempt)
        generation = self._generation(slot, meta.uid, cycle, before, name)
        if generation > 1 and before is not None:
            name = before.record.metadata.name
        elif self._observed.taken.get((slot.namespace, name), slot) != slot:
            name = request_name(meta.name, meta.uid, slot.check, attempt, force_hash=True)
        parameters = parameters_of(config, meta.annotations)
        deadline, note = self._deadline(parameters, now)
        record = Record(
            api_version=API,
            kind=KIND,
            metadata=ObjectMeta(
                name=name,
                namespace=slot.namespace,
                generation=generation,
                creation_timestamp=now,
                owner_references=(
                    OwnerReference(
                        api_version=work.api_version, kind="Workload", name=meta.name, uid=meta.uid
                    ),
                ),
            ),
            spec=RecordSpec(
                id=identity if generation == 1 else f"{identity}~{generation}",
                workload=meta.name,
                uid=meta.uid,
                check=slot.check,
                cycle=cycle,
                attempt=attempt,
                provisioning_class_name=config.provisioning_class_name,
                parameters=parameters,
                pod_sets=wanted,
                deadline=deadline,
            ),
        )
        return with_note(record, note, now) if note else record

    def _generation(
        self, slot: Slot, uid: str, cycle: int, before: StoredRecord | None, name: str
    ) -> int:
        """In place of one that was taken back in the same cycle it is another request."""
        past = self._memory.past.get(slot)
        if before is not None and before.record.spec.cycle == cycle:
            return before.record.metadata.generation + 1
        if past is not None:
            return past.generation + 1 if (past.uid, past.cycle) == (uid, cycle) else 1
        # An unknown earlier request may exist: none of its ids is used
        # again.
        return self._observed.expected(slot, name) or 1

    def _deadline(self, parameters: dict[str, str], now: datetime) -> tuple[datetime | None, str]:
        """Until when, and why that is not as the parameter says ("": it is)."""
        written = parameters.get(VALID_UNTIL)
        patience, note = self._patience, ""
        if written is not None:
            # Python refuses to parse numbers with very many digits.
            if written.isascii() and written.isdecimal() and (seconds := int(written[:1000])):
                patience = _seconds(seconds)
            else:
                holds = f"{patience.total_seconds():g} s" if patience is not None else "none"
                told = f"the parameter {VALID_UNTIL} must be a positive integer, not"
                note = f"{told} {shown(written)}: the default holds, {holds}"
        try:
            return (now + patience if patience is not None else None), note
        except OverflowError:
            return None, note


def _seconds(number: int) -> timedelta:
    try:
        return timedelta(seconds=number)
    except OverflowError:
        return timedelta.max


class DeletedRequestRecovery:
    """Rebuilds requests from the log after their records were deleted by hand without an active
    leader.

    A request that was sent and never cancelled may hold capacity. The log has all of a request but
    its answers; a provider repeats them when the request is sent again. ``names``: namespace and
    name of the deleted records."""

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
        """The requests that were sent and not cancelled, oldest first, without their answers."""
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
