"""``admit usage``: sums of the quota that workloads held, with shares and costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from admittance.cli.accounting.shapes import output_option, shape_of
from admittance.cli.commands.arguments import all_namespaces
from admittance.cli.commands.declare import PLACE, command, option
from admittance.cli.support import output as shown
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.cli.support.times import day_of_text
from admittance.client import requests
from admittance.client.errors import BadInput

if TYPE_CHECKING:
    from admittance.api.fields.usage_units import Unit
    from admittance.events.requests.reading import UsageReply
    from admittance.usage.costs import Prices


def _units(_ctx: click.Context, _start: str) -> Sequence[str]:
    from admittance.usage.shares import SHORT

    return SHORT


@command(PLACE, own_output=True)
@option(
    "--by WORD,...",
    "One sum for each: cluster-queue, namespace, queue, user, flavor, day, month, label:KEY.",
)
@option(
    "--since DAY",
    "First day: 2026-11-26, or 7d. Default: the first of the month of the last day.",
)
@option("--until DAY", "Last day, included: 2026-11-26, or 7d. Default: today.")
@option(
    "--unit UNIT",
    "Shares of gpu-hours, cpu-hours, gib-days, ...; with -A also what queues are entitled to.",
    complete=_units,
)
@option("--cost FILE", "Costs by the prices of a YAML file.", kind=Path)
@option("--check", "Compare the sums with the log, and correct those that differ.")
@all_namespaces
@output_option
async def usage(
    call: Call,
    by: str | None,
    since: str | None,
    until: str | None,
    unit: str | None,
    cost: Path | None,
    check: bool,
    all_namespaces: bool,
    output: str | None,
) -> None:
    """Show how much quota workloads held, for how long, and what came of them.

    Days are in UTC and counted whole. Runs, and the time that they waited, count on the day on
    which the run ended; hours count on the days on which the quota was held.
    """
    from admittance.runtime import clock

    shape = shape_of(output, call)
    if check:
        if any(given is not None for given in (by, since, until, unit, cost)):
            raise BadInput("--check compares all sums: leave out the other options")
        if shape == "csv":
            raise BadInput("--check has no CSV")
        async with link(call) as bus:
            checked = await requests.usage.check(bus)
        if not shown.show_value(checked, shape):
            from admittance.cli.accounting.usage_rows import check_lines

            for line in check_lines(checked, clock.now()):
                shown.say(line)
        return
    words = tuple(word.strip() for word in by.split(",")) if by is not None else ()
    requests.usage.check_by(words, "--by")
    chosen = None if unit is None else requests.usage.checked_unit(unit, "--unit")
    prices = None if cost is None else _prices(cost)
    now = clock.now()
    first, last = _day(since, "--since", now), _day(until, "--until", now)
    async with link(call) as bus:
        space = None if all_namespaces else call.namespace
        reply = await requests.usage.usage(
            bus, words, first, last, space, unit=chosen, prices=prices
        )
    where = "all namespaces" if all_namespaces else f"namespace {call.namespace}"
    _show(reply, words, shape, where, chosen, prices)


def _show(
    reply: UsageReply,
    by: Sequence[str],
    shape: str,
    where: str,
    unit: Unit | None,
    prices: Prices | None,
) -> None:
    from admittance.cli.accounting import usage_rows
    from admittance.usage.rows import Asked, csv_of, plain_of

    asked = Asked(tuple(by), unit, prices)
    whole = plain_of(asked, reply)
    rows = whole["rows"]
    if shape == "json":
        shown.show_json(whole)
        return
    if shape == "yaml":
        shown.show_yaml(shown.plain_of(whole))
        return
    if shape == "csv":
        sys.stdout.write(csv_of(asked, rows))
        return
    late = reply.begins > reply.since[: len(reply.begins)]
    begins = f"; sums begin in {reply.begins}" if late else ""
    shown.say(f"{reply.since} to {reply.until} (UTC), {where}{begins}")
    if not reply.sums:
        shown.note("no usage")
        return
    shown.show_table(usage_rows.table_of(asked, reply.sums), wide=shape == "wide")
    for line in usage_rows.remarks(asked, reply.sums):
        shown.note(line)


def _prices(path: Path) -> Prices:
    from admittance.api.fields.problems import ManifestError
    from admittance.api.reading.values import read_values

    try:
        values = read_values(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInput(f"--cost: cannot read {path}: {error.strerror}") from None
    except ManifestError as error:
        raise BadInput(f"--cost {error}") from None
    return requests.usage.checked_prices(values, f"--cost {path}")


def _day(text: str | None, option: str, now: datetime) -> date | None:
    return None if text is None else day_of_text(text, option, now)
