"""The table of `admit usage`, and what a check of sums has found."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import filterfalse

from admittance.api.fields.usage_units import is_gpu
from admittance.cli.support.output import NOTHING, Column, Table
from admittance.client.arguments.times import span
from admittance.events.requests.reading import UsageCheck, UsageSum
from admittance.usage.periods import day_of
from admittance.usage.rows import COUNTS, GIB, Asked, gpu_seconds, hours, percent


def table_of(asked: Asked, sums: Sequence[UsageSum]) -> Table:
    """The table of sums, with resources in hours."""
    others = sorted(
        {name for total in sums for name in total.resource_seconds if not is_gpu(name)}
        - {"cpu", "memory"}
    )
    columns = [
        *(Column(word.upper()) for word in asked.by),
        Column("RUNS", right=True),
        *(Column(name.upper(), right=True, spare=True) for name in ("finished", "failed")),
        Column("EVICTED", right=True, spare=True),
        Column("RUNNING", right=True),
        Column("WAITED", right=True, spare=True),
        Column("CPU-HOURS", right=True),
        Column("GPU-HOURS", right=True),
        Column("GIB-HOURS", wide=True, right=True),
        *(Column(f"{name}-HOURS", wide=True, right=True) for name in others),
    ]
    extra = _extra_columns(asked, sums, {column.title for column in columns})
    cells = [[*_cells(total, others), *(read(total) for _, read in extra)] for total in sums]
    return Table([*columns, *(column for column, _ in extra)], cells)


def _extra_columns(
    asked: Asked, sums: Iterable[UsageSum], present: Container[str]
) -> list[tuple[Column, Callable[[UsageSum], str]]]:
    extra: list[tuple[Column, Callable[[UsageSum], str]]] = []
    if asked.unit is not None and (title := asked.unit.name.upper()) not in present:
        extra.append((Column(title, right=True), lambda total: _money(total.used)))
    if asked.unit is not None or asked.prices is not None:
        extra.append((Column("SHARE", right=True), lambda total: percent(total.share)))
    if any(total.entitled is not None for total in sums):
        extra.append((Column("ENTITLED", right=True), lambda total: percent(total.entitled)))
    if asked.prices is not None:
        title = f"COST {asked.prices.currency}".rstrip()
        extra.append((Column(title, right=True), lambda total: _money(total.cost)))
    return extra


def _cells(total: UsageSum, others: Sequence[str]) -> list[str]:
    used = {name: Decimal(text) for name, text in total.resource_seconds.items()}
    return [
        *(word or NOTHING for word in total.group),
        *(f"{getattr(total, name):,}" for name in COUNTS),
        span(total.wait_seconds / total.runs) if total.runs else NOTHING,
        hours(used.get("cpu")),
        hours(gpu_seconds(total)),
        hours(used.get("memory"), GIB),
        *(hours(used.get(name)) for name in others),
    ]


def remarks(asked: Asked, sums: Iterable[UsageSum]) -> list[str]:
    """Sentences about what has no share, and what has no price."""
    resources = sorted({name for total in sums for name in total.resource_seconds})
    lines: list[str] = []
    if asked.unit is not None and not any(map(asked.unit.counts, resources)):
        lines.append(f"nothing held {asked.unit.resource}: there are no shares")
    if asked.prices is not None and (free := [*filterfalse(asked.prices.prices, resources)]):
        lines.append(f"without a price: {', '.join(free)}")
    return lines


def check_lines(checked: UsageCheck, now: datetime) -> list[str]:
    """What a comparison of the sums with the log has found, as lines."""
    if not checked.since:
        return ["the log is empty"]
    lines = [f"corrected: {line}" for line in checked.differences]
    if more := checked.corrected - len(lines):
        lines.append(f"corrected: {more:,} more")
    if checked.ahead:
        days = f"{checked.ahead[0]} to {checked.ahead[-1]}"
        lines.append(f"a clock was ahead: sums of days that have not begun, {days}")
    if checked.since > day_of(now).isoformat():
        return [*lines, f"no day is wholly on the log yet: the first one is {checked.since}"]
    result = f"{checked.corrected:,} differed" if checked.corrected else "none differs"
    sums = f"sums of days and months from {checked.since} on: {result}"
    return [*lines, f"{checked.runs:,} runs on the log; {sums}"]


def _money(text: str) -> str:
    number = Decimal(text or "0")
    return f"{number:,.2f}" if not number or number >= Decimal("0.005") else "<0.01"
