"""Deletes requests for capacity: marks them, and the provisioning check does the rest.

What was asked for may be booked, and it is the check that knows of whom: it takes the request back
first, and the record goes when the provider was told. So nothing is lost whoever dies meanwhile.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import structlog
from msgspec.structs import replace

from admittance.events.applying import DeleteReply
from admittance.events.codec import encode
from admittance.events.reading import Unreadable
from admittance.events.subjects import CAPACITY, object_key
from admittance.provisioning.records import read_record
from admittance.runtime import bucket
from admittance.runtime.bus import Bus
from admittance.runtime.errors import StaleRevision

KINDS: Final = frozenset({CAPACITY, f"{CAPACITY}.autoscaling.x-k8s.io"})
"""How the kind of a request is spelled, in small letters."""
TIMES: Final = 10
"""The check writes records too."""
TAKEN_BACK: Final = "provisioning-check takes it back first"

log = structlog.get_logger()


async def delete_request(bus: Bus, namespace: str, name: str, now: datetime) -> DeleteReply:
    """Marks the request of that name. Raises Unavailable, Refused."""
    key = object_key(CAPACITY, namespace, name)
    for _ in range(TIMES):
        entry = await bucket.get(bus, key)
        if entry is None or entry.value is None:
            return DeleteReply(outcome="absent")
        try:
            record = read_record(key, entry.value)
        except Unreadable:
            # Written by another hand.
            message, outcome = bucket.delete_message(key, expected=entry.revision), "deleted"
        else:
            if record.metadata.deletion_timestamp is not None:
                return DeleteReply(outcome="deferred", error=TAKEN_BACK)
            meta = replace(record.metadata, deletion_timestamp=now)
            going = replace(record, metadata=meta)
            message = bucket.put_message(key, encode(going), expected=entry.revision)
            outcome = "deferred"
        try:
            await bus.publish(message)
        except StaleRevision:
            continue
        log.info("request_deleted", namespace=namespace, name=name)
        return DeleteReply(outcome=outcome, error=TAKEN_BACK if outcome == "deferred" else "")
    return DeleteReply(error="it changes all the time: delete again")
