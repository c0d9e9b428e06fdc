"""Echoes of barriers: keys of the bucket that tell a new leader of a domain that everything before
its barrier is committed. See `admittance.lease`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from admittance.events.names import token
from admittance.events.reader import Reader, Unreadable
from admittance.events.system import BarrierEcho
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, StaleRevision
from admittance.runtime.leader import lease_store

READS: Final = 200
"""The most keys that are read at once."""

_encode: Final = msgspec.json.Encoder().encode
_echo: Final = Reader(BarrierEcho)


def echo_key(domain: str) -> str:
    """The key of the bucket for the echoes of the domain's barriers."""
    return f"barrier.{token(domain)}"


def read_echo(key: str, value: bytes) -> BarrierEcho:
    """Returns the echo of a barrier that is stored at the key of the bucket. Raises Unreadable for
    an invalid value."""
    echo = _echo(value)
    if not echo.domain or key != echo_key(echo.domain):
        raise Unreadable(f"the key is not that of the barrier of domain {echo.domain}")
    return echo


async def write_echoes(bus: Bus, echoes: Iterable[tuple[str, int]]) -> None:
    """Writes the echoes, each a domain and the epoch of its barrier, to the bucket.

    A key never goes back to an earlier epoch, not even when a former leader of the
    workload-controller writes late: the new leader of the domain would read the earlier epoch only,
    and would wait for the echo of its own barrier forever. Raises BusUnavailable or BusRefused.
    """
    wanted = dict(sorted(echoes, key=lambda echo: echo[1]))
    while wanted:
        part = list(wanted.items())[:READS]
        present = await asyncio.gather(*(bucket.get(bus, echo_key(domain)) for domain, _ in part))
        due = []
        for (domain, epoch), entry in zip(part, present, strict=True):
            if epoch > await _epoch_at(bus, entry):
                due.append((domain, epoch, entry.revision if entry is not None else 0))
            else:
                del wanted[domain]
        puts = [
            bucket.put_message(
                echo_key(domain),
                _encode(BarrierEcho(domain=domain, epoch=epoch)),
                expected=revision,
            )
            for domain, epoch, revision in due
        ]
        outcomes = await bus.publish_all(puts, repeat_puts=True)
        for (domain, _, _), outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, StaleRevision):
                # Another process has written the key meanwhile, or an earlier copy of this message
                # was stored, so the key is read again.
                continue
            if isinstance(outcome, BusRefused):
                raise outcome
            del wanted[domain]


async def _epoch_at(bus: Bus, entry: Entry | None) -> int:
    """The epoch with a stored echo; 0 if there is none, or only that of a log that was
    deleted."""
    if entry is None or entry.value is None:
        return 0
    try:
        epoch = read_echo(entry.key, entry.value).epoch
    except Unreadable:
        return 0
    return epoch if epoch <= await lease_store.end_of_log(bus) else 0
