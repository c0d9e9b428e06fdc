"""Requests for capacity, and pools of machines, as the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from admittance.cli.objects import Found
from admittance.cli.spans import age
from admittance.provisioning.records import Record

UNKNOWN = "?"
NOTHING = "-"


def record_of(found: Found) -> Record | None:
    """The object as a request; None: it is none that we can read."""
    try:
        return msgspec.json.decode(found.data, type=Record)
    except msgspec.MsgspecError:
        return None


def state_of(record: Record) -> str:
    """Where it stands, in a word."""
    if record.status.cancelled:
        return "Cancelled"
    return "Deleting" if record.metadata.deletion_timestamp else str(record.status.state)


def row(found: Found, now: datetime, _counters: object) -> tuple[str, ...]:
    """A request in a table."""
    record = record_of(found)
    if record is None:
        return (found.name, *(UNKNOWN,) * 7)
    spec = record.spec
    return (
        found.name,
        spec.workload,
        spec.check,
        spec.provisioning_class_name,
        str(spec.attempt),
        state_of(record),
        age(record.metadata.creation_timestamp, now),
        record.status.message or NOTHING,
        spec.id,
    )


def pool_row(found: Found, _now: datetime, _counters: object) -> tuple[str, ...]:
    """A MachinePool in a table."""
    plain: Mapping[str, Any] = found.plain()
    spec = plain.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    machines = [one for one in spec.get("machines") or () if isinstance(one, Mapping)]
    counts = [one.get("count", 1) for one in machines]
    kept = spec.get("bookingSeconds")
    return (
        found.name,
        str(spec.get("provisioningClassName", NOTHING)),
        str(sum(count for count in counts if isinstance(count, int))),
        ",".join(f"{one.get('name', '?')}={one.get('count', 1)}" for one in machines) or NOTHING,
        f"{kept} s" if kept else "until freed",
    )
