"""The report of `Client.health`: the findings of an examination, and what they were made from, as
typed rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from admittance.client.health_report import ConsumerRow, HealthReport, HealthRow, StreamRow
from admittance.client.requests.link import Link
from admittance.doctor.consumer_progress import active_at
from admittance.doctor.examination import Examined, Options, examine, refuse_without_rights
from admittance.doctor.finding import WRONG, Finding
from admittance.doctor.history import dead_letter_counts, leaders, newest_dead_letters
from admittance.doctor.streams import answered
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.process.service import Service

DEAD_LETTERS_MAX: Final = 50
"""The most dead letters of a report."""


async def report(link: Link, services: Mapping[str, Service], *, thorough: bool) -> HealthReport:
    """The report about the installation of the link. ``thorough``: every stored value is read, and
    a message is written to each stream. Raises NotAllowed."""
    await refuse_without_rights(link)
    connected = link.bus.nc.connected_url
    url = "" if connected is None else connected.geturl()
    seen = await examine(link, Options(url, thorough=thorough), services)
    counts, letters, led = {}, [], []
    with suppress(BusRefused, BusUnavailable):  # Findings report it.
        counts = await dead_letter_counts(link.bus)
        letters = await newest_dead_letters(link.bus, counts, DEAD_LETTERS_MAX)
        led = await leaders(link.bus)
    return HealthReport(
        healthy=all(finding.state != WRONG for finding in seen.findings),
        rows=rows_of(seen.parts),
        instances=tuple(sorted(seen.replies, key=lambda each: (each.service, each.instance))),
        consumers=tuple(consumer_row(info) for info in seen.consumers),
        leaders=tuple(led),
        streams=tuple(_stream_rows(seen)),
        dead_letters=tuple(letters),
        dead_letter_count=counts,
    )


def rows_of(parts: Sequence[tuple[str, Sequence[Finding]]]) -> tuple[HealthRow, ...]:
    """The findings as rows, in their order."""
    return tuple(
        HealthRow(
            severity=finding.state,
            about=about,
            what=finding.what,
            found=finding.found,
            todo=finding.todo,
            since=finding.since,
        )
        for about, findings in parts
        for finding in findings
    )


def consumer_row(info: Mapping[str, Any]) -> ConsumerRow:
    """The row of a consumer of the log, from its info."""
    return ConsumerRow(
        name=info["name"],
        unread=info.get("num_pending", 0),
        unacknowledged=info.get("num_ack_pending", 0),
        active=active_at(info, "delivered"),
    )


def _stream_rows(seen: Examined) -> list[StreamRow]:
    return [
        StreamRow(
            name=name,
            messages=info["state"]["messages"],
            size=info["state"]["bytes"],
            replicas=info["config"].get("num_replicas", 1),
        )
        for name, info in answered(seen.infos).items()
    ]
