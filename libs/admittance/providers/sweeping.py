"""What a provider needs that compares, from time to time, what there is with what is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import structlog

from admittance.events.names import token
from admittance.events.reading import SetAside, Unreadable
from admittance.events.subjects import PROVIDERS
from admittance.providers.store import CANCELLED, Said, read_said
from admittance.runtime import bucket
from admittance.runtime.bus import Bus
from admittance.runtime.set_aside import tell

log = structlog.get_logger()


class Asked(NamedTuple):
    """What was said last of a request, and the class that it is of."""

    provisioning_class: str
    said: Said


async def all_asked(bus: Bus, classes: Iterable[str]) -> dict[str, Asked]:
    """Of every request of these classes, by its id: what the store has, in one reading of each."""
    found: dict[str, Asked] = {}
    for name in classes:
        entries = await bucket.read_all(bus, f"{token(name)}.*", bucket=PROVIDERS)
        for entry in entries:
            try:
                said = read_said(entry.value)
            except Unreadable as error:
                # Put there by another hand: as good as none.
                tell(SetAside(f"KV_{PROVIDERS}", entry.key, entry.revision, str(error)))
                continue
            found[said.id] = Asked(name, said)
    return found


def is_nobodys(said: Said | None) -> bool:
    """What there is for a request of which the store says so belongs to nobody, unless the request
    is worked on here: for before anything is made it is said that it will be."""
    return said is None or said.status in ("", CANCELLED)
