"""Runs a simulation: entries of the bucket and a change in, a reply out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from admittance.events.whatif import Simulate, SimulateReply
from admittance.scheduling.config import Config
from admittance.whatif.cautions import cautions, health
from admittance.whatif.change import Change, InvalidChange, change_of, perform
from admittance.whatif.copy import Copy, Entry
from admittance.whatif.difference import Difference, baseline
from admittance.workload.limits import Limits

PART_BYTES: Final = 500_000
"""Bytes of rows in one message of a reply: the bus takes a mebibyte, with counts and headers."""
_LISTS: Final = ("results", "evictions", "starts", "waits")
T = TypeVar("T")


def simulate(
    entries: Sequence[Entry],
    request: Simulate,
    config: Config,
    *,
    now: datetime,
    namespace: str = "",
    limits: Limits | None = None,
) -> SimulateReply:
    """The reply to the request. ``entries``: the whole bucket at one moment. ``namespace``: the
    requester may change and see only this one; "": all. ``limits`` None: the defaults."""
    try:
        change = change_of(request, namespace)
        return _try(entries, change, config, limits, now, namespace, request.limit)
    except InvalidChange as error:
        return SimulateReply(error=str(error), problems=error.problems)


def _try(
    entries: Sequence[Entry],
    change: Change,
    config: Config,
    limits: Limits | None,
    now: datetime,
    namespace: str,
    limit: int,
) -> SimulateReply:
    copy = Copy(entries, config, now, limits)
    revision = copy.revision
    copy.settle()
    without, before = baseline(copy), health(copy)
    if copy.before:
        # Something would happen even without the change: begin with a fresh copy.
        copy = Copy(entries, config, now, limits)
    copy.begin()
    results = perform(copy, change)
    copy.settle()
    found = Difference(copy, without, namespace=namespace)
    return SimulateReply(
        revision=revision,
        results=tuple(results),
        warnings=tuple(cautions(copy, before)),
        counts=found.counts(),
        starts=_some(found.starts(), limit),
        waits=_some(found.waits(), limit),
        evictions=_some(found.evictions(), limit),
        settled=not copy.cut_off,
    )


def _some(rows: Iterator[T], limit: int) -> tuple[T, ...]:
    return tuple(islice(rows, limit) if limit > 0 else rows)


def in_parts(reply: SimulateReply, size: int = PART_BYTES) -> list[SimulateReply]:
    """The reply split into messages by size, in order; each contains their number."""
    parts: list[dict[str, list[Any]]] = [{}]
    room = size
    for name in _LISTS:
        for row in getattr(reply, name):
            length = len(msgspec.json.encode(row)) + 1
            if length > room and parts[-1]:
                parts.append({})
                room = size
            parts[-1].setdefault(name, []).append(row)
            room -= length
    bare = replace(reply, **dict.fromkeys(_LISTS, ()))
    return [
        replace(
            bare if number == 1 else SimulateReply(),
            part=number,
            parts=len(parts),
            **{name: tuple(rows) for name, rows in part.items()},
        )
        for number, part in enumerate(parts, 1)
    ]


def joined(parts: Sequence[SimulateReply]) -> SimulateReply:
    """The reply joined from its parts, given in any order."""
    ordered = sorted(parts, key=lambda one: one.part)
    lists = {name: tuple(row for part in ordered for row in getattr(part, name)) for name in _LISTS}
    return replace(ordered[0], part=1, parts=1, **lists)
