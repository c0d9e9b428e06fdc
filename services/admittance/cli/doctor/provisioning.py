"""What ``admit doctor`` says of capacity: each class, who provides it, and what is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.checks import ProvisioningRequestConfig
from admittance.cli.show.capacity_rows import record_of
from admittance.cli.show.objects import Found
from admittance.cli.support import kinds
from admittance.cli.support.link import Link
from admittance.cli.support.times import age
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.reading import BROKEN
from admittance.events.requests import ProviderQuery
from admittance.provisioning.records import Record, State
from admittance.runtime import clock
from admittance.runtime.bus.durables import provider_durables
from admittance.runtime.errors import Refused, Unavailable

ANSWER_SECONDS: Final = 1.0
UNREAD_MAX: Final = 100
"""Requests not read by then: nobody seems to."""
OPEN: Final = (State.REQUESTED, State.ACCEPTED)


class Standing(NamedTuple):
    """How one class stands. ``fine`` False: worth a look."""

    provisioning_class: str
    fine: bool
    found: str


async def standings(bus: Link) -> list[Standing]:
    """Every class that a ProvisioningRequestConfig names, that was asked for something, or that has
    a durable."""
    try:
        durables = await provider_durables.there(bus.bus)
    except (Refused, Unavailable):
        return []
    configs: dict[str, list[str]] = {}
    for entry in await bus.read_all(kinds.PROVISIONING.patterns(None)[0]):
        try:
            config = msgspec.json.decode(entry.value or b"", type=ProvisioningRequestConfig)
        except BROKEN:
            continue
        named = configs.setdefault(config.spec.provisioning_class_name, [])
        named.append(config.metadata.name)
    records: dict[str, list[Record]] = {}
    for entry in await bus.read_all(kinds.REQUEST.patterns(None)[0]):
        if entry.value is not None:
            record = record_of(Found(entry.key, entry.value, entry.revision))
            if record is not None:
                records.setdefault(record.spec.provisioning_class_name, []).append(record)
    names = sorted(durables.keys() | configs.keys() | records.keys())
    answers = {name: await answers_for(bus, name) for name in names}
    now = clock.now()
    return [
        standing(
            name,
            durables.get(name),
            configs.get(name, ()),
            records.get(name, ()),
            answers[name],
            now,
        )
        for name in names
    ]


async def answers_for(bus: Link, provisioning_class: str) -> bool:
    """Somebody answers questions about requests of that class."""
    question = encode(ProviderQuery(id="is anybody there"))
    try:
        await bus.bus.request(
            f"admit.api.provider.{token(provisioning_class)}", question, ANSWER_SECONDS
        )
    except (Refused, Unavailable):
        return False
    return True


def standing(
    provisioning_class: str,
    durable: Mapping[str, Any] | None,
    configs: Sequence[str],
    records: Sequence[Record],
    answers: bool,
    now: datetime,
) -> Standing:
    """How the class stands, from its durable as the server tells of it, the configurations that
    name it, what was asked of it, and whether anybody answers for it."""
    parts = []
    open_ = [one for one in records if one.status.state in OPEN and not one.status.cancelled]
    fine = True
    if open_:
        oldest = min(one.metadata.creation_timestamp or now for one in open_)
        parts.append(f"{len(open_):,} requests open, the oldest {age(oldest, now)} old")
    else:
        parts.append("no request open")
    unread = 0
    if durable is None:
        parts.append("it has no durable: requests do not reach its provider")
        fine = False
    else:
        unread = durable.get("num_pending", 0)
        waiting = durable.get("num_ack_pending", 0)
        parts.append(f"{unread:,} not read, {waiting:,} not acknowledged")
        fine = unread <= UNREAD_MAX
    if not answers:
        # One that speaks the protocol without answering questions may be there all the same.
        parts.append("nobody answers for it: is there a provider?")
        fine = fine and not open_ and not unread
    if not configs:
        parts.append("no ProvisioningRequestConfig names it any more")
        fine = fine and not records
    return Standing(provisioning_class, fine, "; ".join(parts))
