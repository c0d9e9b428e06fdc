"""Checks of `admit doctor`: whether consumers of the log are read and acknowledged."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from admittance.doctor.consumer_progress import STUCK_SECONDS, backlog, idle_seconds, unread_since
from admittance.doctor.finding import NOTE, WRONG, Finding, finding, note
from admittance.events import subjects
from admittance.events.names import BadToken, plain
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import list_consumers
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.process.service import LogConsumers, Service

LAG_MAX: Final = 10_000
"""A service with more unread facts than this does not keep up; this number is about a second of
work.
"""
LAG: Final = "docs/operations.md#the-log-is-not-applied"


async def consumers_of_log(bus: Bus) -> list[dict[str, Any]]:
    """The consumers of the log but those of check controllers and providers, which have lines of
    their own."""
    consumers: list[dict[str, Any]] = []
    with suppress(BusRefused, BusUnavailable):
        consumers = await list_consumers(bus, subjects.STREAM)
    return [
        info
        for info in consumers
        if not (info["config"].get("durable_name") or subjects.CHECK_DURABLE).startswith(
            (subjects.CHECK_DURABLE, subjects.PROVIDER_DURABLE)
        )
    ]


def is_of_absent_runner(info: Mapping[str, Any]) -> bool:
    """Whether the consumer is that of a runner which does not read it."""
    is_runner = str(info["name"]).startswith(subjects.RUNNER_DURABLE)
    return is_runner and not info.get("paused") and unread_since(info) > 0


def runner_of(info: Mapping[str, Any]) -> str:
    """The name of the runner to which a consumer belongs."""
    name = str(info["name"]).removeprefix(subjects.RUNNER_DURABLE)
    try:
        return plain(name)
    except BadToken:
        return name


def delete_command(runner: str) -> str:
    """The command that removes what a runner left that is gone for good."""
    return f"`admit delete runner {shlex.quote(runner)}`"


def consumer_finding(
    info: Mapping[str, Any], services: Iterable[Service], *, jobs_wait: bool = True
) -> Finding:
    """The finding about one consumer of the log, from its info. Times are those of nats-server's
    clock. ``jobs_wait``: whether admitted workloads have no runner; else a runner that is away,
    perhaps for good, is only a note."""
    what = f"consumer {info['name']}"
    unread, text = backlog(info)
    if not jobs_wait and is_of_absent_runner(info):
        away = f"its runner is away for {unread_since(info):.0f} s; no job waits for it"
        remove = delete_command(runner_of(info))
        todo = f"start it on its data folder; if it never comes back, {remove} removes this line"
        return note(what, f"{text}; {away}", f"{todo}: {LAG}")
    service = _reader_of(info, services)
    why, todo = _stuck(info, service) or ("", "")
    if not why and unread > LAG_MAX:
        why, todo = "its reader does not keep up", f"look at its log and at the load: {LAG}"
    # No workload waits for a consumer of another program, or of a service that only observes, so
    # its trouble is only a note.
    state = WRONG if service is not None and not service.only_observes else NOTE
    return finding(not why, what, f"{text}; {why}" if why else text, todo=todo, otherwise=state)


def _reader_of(info: Mapping[str, Any], services: Iterable[Service]) -> Service | None:
    """The service that reads a consumer: the consumer's name begins with its name."""
    readers = (each for each in services if each.consumers is not LogConsumers.NONE)
    return next((each for each in readers if info["name"].startswith(each.name)), None)


def _stuck(info: Mapping[str, Any], service: Service | None) -> tuple[str, str] | None:
    """Why the consumer makes no progress, and what to do; None if the consumer makes progress."""
    name = info["name"]
    if info.get("paused"):
        until = info["config"].get("pause_until", "?")
        return f"paused until {until}", f"`nats consumer resume {subjects.STREAM} {name}`"
    reader = f"the {service.name}" if service is not None else "the program that reads it"
    idle = idle_seconds(info, "delivered")
    if info.get("num_pending", 0) and idle > STUCK_SECONDS:
        unacked, most = info.get("num_ack_pending", 0), info["config"].get("max_ack_pending", 0)
        if 0 < most <= unacked:
            return (
                f"no fact is delivered since {idle:.0f} s, because as many as allowed are not "
                "acknowledged",
                f"restart {reader}, and look at its log: {LAG}",
            )
        if info.get("num_waiting", 0) or info.get("push_bound"):
            return (
                f"no fact is delivered since {idle:.0f} s, although a program asks for facts",
                f"let another server lead it: `nats consumer cluster step-down {subjects.STREAM} "
                f"{name}`, or restart nats-server",
            )
        gone = ""
        if service is not None and service.runs_jobs:
            gone = f"; if it is gone for good, {delete_command(runner_of(info))}"
        return (
            f"no program has read it for {idle:.0f} s",
            f"start {reader}, or restart it if it runs{gone}: {LAG}",
        )
    idle = min(idle, idle_seconds(info, "ack_floor"))
    if info.get("num_ack_pending", 0) and idle > STUCK_SECONDS:
        return (
            f"no fact is acknowledged since {idle:.0f} s",
            f"look at the log of {reader}, and restart it: {LAG}",
        )
    return None
