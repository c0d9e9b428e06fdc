"""Logs unreadable entries: once per place and reason in each process."""

from __future__ import annotations

from typing import Final

import structlog

from admittance.events.reading import SetAside

KNOWN_MAX: Final = 10_000

log = structlog.get_logger()
_told: dict[tuple[str, str], str] = {}


def log_set_aside(one: SetAside) -> None:
    """Logs an entry that is set aside, unless its place was last logged with the same reason."""
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
