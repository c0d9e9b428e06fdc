"""When a workload releases quota, and what the fact about it says."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.events import reasons
from admittance.workload.conditions import Type, find, find_true, is_true
from admittance.workload.phase import holds_quota
from admittance.workload.stored import PARENT, OutboxEntry, ReleasedQuota, StoredWorkload, head

QUOTA_RELEASED: Final = "quota_released"


def with_release(
    outbox: tuple[OutboxEntry, ...],
    before: StoredWorkload | None,
    after: StoredWorkload | None,
    now: datetime,
) -> tuple[OutboxEntry, ...]:
    """Returns the outbox of a change, with an entry about the quota that the change releases. The
    quota of a parent is that of its variants. ``after`` None: the change deletes the workload."""
    if before is None or not holds_quota(before) or (after is not None and holds_quota(after)):
        return outbox
    if head(before).role == PARENT:
        return outbox
    since = reserved_at(before) or now
    keeps_admission = after is None or after.status.admission is not None
    released = ReleasedQuota(
        since=since,
        until=max(since, now),
        admission=None if keeps_admission else before.status.admission,
        revision=before.status.admitted_revision if is_true(before, Type.ADMITTED) else 0,
        machines=tuple(dict.fromkeys(part.runner for part in before.status.placement)),
    )
    entry = OutboxEntry(what=QUOTA_RELEASED, reason=_reason(after), released=released)
    return (*outbox, entry)


def reserved_at(workload: StoredWorkload) -> datetime | None:
    """When the present reservation of quota began; None: that is not known."""
    reserved = find(workload, Type.QUOTA_RESERVED)
    return reserved.last_transition_time if reserved is not None else None


def seconds_waited(workload: StoredWorkload, now: datetime) -> int:
    """The whole seconds for which a workload without quota has waited for it: since its submission,
    or since it lost its last quota."""
    since = reserved_at(workload) or workload.metadata.creation_timestamp or now
    return max(0, int((now - since).total_seconds()))


def _reason(after: StoredWorkload | None) -> str:
    if after is None:
        return reasons.DELETED
    for kind in (Type.FINISHED, Type.EVICTED):
        if (condition := find_true(after, kind)) is not None:
            return condition.reason
    reserved = find(after, Type.QUOTA_RESERVED)
    return reserved.reason if reserved is not None else ""
