"""Tables about MachinePools: how many machines there are, and which workloads have booked them.

Bookings are read from the providers' bucket, so they are shown also while the provider is not
running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.fields.units import render
from admittance.cli.support import output
from admittance.cli.support.output import NOTHING, UNKNOWN, Column, Table, columns_of, pairs
from admittance.client import kinds
from admittance.client.arguments.times import span, stamp
from admittance.client.errors import RequestFailed
from admittance.client.kinds import ObjectKind
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, field
from admittance.events.reader import BROKEN
from admittance.events.subjects import PROVIDERS
from admittance.provisioning.machine_pool import (
    KIND,
    BadPool,
    Pool,
    pattern_of,
    pool_of,
    pool_of_key,
)
from admittance.provisioning.pool_bookings import (
    Booking,
    MachineCounts,
    machine_counts,
    machine_counts_by_kind,
)

MACHINES_MAX: Final = 8
"""The greatest number of machines of one booking that are listed by name."""


class PoolUsage(NamedTuple):
    """How much of a MachinePool is booked. ``counts``: the numbers of all, booked and booting
    machines in the whole pool; None if the pool's manifest is invalid. ``kinds``: the same numbers
    by kind of machine.
    """

    counts: MachineCounts | None
    kinds: Mapping[str, MachineCounts]
    bookings: Sequence[Booking]


@dataclass(frozen=True)
class BookedPool(BucketObject):
    """A MachinePool with the bookings that were read."""

    pool_usage: PoolUsage | None = None


def _usage(stored: BucketObject) -> PoolUsage | None:
    """What is booked of a MachinePool; None if its bookings were not read."""
    return stored.pool_usage if isinstance(stored, BookedPool) else None


async def with_bookings(
    bus: Link, kind: ObjectKind, stored: Sequence[BucketObject], now: datetime
) -> list[BucketObject]:
    """Adds bookings to MachinePools; returns objects of other kinds unchanged.

    If the bookings cannot be read, prints a warning and returns the pools without bookings.
    """
    if kind is not kinds.MACHINE_POOL or not stored:
        return list(stored)
    pattern = pattern_of(stored[0].name if len(stored) == 1 else None)
    booked: dict[str, list[Booking]] = {}
    try:
        entries = await bus.read_all(pattern, bucket=PROVIDERS)
    except RequestFailed as error:
        output.warn(f"bookings are unknown: {error}")
        return list(stored)
    for entry in entries:
        with suppress(*BROKEN):  # A booking of another program or version is left out.
            booking = msgspec.json.decode(entry.value or b"", type=Booking)
            pool = pool_of_key(entry.key)
            if pool is not None:
                booked.setdefault(pool, []).append(booking)
    return [with_usage(pool, booked.get(pool.name, ()), now) for pool in stored]


def with_usage(stored: BucketObject, bookings: Sequence[Booking], now: datetime) -> BucketObject:
    """The MachinePool with its usage, computed from its bookings."""
    ordered = sorted(bookings, key=lambda booking: (booking.namespace, booking.name, booking.id))
    try:
        pool = _pool(stored)
    except BadPool:
        usage = PoolUsage(None, {}, () if stored.namespace else ordered)
    else:
        counted = machine_counts(pool, bookings, now), machine_counts_by_kind(pool, bookings, now)
        usage = PoolUsage(*counted, ordered)
    return BookedPool(stored.key, stored.data, stored.revision, usage)


def wrong(stored: BucketObject) -> str:
    """What is wrong with the manifest of the pool; "" if it is valid."""
    try:
        _pool(stored)
    except BadPool as error:
        return str(error).removeprefix(f"{KIND} {stored.name}: ")
    return ""


def _pool(stored: BucketObject) -> Pool:
    if stored.namespace:
        # The bookings belong to the pool of the same name without a namespace.
        raise BadPool(f"metadata.namespace: a {KIND} has no namespace; remove {stored.namespace}")
    try:
        return pool_of(stored.name, stored.plain().get("spec"))
    except RequestFailed as error:
        raise BadPool(str(error)) from None


def row(stored: BucketObject) -> tuple[str, ...]:
    """The row of a MachinePool in a table."""
    plain = stored.plain()
    written = field(plain, "spec", "machines")
    machines = [
        machines
        for machines in (written if isinstance(written, list) else ())
        if isinstance(machines, Mapping)
    ]
    kept, usage = field(plain, "spec", "bookingSeconds"), _usage(stored)
    return (
        stored.name,
        str(field(plain, "spec", "provisioningClassName", default=NOTHING)),
        *_counts(usage.counts if usage is not None else None, _total(machines)),
        wrong(stored)
        or ",".join(f"{machine.get('name', '?')}={machine.get('count', 1)}" for machine in machines)
        or NOTHING,
        f"{kept} s" if kept else "until freed",
    )


def _total(machines: Sequence[Mapping[str, Any]]) -> str:
    """The number of machines that the pool's manifest states."""
    counts = [machine.get("count", 1) for machine in machines]
    return str(sum(count for count in counts if isinstance(count, int)))


