"""Requests for capacity: one row of a table, and whether a provider answers for a class."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from admittance.cli.show.objects import Found
from admittance.cli.support.link import Link
from admittance.cli.support.times import age
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.reading import BROKEN
from admittance.events.requests import ProviderQuery
from admittance.provisioning.records import Record
from admittance.runtime.errors import Refused, Unavailable

UNKNOWN = "?"
NOTHING = "-"
ANSWER_SECONDS: Final = 1.0


def record_of(found: Found) -> Record | None:
    """Decodes a request for capacity; None if it cannot be read."""
    try:
        return msgspec.json.decode(found.data, type=Record)
    except BROKEN:
        return None


def state_of(record: Record) -> str:
    """The state of a request in one word."""
    if record.status.cancelled:
        return "Cancelled"
    return "Deleting" if record.metadata.deletion_timestamp else str(record.status.state)


def row(found: Found, now: datetime, _counters: object) -> tuple[str, ...]:
    """One row of the table."""
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


async def is_provider_answering(bus: Link, provisioning_class: str) -> bool:
    """Whether a provider answers queries about requests of this class."""
    question = encode(ProviderQuery(id="is anybody there"))
    try:
        await bus.bus.request(
            f"admit.api.provider.{token(provisioning_class)}", question, ANSWER_SECONDS
        )
    except (Refused, Unavailable):
        return False
    return True
