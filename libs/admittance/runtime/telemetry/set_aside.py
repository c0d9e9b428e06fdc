"""The log line of what cannot be read: once per place and reason, in each process."""

from __future__ import annotations

from typing import Final

import structlog

from admittance.events.reading import SetAside

KNOWN_MAX: Final = 10_000

log = structlog.get_logger()
_told: dict[tuple[str, str], str] = {}


def tell(one: SetAside) -> None:
    """Logs that something is set aside, unless the same was said of that place last."""
    place = one.stream, one.place
    if _told.get(place) == one.reason:
        return
    if len(_told) >= KNOWN_MAX:
        _told.clear()
    _told[place] = one.reason
    log.warning(
        "set_aside",
        stream=one.stream,
        place=one.place,
        sequence=one.sequence,
        reason=one.reason,
    )
