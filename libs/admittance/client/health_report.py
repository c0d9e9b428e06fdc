"""What `Client.health` returns: what `admit doctor` finds, as typed rows."""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.requests.services import HealthReply


class HealthRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A finding. ``severity``: ok, note or wrong. ``about``: what it concerns: bus, services,
    consumers, checks, queues, timers, machines, leaders, history or values. ``what``: the thing
    that was examined; ``found``: what was seen; ``todo``: what to do about it, "" if nothing.
    ``since``: since when, where that is known."""

    severity: str
    about: str
    what: str
    found: str
    todo: str = ""
    since: datetime | None = None


class ConsumerRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A consumer of the log. ``unread``: how many facts it has not delivered;
    ``unacknowledged``: how many it has delivered only. ``active``: when it last delivered one."""

    name: str
    unread: int
    unacknowledged: int
    active: datetime | None = None


class LeaderRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The leader of a domain. ``epoch``: the sequence of its epoch on the log; ``since``: when the
    epoch began."""

    domain: str
    owner: str
    epoch: int
    since: datetime


class StreamRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A stream. ``size``: in bytes."""

    name: str
    messages: int
    size: int
    replicas: int


class DeadLetterRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message that a service could not process. ``sequence``: of the dead letter on the log;
    ``of``: that of the message, 0 if it is not on the log. ``data``: the first bytes of the
    message; ``is_cut``: there were more."""

    sequence: int
    time: datetime
    service: str
    subject: str
    reason: str
    of: int = 0
    data: bytes = b""
    is_cut: bool = False


class HealthReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of the system. ``healthy``: no row is wrong. ``dead_letters``: the newest, the
    newest first; ``dead_letter_count``: how many the log has, by service."""

    healthy: bool
    rows: tuple[HealthRow, ...]
    instances: tuple[HealthReply, ...]
    consumers: tuple[ConsumerRow, ...]
    leaders: tuple[LeaderRow, ...]
    streams: tuple[StreamRow, ...]
    dead_letters: tuple[DeadLetterRow, ...]
    dead_letter_count: dict[str, int]
