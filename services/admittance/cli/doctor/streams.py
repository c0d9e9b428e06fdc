"""What `admit doctor` says of streams that do not take writes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from admittance.events import subjects
from admittance.events.requests import Families, FamiliesReply, Timers, TimersReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Refused, Unavailable
from admittance.runtime.nats_server.probing import PROBES, SECONDS, refusals

UNACKNOWLEDGED: Final = (
    "the server answers, but it does not acknowledge writes. Look at its log for `no space left on "
    "device`, make space, then restart nats-server: it takes nothing more by itself "
    "(docs/operations.md, A full disk)"
)


class Finding(NamedTuple):
    """One line: of a stream, or of all."""

    fine: bool
    what: str
    sentence: str


async def writes_found(bus: Bus, *, seconds: float = SECONDS) -> list[Finding]:
    """A line for each stream that does not take a probe; one line when all do."""
    refused = await refusals(bus, seconds=seconds)
    if not refused:
        return [Finding(True, "writes", f"all {len(PROBES)} streams take them")]
    return [
        Finding(
            False,
            f"stream {name}",
            f"takes no writes: a probe was not acknowledged in {seconds:g} s; {UNACKNOWLEDGED}"
            if isinstance(error, Unavailable)
            else f"takes no writes: {error}",
        )
        for name, error in refused.items()
    ]


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


_families: Final = msgspec.json.Decoder(FamiliesReply)


class FamiliesFinding(NamedTuple):
    """A sentence, and whether all is well."""

    fine: bool
    sentence: str


async def families_found(bus: Bus) -> FamiliesFinding | None:
    """None: nobody answers, which is said where services are."""
    try:
        data = await bus.request("admit.api.families", msgspec.json.encode(Families()))
    except Unavailable:
        return None
    return found(_families.decode(data))


def found(reply: FamiliesReply) -> FamiliesFinding:
    """What the one that leads says, as a sentence."""
    gates = sum(reply.gates_open.values())
    sentence = (
        f"{reply.families:,} families, {reply.pending:,} things of them not yet as they should be, "
        f"{gates:,} may preempt"
    )
    if reply.stuck:
        sentence += (
            f"; {reply.stuck:,} were asked for again and again without an effect: see its log"
        )
    return FamiliesFinding(not reply.stuck, sentence)
