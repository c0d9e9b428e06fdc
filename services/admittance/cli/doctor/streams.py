"""The lines of `admit doctor` about writes to streams, timers and families of variants."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from admittance.events import subjects
from admittance.events.requests import Families, FamiliesReply, Timers, TimersReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import NO_STREAM
from admittance.runtime.errors import Refused, Unavailable
from admittance.runtime.nats_server.probing import PROBES, SECONDS, refusals

UNACKNOWLEDGED: Final = (
    "the server answers, but it does not acknowledge writes. Look at its log for `no space left on "
    "device`, make space, then restart nats-server: it does not recover by itself "
    "(docs/operations.md, A full disk)"
)


class Finding(NamedTuple):
    """One line, about one stream or all."""

    fine: bool
    what: str
    sentence: str


async def writes_found(bus: Bus, *, seconds: float = SECONDS) -> list[Finding]:
    """One line for each stream that refuses a probe write; one line if all take it. Streams that do
    not exist have no line: `streams.check` names them."""
    refused = await refusals(bus, seconds=seconds)
    missing = [name for name in refused if await _is_missing(bus, name)]
    for name in missing:
        del refused[name]
    if not refused and missing:
        return []
    if not refused:
        return [Finding(True, "writes", f"all {len(PROBES)} streams take writes")]
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


async def _is_missing(bus: Bus, name: str) -> bool:
    try:
        await bus.api(f"STREAM.INFO.{name}")
    except Refused as error:
        return error.code == NO_STREAM
    except Unavailable:
        return False
    return False


LATE_MAX: Final = 1_000
"""Timer facts not yet on the log. Thousands fire at once and are copied within a second."""
OLD_SECONDS: Final = 600.0
"""If schedules were not compared for this long, lost ones may stay lost."""

_timers = msgspec.json.Decoder(TimersReply)


async def timers_found(bus: Bus) -> list[tuple[bool, str]]:
    """Sentences, and whether each is fine. Empty if the streams are missing."""
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
        # The line of the service says that it does not answer.
        return lines
    lines.append(_kept(_timers.decode(data)))
    return lines


def _lag(source: dict[str, Any]) -> int:
    return int(source.get("lag", 0)) if source.get("name") == subjects.TIMERS else 0


def _kept(reply: TimersReply) -> tuple[bool, str]:
    age = None if reply.compared is None else (clock.now() - reply.compared).total_seconds()
    compared = "never compared" if age is None else f"compared {age:.0f} s ago"
    sentence = (
        f"{reply.wanted:,} wanted, {reply.pending:,} not set yet, {reply.mended:,} repaired, "
        f"{reply.again:,} set again after they came due, {compared}"
    )
    return age is not None and age <= OLD_SECONDS, sentence


_families: Final = msgspec.json.Decoder(FamiliesReply)


class FamiliesFinding(NamedTuple):
    """A sentence, and whether it is fine."""

    fine: bool
    sentence: str


async def families_found(bus: Bus) -> FamiliesFinding | None:
    """None if the variant-controller does not answer: the line of the service says so."""
    try:
        data = await bus.request("admit.api.families", msgspec.json.encode(Families()))
    except Unavailable:
        return None
    return found(_families.decode(data))


def found(reply: FamiliesReply) -> FamiliesFinding:
    """The answer of the leader as a sentence."""
    gates = sum(reply.gates_open.values())
    sentence = (
        f"{reply.families:,} families, {reply.pending:,} changes pending, "
        f"{gates:,} variants may preempt"
    )
    if reply.stuck:
        sentence += (
            f"; {reply.stuck:,} changes had no effect although requested repeatedly: see its log"
        )
    return FamiliesFinding(not reply.stuck, sentence)
