"""What ``admit doctor`` says of time: the schedules, who keeps them, and their way to the log."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from admittance.events import subjects
from admittance.events.requests import Timers, TimersReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Refused, Unavailable

LATE_MAX: Final = 1_000
"""Facts of timers that the log has not taken yet: they fire in crowds of thousands, and are copied
within a second."""
OLD_SECONDS: Final = 600.0
"""Without a comparison for so long, what was lost may stay lost."""

_timers = msgspec.json.Decoder(TimersReply)


async def timers_found(bus: Bus) -> list[tuple[bool, str]]:
    """Sentences, and whether all is well; none where the streams are missing, which others say."""
    lines: list[tuple[bool, str]] = []
    try:
        found = await bus.api(
            f"STREAM.INFO.{subjects.TIMERS}", {"subjects_filter": f"{subjects.TIMER_AT}>"}
        )
        copied = await bus.api(f"STREAM.INFO.{subjects.STREAM}")
    except (Refused, Unavailable):
        return []
    standing = len(found["state"].get("subjects") or {})
    late = sum(_lag(source) for source in copied.get("sources") or [])
    lines.append(
        (late <= LATE_MAX, f"schedules: {standing:,}; due and not yet on the log: {late:,}")
    )
    try:
        data = await bus.request("admit.api.timers", msgspec.json.encode(Timers()))
    except Unavailable:
        # That nobody answers is said where services are.
        return lines
    lines.append(_kept(_timers.decode(data)))
    return lines


def _lag(source: dict[str, Any]) -> int:
    return int(source.get("lag", 0)) if source.get("name") == subjects.TIMERS else 0


def _kept(reply: TimersReply) -> tuple[bool, str]:
    age = None if reply.compared is None else (clock.now() - reply.compared).total_seconds()
    compared = "never compared" if age is None else f"compared {age:.0f} s ago"
    sentence = (
        f"{reply.wanted:,} times are waited for, {reply.pending:,} schedules not yet so, "
        f"{reply.mended:,} mended, {reply.again:,} set anew after they came due, {compared}"
    )
    return age is not None and age <= OLD_SECONDS, sentence
