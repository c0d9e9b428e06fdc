"""``admit usage``: sums of the quota that workloads held, by queue, namespace, user or flavor."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from admittance.cli.support import output
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call
from admittance.cli.support.times import day_of_text
from admittance.cli.usage.rows import row_of, show_csv, table_of
from admittance.events.reading_requests import Usage, UsageReply, UsageSum
from admittance.runtime import clock
from admittance.usage.report import BY

ASK_SECONDS: Final = 30.0


async def show_usage(
    call: Call,
    shape: str,
    *,
    by: Sequence[str],
    since: str | None,
    until: str | None,
    all_namespaces: bool,
) -> None:
    """Prints one row for each value of the words ``by``, or one row of all. Raises BadInput for an
    unknown word or a wrong time."""
    for word in by:
        if word not in BY:
            raise BadInput(f'--by "{word}" is not one of {", ".join(BY)}')
    now = clock.now()
    request = Usage(
        by=tuple(by), since=_day(since, "--since", now), until=_day(until, "--until", now)
    )
    async with link(call) as bus:
        found = await _ask(bus, request, None if all_namespaces else call.namespace)
    rows = [row_of(by, one) for one in found.sums]
    whole = {"since": found.since, "until": found.until, "rows": rows}
    if shape == "json":
        output.show_json(whole)
        return
    if shape == "yaml":
        output.show_yaml(output.plain_of(whole))
        return
    if shape == "csv":
        show_csv(by, rows)
        return
    where = "all namespaces" if all_namespaces else f"namespace {call.namespace}"
    begins = f"; sums begin in {found.begins}" if found.begins > found.since[:7] else ""
    output.say(f"{found.since} to {found.until} (UTC), {where}{begins}")
    if found.sums:
        output.show_table(table_of(by, found.sums), wide=shape == "wide")
    else:
        output.note("no usage")


async def _ask(bus: Link, request: Usage, namespace: str | None) -> UsageReply:
    sums: list[UsageSum] = []
    while True:
        reply = await bus.ask(
            "usage",
            replace(request, after=len(sums)),
            UsageReply,
            namespace=namespace,
            timeout=ASK_SECONDS,
        )
        if reply.error:
            raise AnswerIsNo(reply.error)
        sums += reply.sums
        if not reply.more or not reply.sums:
            return replace(reply, sums=tuple(sums))


def _day(text: str | None, option: str, now: datetime) -> str:
    return "" if text is None else day_of_text(text, option, now).isoformat()
