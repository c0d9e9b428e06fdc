"""``admit usage``: sums of the quota that workloads held, by queue, namespace, user or flavor."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.cli.support.times import day_of_text
from admittance.cli.usage.rows import row_of, show_csv, table_of
from admittance.client.requests import questions
from admittance.runtime import clock


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
    questions.check_by(by, "--by")
    now = clock.now()
    first, last = _day(since, "--since", now), _day(until, "--until", now)
    async with link(call) as bus:
        space = None if all_namespaces else call.namespace
        found = await questions.usage(bus, by, first, last, space)
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


def _day(text: str | None, option: str, now: datetime) -> date | None:
    return None if text is None else day_of_text(text, option, now)
