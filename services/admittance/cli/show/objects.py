"""Objects as stored in the bucket, and the fields that are added when an object is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from admittance.cli.support.errors import AnswerIsNo
from admittance.events.names import BadToken, plain, token
from admittance.events.reader import BROKEN
from admittance.events.requests import FlavorUsage, QueueStatus
from admittance.events.subjects import BUCKET, CAPACITY
from admittance.runtime.bus.bucket import get_directly
from admittance.runtime.errors import Refused, Unavailable
from admittance.workload.stored import StoredWorkload

if TYPE_CHECKING:
    from admittance.cli.support.kinds import Kind
    from admittance.cli.support.link import Link
    from admittance.provider_pool.bookings import Booking, MachineCounts

CHECK_CONDITIONS: Final = {
    "Pending": ("Unknown", "Pending"),
    "Ready": ("True", "Ready"),
    "Retry": ("False", "Retry"),
    "Rejected": ("False", "Reject"),
}
"""Maps the state of a check to status and reason of its condition. docs/spec/lifecycle.md#1.5."""


T = TypeVar("T")


class PoolUsage(NamedTuple):
    """How much of a MachinePool is booked. ``counts``: the numbers of all, booked and booting
    machines in the whole pool; None if the pool's manifest is invalid. ``kinds``: the same numbers
    by kind of machine.
    """

    counts: MachineCounts | None
    kinds: Mapping[str, MachineCounts]
    bookings: Sequence[Booking]


