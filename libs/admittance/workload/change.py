"""The change that a fact makes to a workload: the new workload, its outbox entries, and the outcome
of the fact."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.workload.conditions import MESSAGE_MAX, put
from admittance.workload.stored import LogPosition, OutboxEntry, StoredWorkload


class FactOutcome(StrEnum):
    """The outcome of a fact for a workload."""

    APPLIED = "applied"
    IGNORED = "ignored"
    """The fact is late, repeated, or without effect, which is common."""
    REFUSED = "refused"
    """The fact is an invalid request."""


class Change(NamedTuple):
    """The result of `admittance.workload.transitions.transition`.

    ``workload`` None: the workload is deleted. With an outcome other than APPLIED the workload is
    unchanged and ``outbox`` is empty.
    """

    workload: StoredWorkload | None
    outbox: tuple[OutboxEntry, ...] = ()
    outcome: FactOutcome = FactOutcome.APPLIED
    reason: str = ""
    message: str = ""

    def after(self, *entries: OutboxEntry) -> Change:
        """Returns the change with the entries before its own outbox entries."""
        return self._replace(outbox=(*entries, *self.outbox))


def applied(workload: StoredWorkload, *outbox: OutboxEntry) -> Change:
    """Returns the result of a transition for a fact that took effect on the workload."""
    return Change(workload, outbox)


def ignored(workload: StoredWorkload | None, reason: str, message: str = "") -> Change:
    """Returns the change of a fact without effect. The workload stays as it is."""
    return Change(workload, (), FactOutcome.IGNORED, reason, message)


def refused(workload: StoredWorkload | None, reason: str, message: str) -> Change:
    """Returns the change of an invalid request. The workload stays as it is."""
    return Change(workload, (), FactOutcome.REFUSED, reason, message)


def check_note(reason: str, check: str, text: str) -> OutboxEntry:
    """Returns the note for users about an AdmissionCheck of the workload."""
    message = f'AdmissionCheck "{check}": {text}'[:MESSAGE_MAX]
    return OutboxEntry(what="noted", reason=reason, message=message, detail=check)


def with_status(workload: StoredWorkload, **fields: Any) -> StoredWorkload:
    """Returns the workload with some fields of its status replaced."""
    return replace(workload, status=replace(workload.status, **fields))


def with_condition(
    workload: StoredWorkload,
    kind: str,
    status: bool,
    reason: str,
    message: str = "",
    *,
    now: datetime,
) -> StoredWorkload:
    """Returns the workload with one condition set."""
    conditions = put(workload.status.conditions, kind, status, reason, message, now=now)
    return with_status(workload, conditions=conditions)


def with_log(
    workload: StoredWorkload, fact: int, outbox: tuple[OutboxEntry, ...]
) -> StoredWorkload:
    """The workload with its position on the log and its outbox."""
    released = tuple([entry for entry in outbox if entry.released is not None])
    says = tuple([entry for entry in outbox if entry.released is None]) if released else outbox
    return with_status(workload, log=LogPosition(fact=fact, says=says, released=released))


def with_spec(workload: StoredWorkload, **fields: Any) -> StoredWorkload:
    """The workload with fields of its spec (named as on the wire) replaced; a value of None removes
    a field.

    The function decodes and encodes the whole spec, so use it only for rare requests of users.
    """
    spec: dict[str, Any] = msgspec.json.decode(workload.spec)
    for name, value in fields.items():
        if value is None:
            spec.pop(name, None)
        else:
            spec[name] = value
    metadata = replace(workload.metadata, generation=workload.metadata.generation + 1)
    return replace(
        workload,
        spec=msgspec.Raw(msgspec.json.encode(spec)),
        metadata=metadata,
    )
