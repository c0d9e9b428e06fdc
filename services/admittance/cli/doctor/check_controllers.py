"""What `admit doctor` tells of check controllers: who is alive, and who leaves requests lying."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from admittance.api.checks import AdmissionCheck
from admittance.cli.support.link import Link
from admittance.events.reading import BROKEN
from admittance.runtime.bus.durables import check_durables
from admittance.runtime.errors import Refused, Unavailable

UNREAD_MAX = 1_000
"""Requests not read by then: nobody seems to."""


class Standing(NamedTuple):
    """How one controller stands. ``fine`` False: worth a look."""

    controller: str
    fine: bool
    found: str


async def standings(bus: Link) -> list[Standing]:
    """Every controller that an AdmissionCheck names, or that has a durable."""
    try:
        durables = await check_durables.there(bus.bus)
    except (Refused, Unavailable):
        return []
    checks: dict[str, list[AdmissionCheck]] = {}
    for entry in await bus.read_all("admissioncheck.>"):
        try:
            check = msgspec.json.decode(entry.value or b"", type=AdmissionCheck)
        except BROKEN:
            continue
        checks.setdefault(check.spec.controller_name, []).append(check)
    return [
        standing(name, durables.get(name), checks.get(name, ()))
        for name in sorted(durables.keys() | checks.keys())
    ]


def standing(
    controller: str, durable: Mapping[str, Any] | None, checks: Iterable[AdmissionCheck]
) -> Standing:
    """How the controller of that name stands, from its durable as the server tells of it."""
    parts: list[str] = []
    fine = True
    if durable is None:
        parts.append("it has no durable: requests do not reach it")
        fine = False
    else:
        unread = durable.get("num_pending", 0)
        waiting = durable.get("num_ack_pending", 0)
        again = durable.get("num_redelivered", 0)
        parts.append(f"{unread:,} not read, {waiting:,} not acknowledged")
        if again:
            parts.append(f"{again:,} were handed out again: it does not acknowledge in time")
        fine = not again and unread <= UNREAD_MAX
    named = list(checks)
    if not named:
        parts.append("no AdmissionCheck names it")
        fine = False
    for check in named:
        active = next(
            (c for c in (check.status.conditions if check.status else ()) if c.type == "Active"),
            None,
        )
        if active is None:
            parts.append(f"{check.metadata.name}: it sent no heartbeat so far")
        elif active.status == "True":
            told = "" if active.message.startswith("The admission check") else active.message
            parts.append(f"{check.metadata.name}: active" + (f" ({told})" if told else ""))
            fine = fine and not told.startswith("Different programs")
        else:
            parts.append(f"{check.metadata.name}: {active.reason} ({active.message})")
            fine = False
    return Standing(controller, fine, "; ".join(parts))