def _counts(counted: MachineCounts | None, total: str = UNKNOWN) -> tuple[str, str, str, str]:
    """The cells machines, booked, free and booting."""
    if counted is None:
        return total, UNKNOWN, UNKNOWN, UNKNOWN
    return str(counted.machines), str(counted.booked), str(counted.free), str(counted.booting)


def shown(stored: BucketObject) -> dict[str, Any]:
    """The object for JSON and YAML, with its usage in ``status``."""
    value, usage = stored.plain(), _usage(stored)
    if usage is None:
        return value
    status = value["status"] = dict(field(value, "status", default={}))
    if usage.counts is None:
        status["wrong"] = wrong(stored)
        return value
    status |= {
        "machines": usage.counts.machines,
        "booked": usage.counts.booked,
        "free": usage.counts.free,
        "booting": usage.counts.booting,
        "bookings": output.plain_of(usage.bookings),
    }
    return value


def kind_table(stored: BucketObject) -> Table:
    """The table of a pool's kinds of machines."""
    try:
        machines = _pool(stored).machines
    except BadPool:
        machines = ()  # `row` and `describe` print what is wrong with the manifest.
    usage = _usage(stored)
    counted = usage.kinds if usage is not None else {}
    rows = [
        (
            machine.name,
            *_counts(counted.get(machine.name)),
            pairs({name: render(name, much) for name, much in machine.resources.items()})
            or NOTHING,
            pairs(machine.labels) or NOTHING,
        )
        for machine in machines
    ]
    return Table((Column("KIND"), *COUNTED, Column("EACH HAS"), Column("LABELS")), rows)


def booking_table(stored: BucketObject, now: datetime) -> Table:
    """The table of a pool's bookings."""
    columns = columns_of(
        "NAMESPACE", "WORKLOAD", "#MACHINES", "WHICH", "HOLDS", "THERE", "KEPT UNTIL", "REQUEST"
    )
    usage = _usage(stored)
    bookings = usage.bookings if usage is not None else ()
    return Table(columns, [_booking(booking, now) for booking in bookings])


def _booking(booking: Booking, now: datetime) -> tuple[str, ...]:
    amounts: dict[str, int] = {}
    for held in booking.held:
        for name, much in held.amounts.items():
            amounts[name] = amounts.get(name, 0) + much
    names = [f"{held.kind}-{held.number}" for held in booking.held]
    more = f" and {len(names) - MACHINES_MAX} more" if len(names) > MACHINES_MAX else ""
    left = (booking.ready_at - now).total_seconds()
    return (
        booking.namespace or UNKNOWN,
        booking.name or UNKNOWN,
        str(len(names)),
        ",".join(names[:MACHINES_MAX]) + more,
        pairs({name: render(name, much) for name, much in amounts.items()}) or NOTHING,
        f"in {span(left)}" if left > 0 else "yes",
        stamp(booking.expires_at) if booking.expires_at is not None else NOTHING,
        booking.id,
    )


COUNTED: Final = tuple(
    Column(title, right=True) for title in ("MACHINES", "BOOKED", "FREE", "BOOTING")
)
COLUMNS: Final = (Column("NAME"), Column("CLASS"), *COUNTED, Column("KINDS"), Column("KEPT"))
