"""Requests for capacity as the rows of a table."""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.cli.show.objects import Found
from admittance.cli.support.times import age
from admittance.events.reading import BROKEN
from admittance.provisioning.records import Record

UNKNOWN = "?"
NOTHING = "-"


def record_of(found: Found) -> Record | None:
    """The object as a request; None: it is none that we can read."""
    try:
        return msgspec.json.decode(found.data, type=Record)
    except BROKEN:
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
