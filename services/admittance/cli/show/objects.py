"""Fields that are added when an object is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from admittance.client.requests.objects import BucketObject
from admittance.events import reasons
from admittance.events.requests.queues import FlavorUsage, QueueStatus

CHECK_CONDITIONS: Final = {
    "Pending": ("Unknown", "Pending"),
    "Ready": ("True", "Ready"),
    "Retry": ("False", "Retry"),
    "Rejected": ("False", "Reject"),
}
"""Maps the state of a check to status and reason of its condition. docs/spec/lifecycle.md#1.5."""


def check_conditions(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of ``status.admissionChecks`` as conditions; the type of a condition is the check's
    name.

    For a check that waits for a preemption the reason is PreemptionRequired and the status Unknown.
    """
    conditions = []
    for row in rows:
        status, reason = CHECK_CONDITIONS.get(row.get("state", "Pending"), ("Unknown", "Pending"))
        if reason == reasons.PENDING and row.get("reason") == reasons.PREEMPTION_REQUIRED:
            reason = reasons.PREEMPTION_REQUIRED
        condition = {"type": row.get("name", ""), "status": status, "reason": reason}
        condition |= {
            key: row[key] for key in ("message", "lastTransitionTime") if row.get(key) is not None
        }
        conditions.append(condition)
    return conditions


def shown_object(stored: BucketObject) -> dict[str, Any]:
    """The stored object with defaults filled into its spec."""
    from admittance.api.fields.problems import ManifestError
    from admittance.api.manifests import complete
    from admittance.api.reading.objects import decode_object

    value = stored.plain()
    try:
        manifest = decode_object(value).manifest
    except ManifestError:
        return value  # The object was written by another program or version, and is shown as it is.
    if hasattr(manifest, "spec") and manifest.spec is not None:
        value["spec"] = complete(manifest.spec)
    return value


def shown_workload(stored: BucketObject) -> dict[str, Any]:
    """The stored workload with defaults filled in, and with ``status.admissionChecksConditions``,
    which is computed.
    """
    value = shown_object(stored)
    status = value.setdefault("status", {})
    status["admissionChecksConditions"] = check_conditions(status.get("admissionChecks") or [])
    return value


def _usage(counted: QueueStatus, amount_of: Callable[[FlavorUsage], int]) -> list[dict[str, Any]]:
    from admittance.api.fields.units import render

    by_flavor: dict[str, list[dict[str, str]]] = {}
    for usage in counted.usage:
        row = {"name": usage.resource, "total": render(usage.resource, amount_of(usage))}
        if usage.borrowed:
            row["borrowed"] = render(usage.resource, usage.borrowed)
        by_flavor.setdefault(usage.flavor, []).append(row)
    return [{"name": flavor, "resources": rows} for flavor, rows in by_flavor.items()]


def shown_queue(stored: BucketObject, counted: QueueStatus | None) -> dict[str, Any]:
    """The stored queue with its live counters in ``status``, in Kueue's spelling."""
    value = shown_object(stored)
    if counted is None:
        return value
    status = {**(value.get("status") or {})}
    status["pendingWorkloads"] = counted.pending
    status["reservingWorkloads"] = counted.reserving
    status["admittedWorkloads"] = counted.admitted
    status["flavorsReservation"] = _usage(counted, lambda usage: usage.reserved)
    status["flavorsUsage"] = _usage(counted, lambda usage: usage.admitted)
    active = {
        "type": "Active",
        "status": "True" if counted.active else "False",
        "reason": counted.reason or reasons.READY,
        "message": counted.message,
    }
    sharing = {**(status.get("fairSharing") or {})}
    if counted.weighted_share is not None:
        sharing["weightedShare"] = counted.weighted_share
    if counted.used is not None:
        sharing["admissionFairSharingStatus"] = msgspec.to_builtins(counted.used.consumed)
    if sharing:
        status["fairSharing"] = sharing
    others = [c for c in status.get("conditions") or [] if c.get("type") != "Active"]
    status["conditions"] = [*others, active]
    value["status"] = status
    return value