@dataclass(frozen=True)
class Found:
    """An object as read: its key in the bucket, its bytes, and their revision. ``pool_usage``: what
    is booked, if the object is a MachinePool and the caller has read its bookings.
    """

    key: str
    data: bytes
    revision: int
    pool_usage: PoolUsage | None = None

    @property
    def name(self) -> str:
        """The object's name, from the key, so that an object is listed even if its bytes cannot be
        read.
        """
        return _plain(self.key.split(".")[-1])

    @property
    def namespace(self) -> str:
        parts = self.key.split(".")
        return _plain(parts[1]) if len(parts) == 3 else ""

    def plain(self) -> dict[str, Any]:
        """The object as plain dicts and lists. Raises AnswerIsNo if it cannot be decoded."""
        try:
            value = msgspec.json.decode(self.data)
        except BROKEN as error:
            raise AnswerIsNo(f"{self.key} in the bucket is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise AnswerIsNo(f"{self.key} in the bucket is not an object")
        return value

    def decoded(self, kind: type[T]) -> T | None:
        """The object as a Struct; None if it cannot be decoded."""
        try:
            return msgspec.json.decode(self.data, type=kind)
        except BROKEN:
            return None

    @cached_property
    def _workload(self) -> StoredWorkload:
        from admittance.workload.bucket_reader import read

        return read(self.key, self.data)

    def workload(self) -> StoredWorkload:
        """The object as a workload, decoded once. Raises AnswerIsNo if it cannot be decoded."""
        try:
            return self._workload
        except BROKEN as error:
            raise AnswerIsNo(f"{self.key} in the bucket is not a workload: {error}") from None

    def is_readable(self) -> bool:
        """Whether the services can read the object."""
        kind = self.key.split(".")[0]
        try:
            if kind == "workload":
                return self.is_workload()
            if kind == CAPACITY:
                from admittance.provisioning.records import read_record

                read_record(self.key, self.data)
            else:
                from admittance.workload.bucket_reader import read_manifest

                read_manifest(self.key, self.data)
        except BROKEN:
            return False
        return True

    def is_workload(self) -> bool:
        """Whether the object can be read as a workload."""
        try:
            self.workload()
        except AnswerIsNo:
            return False
        return True

    def created(self) -> datetime | None:
        text = field(self.plain(), "metadata", "creationTimestamp")
        try:
            return msgspec.convert(text, datetime, strict=False) if text else None
        except msgspec.ValidationError:
            return None


async def lookup(bus: Link, key: str) -> Found | None:
    """The object under key in the bucket; None if it does not exist."""
    entry = await bus.get(key)
    return None if entry is None else Found(entry.key, entry.value or b"", entry.revision)


async def lookup_all(bus: Link, pattern: str) -> list[Found]:
    """All objects in the bucket with keys that match ``pattern``, sorted by key."""
    entries = await bus.read_all(pattern)
    return [Found(one.key, one.value or b"", one.revision) for one in entries]


def _plain(token: str) -> str:
    try:
        return plain(token)
    except BadToken:
        return token


def field(value: Mapping[str, Any], *path: str, default: Any = None) -> Any:
    """The value at path in nested dicts; default if a step of the path is missing or null."""
    here: Any = value
    for step in path:
        here = here.get(step) if isinstance(here, Mapping) else None
    return default if here is None else here


def conditions_of(value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """``status.conditions`` of any object."""
    found: Sequence[Mapping[str, Any]] = field(value, "status", "conditions", default=[])
    return found


def check_conditions(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of ``status.admissionChecks`` as conditions; the type of a condition is the check's
    name.

    For a check that waits for a preemption the reason is PreemptionRequired and the status Unknown.
    """
    conditions = []
    for row in rows:
        status, reason = CHECK_CONDITIONS.get(row.get("state", "Pending"), ("Unknown", "Pending"))
        if reason == "Pending" and row.get("reason") == "PreemptionRequired":
            reason = "PreemptionRequired"
        condition = {"type": row.get("name", ""), "status": status, "reason": reason}
        condition |= {
            key: row[key] for key in ("message", "lastTransitionTime") if row.get(key) is not None
        }
        conditions.append(condition)
    return conditions


def shown_object(found: Found) -> dict[str, Any]:
    """The stored object with defaults filled into its spec."""
    from admittance.api.manifests import complete
    from admittance.api.problems import ManifestError
    from admittance.api.reading.objects import decode_object

    value = found.plain()
    try:
        manifest = decode_object(value).manifest
    except ManifestError:
        return value  # The object was written by another program or version, and is shown as it is.
    if hasattr(manifest, "spec") and manifest.spec is not None:
        value["spec"] = complete(manifest.spec)
    return value


def shown_workload(found: Found) -> dict[str, Any]:
    """The stored workload with defaults filled in, and with ``status.admissionChecksConditions``,
    which is computed.
    """
    value = shown_object(found)
    status = value.setdefault("status", {})
    status["admissionChecksConditions"] = check_conditions(status.get("admissionChecks") or [])
    return value


def _usage(counted: QueueStatus, amount_of: Callable[[FlavorUsage], int]) -> list[dict[str, Any]]:
    from admittance.api.units import render

    by_flavor: dict[str, list[dict[str, str]]] = {}
    for usage in counted.usage:
        row = {"name": usage.resource, "total": render(usage.resource, amount_of(usage))}
        if usage.borrowed:
            row["borrowed"] = render(usage.resource, usage.borrowed)
        by_flavor.setdefault(usage.flavor, []).append(row)
    return [{"name": flavor, "resources": rows} for flavor, rows in by_flavor.items()]


def shown_queue(found: Found, counted: QueueStatus | None) -> dict[str, Any]:
    """The stored queue with its live counters in ``status``, in Kueue's spelling."""
    value = shown_object(found)
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
        "reason": counted.reason or "Ready",
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


NAMESPACES_MAX: Final = 5
"""The greatest number of namespaces that the error about a missing object names."""


async def not_found(bus: Link, kind: Kind, name: str) -> AnswerIsNo:
    """The error that the object does not exist in the namespace of the call. The error names the
    server, and other namespaces that have such an object, if the login may look into them."""
    where, hint = "", ""
    if kind.namespaced:
        where = f" in namespace {bus.call.namespace}"
        spaces = await _namespaces_with(bus, kind, name)
        several = len(spaces) > 1
        if spaces:
            names = f"namespace{'s' * several} {', '.join(spaces)}"
            hint = f"; {names} {'have' if several else 'has'} one: use -n {spaces[0]}"
    return AnswerIsNo(f'{kind.qualified} "{name}" not found{where} at {bus.call.shown_url}{hint}')


async def _namespaces_with(bus: Link, kind: Kind, name: str) -> list[str]:
    """The first namespaces that have an object of this kind and name; empty for a login that may
    not look into all namespaces."""
    prefix = f"$KV.{BUCKET}."
    request = {"subjects_filter": f"{prefix}{kind.key}.*.{token(name)}"}
    try:
        info = await bus.bus.api(f"STREAM.INFO.KV_{BUCKET}", request)
        # A deleted object has a delete marker at its key.
        keys = sorted(info["state"].get("subjects") or {})[: 2 * NAMESPACES_MAX]
        read = (get_directly(bus.bus, key.removeprefix(prefix)) for key in keys)
        found = await asyncio.gather(*read)
    except (Refused, Unavailable):
        return []
    there = [one.key for one in found if one is not None and one.value is not None]
    return [_plain(key.split(".")[1]) for key in there[:NAMESPACES_MAX]]
