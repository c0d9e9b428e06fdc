"""What would let a workload start: the remedies of its explanation, with links that try them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from admittance.events.requests.remedies import Remedy, RemedyKind
from admittance.web.paths import whatif_path
from admittance.web.views.words import Link, between, clock_time

QUOTA: Final = frozenset({RemedyKind.FREE_QUOTA, RemedyKind.MORE_QUOTA})
EDITED: Final = frozenset({RemedyKind.STOP_POLICY, RemedyKind.USER_LIMIT})
"""Kinds that a change of the ClusterQueue brings about; which one, the person decides."""
EDITORS: Final = frozenset({"", "admin", "viewer"})
"""The roles that may simulate changes of ClusterQueues; "": the server has no users."""
TRY: Final = "What if?"


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy. ``where``: its flavor or variant; ``soon``: it comes by itself; ``when``: its time,
    or that none is known; ``tries``: the page that tries it, None where no change brings it."""

    id: str
    where: str
    text: str
    when: str = ""
    soon: bool = False
    tries: Link | None = None


def ways(
    remedies: Sequence[Remedy],
    *,
    namespace: str,
    name: str,
    queue: str,
    role: str,
    now: datetime,
) -> tuple[Way, ...]:
    """The remedies of a workload: known times first, then quota, then other changes. ``queue``: its
    ClusterQueue; ``role``: of the signed-in person."""
    ordered = sorted(remedies, key=_place)
    made = (_way(each, namespace, name, queue, role, now) for each in ordered)
    return tuple(_merged(made))


def _place(remedy: Remedy) -> int:
    if remedy.besides:
        return 3
    if remedy.at is not None:
        return 0
    return 1 if remedy.kind in QUOTA else 2


def _way(remedy: Remedy, namespace: str, name: str, queue: str, role: str, now: datetime) -> Way:
    text = remedy.text.removeprefix(f"{remedy.variant}: ") if remedy.variant else remedy.text
    when, soon = "", False
    if remedy.at is not None:
        soon = remedy.at > now
        when = f"in {between(now, remedy.at)}" if soon else f"at {clock_time(remedy.at, now)}"
    elif remedy.kind == RemedyKind.FREE_QUOTA:
        when = "no time known"
    return Way(
        id="",
        where=remedy.flavor or remedy.variant,
        text=f"{text[:1].upper()}{text[1:]}.",
        when=when,
        soon=soon,
        tries=_trial(remedy, namespace, name, queue, role),
    )


def _trial(remedy: Remedy, namespace: str, name: str, queue: str, role: str) -> Link | None:
    """The link that opens the page of changes with this one filled in."""
    if role == "approver":
        return None
    if remedy.kind == RemedyKind.PRIORITY and remedy.priority is not None:
        wanted = str(remedy.priority)
        return Link(TRY, whatif_path(workload=f"{namespace}/{name}", priority=wanted))
    if role not in EDITORS:
        return None
    if remedy.kind in QUOTA and queue:
        return Link(
            TRY,
            whatif_path(
                edit=f"clusterqueue/{remedy.queue or queue}",
                flavor=remedy.flavor,
                resource=remedy.resource,
                more=str(remedy.amount),
            ),
        )
    if remedy.kind in EDITED and remedy.local_queue:
        return Link(TRY, whatif_path(edit=f"localqueue/{namespace}/{remedy.local_queue}"))
    if remedy.kind in EDITED and remedy.queue:
        return Link(TRY, whatif_path(edit=f"clusterqueue/{remedy.queue}"))
    return None


def _merged(made: Iterable[Way]) -> Iterator[Way]:
    """Yields each way once, with its number as id. Ways of several flavors that say and try the
    same are one."""
    one: dict[tuple[str, str], Way] = {}
    for way in made:
        key = (way.text, way.tries.href if way.tries is not None else "")
        known = one.setdefault(key, way)
        if way.where not in known.where.split(", "):
            one[key] = msgspec.structs.replace(known, where=f"{known.where}, {way.where}")
    for number, way in enumerate(one.values(), 1):
        yield msgspec.structs.replace(way, id=str(number))
