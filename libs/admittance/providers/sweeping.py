"""What a provider needs that compares, from time to time, what there is with what is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import structlog

from admittance.events.names import token
from admittance.events.subjects import PROVIDERS
from admittance.providers.store import CANCELLED, Said
from admittance.runtime import bucket
from admittance.runtime.bus import Bus

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
                said = msgspec.json.decode(entry.value or b"", type=Said)
            except msgspec.MsgspecError as error:
                # Put there by hand: as good as none.
                log.warning("unreadable", key=entry.key, reason=str(error))
                continue
            found[said.id] = Asked(name, said)
    return found


def is_nobodys(said: Said | None) -> bool:
    """What there is for a request of which the store says so belongs to nobody, unless the request
    is worked on here: for before anything is made it is said that it will be."""
    return said is None or said.status in ("", CANCELLED)
