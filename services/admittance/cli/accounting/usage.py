"""``admit usage``: sums of the quota that workloads held, by queue, namespace, user or flavor."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING

from admittance.cli.accounting.shapes import output_option, shape_of
from admittance.cli.commands.arguments import all_namespaces
from admittance.cli.commands.declare import PLACE, command, option
from admittance.cli.support import output as shown
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.cli.support.times import day_of_text
from admittance.client import requests

if TYPE_CHECKING:
    from admittance.events.requests.reading import UsageReply


@command(PLACE, own_output=True)
@option("--by WORD,...", "One sum for each: cluster-queue, namespace, queue, user, flavor.")
@option(
    "--since DAY",
    "First day: 2026-11-26, or 7d. Default: the first of the month of the last day.",
)
@option("--until DAY", "Last day, included: 2026-11-26, or 7d. Default: today.")
@all_namespaces
@output_option
async def usage(
    call: Call,
    by: str | None,
    since: str | None,
    until: str | None,
    all_namespaces: bool,
    output: str | None,
) -> None:
    """Show how much quota workloads held, for how long, and what came of them.

    Days are in UTC and counted whole. Runs, and the time that they waited, count on the day on
    which the run ended; hours count on the days on which the quota was held.
    """
    from admittance.runtime import clock

    shape = shape_of(output, call)
    words = tuple(word.strip() for word in by.split(",")) if by is not None else ()
    requests.questions.check_by(words, "--by")
    now = clock.now()
    first, last = _day(since, "--since", now), _day(until, "--until", now)
    async with link(call) as bus:
        space = None if all_namespaces else call.namespace
        reply = await requests.questions.usage(bus, words, first, last, space)
    where = "all namespaces" if all_namespaces else f"namespace {call.namespace}"
    _show(reply, words, shape, where)


def _show(reply: UsageReply, by: Sequence[str], shape: str, where: str) -> None:
    from admittance.cli.accounting.usage_rows import row_of, show_csv, table_of

    rows = [row_of(by, total) for total in reply.sums]
    whole = {"since": reply.since, "until": reply.until, "rows": rows}
    if shape == "json":
        shown.show_json(whole)
        return
    if shape == "yaml":
        shown.show_yaml(shown.plain_of(whole))
        return
    if shape == "csv":
        show_csv(by, rows)
        return
    begins = f"; sums begin in {reply.begins}" if reply.begins > reply.since[:7] else ""
    shown.say(f"{reply.since} to {reply.until} (UTC), {where}{begins}")
    if reply.sums:
        shown.show_table(table_of(by, reply.sums), wide=shape == "wide")
    else:
        shown.note("no usage")


def _day(text: str | None, option: str, now: datetime) -> date | None:
    return None if text is None else day_of_text(text, option, now)
