"""Checks of `admit doctor`: schedules of the retry-timer, families of variants, and arrays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.doctor.finding import Finding, finding
from admittance.events import subjects
from admittance.events.requests.services import (
    Arrays,
    ArraysReply,
    Families,
    FamiliesReply,
    Timers,
    TimersReply,
)
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable

LATE_MAX: Final = 1_000
"""With more due timers than this missing on the log, the server does not keep up. Thousands of
timers may fire at once, and the server copies them within a second.
"""
OLD_SECONDS: Final = 600.0
"""If the retry-timer has not compared schedules for this long, lost schedules may stay lost."""
AGAIN_SECONDS: Final = 1.0
"""Missing schedules are counted again after this time, because a schedule that has just come due is
no longer on the stream, while the retry-timer still counts it for a moment.
"""
MISSING_TODO: Final = (
    "the retry-timer sets them again when it compares schedules, within ADMIT_COMPARE_SECONDS "
    "(60); restart it if they are missing after that"
)
LATE_TODO: Final = (
    "look whether nats-server has too much to do, and at the clock of its machine: "
    "docs/operations.md#the-clock-is-off"
)


async def timers_found(link: Link) -> list[Finding]:
    """Findings about the schedules of the retry-timer. No findings if the streams are missing."""
    try:
        standing, late = await _standing(link.bus)
    except (BusRefused, BusUnavailable):
        return []
    text = f"schedules: {standing:,}; due and not yet on the log: {late:,}"
    lines = [finding(late <= LATE_MAX, "timers", text, todo=LATE_TODO)]
    # If the retry-timer does not answer, the line about that service reports it.
    with suppress(BusRefused, BusUnavailable, RequestFailed):
        reply = await link.ask("timers", Timers(), TimersReply)
        if missing_schedules(reply, standing):
            await asyncio.sleep(AGAIN_SECONDS)
            standing, _ = await _standing(link.bus)
            reply = await link.ask("timers", Timers(), TimersReply)
        lines.append(schedules_finding(reply, standing))
    return lines


async def _standing(bus: Bus) -> tuple[int, int]:
    """How many schedules are on the stream, and how many came due and are not on the log yet."""
    schedules = await bus.api(
        f"STREAM.INFO.{subjects.TIMERS}", {"subjects_filter": f"{subjects.TIMER_AT}>"}
    )
    copied = await bus.api(f"STREAM.INFO.{subjects.STREAM}")
    return len(schedules["state"].get("subjects") or {}), sum(
        map(_lag, copied.get("sources") or [])
    )


def _lag(source: Mapping[str, Any]) -> int:
    return int(source.get("lag", 0)) if source.get("name") == subjects.TIMERS else 0


def missing_schedules(reply: TimersReply, standing: int) -> int:
    """How many schedules that the retry-timer has set are not on the stream."""
    return max(0, reply.wanted - reply.pending - standing)


def schedules_finding(reply: TimersReply, standing: int) -> Finding:
    """The answer of the retry-timer as a finding. ``standing``: the schedules on the stream."""
    seconds = None if reply.compared is None else (clock.now() - reply.compared).total_seconds()
    compared = "never compared" if seconds is None else f"compared {seconds:.0f} s ago"
    text = (
        f"{reply.wanted:,} wanted, {reply.pending:,} not set yet, {reply.mended:,} repaired, "
        f"{reply.again:,} set again after they came due, {compared}"
    )
    if missing := missing_schedules(reply, standing):
        return finding(False, "timers", f"{text}; {missing:,} missing", todo=MISSING_TODO)
    todo = "restart the retry-timer, and look at its log"
    return finding(seconds is not None and seconds <= OLD_SECONDS, "timers", text, todo=todo)


async def families_found(link: Link) -> list[Finding]:
    """The finding about families of variants. No finding if the variant-controller does not answer:
    the line about that service reports it.
    """
    try:
        return [families_finding(await link.ask("families", Families(), FamiliesReply))]
    except RequestFailed:
        return []


def families_finding(reply: FamiliesReply) -> Finding:
    """The answer of the variant-controller as a finding."""
    gates = sum(reply.gates_open.values())
    text = (
        f"{reply.families:,} families, {reply.pending:,} changes pending, "
        f"{gates:,} variants may preempt"
    )
    if reply.stuck:
        text += f"; {reply.stuck:,} changes had no effect although requested repeatedly"
    todo = "look for `without_effect` in the log of the variant-controller"
    return finding(not reply.stuck, "families", text, todo=todo)


async def arrays_found(link: Link) -> list[Finding]:
    """The finding about arrays. No finding if the array-controller does not answer: the line about
    that service reports it.
    """
    try:
        return [arrays_finding(await link.ask("arrays", Arrays(), ArraysReply))]
    except RequestFailed:
        return []


def arrays_finding(reply: ArraysReply) -> Finding:
    """The answer of the array-controller as a finding."""
    text = (
        f"{reply.arrays:,} arrays, {reply.unfinished:,} elements without a result, "
        f"{reply.pending:,} changes pending"
    )
    if reply.stuck:
        text += f"; {reply.stuck:,} changes had no effect although requested repeatedly"
    todo = "look for `without_effect` in the log of the array-controller"
    return finding(not reply.stuck, "arrays", text, todo=todo)
